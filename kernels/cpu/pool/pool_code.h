/* Maximum over 3x3 and its gradient by vectors; see pool_rows.h. Written once, and included after the header of a kind of vectors.
 *
 * The largest of nine and its position stay in registers. In the gradient, the 2x2 pixels at an even position are reached by
 * four windows:
 *   A B   pixel (0, 0) is position 8 of A, 6 of B, 2 of C, 0 of D; (0, 1) is 7 of B, 1 of D;
 *   C D   pixel (1, 0) is 5 of C, 3 of D; (1, 1) is 4 of D
 * so that every window is read four times instead of nine. */
#pragma once

#include "kernels/cpu/pool/pool_rows.h"

enum { TAPS = 9, NOWHERE = 64 };

/* ---- maximum */

/* A vector of channels; returns which of them have a NaN. */
TILE_INLINE Mask nine_lanes(Dtype dtype, const void *x, int64_t row_stride, int64_t stride, Mask mask, Vector *best,
                            Positions *position)
{
    Vector top = some_load(dtype, x, 0, mask);
    Positions at = positions_same(0);
    Mask bad = vector_is_nan(top);
    for (int k = 1; k < TAPS; k++) {
        Vector value = some_load(dtype, x, k / 3 * row_stride + k % 3 * stride, mask);
        bad = mask_or(bad, vector_is_nan(value));
        at = positions_choose(at, positions_same(k), vector_above(value, top));
        top = vector_max(value, top); /* if equal, the second operand: the earlier maximum */
    }
    *best = top;
    *position = at;
    return bad;
}

/* *nan: whether there is one; then nothing else is defined. */
TILE_INLINE void nine_max(Dtype dtype, const void *x, int64_t row_stride, int64_t stride, void *y, uint8_t *argmax,
                          int64_t c, bool *nan)
{
    const int64_t bytes = dtype == DTYPE_F32 ? 4 : 2;
    for (int64_t i = 0; i < c; i += LANES) {
        Mask mask = mask_first(c - i);
        Vector best;
        Positions position;
        *nan = mask_any(nine_lanes(dtype, (const char *)x + i * bytes, row_stride, stride, mask, &best, &position));
        if (*nan) return;
        if (y) some_store_exact(dtype, y, i, best, mask);
        if (argmax) positions_store(argmax + i, position, mask);
    }
}

TILE_CODE static bool max_of_9(Dtype dtype, const void *x, int64_t row_stride, int64_t stride, void *y, uint8_t *argmax,
                               int64_t c)
{
    bool nan = false;
    BY_WORDS(dtype, nine_max, x, row_stride, stride, y, argmax, c, &nan);
    return !nan;
}

/* ---- gradient */

/* 2x2 pixels. Window w (A, B, C, D) has positions `absent[w]` too large if it does not exist. */
typedef struct Four {
    const void *dy[4], *acc[4];
    const uint8_t *argmax[4];
    int absent[4];
    void *dx[4];
} Four;

typedef struct FourWindows {
    Vector dy[4];
    Bytes argmax[4];
} FourWindows;

/* sum + the gradient that window w sends to its position `position`. */
TILE_INLINE Vector sent(const Four *f, const FourWindows *lanes, int w, int position, Vector sum)
{
    return add_some(sum, lanes->dy[w], bytes_equal(lanes->argmax[w], position + f->absent[w]));
}

TILE_INLINE void dx_store(Dtype dtype, const Four *f, int pixel, int64_t i, Vector sum, Mask mask)
{
    if (!f->dx[pixel]) return;
    if (f->acc[pixel]) sum += some_load(dtype, f->acc[pixel], i, mask);
    some_store(dtype, f->dx[pixel], i, sum, mask);
}

TILE_INLINE void four_pixels(Dtype dtype, const Four *from, int64_t c)
{
    enum { A, B, C, D };
    const Four f = *from; /* a copy, which stores cannot alias */
    const Vector zero = {0};
    for (int64_t i = 0; i < c; i += LANES) {
        Mask mask = mask_first(c - i);
        FourWindows l;
        for (int w = 0; w < 4; w++) {
            l.dy[w] = some_load(dtype, f.dy[w], i, mask);
            l.argmax[w] = bytes_load(f.argmax[w] + i, mask);
        }
        Vector corner = sent(&f, &l, B, 6, sent(&f, &l, A, 8, zero));
        dx_store(dtype, &f, 0, i, sent(&f, &l, D, 0, sent(&f, &l, C, 2, corner)), mask);
        dx_store(dtype, &f, 1, i, sent(&f, &l, D, 1, sent(&f, &l, B, 7, zero)), mask);
        dx_store(dtype, &f, 2, i, sent(&f, &l, D, 3, sent(&f, &l, C, 5, zero)), mask);
        dx_store(dtype, &f, 3, i, sent(&f, &l, D, 4, zero), mask);
    }
}

/* The 2x2 pixels from column 2 k on. */
TILE_INLINE Four four_at(const PoolBand *band, int64_t bytes, int64_t k)
{
    Four f;
    for (int w = 0; w < 4; w++) {
        int row = w / 2;
        int64_t window = k - 1 + w % 2, column = 2 * k + w % 2;
        bool there = band->exists[row] && window >= 0 && window < band->windows, inside = column < band->columns;
        if (!there) window = 0;
        f.absent[w] = there ? 0 : NOWHERE;
        f.dy[w] = (const char *)band->dy[row] + window * band->dy_pitch * bytes;
        f.argmax[w] = band->argmax[row] + window * band->argmax_pitch;
        f.dx[w] = band->dx[row] && inside ? (char *)band->dx[row] + column * band->dx_pitch * bytes : NULL;
        f.acc[w] = band->acc[row] && inside ? (const char *)band->acc[row] + column * band->acc_pitch * bytes : NULL;
    }
    return f;
}

TILE_INLINE void band_run(Dtype dtype, const PoolBand *band)
{
    for (int64_t k = 0; 2 * k < band->columns; k++) {
        Four f = four_at(band, dtype == DTYPE_F32 ? 4 : 2, k);
        four_pixels(dtype, &f, band->c);
    }
}

TILE_CODE static void band_dx(const PoolBand *band)
{
    BY_WORDS(band->dtype, band_run, band);
}
