/* Shared by the losses: a block computes one sample, and the block that finishes last adds the samples, always in the same
 * order. */
#pragma once

#include "kernels/cuda/block.cuh"
#include "kernels/cuda/map.cuh"
#include "kernels/loss_rules.h"

struct Sample {
    double loss;
    int32_t correct[2];
};

/* Where the samples are, and what becomes of them. */
struct LossOutputs {
    float *loss, *correct; /* or NULL */
    Sample *samples;
    unsigned *counter;
};

static inline LossOutputs loss_outputs(const OpCall *call)
{
    return {(float *)call->out[0].data, (float *)call->out[2].data, (Sample *)call->workspace, (unsigned *)call->state};
}

DEVICE float logit(const Tensor &logits, int64_t row, int32_t k)
{
    float z;
    Lanes<Any, 1>::load(logits, row + k, &z);
    return z;
}

/* All samples, added by one block. */
DEVICE void loss_total(const LossOutputs &o, int32_t n)
{
    SHARED_ARRAY(double, sums, WARPS);
    double loss = 0, first = 0, second = 0;
    for (int32_t i = (int32_t)threadIdx.x; i < n; i += (int32_t)blockDim.x) {
        const volatile Sample *sample = &o.samples[i];
        loss += sample->loss;
        first += sample->correct[0];
        second += sample->correct[1];
    }
    loss = block_sum(loss, sums);
    first = block_sum(first, sums);
    second = block_sum(second, sums);
    if (threadIdx.x != 0) return;
    if (o.loss) o.loss[0] = (float)loss;
    if (o.correct) o.correct[0] = (float)first, o.correct[1] = (float)second;
}

/* Stores the sample of this block; the last block adds all. */
DEVICE void loss_finish(const LossOutputs &o, const Sample &sample)
{
    if (threadIdx.x == 0) o.samples[blockIdx.x] = sample;
    if (block_is_last(o.counter, gridDim.x)) loss_total(o, (int32_t)gridDim.x);
}
