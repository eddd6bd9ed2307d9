/* The functions of the UNARY rows of ops.def: y = unary_NAME(x), and for UNARY_GRAD rows the derivative unary_NAME_slope(x),
 * in f32. Also compiled as CUDA device code. */
#pragma once

#include <math.h>

#ifdef __CUDACC__
#define UNARY_CALL __host__ __device__ static inline
#else
#define UNARY_CALL static inline
#endif

/* Howard et al. 2019, arXiv:1905.02244, section 5.2. Comparisons are written so that values of NaN stay NaN. */
UNARY_CALL float unary_hard_sigmoid(float x)
{
    float t = x + 3.0f;
    t = t < 0.0f ? 0.0f : t > 6.0f ? 6.0f : t;
    return t * (1.0f / 6.0f);
}

UNARY_CALL float unary_hard_sigmoid_slope(float x)
{
    return x > -3.0f && x < 3.0f ? 1.0f / 6.0f : 0.0f;
}

UNARY_CALL float unary_hard_swish(float x)
{
    return x * unary_hard_sigmoid(x);
}

UNARY_CALL float unary_hard_swish_slope(float x)
{
    float middle = x * (1.0f / 3.0f) + 0.5f;
    return x <= -3.0f ? 0.0f : x >= 3.0f ? 1.0f : middle;
}

UNARY_CALL float unary_relu6(float x)
{
    return x < 0.0f ? 0.0f : x > 6.0f ? 6.0f : x;
}

UNARY_CALL float unary_relu6_slope(float x)
{
    return x > 0.0f && x < 6.0f ? 1.0f : 0.0f;
}

#ifdef __CUDACC__
UNARY_CALL float unary_tanh(float x)
{
    return tanhf(x);
}

UNARY_CALL float unary_exp(float t)
{
    return expf(t);
}
#else
/* e^t for t in [0, 87]: 2^n e^r with |r| <= ln 2 / 2, and a polynomial for e^r (Cephes, expf). */
UNARY_CALL float unary_exp(float t)
{
    float n = (float)(int)(t * 1.44269504f + 0.5f), r = t - n * 0.693359375f + n * 2.12194440e-4f, scale;
    float p = ((((1.9875691500e-4f * r + 1.3981999507e-3f) * r + 8.3334519073e-3f) * r + 4.1665795894e-2f) * r +
               1.6666665459e-1f) *
                  r +
              5.0000001201e-1f;
    int bits = ((int)n + 127) << 23;
    __builtin_memcpy(&scale, &bits, sizeof scale);
    return (p * r * r + r + 1.0f) * scale;
}

/* Without branches and calls, so that loops are vectorized: an odd polynomial near 0 (Cephes, tanhf), else
 * 1 - 2 / (e^(2 |x|) + 1), which is 1 from |x| = 10 on. */
UNARY_CALL float unary_tanh(float x)
{
    float size = x < 0.0f ? -x : x, square = x * x, t = 2.0f * size < 20.0f ? 2.0f * size : 20.0f;
    float p = (((-5.70498872745e-3f * square + 2.06390887954e-2f) * square - 5.37397155531e-2f) * square +
               1.33314422036e-1f) *
                  square -
              3.33332819422e-1f;
    float near = x + x * square * p, far = 1.0f - 2.0f / (unary_exp(t) + 1.0f);
    float y = size < 0.625f ? near : x < 0.0f ? -far : far;
    return x != x ? x : y;
}
#endif

/* The logistic function of -|x|, at most 1/2, to f32's relative precision; 0 from |x| = 87 on. */
UNARY_CALL float unary_tail(float x)
{
    float size = x < 0.0f ? -x : x, t = size < 87.0f ? size : 87.0f;
    float tail = 1.0f / (1.0f + unary_exp(t));
    return size >= 87.0f ? 0.0f : tail;
}

UNARY_CALL float unary_sigmoid(float x)
{
    float tail = unary_tail(x), y = x < 0.0f ? tail : 1.0f - tail;
    return x != x ? x : y;
}

/* Elfwing et al. 2017, arXiv:1702.03118; Ramachandran et al. 2017, arXiv:1710.05941 (Swish). */
UNARY_CALL float unary_silu(float x)
{
    float tail = unary_tail(x);
    return x * (x < 0.0f ? tail : 1.0f - tail);
}

UNARY_CALL float unary_silu_slope(float x)
{
    float tail = unary_tail(x), y = x < 0.0f ? tail : 1.0f - tail;
    return y + x * tail * (1.0f - tail);
}
