/* Step: one training step of a process, from its batches to its record. step.c runs it, by turns of the towers
 * (step_turn.c); step_take.c takes its result when it has arrived; step_record.c records it. */
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

enum { STEPS_IN_FLIGHT = GATE_AHEAD + 1 };

struct StepQueue {
    int64_t taken_ns;   /* when the last step was taken */
    bool graphs_logged; /* the log knows that a graph could not be captured */
    Step step[STEPS_IN_FLIGHT];
};
Step *step_in_flight(const TowerProcess *p, int64_t number);

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

/* A turn: one batch of one tower, from the loader to its gradients. The towers of a process take turns on its device,
 * batch by batch; the last batch of a step completes the gradients bucket by bucket. Below it lie captured graphs, the
 * gradients that several batches of a step keep (--accumulate), and the hooks of tests. */
typedef struct Turn {
    TowerProcess *p;
    const Step *step;
    const Batch *batch; /* borrowed from the loader until the next turn begins */
    Program *program;   /* NULL: a tower without samples, which agrees to the gradients of the others */
    int slot;
    bool last;            /* batch of the step */
    int parts;            /* of the backward pass: one for each bucket in the last batch, else one */
    int part, first, end; /* of the launches in progress: ops [first, end) */
} Turn;

/* Turn `number` of a step: the next batch, that of tower number % local_towers. */
NODISCARD Status turn_begin(TowerProcess *p, Step *step, int number, Turn *turn);
NODISCARD Status turn_feed(Turn *turn);
NODISCARD Status turn_forward(Turn *turn);
/* Up to the last gradient of bucket `part`, of parts 0, 1, ... in order. */
NODISCARD Status turn_backward(Turn *turn, int part);
/* Bucket `part` joins the all-reduce, if this is the last batch. */
NODISCARD Status turn_allreduce_begin(const Turn *turn, int part);
NODISCARD Status turn_end(Turn *turn);

/* One training step of all towers of this process. On a device that works beside the host it may return while the last
 * steps are in flight: their results are taken by later calls, or by steps_drain. */
NODISCARD Status steps_open(TowerProcess *p); /* after run.step is known */
void steps_close(TowerProcess *p);
NODISCARD Status steps_restart(TowerProcess *p); /* after run was set back */
NODISCARD Status step_run(TowerProcess *p);
NODISCARD Status step_take(TowerProcess *p); /* wait for the oldest step in flight; none: nothing */
NODISCARD Status steps_drain(TowerProcess *p);

#endif
