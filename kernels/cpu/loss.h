/* Shared by the losses of this processor: the result of a sample, and the sum over samples, in order and in f64. */
#pragma once

#include "kernels/cpu/vector.h"
#include "kernels/loss_rules.h"

typedef struct LossSample {
    double loss; /* NaN: the sample is not correct either */
    bool correct[2];
} LossSample;

/* Number of classes that come before the label: larger logits, and equal ones of lower classes. */
int32_t classes_before(Dtype dtype, const void *z, int64_t classes, int32_t label);
/* Room for the samples in the workspace. */
NODISCARD Status loss_prepare(Device *device, OpCall *call);
/* Write the outputs of a call: the loss, and the numbers of correct samples. */
void loss_sum(const LossSample *samples, int32_t n, OpCall *call);
