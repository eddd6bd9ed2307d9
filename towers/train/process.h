/* TowerProcess: what one tower process holds while it trains: its replica, its communicator, its loader, and rank 0's
 * records. */
#ifndef TOWERS_TRAIN_PROCESS_H
#define TOWERS_TRAIN_PROCESS_H

#include "nccl_sync/bucket.h"
#include "nccl_sync/comm.h"
#include "towers/data/loader.h"
#include "towers/guard/straggler.h"
#include "towers/record/metrics.h"
#include "towers/store/weights.h"
#include "towers/train/judge.h"
#include "towers/train/ledger.h"
#include "towers/train/replica.h"
#include "towers/train/train.h"

enum { ROLLBACKS_MAX = 256 };

/* What belongs to the run and not to a step: saved with every checkpoint, equal on all ranks. */
typedef struct RunState {
    int64_t step;     /* committed or skipped steps so far */
    int64_t updates;  /* committed steps: the optimizer's count */
    double epoch_sum; /* of losses, of the samples of this epoch so far */
    int64_t epoch_count, epoch_hits;
    double epoch_constant_sum; /* of step losses divided by the constant global batch, for LOSS_DIVISOR_GLOBAL_BATCH */
    int64_t skipped, skipped_in_row;
    int64_t overflows;  /* steps left out because a gradient was too large for f16 at the loss scale */
    double loss_scale;  /* of the next step; 0: not known yet */
    int64_t scale_good; /* good steps since it last moved */
    double best_top1;   /* -1: none yet */
    int64_t best_step;
    double base_average, total_average;         /* of losses, see step_record.c; rank 0 keeps them */
    int64_t averaged;                           /* losses in them */
    int64_t rollbacks, left_out[ROLLBACKS_MAX]; /* returns to a checkpoint, and the step that each leaves out */
} RunState;

typedef struct StepQueue StepQueue; /* step.c: the steps under way */

typedef struct TowerProcess {
    /* borrowed */
    const TrainJob *job;
    Ledger *ledger;
    int rank, first, local;
    /* owned */
    Comm *comm;
    Replica *replica;
    Judge *judge;
    StepQueue *queue;
    Loader *loader;
    Metrics *metrics; /* rank 0 only */
    WeightMap map;
    int *norm_sums; /* floats of each sum over towers in a step of BN_STATS_SYNC, in order */
    int norm_sum_count;
    float *norm_zeros; /* device memory: what a tower without samples gives to the largest of them */
    float *scratch;    /* host memory: [max(params, states) + SUM_LANES] */
    /* state */
    Buckets buckets;
    RunState run;
    int64_t done; /* steps whose results are known: run.step without those under way */
    int64_t steps_per_epoch, total_steps;
    int64_t epoch_started_ns, checkpoint_ns;
    int64_t epoch_count_before; /* samples of this epoch that an earlier process took */
    int64_t good_step;          /* of the last checkpoint saved or restored, -1: none; rank 0 knows */
    int saves_failed;           /* in a row; rank 0 counts */
    bool stop;                  /* all ranks agreed to stop after this step */
    bool go_back;               /* all ranks agreed to return to the last checkpoint (--nan-policy rollback) */
    StragglerWatch watch;       /* rank 0 only */
    bool drifted;               /* replicas differ: nothing of this state may be saved */
    int64_t compared_step;      /* of the last comparison of all replicas; 0: none yet */
} TowerProcess;

/* The life of a tower process: set up, train (or evaluate), tear down. A failure has been written to the ledger and has
 * aborted the communicator when this returns. */
NODISCARD Status tower_process_train(const TrainJob *job, int rank, Ledger *ledger, CommShared *shared);
NODISCARD Status tower_process_timed(const TrainJob *job, int rank, Ledger *ledger, CommShared *shared);
NODISCARD Status tower_process_eval(const TrainJob *job, int rank, Ledger *ledger, CommShared *shared);

/* process_open.c: set-up for each of these lives, and the tear-down of all; right also after an open that failed. */
NODISCARD Status process_open(TowerProcess *p, CommShared *shared);
NODISCARD Status process_open_eval(TowerProcess *p, CommShared *shared);
NODISCARD Status process_open_timed(TowerProcess *p, CommShared *shared);
void process_close(TowerProcess *p);
/* How the loader of this process's training data is set up, from p->run.step on. */
LoaderConfig process_loader(const TowerProcess *p);
NODISCARD Status process_restart_loader(TowerProcess *p);
/* A line of log.txt, on rank 0; newlines become bars. */
NODISCARD Status process_log(TowerProcess *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "tower 1", "towers 4..7 (process 1)": those of a process. */
void towers_text(const TrainJob *job, int rank, char *text, size_t bytes);

/* The replica that this process will make. */
void process_config(const TowerProcess *p, ReplicaConfig *config);

/* How the gradients of a process with `local` towers are summed: what is known without a layout. */
CommConfig job_sum(const TrainJob *job, int local);
/* Floats that one collective of this job may sum: gradients and lanes, statistics, or the tally of an evaluation. */
size_t job_comm_room(const TrainJob *job, const Layout *layout);

/* epoch.c: train to the end, or until all ranks agree to stop. */
NODISCARD Status epochs_run(TowerProcess *p);
/* A signal in the middle of an evaluation leaves the end of the epoch to whoever resumes. */
bool epoch_end_is_owed(const TowerProcess *p);

/* step.c: one training step of all towers of this process, as the README follows it. On a device that works beside the
 * host it may return while the last steps are under way: their results are taken by later calls, or by steps_drain. */
NODISCARD Status steps_open(TowerProcess *p); /* after run.step is known */
void steps_close(TowerProcess *p);
NODISCARD Status steps_restart(TowerProcess *p); /* after run was set back */
NODISCARD Status step_run(TowerProcess *p);
NODISCARD Status step_take(TowerProcess *p); /* wait for the oldest step under way; none: nothing */
NODISCARD Status steps_drain(TowerProcess *p);

/* selftest.c: known sums and broadcasts between the towers, every element checked; before the first step. The gradients
 * are zero afterwards. Collective, as is the next. */
NODISCARD Status selftest_run(TowerProcess *p);
/* digest.c: compare all replicas, every job->sdc_check steps or `now`. ERR_NUMERIC names the tower that differs. */
NODISCARD Status digest_check(TowerProcess *p, bool now);
bool digest_is_due(const TowerProcess *p, bool now);
/* The digest of this process's weights, optimizer slots and weight average. Uses p->replica and p->scratch only. */
NODISCARD Status digest_replica(TowerProcess *p, uint64_t *digest);

/* phases.c: what rank 0 makes of the ledger's times. */
typedef struct PhaseRecord {
    int64_t us[STRAGGLER_PHASES][TOWERS_MAX]; /* microseconds of each phase and tower */
    int slow_tower;
    const char *slow_phase; /* NULL: nobody */
} PhaseRecord;
void phases_read(const TowerProcess *p, int64_t step, PhaseRecord *record);
NODISCARD Status phases_watch(TowerProcess *p, int64_t step);

/* norm_sync.c: batch normalization over all towers (BN_STATS_SYNC); nothing otherwise. */
bool norm_sync_sums(OpKind kind); /* do launches of such an op call Device.towers_sum? */
NODISCARD Status norm_sync_open(TowerProcess *p);
void norm_sync_close(TowerProcess *p);
NODISCARD Status norm_sync_idle(TowerProcess *p); /* a tower without samples joins the sums of a whole step */
size_t norm_sync_floats(const TrainJob *job, const Layout *layout); /* at the end of the communicator's room */

/* evaluate.c: the towers share the test set; every sample exactly once. Results are equal on all ranks. A stop signal
 * ends it after the batch of the moment: then p->stop is set, and *whole is false if a batch was left out. */
NODISCARD Status evaluate(TowerProcess *p, EvalResult *result, bool *whole);
int64_t evaluate_floats(const TrainJob *job); /* that its one sum takes */

/* snapshot.c: checkpoints of a run, and weights for others. Collective: every rank calls them at the same step. */
NODISCARD Status snapshot_save(TowerProcess *p);
NODISCARD Status snapshot_restore(TowerProcess *p, bool *restored); /* as the job says; run.step tells where to go on */
NODISCARD Status snapshot_return(TowerProcess *p, int64_t step);    /* to a checkpoint of this run directory */
NODISCARD Status snapshot_export(TowerProcess *p, const char *name); /* weights and exported statistics to RUN/NAME */
NODISCARD Status snapshot_load_weights(TowerProcess *p, const char *path);
/* What an arena holds: all parameters, the trained ones alone (optimizer slots), or batch-norm statistics. */
typedef enum SnapshotPart { SNAPSHOT_PARAMS, SNAPSHOT_TRAINED, SNAPSHOT_STATES } SnapshotPart;
/* Download a device arena and append its tensors, each name behind `prefix`. */
NODISCARD Status snapshot_pack(TowerProcess *p, const char *prefix, const float *arena, SnapshotPart part,
                               int64_t tracked, WeightList *list);
/* norm_states.c: batch-norm running statistics of all towers; collective. */
NODISCARD Status states_of_tower(TowerProcess *p, float **states, int tower, float *found); /* host memory, all ranks */
NODISCARD Status norm_drift_record(TowerProcess *p); /* how far they have drifted apart, to norms.jsonl */
/* Fill replica->eval_state from all towers' running statistics, as job->bn_stats says. */
NODISCARD Status statistics_export(TowerProcess *p);

#endif
