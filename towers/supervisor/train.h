/* Running a job under a supervisor: training, its steps alone, an evaluation. */
#pragma once

#include "towers/train/result.h"

/* Fork the towers, show the console and wait for the end; after a crash, start them again up to job->max_restarts times.
 * The status is the root cause of a failure. */
NODISCARD Status train_run(const TrainJob *job, TrainResult *result);

/* Run only the steps, for benchmarks: no records, no evaluation, no checkpoints; job->on_step is called for each. Here
 * and below *signal_number receives the signal that requested a stop, or 0. */
NODISCARD Status train_timed(const TrainJob *job, int *signal_number);

/* Evaluate weights, every sample exactly once. `samples` [of the test set] receives the result of each; `scores`
 * [of the test set][classes] the probabilities or their logarithms, as Ledger.score (else NULL). */
NODISCARD Status eval_run(const TrainJob *job, const char *weights, EvalResult *result, EvalSample *samples,
                          float *scores, int *signal_number);
