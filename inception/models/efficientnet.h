/* The stages of EfficientNet-B0 and of EfficientNet-Lite0: Tan & Le, arXiv:1905.11946, Table 1. */
#pragma once

#include "kernels/base/status.h"

/* A row: `repeats` blocks, of which the first has the stride. */
typedef struct EfficientStage {
    int32_t expansion, k, stride, out;
    int repeats;
} EfficientStage;

enum { EFFICIENT_STAGES = 7, EFFICIENT_BLOCKS = 16 /* of all stages */ };
extern const EfficientStage efficient_stages[EFFICIENT_STAGES];

/* The rate of stochastic depth behind `before` blocks: it grows from 0 by equal parts. */
static inline float efficient_drop(float rate, int before)
{
    return rate * (float)before / EFFICIENT_BLOCKS;
}
