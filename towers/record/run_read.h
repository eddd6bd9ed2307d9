/* A run directory, read back: metrics.jsonl, results.csv, confusion.csv, layers.jsonl, norms.jsonl, args.yaml,
 * env.json. Reading is strict: a line that is not what this project writes is ERR_FORMAT with file and line. Only the
 * last line of a file may be cut short (a process was killed, or is still writing); it is left out. Everything but
 * metrics.jsonl may be missing. */
#ifndef TOWERS_RECORD_RUN_READ_H
#define TOWERS_RECORD_RUN_READ_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/status.h"
#include "towers/record/epoch.h"

/* A step; numbers that were not finite or not known are NaN. Arrays: [towers]. */
typedef struct RunStep {
    int64_t step, epoch, images;
    double lr, images_per_sec, mean_loss, total_loss, last_loss, grad_norm, top1;
    bool skipped;
    const double *loss, *grad_norms, *arrival_us, *data_us, *copy_us, *forward_us, *backward_us;
    int slow_tower;         /* that all others waited for */
    char slow_activity[16]; /* where it lost the time; "": nobody was slow */
    const int64_t *count;
    const bool *finite;
} RunStep;

/* Root mean squares of a parameter and of its gradient at a step. */
typedef struct RunLayer {
    int64_t step;
    int name; /* in Run.layer_name */
    double weight, gradient;
} RunLayer;

/* Largest drift of a batch-norm layer's statistics between towers, in standard deviations over towers: of the means
 * (relative to the layer's deviation), of the variances (relative). */
typedef struct RunNorm {
    int64_t step;
    int name; /* in Run.norm_name */
    double mean, variance;
} RunNorm;

typedef struct Run {
    char *path, *name; /* as given; the last part of it */
    int towers;
    RunStep *step;
    int64_t steps;
    EpochRecord *epoch;
    int64_t epochs;
    int classes;        /* 0: no confusion.csv */
    int64_t *confusion; /* [classes][classes]: true class, predicted class */
    char **layer_name;
    int layer_names;
    RunLayer *layer;
    int64_t layers;
    char **norm_name;
    int norm_names;
    RunNorm *norm;
    int64_t norms;
    char *args, *environment; /* texts of args.yaml and env.json; "" if missing */
    bool cut;                 /* the last line of metrics.jsonl was cut short */
    void **blocks;            /* what RunStep's arrays lie in */
    int64_t block_count;
} Run;

NODISCARD Status run_read(const char *directory, Run **made);
void run_destroy(Run *run); /* NULL is fine */

/* The value of `key: value  # from ...` in args.yaml, unquoted, into `text`; false if it is not there or not set. */
bool run_argument(const Run *run, const char *key, char *text, size_t bytes);

#endif
