/* Progress on a terminal: one line of stderr, which the next one overwrites. Elsewhere nothing is printed. */
#pragma once

#include "kernels/base/text.h"

typedef struct ProgressLine {
    bool tty, begun;
    int64_t shown_ns; /* the last time */
} ProgressLine;

ProgressLine progress_line(void);
/* Whether the line is old enough to be printed anew, at whose beginning the cursor is then. False elsewhere. */
bool progress_line_due(ProgressLine *line);
/* After it was printed. */
void progress_line_close(void);
/* Takes the line away. */
void progress_line_end(const ProgressLine *line);
/* What stays, in place of the line. */
void progress_line_message(const ProgressLine *line, const char *text);

/* "WHAT3 of 7 UNITS", until all are done. */
void progress_count_show(const char *what, const char *units, int64_t done, int64_t all);
