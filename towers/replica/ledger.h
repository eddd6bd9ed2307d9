/* Ledger: a small memory mapping shared by the supervisor and all towers. Every tower writes its own rows; the
 * supervisor and rank 0 read all of them. Console, records and hang reports use it at no cost to the towers, because no
 * process waits for it. */
#pragma once

#include <stdatomic.h>

#include "kernels/base/clock.h"
#include "kernels/base/status.h"
#include "kernels/telemetry.h"
#include "nccl_sync/mean_loss.h"
#include "towers/data/loading/loader.h"
#include "towers/graph/model.h"
#include "towers/record/epoch.h"
#include "towers/replica/finding.h"

enum {
    LEDGER_STEPS = 256, /* rows kept per tower */
    LEDGER_EPOCHS = 16,
    LEDGER_MESSAGE = 2048,
    LEDGER_NOTES = 64,
    LEDGER_TERMS = 96,
    LEDGER_ENDING = 256,
    LEDGER_HEADER = 8192
};

/* The activity of a tower, for the console, the times in the records, and hang reports. */
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

/* One tower in one step. Times of towers in other programs reach rank 0 a little later (activities_gather). */
typedef struct LedgerRow {
    int64_t step;
    TowerLoss loss; /* with the terms of the phase of this step */
    int phase;
    int64_t activity_ns[ACTIVITY_COUNT]; /* time spent in each activity of this step */
    int64_t arrival_ns;                  /* CLOCK_MONOTONIC when it reached the collective; 0: on another host */
    int64_t until_sum_ns;                /* from the beginning of the step in its process until then */
    LoaderClocks loader;                 /* totals of its process's loader so far */
} LedgerRow;

typedef struct LedgerTower {
    _Atomic int64_t heartbeat_ns; /* CLOCK_MONOTONIC of the last change of activity */
    _Atomic int64_t step;         /* the step it is in */
    _Atomic int activity;
    LedgerRow rows[LEDGER_STEPS]; /* row of step s: rows[s % LEDGER_STEPS]; complete once rows[].step == s */
} LedgerTower;

/* Values of a step for the console. */
typedef struct LedgerShown {
    int64_t step, samples;
    double loss, lr, seconds; /* loss according to --report-loss and --report-l2 */
    char terms[LEDGER_TERMS]; /* "  slope 1.02  penalty 0.003": those of its phase that the console shows */
} LedgerShown;

/* By what a run ends before its last step (stopping.h). */
typedef enum EndingRule { ENDS_AT_LAST_STEP = 0, ENDS_AT_STOP_AT, ENDS_BY_PATIENCE, ENDS_AT_STOP_EPOCH } EndingRule;

/* The state of the whole run; written only by rank 0. */
typedef struct LedgerRun {
    _Atomic int64_t step, steps;     /* steps done, refused ones too; total steps (0: not started yet) */
    char header[LEDGER_HEADER];      /* introduction.h's lines; complete once `steps` is not 0 */
    _Atomic int64_t first_step;      /* start of this process: 0, or the step after which it resumed */
    _Atomic int64_t skipped;         /* steps that the gate refused */
    _Atomic int64_t overflows;       /* steps skipped because a gradient overflowed f16 */
    _Atomic int64_t bad_samples;     /* samples skipped because they could not be decoded */
    _Atomic int64_t images, rotated; /* samples of all steps since first_step; of them stored rotated (EXIF) */
    _Atomic int64_t eval_rotated;    /* samples of evaluations that are stored rotated */
    _Atomic int64_t stage;       /* the processes have ended so that those of this step's stage begin; from 1, or 0 */
    _Atomic int stop_signal;     /* set by the supervisor: save at the next step boundary, then stop */
    _Atomic int64_t first_epoch; /* epochs completed before this process started */
    _Atomic int64_t epochs_done; /* the last one in `epoch` */
    EpochRecord tested;          /* the last evaluated epoch; .epoch is 0 if there is none */
    double best[SCORES];         /* of all epochs, including those before a resume; ABSENT: none was measured */
    char ending[LEDGER_ENDING];  /* why the run ended before its last step: "no higher accuracy ..."; "" */
    EndingRule rule;             /* by which it ended then */
    int64_t best_step;           /* of the best weights; 0: none */
    bool complete;               /* the run had ended before: nothing was left to do, and nothing is written */
    LedgerShown shown[LEDGER_STEPS]; /* of step s: shown[s % LEDGER_STEPS], complete before `step` becomes s */
    _Atomic int64_t digests;         /* comparisons of all replicas so far */
    _Atomic int64_t notes;           /* warnings so far; number n is note[n % LEDGER_NOTES] */
    char note[LEDGER_NOTES][LEDGER_MESSAGE];
    bool informs[LEDGER_NOTES];          /* it is no warning, but says what the run does */
    _Atomic int64_t noted[LEDGER_NOTES]; /* n + 1 of the one that is there; 0: it is being written */
} LedgerRun;

/* A process: its error, if it failed, and what its device says. */
typedef struct LedgerProcess {
    _Atomic int status; /* Status; written after the text */
    StatusText words;
    _Atomic bool stack_written; /* it has written the calls that it hangs in */
    _Atomic bool explains;      /* it lacks memory, and looks for a batch that fits */
    _Atomic int64_t readings;   /* of its device so far; number n is in telemetry[n % 2] */
    struct {
        int64_t at_ns;
        DeviceTelemetry value;
    } telemetry[2];
} LedgerProcess;

/* The result of an evaluation for one sample. If samples have any number of classes: label and predicted 0; wrong if the
 * probability of a class is above 0.5 that the sample does not have, or not above for one that it has; probability: of
 * the answer to the class where the surest of the wrong answers was given. */
typedef struct EvalSample {
    int32_t label, predicted; /* label: LABEL_NONE if it could not be decoded */
    /* of the predicted class; its loss, -ln of the label's or the mean over the classes. NaN if the network's
     * answer is not finite */
    float probability, loss;
    bool wrong;
} EvalSample;

/* The result of an evaluation. */
typedef struct EvalResult {
    int64_t count, correct[2]; /* samples; correct top-1 and top-5 predictions */
    double loss;               /* mean */
    bool multi_label;      /* samples have any number of classes: correct are all classes, and the most probable one */
    double mean_precision; /* if multi_label: mAP (average_precision.h); NaN if no sample has a class */
} EvalResult;

/* By which the best weights are chosen: accuracy, or mAP. NaN if the loss is not finite or there is nothing to
 * measure. */
double eval_score(const EvalResult *result);

/* The result of the search after a refused step. Written by the process of the failing tower; the others read it after
 * a barrier. */
typedef struct LedgerSearch {
    Finding found;
    char report[LEDGER_MESSAGE]; /* lines of text, each preceded by a newline */
} LedgerSearch;

typedef struct Ledger {
    int towers, processes;
    LedgerRun run;
    LedgerSearch search;
    EvalResult eval;                  /* of an evaluation run */
    EpochRecord epoch[LEDGER_EPOCHS]; /* of epoch e: epoch[e % LEDGER_EPOCHS] */
    _Atomic int first_failed;         /* process + 1 that failed first by itself, 0 = none */
    _Atomic int first_follower;       /* process + 1 that failed first because another one had left, 0 = none */
    LedgerProcess *process;           /* [processes], inside the segment */
    LedgerTower *tower;               /* [towers], inside the segment */
    EvalSample *sample;               /* [samples] of the last evaluation, a mapping of its own; NULL */
    int64_t samples;
    /* [samples][classes] probabilities, or their logarithms (TrainJob.keep_logs), of samples with a label; a mapping of its
     * own; NULL unless samples have any number of classes or TrainJob.keep_scores. */
    float *score;
    int classes;
    size_t bytes;
} Ledger;

NODISCARD Status ledger_create(int towers, int processes, Ledger **made); /* before the fork */
/* Allocate memory for the result of every sample of an evaluation, also before the fork. Each process fills in its
 * samples; all results may be read after the evaluation's last collective. `classes`: of which the probabilities are kept for
 * every sample; 0: none. */
NODISCARD Status ledger_samples(Ledger *ledger, int64_t count, int classes);
void ledger_destroy(Ledger *ledger);

/* Enter an activity: store the duration of the previous one in the tower's current row, and update the heartbeat. */
void ledger_activity(Ledger *ledger, int tower, int64_t step, Activity activity);
LedgerRow *ledger_row(Ledger *ledger, int tower, int64_t step); /* the row to fill for this step */
/* A warning for the console, from any process; the run continues. */
void ledger_note(Ledger *ledger, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A line for what the run does by its settings, which is no warning. */
void ledger_inform(Ledger *ledger, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A reading of a process's device; the newest, and when it was made: 0 if there is none. */
void ledger_telemetry_put(Ledger *ledger, int process, const DeviceTelemetry *telemetry);
int64_t ledger_telemetry(const Ledger *ledger, int process, DeviceTelemetry *telemetry);
/* Warning number n, or NULL while it is being written, or after a later one has replaced it. */
const char *ledger_noted(const Ledger *ledger, int64_t n);
/* Copy the thread's error message into the process's row. The first process to do so is the root cause; one that `follows`
 * failed because another one had left, which may be written down only after it. */
void ledger_fail(Ledger *ledger, int process, Status status, bool follows);
int ledger_failed(const Ledger *ledger); /* the process that is the root cause, so far; -1: none has failed */
