/* Files of lines in a run directory, one line a record, to which a resumed or returned run appends again: what comes again is
 * removed first. */
#pragma once

#include "kernels/base/status.h"

/* The step of a line without its newline, or -1 if it is not a whole record. */
typedef int64_t LineStep(const char *line, size_t count);
/* The number before a comma, or -1. */
int64_t line_number(const char *text, size_t count);

/* Remove all behind the last whole line of a step up to `step`. A missing file is fine. Errors: ERR_IO. */
NODISCARD Status lines_cut(const char *path, int64_t step, LineStep *step_of);
/* A new run in an old directory: the old file gets the next free number, and *moved is set if there was one. */
NODISCARD Status lines_set_aside(const char *path, bool *moved);
