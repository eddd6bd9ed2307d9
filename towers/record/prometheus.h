/* The numbers of a step in Prometheus' text format, for node_exporter's textfile collector: a gauge towers_KEY for each
 * numeric column of metrics.def, with the labels `run` and, for the number of a tower or head, `tower` or `head`.
 * https://prometheus.io/docs/instrumenting/exposition_formats/ */
#pragma once

#include "towers/record/metrics.h"

/* What belongs to the run, not to a step: gauges towers_steps, towers_step_time_seconds, and of the last evaluation
 * towers_evaluated_epoch, towers_test_loss and towers_test_accuracy or towers_test_map. */
typedef struct RunNumbers {
    int64_t steps;             /* of the whole run */
    double step_time;          /* when the last step was recorded: seconds since 1970 */
    const EpochRecord *tested; /* borrowed; NULL: nothing was evaluated yet */
} RunNumbers;

/* The numbers of a step as text, which the caller owns. Errors: ERR_MEMORY. */
NODISCARD Status prometheus_step(const char *run, const StepRecord *record, char **text);
/* Replace the file `path` by this text and the numbers of the run. A reader sees the old or the new file, whole; it is not made
 * durable, because the next second replaces it. Errors: ERR_IO, ERR_MEMORY. */
NODISCARD Status prometheus_write(const char *path, const char *run, const char *step, const RunNumbers *numbers);
/* Before a run: ERR_ARG if the collector would not read the file, or if it cannot be written. */
NODISCARD Status prometheus_check(const char *path);
