/* TowerProcess: what one tower process holds while it trains: its replica, its communicator, its loader, and rank 0's
 * records. */
#ifndef TOWERS_PROCESS_H
#define TOWERS_PROCESS_H

#include "nccl_sync/bucket.h"
#include "nccl_sync/comm.h"
#include "towers/data/loader.h"
#include "towers/ledger.h"
#include "towers/record/metrics.h"
#include "towers/replica.h"
#include "towers/train.h"
#include "towers/weights.h"

enum { ROLLBACKS_MAX = 256 };

/* What belongs to the run and not to a step: saved with every checkpoint, equal on all ranks. */
typedef struct RunState {
    int64_t step;     /* committed or skipped steps so far */
    int64_t updates;  /* committed steps: the optimizer's count */
    double epoch_sum; /* of losses, of the samples of this epoch so far */
    int64_t epoch_count, epoch_hits;
    double epoch_constant_sum; /* of step losses divided by the constant global batch, for LOSS_DIVISOR_GLOBAL_BATCH */
    int64_t skipped, skipped_in_row;
    double best_top1; /* -1: none yet */
    int64_t best_step;
    double base_average, total_average;         /* of losses, see step.c; rank 0 keeps them */
    int64_t averaged;                           /* losses in them */
    int64_t rollbacks, left_out[ROLLBACKS_MAX]; /* returns to a checkpoint, and the step that each leaves out */
} RunState;

typedef struct TowerProcess {
    /* borrowed */
    const TrainJob *job;
    Ledger *ledger;
    int rank, first, local;
    /* owned */
    Comm *comm;
    Replica *replica;
    Loader *loader;
    Metrics *metrics; /* rank 0 only */
    WeightMap map;
    float *scratch; /* host memory: [max(params, states) + SUM_LANES] */
    /* state */
    Buckets buckets;
    RunState run;
    int64_t steps_per_epoch, total_steps;
    int64_t epoch_started_ns, checkpoint_ns;
    int64_t good_step; /* of the last checkpoint saved or restored, -1: none; rank 0 knows */
    int saves_failed;  /* in a row; rank 0 counts */
    bool stop;         /* all ranks agreed to stop after this step */
    bool go_back;      /* all ranks agreed to return to the last checkpoint (--nan-policy rollback) */
} TowerProcess;

/* The life of a tower process: set up, train (or evaluate), tear down. A failure has been written to the ledger and has
 * aborted the communicator when this returns. */
NODISCARD Status tower_process_train(const TrainJob *job, int rank, Ledger *ledger, CommShared *shared);
NODISCARD Status tower_process_timed(const TrainJob *job, int rank, Ledger *ledger, CommShared *shared);
NODISCARD Status tower_process_eval(const TrainJob *job, int rank, Ledger *ledger, CommShared *shared);

/* How the loader of this process's training data is set up, from p->run.step on. */
LoaderConfig process_loader(const TowerProcess *p);
NODISCARD Status process_restart_loader(TowerProcess *p);
/* A line of log.txt, on rank 0; newlines become bars. */
NODISCARD Status process_log(TowerProcess *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Floats that one collective of this job may sum: gradients and lanes, statistics, or the tally of an evaluation. */
size_t job_comm_room(const TrainJob *job, const Layout *layout);

/* step.c: one training step of all towers of this process, as the README follows it. */
NODISCARD Status step_run(TowerProcess *p);

/* evaluate.c: the towers share the test set; every sample exactly once. Results are equal on all ranks. A stop signal
 * ends it after the batch of the moment: then p->stop is set, and *whole is false if a batch was left out. */
NODISCARD Status evaluate(TowerProcess *p, EvalResult *result, bool *whole);
int64_t evaluate_floats(const TrainJob *job); /* that its one sum takes */

/* snapshot.c: checkpoints of a run, and weights for others. Collective: every rank calls them at the same step. */
NODISCARD Status snapshot_save(TowerProcess *p);
NODISCARD Status snapshot_restore(TowerProcess *p, bool *restored); /* as the job says; run.step tells where to go on */
NODISCARD Status snapshot_return(TowerProcess *p, int64_t step);    /* to a checkpoint of this run directory */
NODISCARD Status snapshot_export(TowerProcess *p,
                                 const char *path); /* weights and exported statistics to one safetensors file */
NODISCARD Status snapshot_load_weights(TowerProcess *p, const char *path);
/* Download a device arena and append it, each name behind `prefix`. `states`: the layout is that of STATE. */
NODISCARD Status snapshot_pack(TowerProcess *p, const char *prefix, const float *arena, bool states, int64_t tracked,
                               WeightList *list);
/* Fill replica->eval_state from all towers' running statistics, as job->bn_stats says. */
NODISCARD Status statistics_export(TowerProcess *p);

#endif
