/* Report: one page that tells a run. RUN/report.html holds everything it shows (plots are SVG, styles are inside,
 * nothing is fetched: its own content policy forbids it), in light and dark, on screen and on paper. It is made from
 * the records of the run alone, so it can be made again at any time, also of a run that is still going on. */
#ifndef TOWERS_INCEPTION_REPORT_REPORT_H
#define TOWERS_INCEPTION_REPORT_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "kernels/status.h"

/* Writes RUN/report.html. Errors: those of run_read; ERR_FORMAT for a run without a step. */
NODISCARD Status report_write(const char *run_dir);

/* The verb: report_write, and with `png` a picture of its top, RUN/report.png, taken by Chromium (ERR_UNSUPPORTED if
 * there is none). */
NODISCARD Status report_run(const char *run_dir, bool png, bool json, bool quiet, FILE *to);

#endif
