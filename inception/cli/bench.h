/* bench: timed training steps on synthetic data. The output has the format of tf_cnn_benchmarks, so its scripts can
 * read it. */
#ifndef TOWERS_INCEPTION_CLI_BENCH_H
#define TOWERS_INCEPTION_CLI_BENCH_H

#include "inception/cli/job.h"
#include "towers/train/train.h"

NODISCARD Status bench_open(Options *options, JobFiles *files);
NODISCARD Status bench_run(const Options *options, JobFiles *files, int *signal_number); /* as train_timed */

#endif
