/* Compare: what the losses of a run's towers say, and whether two runs differ.
 *
 * Of one run, over its full steps (every tower has its usual share, every loss is finite): the bias of each tower's
 * loss against mean_loss (paired step by step, so that the course of training cancels); how much noisier it is than
 * mean_loss; and what a check of the last tower alone would have made of every NaN and Inf. Noise is what second
 * differences leave (towers/record/statistics.h), so it is measured at any learning rate; without one it is the plain
 * variance. N towers whose batches are independent and equal give a ratio of N.
 * Of two runs: loss (paired by step, second half), test accuracy, speed, each at a level of 1 %, so that all three
 * together cry wolf in fewer than 5 of 100 pairs of equal runs. Nothing here trains. */
#ifndef TOWERS_INCEPTION_COMPARE_H
#define TOWERS_INCEPTION_COMPARE_H

#include <stdio.h>

#include "towers/record/run_read.h"
#include "towers/record/statistics.h"

typedef struct TowerTruth {
    int64_t share;   /* samples a step; a tower of 0 has no numbers */
    Estimate bias;   /* of its loss against mean_loss */
    Estimate ratio;  /* variance of its noise / variance of mean_loss's noise */
    double expected; /* what the ratio is if samples are independent: all samples / share */
} TowerTruth;

/* A loss or gradient that was not finite. */
typedef struct BadStep {
    int64_t step;
    int tower;
    bool loss, gradient; /* which of them */
    int64_t later;       /* steps until a check of the last tower's loss sees it; -1: never */
    bool measured;       /* the run went on, and `later` was seen; else it is what must follow */
} BadStep;

enum { VERDICT_BYTES = 1024 };

typedef struct LossTruth {
    int towers, last, first;       /* the last and the first tower that has samples */
    int64_t steps, used;           /* recorded, full */
    TowerTruth *tower;             /* owned: [towers] */
    double mean_noise, last_noise; /* standard deviations */
    double correlation;            /* of the towers' noise, mean over pairs; NaN for one tower */
    int64_t window;                /* steps to average the last tower's loss over; 0: no such window */
    BadStep *bad;                  /* owned */
    int64_t bad_count;
    char verdict[VERDICT_BYTES];
} LossTruth;

NODISCARD Status loss_truth(const Run *run, LossTruth *truth);
void loss_truth_clear(LossTruth *truth);

/* b - a. */
typedef struct RunDifference {
    Estimate loss, accuracy, speed; /* unknown (p = 1, infinite error) where there is no data */
    double a_loss, b_loss, a_accuracy, b_accuracy, a_speed, b_speed; /* NaN: not known */
    int64_t steps;                                                   /* pairs that the loss was compared over */
    bool same;                                                       /* every loss is equal, bit for bit */
    char verdict[VERDICT_BYTES];
} RunDifference;

#define DIFFERENCE_LEVEL 0.01

NODISCARD Status run_difference(const Run *a, const Run *b, RunDifference *difference);

/* The verb: tables, or JSON. Runs after the first are compared with the first. */
NODISCARD Status compare_runs(char *const *paths, int count, bool json, FILE *to);

#endif
