/* The runs command: one row for each run directory in a folder, as a table or as JSON. Reads records only, and asks the
 * lock of a run whether its trainer lives. */
#pragma once

#include "inception/options/options.h"
#include "towers/files/json.h"
#include "towers/record/run_read.h"

enum { RUN_NAME_ROOM = 256, RUN_WORD_ROOM = 32, RUN_WHY_ROOM = 512, RUN_BYTES = 16 << 20 /* of metrics.jsonl, kept */ };

/* What a run is ranked by: the first of these that it has. */
typedef enum ScoreKind { SCORED_BY_ACCURACY, SCORED_BY_MAP, SCORED_BY_KID, SCORED_BY_LOSS, NOT_SCORED } ScoreKind;
const char *run_score_name(ScoreKind kind);
double run_score_scale(ScoreKind kind);                                      /* 100 for per cent */
void run_score_text(ScoreKind kind, double score, char *text, size_t bytes); /* "accuracy 91.20 %" */
bool run_scores_better(ScoreKind kind, double score, ScoreKind than_kind, double than);
double epoch_score(const EpochRecord *epoch, ScoreKind kind); /* NaN: it has none of this kind */
/* The best score of the epochs up to `last_epoch`; NOT_SCORED and NaN if there is none. */
void run_score(const Run *run, int64_t last_epoch, ScoreKind *kind, double *best);

/* The epoch of the best evaluation, whose weights and confusion matrix are kept; NULL if there was none. */
const EpochRecord *run_best_epoch(const Run *run);

enum { STEP_UNKNOWN = -1 }; /* the records cannot be read */

/* A run in a list: state and why, best score, time. */
typedef struct RunRow {
    char name[RUN_NAME_ROOM], model[RUN_WORD_ROOM], started[RUN_WORD_ROOM], state[RUN_WORD_ROOM], why[RUN_WHY_ROOM];
    ScoreKind kind;
    double score, seconds; /* NaN: not known */
    double started_at;     /* seconds since 1970; 0: not known */
    int64_t step;          /* or STEP_UNKNOWN */
    pid_t pid;             /* of a run that goes on; 0: not known */
    int runs;              /* of a sweep, whose best score and sums these are; 0: it is a run */
} RunRow;
/* `run`: NULL if its records could not be read. `name`: what to call it. */
void run_row_of(const Run *run, const char *path, const char *name, RunRow *row);
bool is_run(const char *path); /* a folder with records */

/* Lists `folder` if it is a run, else the runs and sweeps directly in it, in this order (best score and longest time first). A run
 * whose records cannot be read is a row that says why. Errors: ERR_ARG if the folder cannot be read or has no run. */
NODISCARD Status runs_list(const char *folder, RunOrder order, bool json, FILE *to);
