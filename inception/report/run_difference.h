/* Run difference: whether two runs differ in loss, test accuracy and speed, each at DIFFERENCE_LEVEL.
 *
 * Losses are paired by the images seen, not by the number of the step: a step of 512 images of one run is set against
 * the 8 steps of 64 that saw as many in the other. Compared is the later half of the images that both have seen. Speeds
 * are compared as ratios, with outliers taken in to three deviations. */
#ifndef TOWERS_INCEPTION_REPORT_RUN_DIFFERENCE_H
#define TOWERS_INCEPTION_REPORT_RUN_DIFFERENCE_H

#include "inception/report/loss_truth.h"

/* b - a. */
typedef struct RunDifference {
    Estimate loss, accuracy, speed; /* unknown (p = 1, infinite error) where there is no data */
    double a_loss, b_loss, a_accuracy, b_accuracy, a_speed, b_speed; /* NaN: not known */
    int64_t steps;                                                   /* pairs that the loss was compared over */
    int64_t images_from, images_to; /* images seen that these pairs cover; 0, 0 if there are none */
    bool same;                      /* every loss is equal, bit for bit */
    char verdict[VERDICT_BYTES];
} RunDifference;

/* Images that a run has seen at its last step, and its mean loss over the steps within (from, to] of them; NaN: none. */
NODISCARD Status run_images(const Run *run, int64_t *images);
NODISCARD Status run_loss_over(const Run *run, int64_t from, int64_t to, double *loss);

NODISCARD Status run_difference(const Run *a, const Run *b, RunDifference *difference);

#endif
