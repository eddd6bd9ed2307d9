/* The plots of a run's report: each figure_* writes one <figure>, or nothing if the run has no data for it. */
#pragma once

#include "inception/report/figure.h"

typedef void FiguresWrite(Figures *f);
/* Those of a part of the page. */
FiguresWrite figures_curves, figures_classes, figures_towers, figures_speed;
FiguresWrite figure_layers;

/* report_losses.c: mean_loss and the towers' losses. */
void figure_losses(Figures *f);
void figure_tower_losses(Figures *f);
void figure_ending(Figures *f); /* the last steps, one by one */
void figure_noise(Figures *f);
void figure_bias(Figures *f);
void figure_deviation(Figures *f);
void figure_terms(Figures *f); /* the named terms of a phase of a GAN, a plot for each */
void figure_kid(Figures *f);   /* of generated images */
void figure_phase(Figures *f); /* the loss of a phase that is not the page's own */
