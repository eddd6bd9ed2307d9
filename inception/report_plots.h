/* The plots of a run's report: each writes one <figure>, or nothing if the run has no data for it. */
#ifndef TOWERS_INCEPTION_REPORT_PLOTS_H
#define TOWERS_INCEPTION_REPORT_PLOTS_H

#include "inception/loss_truth.h"

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

void figure_losses(Figures *f);
void figure_ending(Figures *f); /* the last steps, one by one */
void figure_noise(Figures *f);
void figure_bias(Figures *f);
void figure_deviation(Figures *f);
void figure_accuracy(Figures *f);
void figure_rate(Figures *f);
void figure_speed(Figures *f);
void figure_waiting(Figures *f);
void figure_arrival(Figures *f);
void figure_gradients(Figures *f);
void figure_layers(Figures *f);
void figure_confusion(Figures *f);

#endif
