/* Progress on a terminal: one line of stderr, which the next one overwrites. Elsewhere nothing is printed. */
#pragma once

#include "kernels/base/text.h"

typedef struct ProgressLine {
    bool tty, begun;
    int64_t shown_ns; /* the last time */
} ProgressLine;

ProgressLine progress_line(void);
/* Whether the line is old enough to be printed anew: then the cursor is at its beginning, and the caller prints it. False elsewhere. */
bool progress_line_due(ProgressLine *line);
/* Shows what the caller has printed, without what is left of a longer line. */
void progress_line_flush(void);
/* Takes the line away, if there is one. */
void progress_line_end(const ProgressLine *line);
/* What stays, in place of the line. */
void progress_line_message(const ProgressLine *line, const char *text);

/* "WHAT3 of 7 UNITS", until all are done. */
void progress_count_show(const char *what, const char *units, int64_t done, int64_t all);
