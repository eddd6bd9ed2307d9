/* The numbers of a step in Prometheus' text format, for node_exporter's textfile collector: a gauge towers_KEY for each
 * numeric column of metrics.def, with the labels `run` and, for the number of a tower or head, `tower` or `head`.
 * https://prometheus.io/docs/instrumenting/exposition_formats/ */
#pragma once

#include "towers/record/metrics.h"

/* Replace the file `path` by the numbers of a step. A reader sees the old or the new file, whole; it is not made durable,
 * because the next second replaces it. Errors: ERR_IO, ERR_MEMORY. */
NODISCARD Status prometheus_write(const char *path, const char *run, const StepRecord *record);
/* Before a run: ERR_ARG if the collector would not read the file, or if it cannot be written. */
NODISCARD Status prometheus_check(const char *path);
