/* Loss truth: what the losses of a run's towers say.
 *
 * Over the run's full steps (every tower has its usual share, every loss is finite): the bias of each tower's loss
 * against mean_loss (paired step by step, so that the course of training cancels); how much noisier it is than
 * mean_loss; and what a check of the last tower alone would have made of every NaN and Inf. Noise is what second
 * differences leave (towers/record/statistics.h), so it is measured at any learning rate; without one it is the plain
 * variance. N towers whose batches are independent and equal give a ratio of N. */
#ifndef TOWERS_INCEPTION_REPORT_LOSS_TRUTH_H
#define TOWERS_INCEPTION_REPORT_LOSS_TRUTH_H

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

/* Below this chance a difference is called one: three of them cry wolf in fewer than 5 of 100 pairs of equal runs. */
#define DIFFERENCE_LEVEL 0.01

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

/* ERR_FORMAT if the run has no step, or no tower with samples. */
NODISCARD Status loss_truth(const Run *run, LossTruth *truth);
void loss_truth_clear(LossTruth *truth);

#endif
