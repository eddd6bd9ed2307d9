/* The rules of optimizers.def for one element, in f32; also compiled as CUDA device code.
 *
 * rule_NAME(r, g, p, a, b) returns the new weight from the gradient g of the step and the weight p; a and b are its states,
 * the last of which may be NULL if it is the momentum buffer. rule_clipped scales and clips g, rule_gradient also adds the L2
 * term; rules that decay the weights themselves (AdamW, LAMB) take the former. Sources: optimizer.h. */
#pragma once

#include "kernels/optimizer.h"

#ifdef __CUDACC__
#define RULE_CALL __device__ static inline
#define RULE_FMA(a, b, c) __fmaf_rn(a, b, c)
#else
#define RULE_CALL static inline __attribute__((always_inline, unused))
#define RULE_FMA(a, b, c) ((a) * (b) + (c))
#endif

RULE_CALL float rule_clipped(const OptimizerRule *r, float g)
{
    g *= r->grad_scale;
    g = g > r->clip ? r->clip : g;
    return g < -r->clip ? -r->clip : g;
}

RULE_CALL float rule_gradient(const OptimizerRule *r, float g, float p)
{
    g = rule_clipped(r, g);
    return RULE_FMA(r->weight_decay, p, g);
}

/* The step that the momentum buffer makes of `step`. */
RULE_CALL float rule_momentum(const OptimizerRule *r, float step, float *buffer)
{
    if (!buffer) return step;
    *buffer = RULE_FMA(r->momentum, *buffer, step);
    return *buffer;
}

RULE_CALL float rule_sgd(const OptimizerRule *r, float g, float p, float *a, float *b)
{
    (void)b;
    float of_gradient = r->nesterov ? 1.0f : 0.0f, of_buffer = r->nesterov ? r->momentum : 1.0f;
    float d = rule_gradient(r, g, p);
    if (!a) return p - r->lr * d;
    float buffer = rule_momentum(r, d, a), ahead = of_gradient * d;
    return p - r->lr * RULE_FMA(of_buffer, buffer, ahead);
}

/* PyTorch's. */
RULE_CALL float rule_rmsprop(const OptimizerRule *r, float g, float p, float *a, float *b)
{
    float d = rule_gradient(r, g, p);
    *a = r->decay * *a + (1.0f - r->decay) * d * d;
    return p - r->lr * rule_momentum(r, d / (sqrtf(*a) + r->epsilon), b);
}

/* TensorFlow's: epsilon under the root, rate inside the momentum. */
RULE_CALL float rule_rmsprop_tf(const OptimizerRule *r, float g, float p, float *a, float *b)
{
    float d = rule_gradient(r, g, p);
    *a += (1.0f - r->decay) * (d * d - *a);
    return p - rule_momentum(r, r->lr * d / sqrtf(*a + r->epsilon), b);
}

RULE_CALL void rule_moments(const OptimizerRule *r, float d, float *a, float *b)
{
    *a = r->beta1 * *a + (1.0f - r->beta1) * d;
    *b = r->beta2 * *b + (1.0f - r->beta2) * d * d;
}

RULE_CALL float rule_adam(const OptimizerRule *r, float g, float p, float *a, float *b)
{
    rule_moments(r, rule_gradient(r, g, p), a, b);
    return p - r->step_size * *a / (sqrtf(*b) * r->second_fix + r->epsilon);
}

RULE_CALL float rule_adamw(const OptimizerRule *r, float g, float p, float *a, float *b)
{
    rule_moments(r, rule_clipped(r, g), a, b);
    return p * (1.0f - r->lr * r->weight_decay) - r->step_size * *a / (sqrtf(*b) * r->second_fix + r->epsilon);
}

/* The learning rate, with the trust ratio in it, is inside the momentum. */
RULE_CALL float rule_lars(const OptimizerRule *r, float g, float p, float *a, float *b)
{
    (void)b;
    return p - rule_momentum(r, r->lr * rule_gradient(r, g, p), a);
}

RULE_CALL float rule_lars_direction(const OptimizerRule *r, float g, float p, float *a, float *b)
{
    (void)p, (void)a, (void)b;
    return rule_clipped(r, g);
}

/* params, others: the norms of the tensor and of its directions, neither 0. */
RULE_CALL double rule_lars_ratio(const OptimizerRule *r, double params, double others)
{
    return (double)r->trust * params / (others + (double)r->weight_decay * params + (double)r->epsilon);
}

RULE_CALL float rule_lamb_step(const OptimizerRule *r, float p, float a, float b)
{
    return RULE_FMA(r->weight_decay, p, a * r->first_fix / (sqrtf(b) * r->second_fix + r->epsilon));
}

RULE_CALL float rule_lamb(const OptimizerRule *r, float g, float p, float *a, float *b)
{
    (void)g;
    return p - r->lr * rule_lamb_step(r, p, *a, *b);
}

RULE_CALL float rule_lamb_direction(const OptimizerRule *r, float g, float p, float *a, float *b)
{
    rule_moments(r, rule_clipped(r, g), a, b);
    return rule_lamb_step(r, p, *a, *b);
}

RULE_CALL double rule_lamb_ratio(const OptimizerRule *r, double params, double others)
{
    (void)r;
    return params / others;
}
