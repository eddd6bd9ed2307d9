/* The files of a run directory that grow: metrics.jsonl (an object a step), results.csv (a row an epoch), layers.jsonl
 * (an object a summary), norms.jsonl (an object an epoch), log.txt, and the event file. Written by rank 0 from the
 * ledger, by one thread. After a resume at step s, rows of later steps are cut off first, so no step is there twice,
 * whatever a crash left; a run that starts anew in an old directory renames the old files first (metrics.jsonl.1, ...).
 *
 * A disk that is full or failing does not stop training: once open, every function here returns OK for trouble with
 * storage, rows that cannot be written are dropped whole, metrics_warning tells it once for the console, and
 * log.txt says how many were lost as soon as it can be written again. */
#ifndef TOWERS_RECORD_METRICS_H
#define TOWERS_RECORD_METRICS_H

#include "nccl_sync/mean_loss.h"
#include "towers/record/epoch.h"
#include "towers/record/events.h"

#define METRIC_C_REAL double
#define METRIC_C_WHOLE int64_t
#define METRIC_C_COUNT int64_t
#define METRIC_C_FLAG bool
#define METRIC_C_WORD const char *

/* What is known of a step. All pointers are borrowed. */
typedef struct StepRecord {
#define METRIC(type, key, when, read, tag, text) METRIC_C_##type key;
#define TOWER_METRIC(type, key, read, tag, text) const METRIC_C_##type *key;
#include "towers/record/metrics.def"
    const TowerLoss *tower; /* [towers] */
    int towers;
    const double *head_loss;            /* [heads]: of each head, without its weight, the main one first */
    int heads;                          /* 0: the network has no auxiliary heads */
    bool averages;                      /* the next two are known */
    double base_average, total_average; /* moving averages of base_loss and total_loss */
} StepRecord;

typedef struct Metrics Metrics;
/* Drop the rows of results.csv of epochs after this one; no file is none. */
NODISCARD Status metrics_forget_epochs(const char *run_dir, int64_t last_epoch);
/* `resume_step` >= 0 keeps rows up to and including it. `event_interval`: steps between TensorBoard scalars. */
NODISCARD Status metrics_open(const char *run_dir, int64_t resume_step, int event_interval, Metrics **made);
NODISCARD Status metrics_step(Metrics *metrics, const StepRecord *record);
NODISCARD Status metrics_epoch(Metrics *metrics, const EpochRecord *record); /* also a line of log.txt */
NODISCARD Status metrics_log(Metrics *metrics, const char *format, ...)
    __attribute__((format(printf, 2, 3))); /* a line of log.txt, with the time */
/* Root mean squares of parameters and of their gradients: a line of layers.jsonl, {"step": 100, "layers": {NAME:
 * [parameter, gradient], ...}}. */
typedef struct LayerRecord {
    const char *name;
    double weight, gradient;
} LayerRecord;
NODISCARD Status metrics_layers(Metrics *metrics, int64_t step, const LayerRecord *layers, int count);
/* Drift of batch-norm statistics between towers: a line of norms.jsonl, {"step": 100, "norms": {NAME: [drift of the
 * means, of the variances], ...}}; in the record weight and gradient. */
NODISCARD Status metrics_norms(Metrics *metrics, int64_t step, const LayerRecord *norms, int count);
Events *metrics_events(Metrics *metrics);
/* Tells the outcome of a call on metrics_events, as if it had been made here. */
void metrics_outcome(Metrics *metrics, Status st);
/* Everything written so far is in the files (before a checkpoint). */
NODISCARD Status metrics_flush(Metrics *metrics);
/* A sentence to print when writing has begun to fail, once per outage; else NULL. Valid until the next call. */
const char *metrics_warning(Metrics *metrics);
void metrics_close(Metrics *metrics);

#endif
