/* The losses of one sample: what a class adds, and what becomes of the sums; also compiled as CUDA device code. The formulas are
 * those of cpu/softmax.c and cpu/sigmoid_loss.c. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define LOSS_CALL __device__ static inline
#else
#define LOSS_CALL static inline __attribute__((unused))
#endif

enum { TOP_K = 5 };

/* Whether class k, with logit z, comes before the label: a larger logit, or an equal one of a lower class. */
LOSS_CALL bool class_is_before(float z, int32_t k, float of_label, int32_t label)
{
    return z > of_label || (z == of_label && k < label);
}

/* From the logarithm of the sum of exp(z - top), and the sum of z - top, over all classes; `mine`: z - top of the label. */
LOSS_CALL double softmax_loss(double log_sum, double centered, int32_t classes, double mine, double smoothing)
{
    double smooth = smoothing > 0 ? smoothing * (log_sum - centered / classes) : 0;
    return (1 - smoothing) * (log_sum - mine) + smooth;
}

/* How much the loss of the positive side counts: a class's weight where it is the target. */
LOSS_CALL float sigmoid_mass(float weight, float target)
{
    return 1 + (weight - 1) * target;
}

/* In the next two, e = exp(-|x|). */
LOSS_CALL float sigmoid_probability(float x, float e)
{
    return (x >= 0 ? 1.0f : e) / (1 + e);
}

LOSS_CALL float sigmoid_term(float x, float e, float target, float mass)
{
    return (1 - target) * x + mass * (fmaxf(-x, 0.0f) + log1pf(e));
}

/* The derivative of a term by x. */
LOSS_CALL float sigmoid_slope(float probability, float target, float weight)
{
    return probability * sigmoid_mass(weight, target) - weight * target;
}
