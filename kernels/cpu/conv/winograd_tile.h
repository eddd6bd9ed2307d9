/* Shared by convolutions by Winograd's algorithms, for the kind of vectors whose header (lanes_*.h) was included before:
 * weights, G, and products of groups of tiles.
 *
 * A product is m[8][width] = d[8][channels] u[channels][width] for one point of the algorithm: 8 tiles, a panel of up to
 * 3 vectors of outputs, the sums of some tiles at once in registers. d and u hold words, which one instruction
 * multiplies: a float, or two bf16 for vdpbf16ps. Bodies take the dtype as a constant. */
#pragma once

#include "kernels/cpu/conv/winograd_panels.h"

TILE_INLINE void *vector_at(Dtype dtype, const void *base, int64_t index)
{
    return (char *)(uintptr_t)base + index * (dtype == DTYPE_F32 ? 4 : 2);
}

/* ---- weights, packed OHWI: `taps` places of a window, whose rows have `channels` */

TILE_INLINE void square_transpose(Vector rows[LANES])
{
    for (int step = 1; step < LANES; step *= 2)
        for (int i = 0; i < LANES; i++)
            if (!(i & step)) rows_exchange(&rows[i], &rows[i + step], step);
}

/* Tap i of a vector of inputs from `in` on, for as many outputs from `out` on. `rotated`: for the gradient, whose inputs
 * are the outputs of the convolution and whose taps are reversed. */
TILE_INLINE void tap_load(const float *w, int taps, int64_t channels, bool rotated, int i, int64_t in, int64_t out,
                          Vector to[LANES])
{
    const int64_t row = taps * channels;
    if (rotated) w += in * row + (taps - 1 - i) * channels + out;
    if (!rotated) w += out * row + i * channels + in;
    for (int k = 0; k < LANES; k++) to[k] = floats_load(w + k * row);
    if (!rotated) square_transpose(to);
}

/* G = {1 0 0; 1/2 1/2 1/2; 1/2 -1/2 1/2; 0 0 1} of three taps; points are `step` vectors apart. */
TILE_INLINE void weights_line(Vector a, Vector b, Vector c, Vector *to, int step)
{
    Vector outer = 0.5f * (a + c), inner = 0.5f * b;
    to[0] = a;
    to[step] = outer + inner;
    to[2 * step] = outer - inner;
    to[3 * step] = c;
}

/* ---- outputs */

TILE_INLINE Vector vector_finish(Vector y, const Finish *finish, int64_t channel)
{
    if (finish->bias) y += floats_load(finish->bias + channel);
    return finish->relu ? vector_relu(y) : y;
}

/* ---- products */

TILE_INLINE void tiles_sum(Dtype dtype, const void *d, int64_t words, const uint32_t *u, float *m, const int vectors)
{
    const uint32_t *a = d;
    Vector sum[AT_ONCE][VECTORS];
    for (int t = 0; t < AT_ONCE; t++)
        for (int v = 0; v < vectors; v++) sum[t][v] = (Vector){0};
    for (int64_t k = 0; k < words; k++, u += vectors * LANES) {
        Words b[VECTORS];
        for (int v = 0; v < vectors; v++) b[v] = words_load(u + v * LANES);
        for (int t = 0; t < AT_ONCE; t++) {
            Words all = words_spread(a[t * words + k]);
            for (int v = 0; v < vectors; v++) sum[t][v] = words_multiply(dtype, sum[t][v], all, b[v]);
        }
    }
    for (int t = 0; t < AT_ONCE; t++)
        for (int v = 0; v < vectors; v++) floats_store(m + (t * vectors + v) * LANES, sum[t][v]);
}

/* One point; `words` of each tile, `width` outputs. */
TILE_INLINE void group_product(Dtype dtype, const void *d, int64_t words, const uint32_t *u, float *m, int64_t width)
{
    for (int t = 0; t < GROUP; t += AT_ONCE, d = (const uint32_t *)d + AT_ONCE * words, m += AT_ONCE * width)
        if (width == 3 * LANES)
            tiles_sum(dtype, d, words, u, m, 3);
        else if (width == 2 * LANES)
            tiles_sum(dtype, d, words, u, m, 2);
        else
            tiles_sum(dtype, d, words, u, m, 1);
}
