/* The plots of a run's report: each writes one <figure>, or nothing if the run has no data for it. */
#pragma once

#include "inception/report/figure.h"

/* report_losses.c: mean_loss and the towers' losses. */
void figure_losses(Figures *f);
void figure_ending(Figures *f); /* the last steps, one by one */
void figure_noise(Figures *f);
void figure_bias(Figures *f);
void figure_deviation(Figures *f);
void figure_terms(Figures *f); /* the named terms of a phase of a GAN, a plot for each */
void figure_kid(Figures *f);   /* of generated images */
void figure_phase(Figures *f); /* the loss of a phase that is not the page's own */

/* report_plots.c: all other records of a run. */
void figure_accuracy(Figures *f);
void figure_epoch_loss(Figures *f);
void figure_rate(Figures *f);
void figure_sweep(Figures *f); /* of --lr auto */
void figure_speed(Figures *f);
void figure_waiting(Figures *f);
void figure_arrival(Figures *f);
void figure_vitals(Figures *f); /* a plot for each number that the GPUs have reported */
void figure_gradients(Figures *f);
void figure_layers(Figures *f);
void figure_confusion(Figures *f);
void figure_reliability(Figures *f); /* of towers eval --calibrate: before and after */
