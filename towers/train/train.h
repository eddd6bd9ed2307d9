/* Running a job: the supervisor forks the tower processes, shows the console and waits for their end. */
#ifndef TOWERS_TRAIN_TRAIN_H
#define TOWERS_TRAIN_TRAIN_H

#include "towers/replica/job.h"

typedef struct TrainResult {
    int64_t step;
    double test_top1, test_top5, best_top1;
    int64_t bad_samples; /* left out because they could not be decoded */
    int signal;          /* that asked for the stop, or 0 */
    bool abandoned;      /* a tower did not even end when killed: touch nothing that may hang as it does */
} TrainResult;

/* Run it: forks the towers, shows the console, waits. The status is the root cause of a failure. */
NODISCARD Status train_run(const TrainJob *job, TrainResult *result);

/* The steps alone, for benchmarks: no records, no evaluation, no checkpoints; job->on_step hears of each. Here and
 * below *signal_number receives the number of the signal that asked for a stop, or 0. */
NODISCARD Status train_timed(const TrainJob *job, int *signal_number);

/* Evaluate weights: every sample exactly once. `samples` [of the test set] receives what was found of each. */
NODISCARD Status eval_run(const TrainJob *job, const char *weights, EvalResult *result, EvalSample *samples,
                          int *signal_number);

#endif
