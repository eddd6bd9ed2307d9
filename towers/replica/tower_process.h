/* TowerProcess: the state of one tower process in training: its replica, its communicator, its loader, and on rank 0
 * the records. */
#pragma once

#include "nccl_sync/bucket.h"
#include "nccl_sync/comm.h"
#include "towers/data/loading/loader.h"
#include "towers/record/metrics.h"
#include "towers/record/straggler.h"
#include "towers/replica/gate.h"
#include "towers/replica/job.h"
#include "towers/replica/ledger.h"
#include "towers/replica/replica.h"
#include "towers/store/weights.h"

enum { ROLLBACKS_MAX = 256 };

/* The state of one phase of a run. */
typedef struct RunPhase {
    int64_t updates;    /* committed steps, its optimizer's count */
    double loss_scale;  /* of its next step; 0: not yet known */
    int64_t scale_good; /* good steps since its last change */
} RunPhase;

/* What --patience, --stop-at and --sched plateau have seen of the monitored number (stopping.h). NaN: nothing yet. */
typedef struct Stopping {
    double best, last; /* by --min-delta; of the last evaluation */
    int64_t bad;       /* evaluations since the best */
    double plateau_best, plateau_lr;
    int64_t plateau_bad, plateau_cooldown;
} Stopping;

/* The state of the run between steps: saved with every checkpoint (run_state.def), equal on all ranks. */
typedef struct RunState {
#define RUN_COUNT(name, missing) int64_t name;
#define RUN_REAL(name, missing) double name;
#include "towers/replica/run_state.def"
    RunPhase phase[PHASES_MAX];
    int64_t epoch_correct;
    double epoch_term[EPOCH_TERMS]; /* sums over the samples of epoch_sum, of models that have these terms */
    double best[SCORES];            /* NaN: none yet */
    Stopping stopping;
    int64_t rollbacks, left_out[ROLLBACKS_MAX]; /* number of rollbacks, and the step that each skips */
} RunState;

/* Before the first step: no score, nothing monitored. */
void run_state_clear(RunState *run);

/* What a process found when it compared its data with those of the others, who gather it (comm_gather). */
typedef struct ReplicaFinding {
    uint64_t digest;    /* of its weights, or of a tensor of them */
    int64_t wrong;      /* number of wrong elements */
    int64_t element;    /* the first wrong element */
    double wanted, got; /* its expected and its actual value */
} ReplicaFinding;

typedef struct StepQueue StepQueue; /* train/step.h: the steps in flight */
typedef struct Saving Saving;       /* snapshot.c: a checkpoint that is being written */
typedef struct Summary Summary;     /* train/summary.c: the values that are being counted */

/* The all-reduces of a step of one phase. */
typedef struct PhaseSums {
    Buckets buckets; /* of its gradients */
    int *norm;       /* owned: floats of each all-reduce of batch norms with BN_STATS_SYNC, in order */
    int norm_count;
} PhaseSums;

typedef struct TowerProcess {
    /* borrowed */
    const TrainJob *job;
    Ledger *ledger;
    Placement place;
    /* owned */
    Comm *comm;
    Replica *replica;
    Gate *gate;
    StepQueue *queue;
    Loader *loader;
    Metrics *metrics; /* rank 0 only */
    Saving *saving;   /* rank 0 only; NULL: none */
    Summary *summary; /* rank 0 only; NULL before the first one */
    WeightMap map;    /* of the replica's layout */
    PhaseSums sums[PHASES_MAX];
    /* device memory: contribution of a tower without samples to the largest of the batch norms' sums */
    float *norm_zeros;
    float *scratch;           /* host memory: [max(params, states) + SUM_EXTRAS] */
    ReplicaFinding *findings; /* [processes]: those of a comparison */
    /* state */
    RunState run;
    int64_t done; /* steps whose results are known: run.step without those in flight */
    int64_t steps_per_epoch, total_steps;
    int64_t stage; /* the step, from 0, whose stage the run is in when it begins */
    bool complete; /* it had ended before: nothing is left to do, and nothing is written */
    int64_t epoch_started_ns, checkpoint_ns, exported_ns;
    char *exported;             /* owned: what --prometheus has of the last step exported; NULL: none yet */
    double exported_time;       /* when that was: seconds since 1970 */
    int64_t epoch_count_before; /* samples of this epoch processed before a resume or a rollback */
    int64_t good_step;          /* of the last checkpoint saved or restored, -1: none; rank 0 knows */
    int64_t best_written;       /* the step whose weights were last saved as the best ones; 0: none by this process */
    bool save_tried;            /* writing a checkpoint of this run was attempted */
    int saves_failed;           /* failed saves in a row; counted by rank 0 */
    StragglerWatch watch;       /* rank 0 only */
    int bad_noted;              /* number of bad samples named in the log */
    bool bad_lost;              /* the log has said that their list cannot be written */
    bool rotated_noted;         /* the log has said that images are stored rotated */
    int64_t compared_step;      /* of the last comparison of all replicas; 0: none yet */
} TowerProcess;

/* The configuration of the replica of the process at `place`. Its batch sizes stand in *sizes, which the caller frees. */
NODISCARD Status process_config(const TrainJob *job, const Placement *place, ReplicaConfig *config, int32_t **sizes);
/* The configuration of the loader of this process's training data, from p->run.step on. */
LoaderConfig process_loader(const TowerProcess *p);
/* Enter an activity, for all towers of the process or one of them: updates the ledger and calls the hooks. */
void process_activity(TowerProcess *p, int64_t step, Activity activity);
void tower_activity(TowerProcess *p, int local, int64_t step, Activity activity);
/* The learning rate of a step, counted from 0. */
double process_lr(const TowerProcess *p, int64_t step);
/* A failed write of `what` does not end the run at once: it is reported, with the thread's message, on rank 0 in log.txt
 * too, and the next attempt may succeed. */
void storage_note(TowerProcess *p, const char *what, int64_t step);
/* Write a line to log.txt, on rank 0; newlines become bars. */
void process_log(TowerProcess *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The first process of each node: it keeps the ledger's state of the run for its supervisor. */
static inline bool leads_node(const Placement *place)
{
    return process_in_node(place) == 0;
}
/* The towers of a process: "tower 1", "towers 4..7 (process 1)". */
void towers_text(const TrainJob *job, int rank, char *text, size_t bytes);
bool epoch_ended(const TowerProcess *p); /* with the last step */
/* True after a signal during an evaluation: the end of the epoch is left to a resumed run, or one that returns here. */
bool epoch_end_is_owed(const TowerProcess *p);
/* Files of lines number them 2 s for step s and 2 s + 1 for what follows it, such as an evaluation: the last line that stays
 * if the run goes on from here. */
int64_t last_line_kept(const TowerProcess *p);
/* After the state was read from a checkpoint, or at the start of an epoch: its clock goes on from run.epoch_seconds. */
void epoch_clock_start(TowerProcess *p);
/* True if an earlier rollback excludes this step (from 1). */
bool rollback_leaves_out(const RunState *run, int64_t step);
