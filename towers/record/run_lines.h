/* What the readers of a run's files share: lines, of which a failure names file and number, and JSON in them (read by
 * jansson; duplicate keys are refused). */
#pragma once

#include <jansson.h>

#include "towers/files/files.h"

enum { RUN_PHASES = 8 }; /* of a run that are distinguished, at most */

typedef struct RunLines {
    FILE *file;
    const char *path; /* borrowed */
    char *line;       /* owned */
    size_t room;
    int64_t number;
    uint64_t bytes, at; /* of the file when it was opened; of the lines up to this one */
    bool cut;           /* the last line had no end */
} RunLines;

/* *open is false if there is no such file. */
NODISCARD Status lines_open(const char *path, RunLines *lines, bool *open);
void lines_close(RunLines *lines);
/* The next whole line without its newline, or NULL at the end. */
char *lines_next(RunLines *lines);

#define LINE_FAIL(lines, format, ...)                                                                                  \
    FAIL(ERR_FORMAT, "'%s' line %" PRId64 ": " format, (lines)->path, (lines)->number, ##__VA_ARGS__)
NODISCARD Status line_object(const RunLines *lines, const char *text, json_t **made);

/* False: `field` is something else, or NULL; the value is then NaN, or 0. */
bool read_real(const json_t *field, double *value);
bool read_count(const json_t *field, int64_t *value);
#define KIND_REAL "a number or null"
#define KIND_COUNT "a whole number from 0"
#define KIND_WORD "a word"

/* The number of a name in a list, which grows if it is new. */
NODISCARD Status name_find(char ***names, int *count, const char *name, int *found);
