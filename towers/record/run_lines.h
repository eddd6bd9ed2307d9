/* What the readers of a run's files share: lines, of which a failure names file and number, and JSON in them (read by
 * jansson; duplicate keys are refused). */
#pragma once

#include <jansson.h>

#include "kernels/base/absent.h"
#include "towers/files/files.h"

enum { RUN_PHASES = 8 }; /* of a run that are distinguished, at most */
enum { LINE_MOST = 64 << 20 /* bytes: rows of 4,096 towers have 1 MiB */ };

typedef struct RunLines {
    FILE *file;
    const char *path; /* borrowed */
    char *line;       /* owned */
    size_t room;
    int64_t number;
    uint64_t bytes, at; /* of the file when it was opened; of the lines up to this one */
    bool cut;           /* the last line had no end */
    bool ending;        /* the first line is not that of the file */
    Status trouble;     /* why lines_next gave none: OK at the end */
} RunLines;

/* *open is false if there is no such file. */
NODISCARD Status lines_open(const char *path, RunLines *lines, bool *open);
void lines_close(RunLines *lines);
/* Goes to the first line that begins in the last `bytes` of a larger file. */
NODISCARD Status lines_skip(RunLines *lines, uint64_t bytes);
/* The next whole line without its newline, or NULL at the end, or in `trouble`: ERR_IO, ERR_MEMORY, ERR_FORMAT (a line of more than
 * LINE_MOST bytes, such as a hole in a file). */
char *lines_next(RunLines *lines);

#define LINE_FAIL(lines, format, ...)                                                                                  \
    FAIL(ERR_FORMAT, "'%s' line %" PRId64 "%s: " format, (lines)->path, (lines)->number,                               \
         (lines)->ending ? " of its ending" : "", ##__VA_ARGS__)
NODISCARD Status line_object(const RunLines *lines, const char *text, json_t **made);

/* False: `field` is something else, or NULL; the value is then ABSENT, or 0. null is NaN. */
bool read_real(const json_t *field, Number *value);
bool read_count(const json_t *field, int64_t *value);
#define KIND_REAL "a number or null"
#define KIND_COUNT "a whole number from 0"
#define KIND_WORD "a word"

/* The number of a name in a list, which grows if it is new. */
NODISCARD Status name_find(char ***names, int *count, const char *name, int *found);
