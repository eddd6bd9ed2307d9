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

/* holds ? yes : no, both of them computed, by their bits. For `?:` between floats gcc makes a branch if one side is costly, or is a
 * constant of which it can compute beforehand what follows; it does not vectorize loops with a branch. */
UNARY_CALL float unary_choose(int holds, float yes, float no)
{
    int mask = -holds, bits, others;
    __builtin_memcpy(&bits, &yes, sizeof bits);
    __builtin_memcpy(&others, &no, sizeof others);
    bits = (bits & mask) | (others & ~mask);
    __builtin_memcpy(&yes, &bits, sizeof yes);
    return yes;
}

/* e^(t + rest) for t from -87 to 88 and a small rest, such as what rounding has cut off t: 2^n e^r with |r| <= ln 2 / 2, and a
 * polynomial for e^r (Cephes, expf). */
UNARY_CALL float unary_exp(float t, float rest)
{
#ifdef __CUDACC__
    return expf(t) * (1.0f + rest);
#else
    float n = (float)(int)(t * 1.44269504f + (t < 0.0f ? -0.5f : 0.5f)), scale;
    float r = t - n * 0.693359375f + n * 2.12194440e-4f + rest;
    float p = ((((1.9875691500e-4f * r + 1.3981999507e-3f) * r + 8.3334519073e-3f) * r + 4.1665795894e-2f) * r +
               1.6666665459e-1f) *
                  r +
              5.0000001201e-1f;
    int bits = ((int)n + 127) << 23;
    __builtin_memcpy(&scale, &bits, sizeof scale);
    return (p * r * r + r + 1.0f) * scale;
#endif
}

#ifdef __CUDACC__
UNARY_CALL float unary_tanh(float x)
{
    return tanhf(x);
}
#else
/* Without branches and calls, so that loops are vectorized: an odd polynomial near 0 (Cephes, tanhf), else
 * 1 - 2 / (e^(2 |x|) + 1), which is 1 from |x| = 10 on. */
UNARY_CALL float unary_tanh(float x)
{
    float size = x < 0.0f ? -x : x, square = x * x, t = unary_choose(2.0f * size < 20.0f, 2.0f * size, 20.0f);
    float p = (((-5.70498872745e-3f * square + 2.06390887954e-2f) * square - 5.37397155531e-2f) * square +
               1.33314422036e-1f) *
                  square -
              3.33332819422e-1f;
    float near = x + x * square * p, far = 1.0f - 2.0f / (unary_exp(t, 0.0f) + 1.0f);
    float y = unary_choose(size < 0.625f, near, x < 0.0f ? -far : far);
    return x != x ? x : y;
}
#endif

/* The logistic function of -|x|, at most 1/2, to f32's relative precision; 0 from |x| = 87 on. */
UNARY_CALL float unary_tail(float x)
{
    float size = x < 0.0f ? -x : x, t = unary_choose(size < 87.0f, size, 87.0f);
    float tail = 1.0f / (1.0f + unary_exp(t, 0.0f));
    return unary_choose(size >= 87.0f, 0.0f, tail);
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

/* Of a standard normal variable: e^(-x^2 / 2), which is its density times sqrt(2 pi), and the probability of a value below x. */
typedef struct UnaryNormal {
    float bell, below;
} UnaryNormal;

/* Near 0, the probability is 1/2 and an odd polynomial. Else the bell times a polynomial in 1 / (1 + 0.265 |x|) is the
 * probability beyond x (both fitted to 2e-8 of it), of which small ones stay as precise as others. x is cut after 12 bits so that
 * the square of the first part is exact, and the error of the bell does not grow with x. From 13 on the bell is that of 13, 2e-37,
 * and from 1e19 on, where x times it would begin to count, 0. */
UNARY_CALL UnaryNormal unary_normal(float x)
{
    float whole = x < 0.0f ? -x : x, size = unary_choose(whole < 13.0f, whole, 13.0f), top;
    int bits;
    __builtin_memcpy(&bits, &size, sizeof bits);
    bits &= ~0xFFF;
    __builtin_memcpy(&top, &bits, sizeof top);
    float bell = unary_exp(-0.5f * (top * top), -0.5f * ((size - top) * (size + top)));
    bell = unary_choose(whole < 1e19f, bell, 0.0f);
    float square = size * size, half = 1.0f / (1.0f + 0.265f * size) - 0.5f;
    float near = -6.80949051e-06f * square + 1.11041125e-4f;
    near = near * square - 1.18383719e-3f;
    near = near * square + 9.97228269e-3f;
    near = near * square - 6.64902106e-2f;
    near = near * square + 0.398942262f;
    float far = 0.0308208279f * half - 0.0209451746f;
    far = far * half - 0.0712392256f;
    far = far * half - 0.00437202398f;
    far = far * half + 0.167693689f;
    far = far * half + 0.328286558f;
    far = far * half + 0.377682656f;
    far = far * half + 0.312787324f;
    far = far * half + 0.198961988f;
    float beyond = bell * (half + 0.5f) * far;
    UnaryNormal normal = {bell, unary_choose(size < 1.25f, 0.5f + x * near, x < 0.0f ? beyond : 1.0f - beyond)};
    return normal;
}

/* GELU: x times the probability of a standard normal value below x. Hendrycks & Gimpel 2016, arXiv:1606.08415. In f32 within 8
 * units of the last place for every x down to -12, where 1 + erf(x / sqrt(2)) has long lost all of them; its slope within 2e-7. */
UNARY_CALL float unary_gelu(float x)
{
    return x * unary_normal(x).below;
}

UNARY_CALL float unary_gelu_slope(float x)
{
    UnaryNormal normal = unary_normal(x);
    return normal.below + x * normal.bell * 0.39894228f;
}

/* The same with (1 + tanh(t)) / 2 for the probability, which is the logistic function of 2 t; t = sqrt(2 / pi) (x + 0.044715 x^3).
 * Within 3 units of the last place for |x| < 1; below, the rounding of t counts, too: 21 at -4. Its slope within 2e-7; the
 * square stops where that is 0 or 1, before it overflows. */
UNARY_CALL float unary_gelu_tanh(float x)
{
    return x * unary_sigmoid(x * (1.59576912f + 0.0713548163f * (x * x)));
}

UNARY_CALL float unary_gelu_tanh_slope(float x)
{
    float square = unary_choose(x * x < 1e4f, x * x, 1e4f);
    float twice = x * (1.59576912f + 0.0713548163f * square), tail = unary_tail(twice);
    float below = twice < 0.0f ? tail : 1.0f - tail;
    return below + x * tail * (1.0f - tail) * (1.59576912f + 0.214064449f * square);
}
