/* Depthwise convolutions by vectors of channels; see depthwise.h. Written once, and included after the header of a kind of vectors. */
#pragma once

#include "kernels/cpu/conv/depthwise.h"

enum { PIXELS = 8 /* of the result at once: as many sums that do not wait for each other */ };

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

/* `n` pixels from t on, channels i and following; taps [k0, k1) exist for all of them. */
TILE_INLINE void pixels_run(Dtype dtype, const DepthwiseRow *r, int n, int64_t t, int k0, int k1, int64_t i)
{
    const int64_t left = r->c - i, step = r->in_step * r->in_pitch;
    Vector sum[PIXELS];
    for (int p = 0; p < n; p++) sum[p] = r->bias ? channels_load(DTYPE_F32, r->bias, i, left) : (Vector){0};
    for (int row = 0; row < r->rows; row++)
        for (int k = k0; k < k1; k++) {
            Vector w = floats_load(r->w[row] + k * r->w_step + i);
            int64_t at = (r->first + t * r->in_step + k * r->tap_step) * r->in_pitch + i;
            for (int p = 0; p < n; p++)
                sum[p] = add_product(sum[p], channels_load(dtype, r->in[row], at + p * step, left), w);
        }
    for (int p = 0; p < n; p++) {
        if (r->acc) sum[p] += channels_load(dtype, r->acc, (t + p) * r->acc_step + i, left);
        if (r->relu) sum[p] = vector_relu(sum[p]);
        channels_store(dtype, r->out, (t + p) * r->out_step + i, sum[p], left);
    }
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

TILE_INLINE void row_run(Dtype dtype, const DepthwiseRow *r)
{
    for (int64_t t = 0; t < r->count;) {
        int k0, k1, last0, last1;
        taps_inside(r, t, &k0, &k1);
        bool block = k0 == 0 && k1 == r->taps && t + PIXELS <= r->count;
        if (block) {
            taps_inside(r, t + PIXELS - 1, &last0, &last1);
            block = last0 == 0 && last1 == r->taps;
        }
        for (int64_t i = 0; i < r->c; i += LANES) {
            if (block)
                pixels_run(dtype, r, PIXELS, t, 0, r->taps, i);
            else
                pixels_run(dtype, r, 1, t, k0, k1, i);
        }
        t += block ? PIXELS : 1;
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
