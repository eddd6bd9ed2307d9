/* Which rows of a large metrics.jsonl are kept: of each phase evenly spaced ones, besides the last of all, and the first
 * that are unusual: refused, or not finite. */
#pragma once

#include "towers/record/run_lines.h"

typedef struct Thinning {
    int64_t stride; /* of each phase, the first of so many rows is kept */
    uint64_t whole; /* rows that end behind so many bytes are kept, too */
    int64_t unusual;
    struct {
        char name[16];
        int64_t rows;
    } phase[RUN_PHASES];
} Thinning;

/* Whether the row that was read last is kept. `limit`: about how many bytes are; 0: all. Called for each row. */
bool row_is_kept(Thinning *thin, const RunLines *lines, int64_t limit);
