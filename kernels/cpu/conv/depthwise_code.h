/* Depthwise convolutions by vectors of channels; see depthwise.h. Written once, and included after the header of a kind of vectors. */
#pragma once

#include "kernels/cpu/conv/depthwise.h"

/* Of the result at once: as many sums that do not wait for each other. Maps of networks for 224 pixels are multiples of 7 wide. */
enum { PIXELS = 7, LINE = 64 /* bytes that come from memory together */ };

/* Unrolled, as `count` is known when compiled. */
#define EACH_OF(count, m) _Pragma("GCC unroll 24") for (int m = 0; m < (count); m++)

TILE_INLINE Vector channels_load(Dtype dtype, const void *base, int64_t index, int64_t left)
{
    return left >= LANES ? vector_load(dtype, base, index) : some_load(dtype, base, index, mask_first(left));
}

TILE_INLINE void channels_store(Dtype dtype, void *base, int64_t index, Vector value, int64_t left)
{
    if (left >= LANES)
        vector_store(dtype, base, index, value);
    else
        some_store(dtype, base, index, value, mask_first(left));
}

/* ---- pixels of the result */

/* Pixel t, channels i and following; of its taps [k0, k1) exist. */
TILE_INLINE void pixel_run(Dtype dtype, const DepthwiseRow *r, int64_t t, int k0, int k1, int64_t i)
{
    const int64_t left = r->c - i;
    Vector sum = r->bias ? channels_load(DTYPE_F32, r->bias, i, left) : (Vector){0};
    for (int row = 0; row < r->rows; row++)
        for (int k = k0; k < k1; k++) {
            int64_t column = r->first + t * r->in_step + k * r->tap_step;
            Vector w = floats_load(r->w[row] + k * r->w_step + i);
            sum = add_product(sum, channels_load(dtype, r->in[row], column * r->in_pitch + i, left), w);
        }
    if (r->acc) sum += channels_load(dtype, r->acc, t * r->acc_step + i, left);
    if (r->relu) sum = vector_relu(sum);
    channels_store(dtype, r->out, t * r->out_step + i, sum, left);
}

/* The taps of pixel t whose column exists. */
TILE_INLINE void taps_inside(const DepthwiseRow *r, int64_t t, int *k0, int *k1)
{
    *k0 = 0;
    *k1 = r->taps;
    for (; *k0 < *k1; (*k0)++) {
        int64_t column = r->first + t * r->in_step + *k0 * r->tap_step;
        if (column >= 0 && column < r->columns) break;
    }
    for (; *k0 < *k1; (*k1)--) {
        int64_t column = r->first + t * r->in_step + (*k1 - 1) * r->tap_step;
        if (column >= 0 && column < r->columns) break;
    }
}

TILE_INLINE void pixels_run(Dtype dtype, const DepthwiseRow *r, int64_t t)
{
    for (; t < r->count; t++) {
        int k0, k1;
        taps_inside(r, t, &k0, &k1);
        for (int64_t i = 0; i < r->c; i += LANES) pixel_run(dtype, r, t, k0, k1, i);
    }
}

/* ---- PIXELS of the result at once: how many taps they have, and the columns from one to the next, are known when compiled */

/* The columns that PIXELS pixels read, counted from the leftmost one at `low`: of all, [j0, j1) exist. */
typedef struct SlideColumns {
    int64_t low;
    int j0, j1;
} SlideColumns;

/* Pixels from t on, channels i and following; `whole`: LANES of them exist. Each column is loaded once for all of its taps, which a sum
 * adds from left to right. */
TILE_INLINE void slide_pixels(Dtype dtype, const DepthwiseRow *r, int taps, int step, bool whole, int64_t t,
                              SlideColumns columns, int64_t i)
{
    const int64_t left = whole ? LANES : r->c - i;
    const Mask some = mask_first(left);
    const int span = (PIXELS - 1) * step + taps;
    Vector sum[PIXELS], bias = r->bias ? channels_load(DTYPE_F32, r->bias, i, left) : (Vector){0};
    EACH_OF(PIXELS, p) sum[p] = bias;
    for (int row = 0; row < r->rows; row++) {
        Vector w[DEPTHWISE_TAPS];
        EACH_OF(taps, k) w[k] = floats_load(r->w[row] + k * r->w_step + i);
        EACH_OF(span, j)
        {
            if (j < columns.j0 || j >= columns.j1) continue;
            const int64_t at = (columns.low + j) * r->in_pitch + i;
            Vector x = whole ? vector_load(dtype, r->in[row], at) : some_load(dtype, r->in[row], at, some);
            EACH_OF(PIXELS, p)
            {
                const int k = j - p * step;
                if (k >= 0 && k < taps) sum[p] = add_product(sum[p], x, w[k]);
            }
        }
    }
    EACH_OF(PIXELS, p)
    {
        if (r->acc) sum[p] += channels_load(dtype, r->acc, (t + p) * r->acc_step + i, left);
        if (r->relu) sum[p] = vector_relu(sum[p]);
        channels_store(dtype, r->out, (t + p) * r->out_step + i, sum[p], left);
    }
}

/* All channels of PIXELS pixels. Meanwhile the columns of the next ones come from memory, of the last row of the window: the others have
 * been read for the row of the result before. */
TILE_INLINE void slide_channels(Dtype dtype, const DepthwiseRow *r, int taps, int step, int64_t t)
{
    const int64_t low = r->first + t * step;
    const int span = (PIXELS - 1) * step + taps;
    const SlideColumns columns = {low, (int)larger(0, -low), (int)smaller(span, r->columns - low)};
    int64_t i = 0;
    if (columns.j1 == span) {
        const int64_t size = (dtype == DTYPE_F32 ? 4 : 2) * r->in_pitch;
        const char *next = (const char *)r->in[r->rows - 1] + (low + span) * size;
        for (int64_t byte = 0; byte < PIXELS * step * size; byte += LINE) __builtin_prefetch(next + byte);
    }
    for (; i + LANES <= r->c; i += LANES) slide_pixels(dtype, r, taps, step, true, t, columns, i);
    if (i < r->c) slide_pixels(dtype, r, taps, step, false, t, columns, i);
}

/* What is left of a row is computed again with pixels before it, or if it is added to something, which may lie where it goes, alone. */
TILE_INLINE void slide_row(Dtype dtype, const DepthwiseRow *r, int taps, int step)
{
    int64_t t = 0;
    for (; t + PIXELS <= r->count; t += PIXELS) slide_channels(dtype, r, taps, step, t);
    if (t == r->count) return;
    if (r->acc || r->count < PIXELS)
        pixels_run(dtype, r, t);
    else
        slide_channels(dtype, r, taps, step, r->count - PIXELS);
}

/* The same with taps from left to right, which in gradients go the other way: their sums, too, add from left to right. */
TILE_INLINE DepthwiseRow left_to_right(const DepthwiseRow *r)
{
    DepthwiseRow row = *r;
    if (r->tap_step > 0 || !r->taps) return row;
    for (int k = 0; k < r->rows; k++) row.w[k] += (r->taps - 1) * r->w_step;
    row.w_step = -r->w_step;
    row.first -= r->taps - 1;
    row.tap_step = 1;
    return row;
}

TILE_INLINE void row_run(Dtype dtype, const DepthwiseRow *given)
{
    const DepthwiseRow own = left_to_right(given), *r = &own;
    switch (r->rows && r->in_step <= 2 ? r->taps * 2 + (int)r->in_step : 0) {
    case 1 * 2 + 1: slide_row(dtype, r, 1, 1); break;
    case 2 * 2 + 1: slide_row(dtype, r, 2, 1); break;
    case 3 * 2 + 1: slide_row(dtype, r, 3, 1); break;
    case 3 * 2 + 2: slide_row(dtype, r, 3, 2); break;
    case 5 * 2 + 1: slide_row(dtype, r, 5, 1); break;
    case 5 * 2 + 2: slide_row(dtype, r, 5, 2); break;
    case 7 * 2 + 1: slide_row(dtype, r, 7, 1); break;
    case 7 * 2 + 2: slide_row(dtype, r, 7, 2); break;
    default: pixels_run(dtype, r, 0);
    }
}

TILE_CODE static void depthwise_row(const DepthwiseRow *row)
{
    const DepthwiseRow own = *row; /* a copy, which stores cannot alias */
    BY_WORDS(own.dtype, row_run, &own);
}

/* ---- sums for the gradient of the weights */

TILE_INLINE void taps_sum(Dtype dtype, const DepthwiseTaps *s, int taps, int64_t i)
{
    const int64_t left = s->c - i, padded = rounded_up(s->c, DEPTHWISE_PADDED);
    Vector sum[DEPTHWISE_TAPS];
    for (int k = 0; k < taps; k++) sum[k] = floats_load(s->sums + k * padded + i);
    for (int64_t t = 0; t < s->count; t++) {
        Vector dy = channels_load(dtype, s->dy, t * s->dy_pitch + i, left);
        int64_t column = s->first + t * s->step;
        if (column >= 0 && column + taps <= s->columns) {
            for (int k = 0; k < taps; k++)
                sum[k] = add_product(sum[k], channels_load(dtype, s->x, (column + k) * s->x_pitch + i, left), dy);
        } else {
            for (int k = 0; k < taps; k++)
                if (column + k >= 0 && column + k < s->columns)
                    sum[k] = add_product(sum[k], channels_load(dtype, s->x, (column + k) * s->x_pitch + i, left), dy);
        }
    }
    for (int k = 0; k < taps; k++) floats_store(s->sums + k * padded + i, sum[k]);
}

/* With the number of taps as a constant, so that their sums stay in registers. */
TILE_INLINE void taps_run(Dtype dtype, const DepthwiseTaps *s)
{
    for (int64_t i = 0; i < s->c; i += LANES) {
        switch (s->taps) {
        case 3: taps_sum(dtype, s, 3, i); break;
        case 5: taps_sum(dtype, s, 5, i); break;
        case 7: taps_sum(dtype, s, 7, i); break;
        default:
            for (int k = 0; k < s->taps; k++) {
                DepthwiseTaps one = *s;
                one.first += k;
                one.sums += k * rounded_up(s->c, DEPTHWISE_PADDED);
                taps_sum(dtype, &one, 1, i);
            }
        }
    }
}

TILE_CODE static void depthwise_taps(const DepthwiseTaps *taps)
{
    const DepthwiseTaps own = *taps;
    BY_WORDS(own.dtype, taps_run, &own);
}
