/* The growing files of a run directory: metrics.jsonl (an object per step), results.csv (a row per epoch), layers.jsonl
 * (an object per summary), norms.jsonl (an object per epoch), generated.jsonl (an object per grid of generated images),
 * log.txt, and the event file. Only rank 0's process has a Metrics, which its main thread alone calls. A resume at step
 * s first removes rows of later steps, so that steps are unique after any crash; a new run in an old directory first
 * renames the old files (metrics.jsonl.1, ...).
 *
 * A thread writes them (append.h), so that training does not wait for storage. A full or failing disk does not stop training:
 * after opening, whole rows are dropped if storage fails, metrics_warning returns one warning for the console, and log.txt gets the
 * number of lost writes as soon as it can be written again. Storage that does not answer loses no row: they wait in memory, and
 * when there are too many of them, training waits. */
#pragma once

#include "kernels/telemetry.h"
#include "nccl_sync/mean_loss.h"
#include "towers/record/epoch.h"
#include "towers/record/events.h"

#define METRIC_C_REAL double
#define METRIC_C_MAYBE Number
#define METRIC_C_LOSS Number
#define METRIC_C_WHOLE int64_t
#define METRIC_C_COUNT int64_t
#define METRIC_C_FLAG bool
#define METRIC_C_WORD const char *

/* A named number of a phase. */
typedef struct TermRecord {
    const char *name;
    Number mean;         /* over the samples of all towers */
    const Number *tower; /* [towers]: over those of each; ABSENT for one without samples */
} TermRecord;

/* The record of a step. All pointers are borrowed. */
typedef struct StepRecord {
#define METRIC(type, key, when, read, tag, text) METRIC_C_##type key;
#define TOWER_METRIC(type, key, read, tag, text) const METRIC_C_##type *key;
#define TELEMETRY(key, tag, text)
#include "towers/record/metrics.def"
    const DeviceTelemetry *telemetry; /* [towers]; NULL: no device says anything */
    int64_t telemetry_ns;             /* when they were read: a row has only new ones */
    const TowerLoss *tower;           /* [towers]; of its terms only `term` is printed */
    int towers;
    const double *head_loss; /* [heads]: of each head, without its weight, the main one first */
    int heads;               /* 0: the network has no auxiliary heads */
    const TermRecord *term;  /* [terms] */
    int terms;
    bool averages;                      /* the next two are known */
    double base_average, total_average; /* moving averages of base_loss and total_loss */
} StepRecord;

/* A name in metrics.def. */
static inline Number last_loss(const StepRecord *r)
{
    return reported_loss(r->tower, r->towers, LOSS_REPORT_LAST, LOSS_DIVISOR_SAMPLES, 0);
}

typedef struct Metrics Metrics;
/* Removes the rows of epochs that ended after this step from results.csv, which need not exist. */
NODISCARD Status metrics_forget_epochs(const char *run_dir, int64_t last_step);
/* Removes what the end of an epoch at this step has recorded, before it is recorded again. */
NODISCARD Status metrics_forget_end(const char *run_dir, int64_t step);
/* `resume_step` >= 0 keeps rows up to and including it. `row_interval`: steps between rows of metrics.jsonl, which has
 * those of refused steps as well; 0: 1. `event_interval`: steps between TensorBoard scalars. `several`: that of all
 * epochs. */
NODISCARD Status metrics_open(const char *run_dir, int64_t resume_step, int64_t row_interval, int event_interval,
                              bool multi_label, Metrics **made);
void metrics_step(Metrics *metrics, const StepRecord *record);
void metrics_epoch(Metrics *metrics, const EpochRecord *record); /* also a line of log.txt */
void metrics_log(Metrics *metrics, const char *format, ...)
    __attribute__((format(printf, 2, 3))); /* a line of log.txt, with the time */
/* Root mean squares of parameters and of their gradients: a line of layers.jsonl, {"step": 100, "layers": {NAME:
 * [parameter, gradient], ...}}. */
typedef struct LayerRecord {
    const char *name;
    double weight, gradient;
} LayerRecord;
void metrics_layers(Metrics *metrics, int64_t step, const LayerRecord *layers, int count);
/* Drift of batch-norm statistics between towers: a line of norms.jsonl, {"step": 100, "norms": {NAME: [drift of the
 * means, of the variances], ...}}; in the record weight and gradient. */
void metrics_norms(Metrics *metrics, int64_t step, const LayerRecord *norms, int count);
/* A grid of images that a generator made, and their measure: a line of generated.jsonl. */
typedef struct GeneratedRecord {
    int64_t step, epoch;       /* epoch: completed ones */
    const char *file;          /* below the run directory; borrowed, as `features` */
    bool measured;             /* the rest is known */
    double kid, kid_deviation; /* against training images */
    int64_t images;            /* of each set */
    const char *features;      /* the classifier and the digest of its weights */
} GeneratedRecord;
void metrics_generated(Metrics *metrics, const GeneratedRecord *record);
Events *metrics_events(Metrics *metrics);
/* Handles the status of a call on metrics_events like that of an own write. */
void metrics_outcome(Metrics *metrics, Status st);
/* All buffered rows are to be written to the files now. */
void metrics_flush(Metrics *metrics);
/* Waits until all rows before are written, and fsyncs the files (before a checkpoint); any thread may call it while the main thread
 * goes on. Errors: ERR_IO. */
NODISCARD Status metrics_sync(const Metrics *metrics);
/* A warning for the console, once when writes begin to fail, or when storage does not answer; else NULL. Valid until the next call. */
const char *metrics_warning(Metrics *metrics);
void metrics_close(Metrics *metrics);
