/* Loss truth: how the losses of a run's towers relate to mean_loss.
 *
 * Computed over the run's full steps, in which every tower has its usual share and every loss is finite: the bias of
 * each tower's loss against mean_loss (paired step by step, so that the trend of training cancels); how much noisier it
 * is than mean_loss; and, for every NaN and Inf, when a check of the last tower alone would have found it. Noise is
 * estimated from second differences (towers/record/statistics.h), so that it can be measured at any learning rate;
 * without a trend it is the plain variance. N towers with equal, independent batches give a ratio of N. */
#pragma once

#include "towers/record/run_read.h"
#include "towers/record/statistics.h"

typedef struct TowerTruth {
    int64_t share;   /* samples per step; 0: no statistics */
    Estimate bias;   /* of its loss against mean_loss */
    Estimate ratio;  /* variance of its noise / variance of mean_loss's noise */
    double expected; /* the ratio for independent samples: all samples / share */
} TowerTruth;

/* A loss or gradient that was not finite. */
typedef struct BadStep {
    int64_t step;
    int tower;
    bool loss, gradient; /* which of them */
    int64_t later;       /* steps until the last tower's loss shows it; -1: never */
    bool measured;       /* the run continued and `later` was observed; else it is inferred */
} BadStep;

enum { VERDICT_BYTES = 1024 };

/* Differences with a smaller p are reported. In pairs of equal runs, the three tests give a false alarm in under
 * 5 %. */
#define DIFFERENCE_LEVEL 0.01

typedef struct LossTruth {
    int towers, last, first;       /* the last and the first tower that has samples */
    int64_t steps, used;           /* recorded, full */
    TowerTruth *tower;             /* owned: [towers] */
    double mean_noise, last_noise; /* standard deviations */
    double correlation;            /* of the towers' noise, mean over pairs; NaN for one tower */
    int64_t window;                /* steps to average the last tower's loss over to match mean_loss; 0: none */
    BadStep *bad;                  /* owned */
    int64_t bad_count;
    char verdict[VERDICT_BYTES];
} LossTruth;

/* ERR_FORMAT if the run has no step, or no tower with samples. */
NODISCARD Status loss_truth(const Run *run, LossTruth *truth);
void loss_truth_clear(LossTruth *truth);
