/* --mlperf-log: RUN/mlperf.log, the events of a run as MLPerf Training's rules want them, a line each:
 *
 *   :::MLLOG {"namespace": "", "time_ms": 1767225600000, "event_type": "POINT_IN_TIME", "key": "seed", "value": 0,
 *             "metadata": {"step_num": 0}}
 *
 * Epochs count from 1. Sources: mlcommons/training_policies, training_rules.adoc ("Benchmark rules, Logging"), and the package
 * mlperf-logging, whose compliance checker reads it by the rules of 4.0.0, the last with an image classifier ("resnet").
 *
 * Rank 0 writes the file; calls of other ranks, and of jobs without the option, do nothing. If storage fails later than
 * mlperf_log_open, that is noted, and training goes on. */
#pragma once

#include "towers/replica/tower_process.h"

#define MLPERF_LOG "mlperf.log"

/* Before the first sample is read: settings, init_start to run_start. A run that goes on loses the lines of what comes again. */
NODISCARD Status mlperf_log_open(TowerProcess *p, bool goes_on);
/* Before each step: the first one of an epoch starts it. */
void mlperf_log_step(TowerProcess *p);
/* Behind the last step of this epoch. */
void mlperf_log_epoch(TowerProcess *p, int64_t epoch);
/* An evaluation is done that began at that date (clock_date); accuracy: a share of 1. */
void mlperf_log_evaluation(TowerProcess *p, int64_t epoch, double began, double accuracy);
/* The run ends, with success or not; a run that is resumed takes this back. */
void mlperf_log_close(TowerProcess *p, bool success);
/* After a rollback: remove the lines of what comes again. */
NODISCARD Status mlperf_log_return(TowerProcess *p);
