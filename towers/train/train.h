/* Running a job: the supervisor forks the tower processes, shows the console and waits for their end. */
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
    bool unfreezes;              /* they have ended so that frozen parameters can join */
    int64_t first_step;          /* after which they began */
    int64_t restarts;            /* after crashes (--max-restarts) */
    bool saved; /* stopped by a signal, after saving, or while it waited for a restart from a checkpoint */
    char ending[LEDGER_ENDING]; /* why it ended before its last step: --patience, --stop-at; "" */
    bool unanswered;            /* a driver blocks a thread of this process, which must fork no more towers */
    bool abandoned;             /* a killed tower did not end: use no file system that may hang */
} TrainResult;

/* Fork the towers, show the console and wait for the end; after a crash, start them again up to job->max_restarts times.
 * The status is the root cause of a failure. */
NODISCARD Status train_run(const TrainJob *job, TrainResult *result);

/* Run only the steps, for benchmarks: no records, no evaluation, no checkpoints; job->on_step is called for each. Here
 * and below *signal_number receives the signal that requested a stop, or 0. */
NODISCARD Status train_timed(const TrainJob *job, int *signal_number);

/* Evaluate weights, every sample exactly once. `samples` [of the test set] receives the result of each; `scores` the
 * probabilities [of the test set][classes], if samples have any number of classes or job->keep_scores (else NULL). */
NODISCARD Status eval_run(const TrainJob *job, const char *weights, EvalResult *result, EvalSample *samples,
                          float *scores, int *signal_number);
