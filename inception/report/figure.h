/* Figure: shared parts of a report's plots: the <figure> element, an axis of steps, columns of the record. */
#pragma once

#include <jansson.h>

#include "inception/report/loss_truth.h"
#include "inception/report/page/svg.h"

/* Heights of plots, and the width of a heat map, in the page's units. */
enum { FIGURE_TALL = 330, FIGURE_LOW = 230, FIGURE_WIDTH = 1080 };

typedef struct Figures {
    FILE *to; /* borrowed, as are the next two */
    const Run *run;
    const LossTruth *truth;
    const json_t *environment; /* env.json, for the names of classes; borrowed, may be NULL */
    double *x, *scratch[4];    /* owned: [steps]; x: step numbers */
} Figures;

NODISCARD Status figures_open(Figures *figures, FILE *to, const Run *run, const LossTruth *truth);
void figures_close(Figures *figures);

/* <figure> with a heading and a sentence, as wide as the page or half of it. */
void figure_begin(const Figures *f, bool wide, const char *title, const char *note);
void figure_end(const Figures *f);
/* A figure around a plot. */
void figure_open(const Figures *f, bool wide, SvgPlot *plot, const SvgFrame *frame, const char *title,
                 const char *note);
void figure_close(const Figures *f, SvgPlot *plot);
/* A low frame, and one with an axis for all steps. The range of y is still empty; widen it with svg_extent. */
SvgFrame figure_frame(const char *title, const char *x_label);
SvgFrame figure_steps(const Figures *f, const char *title);

/* A number of every step, by its offset in RunStep; in scratch[k]. */
double *figure_column(Figures *f, int k, size_t offset);
/* A value of a tower in a step. NaN: unknown. */
typedef double StepValue(const RunStep *step, int tower);
/* Its minimum and maximum over the towers for every step, in scratch[2] and [3]; NaN if no tower has a value. */
void figure_range(Figures *f, StepValue *value);
