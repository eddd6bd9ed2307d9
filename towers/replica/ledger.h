/* Ledger: one small mapped segment that the supervisor and all towers share. Every tower writes its own rows; the
 * supervisor and rank 0 read all. Console, log, TensorBoard, `compare` and the hang report come from it, at no cost to
 * the towers: nobody waits for it. */
#ifndef TOWERS_REPLICA_LEDGER_H
#define TOWERS_REPLICA_LEDGER_H

#include <stdatomic.h>

#include "kernels/clock.h"
#include "kernels/status.h"
#include "nccl_sync/mean_loss.h"
#include "towers/data/loader.h"
#include "towers/graph/model.h"
#include "towers/record/epoch.h"
#include "towers/replica/finding.h"

enum {
    LEDGER_STEPS = 256, /* rows kept per tower */
    LEDGER_EPOCHS = 16,
    LEDGER_MESSAGE = 2048,
    LEDGER_NOTES = 8,
    LEDGER_HEADER = 8192
};

/* What a tower is doing, for the hang report. */
typedef enum Activity {
    ACTIVITY_START = 0,
    ACTIVITY_DATA,
    ACTIVITY_COPY,
    ACTIVITY_FORWARD,
    ACTIVITY_BACKWARD,
    ACTIVITY_REDUCE,
    ACTIVITY_UPDATE,
    ACTIVITY_RECORD,
    ACTIVITY_EVAL,
    ACTIVITY_SAVE,
    ACTIVITY_DONE,
    ACTIVITY_COUNT
} Activity;
const char *activity_name(Activity activity);

/* One tower, one step. */
typedef struct LedgerRow {
    int64_t step;
    TowerLoss loss;
    double head[MODEL_HEADS]; /* with auxiliary heads: summed loss of each, the main one first */
    bool loss_finite, grad_finite;
    double grad_norm;                    /* of this tower's own gradient, before the sum */
    int64_t hits[2];                     /* top-1, top-5 */
    int64_t activity_ns[ACTIVITY_COUNT]; /* time spent in each activity of this step */
    int64_t arrival_ns;                  /* CLOCK_MONOTONIC when it reached the collective */
    LoaderClocks loader;                 /* of its process's loader by now, in all */
} LedgerRow;

typedef struct LedgerTower {
    _Atomic int64_t heartbeat_ns; /* CLOCK_MONOTONIC of the last change of activity */
    _Atomic int64_t step;         /* the step it is in */
    _Atomic int activity;
    LedgerRow rows[LEDGER_STEPS]; /* row of step s: rows[s % LEDGER_STEPS]; complete once rows[].step == s */
} LedgerTower;

/* What the console tells of one step. */
typedef struct LedgerShown {
    int64_t step, samples;
    double loss, lr, seconds; /* loss as --report-loss and --report-l2 say */
} LedgerShown;

/* What the whole run is doing: written by rank 0 only. */
typedef struct LedgerRun {
    _Atomic int64_t step, steps;     /* committed steps, steps in all (0: not started yet) */
    char header[LEDGER_HEADER];      /* introduction.h's lines; complete once `steps` is not 0 */
    _Atomic int64_t first_step;      /* where this process began: 0, or the step it resumed after */
    _Atomic int64_t skipped;         /* steps that the gate refused */
    _Atomic int64_t overflows;       /* steps left out because f16 was too small for a gradient */
    _Atomic int64_t bad_samples;     /* samples left out because they could not be decoded */
    _Atomic int64_t images, rotated; /* samples of all steps since first_step; of them stored rotated (EXIF) */
    _Atomic int64_t eval_rotated;    /* samples of evaluations that are stored rotated */
    _Atomic int stop_signal;         /* set by the supervisor: save at the next step boundary, then stop */
    _Atomic int64_t first_epoch;     /* epochs that were done before this process began */
    _Atomic int64_t epochs_done;     /* the last one in `epoch` */
    EpochRecord tested;              /* the last one that was evaluated; .epoch is 0 if none was */
    double best_top1;                /* of all epochs, also of those before a resume; -1: none was evaluated */
    LedgerShown shown[LEDGER_STEPS]; /* of step s: shown[s % LEDGER_STEPS], complete before `step` says s */
    _Atomic int64_t digests;         /* comparisons of all replicas so far */
    _Atomic int64_t notes;           /* warnings so far; number n is note[n % LEDGER_NOTES] */
    char note[LEDGER_NOTES][LEDGER_MESSAGE];
} LedgerRun;

/* What a process found in a comparison with the others; read by them after a barrier. */
typedef struct LedgerFinding {
    uint64_t digest;    /* of its weights, or of a tensor of them */
    int64_t wrong;      /* elements that are not what they should be */
    int64_t element;    /* the first of them */
    double wanted, got; /* there */
} LedgerFinding;

/* A process's last words: why it failed. The first failure of all wins `first`. */
typedef struct LedgerProcess {
    _Atomic int status; /* Status; written after the text */
    StatusText words;
    LedgerFinding finding;
    _Atomic bool stack_written; /* it has told the calls that it hangs in */
} LedgerProcess;

/* What an evaluation found of one sample. */
typedef struct EvalSample {
    int32_t label, predicted; /* label: LABEL_NONE if it could not be decoded */
    float probability, loss;  /* of the predicted class; -ln of the label's */
} EvalSample;

/* What an evaluation found. */
typedef struct EvalResult {
    int64_t count, hits[2]; /* samples; top-1 and top-5 hits */
    double loss;            /* mean */
} EvalResult;

/* What the search after a refused step found. Written by the process of the tower at fault; the others read it after a
 * barrier. */
typedef struct LedgerSearch {
    Finding found;
    char report[LEDGER_MESSAGE]; /* lines for people, each behind a newline */
} LedgerSearch;

typedef struct Ledger {
    int towers, processes;
    LedgerRun run;
    LedgerSearch search;
    EvalResult eval;                  /* of an evaluation run */
    EpochRecord epoch[LEDGER_EPOCHS]; /* of epoch e: epoch[e % LEDGER_EPOCHS] */
    _Atomic int first_failed;         /* process + 1 that failed first, 0 = none */
    LedgerProcess *process;           /* [processes], inside the segment */
    LedgerTower *tower;               /* [towers], inside the segment */
    EvalSample *sample;               /* [samples] of the last evaluation, a mapping of its own; NULL */
    int64_t samples;
    size_t bytes;
} Ledger;

NODISCARD Status ledger_create(int towers, int processes, Ledger **made); /* before the fork */
/* Room for what is found of each sample of an evaluation; before the fork too. Each process fills those that it sees; all of
 * them may be read after the evaluation's last collective. */
NODISCARD Status ledger_samples(Ledger *ledger, int64_t count);
void ledger_destroy(Ledger *ledger);

/* Enter an activity: stores the time of the one that ends in the tower's current row, and beats the heart. */
void ledger_activity(Ledger *ledger, int tower, int64_t step, Activity activity);
LedgerRow *ledger_row(Ledger *ledger, int tower, int64_t step); /* the row to fill for this step */
/* A warning for the person at the console, from rank 0: the run goes on. */
void ledger_note(Ledger *ledger, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Copy the thread's error message into the process's row; the first process to do so is the root cause. */
void ledger_fail(Ledger *ledger, int process, Status status);

#endif
