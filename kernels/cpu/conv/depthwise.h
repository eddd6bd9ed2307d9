/* Depthwise convolutions, f32 and bf16: each channel has a window of its own (Sifre 2014), so a vector holds channels, and neither
 * products nor layouts of tiles are of use. The work is to pass over x and y once: a row of y reads the rows of its window, which stay
 * in the second-level cache for the next one.
 *
 * The forward pass, the gradient with respect to x of any stride, and windows in any place at a border are one loop, described by
 * a DepthwiseRow. The code is written once (depthwise_code.h) for each kind of vectors. Weights are f32 beside tensors of bf16, too,
 * and so are all sums. */
#pragma once

#include "kernels/cpu/vector.h"

enum {
    DEPTHWISE_TAPS = 7,   /* at most, in a row or column of the window */
    DEPTHWISE_PADDED = 16 /* weights and sums have zeros up to a multiple of so many channels: a vector of AVX-512 */
};

/* Some pixels of one row of the result, `out_step` elements apart: pixel t is the sum over the rows and taps of
 * in[row][first + t in_step + k tap_step] w[row][k], for the columns that exist. */
typedef struct DepthwiseRow {
    Dtype dtype; /* of in, acc and out */
    int32_t c;
    int rows, taps;
    const void *in[DEPTHWISE_TAPS]; /* column 0 of a row */
    const float *w[DEPTHWISE_TAPS]; /* its first tap, of padded channels */
    int64_t w_step;                 /* floats from tap to tap */
    int64_t columns, in_pitch;      /* of a row of `in`; elements from column to column */
    int64_t first, in_step, tap_step;
    int64_t count;              /* pixels of the result */
    void *out;                  /* pixel 0 */
    const void *acc;            /* added; NULL: nothing */
    int64_t out_step, acc_step; /* elements from pixel to pixel */
    const float *bias;          /* NULL: none */
    bool relu;
} DepthwiseRow;

/* A row of dy and a row of x below one row of the window: sums[k] += sum over t of dy[t] x[first + t step + k]. */
typedef struct DepthwiseTaps {
    Dtype dtype;
    int32_t c;
    int taps;
    const void *x, *dy;
    int64_t columns, x_pitch, dy_pitch, first, step, count;
    float *sums; /* [taps][padded channels] */
} DepthwiseTaps;

typedef struct DepthwiseCode {
    void (*row)(const DepthwiseRow *row);
    void (*taps)(const DepthwiseTaps *taps);
} DepthwiseCode;

extern const DepthwiseCode depthwise_avx2, depthwise_neon; /* f32 */
extern const DepthwiseCode depthwise_avx512;               /* f32; bf16 with AVX512-BF16 */
