/* Speed: what the measurements of `towers bench` have in common, of training steps, of inference and of ops. */
#pragma once

#include <jansson.h>

#include "towers/data/loading/loader.h"
#include "towers/record/statistics.h"
#include "towers/replica/job.h"

/* What was measured. */
typedef struct Speed {
    double mean; /* images per second */
    Scatter scatter;
    double seconds; /* of a step, or of a pass, on average */
    int64_t steps;  /* of one phase; of bench alone */
} Speed;

/* A measurement of so many steps, as an object in which `key` is `value`, too. NULL: no memory. */
json_t *speed_json(const TrainJob *job, const Speed *speed, int64_t steps, const char *key, const char *value);
/* A loader of the job's training images for one tower, in batches of `batch`, for a single step. The caller destroys it. */
NODISCARD Status bench_loader(const TrainJob *job, int32_t batch, Loader **made);
