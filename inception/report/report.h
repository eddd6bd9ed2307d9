/* Report: a page about one run, what it has come to first. RUN/report.html is self-contained: plots are SVG, styles are inline,
 * and its content security policy forbids loading anything and running any script but one, which shows values at the pointer
 * (readings.js); the page is whole without it. It supports light and dark mode, screen, telephone and paper. It is made from
 * the run's records alone, so it can be regenerated at any time, even while the run continues. */
#pragma once

#include "kernels/base/text.h"

/* Write RUN/report.html. Errors: those of run_read; ERR_FORMAT for a run without a step. */
NODISCARD Status report_write(const char *run_dir);

/* A page in the frame of reports: `content` writes what is between head and foot; `origin`, HTML, says in the foot what the
 * page was made from. */
typedef Status PageContent(const void *context, FILE *to);
NODISCARD Status page_frame(FILE *to, const char *title, const char *origin, PageContent *content, const void *context);

/* The report command: report_write, and with `png` report_png. */
NODISCARD Status report_run(const char *run_dir, bool png, bool json, bool quiet, FILE *to);
/* A screenshot of the top of RUN/report.html, RUN/report.png, taken by Chromium. ERR_UNSUPPORTED if there is none, or it
 * fails. */
NODISCARD Status report_png(const char *run_dir);

/* card.c: a model card in Markdown (Mitchell et al., "Model Cards for Model Reporting", 2019): what a run was trained on and
 * with which settings, how well it does on each class, what it was not tested on, and how to make it again. Made from
 * the records of the run alone; what they do not have is said to be missing. Errors: those of run_read; ERR_ARG for a
 * folder without records. */
NODISCARD Status card_print(const char *run_dir, FILE *to);

/* page.html, in which {{title}}, {{style}}, {{digest}}, {{script}}, {{content}}, {{version}} and {{origin}} stand for what report.c
 * writes, its style, report.css, and its script, readings.js: the build embeds them. The last has a NULL name. */
extern const EmbeddedText report_texts[];
