/* The networks of `towers generate` and `towers fid`: the generator of a run, and the classifier whose features
 * describe images. */
#pragma once

#include "inception/job/job.h"
#include "inception/quality/features.h"
#include "inception/quality/generator.h"

/* The device of a job, with all cores of a CPU unless --threads is given. */
NODISCARD Status networks_device(const TrainJob *job, Device *device);

/* From RUN (or MODEL with --weights) to the job of its model and the path of its weights. Errors: ERR_ARG for a
 * classifier, naming it; ERR_CHECKPOINT for a run without weights. */
NODISCARD Status generator_find(Options *options, JobFiles *files, char weights[PATH_BYTES]);
/* `batch` images at a time. */
NODISCARD Status generator_load(const TrainJob *job, const char *weights, Device *device, int32_t batch,
                                Generator *generator);

/* From --features to a configuration without a device: a run, a checkpoint, or a safetensors file that names its model;
 * or a file of pt_inception-2015-12-05, recognized by its 1,008 outputs. */
NODISCARD Status classifier_find(const char *given, FeatureConfig *config, char weights[PATH_BYTES]);
