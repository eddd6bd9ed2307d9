/* Run difference: whether two runs differ in loss (paired by step, second half), test accuracy and speed, each at
 * DIFFERENCE_LEVEL. Runs of different lengths are compared over the steps that both have. */
#ifndef TOWERS_INCEPTION_REPORT_RUN_DIFFERENCE_H
#define TOWERS_INCEPTION_REPORT_RUN_DIFFERENCE_H

#include "inception/report/loss_truth.h"

/* b - a. */
typedef struct RunDifference {
    Estimate loss, accuracy, speed; /* unknown (p = 1, infinite error) where there is no data */
    double a_loss, b_loss, a_accuracy, b_accuracy, a_speed, b_speed; /* NaN: not known */
    int64_t steps;                                                   /* pairs that the loss was compared over */
    bool same;                                                       /* every loss is equal, bit for bit */
    char verdict[VERDICT_BYTES];
} RunDifference;

NODISCARD Status run_difference(const Run *a, const Run *b, RunDifference *difference);

#endif
