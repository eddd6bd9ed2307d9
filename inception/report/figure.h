/* Figure: what the plots of a report share: the <figure> around them, an axis of steps, columns of the record. */
#ifndef TOWERS_INCEPTION_REPORT_FIGURE_H
#define TOWERS_INCEPTION_REPORT_FIGURE_H

#include "inception/report/loss_truth.h"
#include "inception/report/svg.h"

/* Sizes of plots, in units of the page: across all of it or half, and heights. */
enum { FIGURE_WIDE = 1080, FIGURE_HALF = 532, FIGURE_TALL = 330, FIGURE_LOW = 230, FIGURE_FLAT = 150 };

typedef struct Figures {
    FILE *to; /* borrowed, as are the next two */
    const Run *run;
    const LossTruth *truth;
    const char *const *classes; /* names, [class_count]; borrowed */
    int class_count;
    double *x, *scratch[4]; /* owned: [steps]; x: step numbers */
} Figures;

NODISCARD Status figures_open(Figures *figures, FILE *to, const Run *run, const LossTruth *truth);
void figures_close(Figures *figures);

/* <figure> with a heading and a sentence; `kind` is "wide" or "half". */
void figure_begin(const Figures *f, const char *kind, const char *title, const char *note);
void figure_end(const Figures *f);
/* Axes for all steps; the y axis is still empty, for svg_extent to widen. */
SvgFrame figure_steps(const Figures *f, const char *title, double width, double height);

/* A number of a step; those that belong to no tower do not look at `tower`. NaN: not known. */
typedef double StepValue(const RunStep *step, int tower);
/* That number of every step, in scratch[slot]. */
double *figure_column(Figures *f, int slot, StepValue *value, int tower);
/* Its least and its greatest over the towers, of every step; NaN where no tower knows. */
void figure_range(Figures *f, StepValue *value, double *low, double *high);

#endif
