/* The passes of batch norm over rows of channels: with AVX-512, in bf16 with AVX512-BF16 (norm_avx512.c), else by plain
 * loops (norm_rows.c).
 *
 * With a = x - mean, y = max(a scale + beta, floor), g = dy where y > floor, else 0:
 *   NORM_STAT      sum += a, second += a a
 *   NORM_APPLY     y
 *   NORM_GRAD_SUM  sum += g, second += g a
 *   NORM_GRAD      dx = g scale + (a slope + offset) */
#pragma once

#include "kernels/cpu/vector.h"

typedef enum NormPass { NORM_STAT, NORM_APPLY, NORM_GRAD_SUM, NORM_GRAD } NormPass;

/* `rows` rows of `width` elements; the vectors have `width` elements, too. Unused fields are not read. */
typedef struct NormRows {
    Dtype dtype;
    int64_t rows, width;
    const void *x, *dy;
    void *y; /* or dx; may be x or dy */
    int64_t x_stride, dy_stride, y_stride;
    const float *mean, *scale, *beta, *slope, *offset;
    float floor; /* of y: 0 with ReLU, else -inf */
    bool away;   /* y is larger than the caches and not yet in them: stores may bypass them */
} NormRows;

/* sum[width] and second[width]: of the passes that sum, else NULL. */
void norm_rows_run(NormPass pass, const NormRows *r, float *sum, float *second);

/* The two implementations. The first returns false and does nothing without its instructions (cpu.h). */
bool norm_rows_avx512(NormPass pass, const NormRows *r, float *sum, float *second);
void norm_rows_plain(NormPass pass, const NormRows *r, float *sum, float *second);
