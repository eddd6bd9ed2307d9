/* Transforms: from options to how images become the input of a network, in training and in evaluation. */
#pragma once

#include "inception/options/options.h"
#include "towers/replica/job.h"

/* `photos`: images of any size. Also sets the canvas. */
void job_transforms(const Options *options, TrainJob *job, bool photos);
int32_t job_usual_resize(int64_t side); /* the shorter side before a center crop to `side`, unless it is given */
