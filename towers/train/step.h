/* Step: what is known of one training step, from its batches to its verdict. Between step.c, which runs it, and
 * step_record.c, which remembers it; the calls for others are in process.h. */
#ifndef TOWERS_TRAIN_STEP_H
#define TOWERS_TRAIN_STEP_H

#include "towers/replica/tower_process.h"

typedef struct Step {
    int64_t number;  /* from 1, as people count */
    int batches;     /* global batches: 1, or up to job->accumulate */
    int64_t samples; /* of all of them */
    int64_t started_ns;
    float scale;          /* of every sample's gradient */
    bool fed[TOWERS_MAX]; /* local towers that had samples */
    bool left_out;        /* a rollback has found it to blame: it runs, but moves nothing */
    double lr;
    /* known when it has been taken */
    TowerResult found[TOWERS_MAX];
    TowerLoss loss[TOWERS_MAX]; /* of all towers: found[].loss */
    double grad_norm;           /* of the averaged gradient */
    double l2;                  /* of the weights that the forward pass used */
    int culprit;                /* first tower at fault, or -1 */
    bool commit, overflow;
    float loss_scale; /* that it was computed with */
    int64_t skipped;  /* samples that could not be decoded */
    double seconds;
} Step;

/* In f16 gradients below 6e-8 would be lost: there they are computed this many times too large, up to the update. */
static inline bool loss_is_scaled(const TrainJob *job)
{
    return job->program.compute == DTYPE_F16 || job->loss_scale > 0;
}

/* Samples of a full step. */
static inline int64_t full_step(const TrainJob *job)
{
    return shares_global(&job->shares) * job->accumulate;
}

/* What every tower found, for the console and for a search; every rank writes the same. */
void step_to_ledger(TowerProcess *p, const Step *step);
/* The losses and hits of a step that was committed, to those of its epoch. */
void step_to_epoch(TowerProcess *p, const Step *step);
/* Rank 0: a row of metrics, and what the console shows. */
NODISCARD Status step_record(TowerProcess *p, const Step *step);

/* One training step of all towers of this process, as the README follows it. On a device that works beside the
 * host it may return while the last steps are under way: their results are taken by later calls, or by steps_drain. */
NODISCARD Status steps_open(TowerProcess *p); /* after run.step is known */
void steps_close(TowerProcess *p);
NODISCARD Status steps_restart(TowerProcess *p); /* after run was set back */
NODISCARD Status step_run(TowerProcess *p);
NODISCARD Status step_take(TowerProcess *p); /* wait for the oldest step under way; none: nothing */
NODISCARD Status steps_drain(TowerProcess *p);

#endif
