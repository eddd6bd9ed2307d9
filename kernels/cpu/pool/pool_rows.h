/* Windows of 3x3 by vectors: with AVX-512, in bf16 with AVX512-BF16, or in f32 with AVX2 or NEON. Other processors take the
 * plain loops of pool_max.c and pool_max_dx.c, which give the same bits. */
#pragma once

#include "kernels/cpu/vector.h"

/* Two rows of dx (the second may be missing) for windows of 3x3, stride 2, no padding. A pair of pixels is reached by
 * two windows of the row of dy above, and by two of its own row. Pitches in elements. */
typedef struct PoolBand {
    Dtype dtype;
    int64_t c, windows, columns; /* of a row of dy; of a row of dx */
    bool exists[2];              /* row of dy: above, own */
    const void *dy[2];           /* their first windows; any readable address if there is none */
    const uint8_t *argmax[2];
    const void *acc[2]; /* or NULL */
    void *dx[2];        /* NULL: no such row */
    int64_t dy_pitch, argmax_pitch, acc_pitch, dx_pitch;
} PoolBand;

typedef struct PoolCode {
    /* The maximum of a whole window, for `c` channels; strides in elements. y or argmax may be NULL. Returns false, with
     * undefined outputs, if the window has a NaN. */
    bool (*max_of_9)(Dtype dtype, const void *x, int64_t row_stride, int64_t stride, void *y, uint8_t *argmax,
                     int64_t c);
    void (*band_dx)(const PoolBand *band);
} PoolCode;

extern const PoolCode pool_avx2, pool_avx512, pool_neon;

/* The code of this processor; NULL: the plain loops. */
const PoolCode *pool_code(Dtype dtype);
