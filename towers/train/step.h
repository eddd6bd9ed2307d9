/* Step: one training step of a process, from its batches to its record. step.c runs it, step_micro_batch.c runs the micro-batches of
 * its towers, step_take.c processes its result when it has arrived, step_record.c records it. */
#pragma once

#include "towers/replica/tower_process.h"
#include "towers/train/step_outcome.h"

typedef struct Step {
    int64_t number; /* from 1 */
    int phase;
    int batches;     /* global batches: 1, or up to job->accumulate; also 1 if the phase takes none of images */
    int64_t samples; /* of all of them */
    int64_t started_ns;
    float scale;    /* of every sample's gradient */
    CommTimes sums; /* over the towers, of this process */
    bool left_out;  /* excluded by a rollback: it runs without its update */
    double lr;
    /* known when its result has been taken */
    double grad_norm; /* of the averaged gradient */
    double l2;        /* of the weights that the forward pass used */
    int culprit;      /* first tower at fault, or -1 */
    bool commit, overflow;
    float loss_scale;     /* used in this step */
    float unscale;        /* makes the summed gradients those of the mean loss */
    int64_t skipped;      /* samples that could not be decoded */
    double seconds, wall; /* of the step; since the one before ended, with what came between */
    /* owned by the queue; it stays from step to step */
    bool *fed; /* [local towers]: had samples */
} Step;

enum { STEPS_IN_FLIGHT = GATE_AHEAD + 1 };

typedef struct StepRow StepRow; /* step_record.c: a row of metrics */

struct StepQueue {
    int64_t taken_ns;   /* when the last step was taken */
    bool graphs_logged; /* the log says that a graph could not be captured */
    const Batch **held; /* owned [local towers]; borrowed from the loader: the images of each; NULL: none */
    /* owned [fed_count][local towers]: the sets of towers that had samples in a step, for keys of captured launches */
    bool **fed;
    int fed_count;
    bool *elsewhere_loaded; /* owned [towers]: of other programs whose machine lacks cores; rank 0 only */
    Step step[STEPS_IN_FLIGHT];
    TowerLoss *tower; /* owned [towers]: of the step that is being taken, or whose row is being written */
    /* owned: rows that rank 0 has not written yet, [STEPS_UNWRITTEN]; what they say of each tower is in the ledger */
    StepRow *row;
    int rows;
    /* owned, of the row that is being written */
    int64_t *times;             /* [1 + STRAGGLER_ACTIVITIES][towers] */
    Number *term;               /* [PHASE_TERMS][towers] */
    DeviceTelemetry *telemetry; /* [towers]; NULL: the backend has none */
    int64_t written;            /* the last step whose times rank 0 has */
    int write_after;            /* steps until it gathers times again */
};
enum { STEPS_UNWRITTEN = 16 };
Step *step_in_flight(const TowerProcess *p, int64_t number);

/* In f16, gradients below 6e-8 would underflow; they are multiplied by this scale until the update. */
static inline bool loss_is_scaled(const TrainJob *job)
{
    return job->program.compute == DTYPE_F16 || job->loss_scale > 0;
}

/* Number of samples of a full step. */
static inline int64_t full_step(const TrainJob *job)
{
    return global_batch_of(&job->local_batches) * job->accumulate;
}

/* Write every tower's results to the ledger, for the console and for a search; every rank writes the same. */
void step_to_ledger(TowerProcess *p, const Step *step);
/* The number of a term of epoch.def among those of the model's first phase; -1: it has none. */
int epoch_term_number(const TowerProcess *p, int term);
/* Add the losses and correct predictions of a committed step to those of its epoch. */
void step_to_epoch(TowerProcess *p, const Step *step);
/* Rank 0: make a row of metrics and update the console's data. step_rows_write writes the row. */
NODISCARD Status step_record(TowerProcess *p, const Step *step);
/* Rank 0 writes the rows of metrics up to this step. With several programs it first gathers the times of their towers,
 * which is collective then. */
NODISCARD Status step_rows_write(TowerProcess *p, int64_t last);
/* Whether it is time for that: always with one program; else every STEPS_UNWRITTEN steps, or about four times a second. Equal on
 * all ranks. */
bool steps_are_due(const TowerProcess *p, int64_t last);
void step_rows_free(StepQueue *queue);
/* At the end of the process, even after an error: write the rows that remain, without the times of other programs. */
void step_rows_flush(TowerProcess *p);

/* One batch of one tower, from the loader to its gradients. The towers of a process use its device one after another,
 * batch by batch; the last batch of a step completes the gradients bucket by bucket. These calls also see to captured
 * graphs, accumulated gradients (--accumulate) and test hooks. */
typedef struct MicroBatch {
    TowerProcess *p;
    const Step *step;
    const Batch *batch; /* borrowed from the loader until the next one begins, or `none` */
    Batch none;         /* of a phase that takes no images: only its samples' number and place */
    Program *program;   /* NULL: a tower without samples, which contributes nothing */
    int local;
    bool last;            /* batch of the step */
    int parts;            /* of the backward pass: one per bucket in the last batch, else one */
    int part, first, end; /* of the launches in progress: ops [first, end) */
} MicroBatch;

/* Micro-batch `number` of a step: the next batch, that of tower number % local_towers. */
NODISCARD Status micro_batch_begin(TowerProcess *p, Step *step, int number, MicroBatch *micro);
NODISCARD Status micro_batch_feed(MicroBatch *micro);
NODISCARD Status micro_batch_forward(MicroBatch *micro);
/* Run backward up to the last gradient of bucket `part`; parts 0, 1, ... in order. */
NODISCARD Status micro_batch_backward(MicroBatch *micro, int part);
/* Start the all-reduce of bucket `part`, if this is the last batch. */
NODISCARD Status micro_batch_allreduce_begin(const MicroBatch *micro, int part);
NODISCARD Status micro_batch_end(MicroBatch *micro);

/* One training step of all towers of this process. On an asynchronous device it may return while the last steps are in
 * flight; their results are taken by later calls, or by steps_drain. */
NODISCARD Status steps_open(TowerProcess *p); /* run.step must be known */
void steps_close(TowerProcess *p);
/* --prometheus: the last evaluation, beside the numbers of the last step exported. Rank 0 calls it. */
void evaluation_export(TowerProcess *p);
NODISCARD Status steps_restart(TowerProcess *p); /* after run was set back */
NODISCARD Status step_run(TowerProcess *p, StepOutcome *outcome);
/* Wait for the oldest step in flight, if any. */
NODISCARD Status step_take(TowerProcess *p, StepOutcome *outcome);
NODISCARD Status steps_drain(TowerProcess *p, StepOutcome *outcome);
