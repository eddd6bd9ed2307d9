/* TrainResult: how the towers of a run have ended. */
#pragma once

#include "towers/replica/job.h"

typedef struct TrainResult {
    int64_t step;
    double test_top1, test_top5; /* -1: not measured */
    double best[SCORES];         /* NaN: none was measured */
    int64_t best_step;           /* of the best weights; 0: none */
    int64_t bad_samples;         /* skipped because they could not be decoded */
    int signal;                  /* the signal that requested the stop, or 0 */
    bool begun;                  /* the towers were set up */
    bool complete;               /* the run had ended before: nothing was left to do, and nothing was written */
    int64_t stage;               /* they have ended so that those of this step's stage begin; from 1, or 0 */
    int64_t first_step;          /* after which they began */
    int64_t restarts;            /* after crashes (--max-restarts) */
    bool saved; /* stopped by a signal, after saving, or while it waited for a restart from a checkpoint */
    char ending[LEDGER_ENDING]; /* why it ended before its last step: --patience, --stop-at, --stop-epoch; "" */
    EndingRule rule;            /* by which of them */
    bool unanswered;            /* a driver blocks a thread of this process, which must fork no more towers */
    bool moved;                 /* the run directory was renamed, removed or replaced: nothing is started again there */
    bool abandoned; /* a killed tower did not end, or storage does not answer: use no file system that may hang */
} TrainResult;

/* For the exit code of the process (kernels/base/status.h). */
static inline Ending train_ending(const TrainJob *job, const TrainResult *result)
{
    return (Ending){result->signal, result->saved && job->preempt_exit >= 0, (int)job->preempt_exit};
}
