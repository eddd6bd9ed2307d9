/* Learning rate as a function of the step. Pure; steps count from 0, `steps_per_epoch` >= 1.
 * t / T below runs from 0 at the end of the warm-up (rise-fall: at step 0) to 1 at total_steps and stays there. */
#pragma once

#include "kernels/base/status.h"

typedef enum ScheduleKind {
    SCHEDULE_CONSTANT = 0,
    SCHEDULE_EXPONENTIAL, /* lr * rate ^ floor(step / int(epoch_steps * decay_epochs)): TensorFlow's staircase */
    SCHEDULE_STEP,        /* the same with whole steps per epoch: PyTorch's */
    SCHEDULE_PIECEWISE,   /* "LR0;E1;LR1;E2;LR2" */
    SCHEDULE_COSINE,      /* min_lr + (lr - min_lr) (1 + cos(pi t / T)) / 2 */
    SCHEDULE_POLYNOMIAL,  /* min_lr + (lr - min_lr) (1 - t / T) ^ power */
    SCHEDULE_PLATEAU,     /* lr, reduced when the monitored number no longer improves (towers/train/stopping.h) */
    SCHEDULE_RISE_FALL,   /* linear from min_lr to lr over the first 30 %, cosine down; no warm-up. From 0 as below */
    SCHEDULE_ONE_CYCLE    /* PyTorch's OneCycleLR, of the rate alone: cosines from lr / 25 to lr and to lr / 250,000 */
} ScheduleKind;

typedef struct Schedule {
    ScheduleKind kind;
    double lr, min_lr;
    double decay_rate, decay_epochs, power;
    double epoch_steps;              /* for exponential: samples / batch, not rounded; 0: steps_per_epoch */
    double warmup_epochs, warmup_lr; /* linear from warmup_lr to lr; from 0, step k of K has lr (k + 1) / K */
    int pieces;
    double piece_lr[16], piece_epoch[16]; /* piece_lr[i] from piece_epoch[i] on; piece_epoch[0] = 0 */
    double plateau_lr;                    /* the rate after the warm-up of SCHEDULE_PLATEAU; NaN, and 0: lr */
} Schedule;

/* Number of steps of the warm-up; 0: none. */
double schedule_warmup(const Schedule *schedule, int64_t steps_per_epoch);
NODISCARD Status schedule_parse_pieces(const char *text, Schedule *schedule); /* ERR_ARG naming the place */
double schedule_lr(const Schedule *schedule, int64_t step, int64_t steps_per_epoch, int64_t total_steps);
