/* What convolutions by Winograd's algorithms compute alike, for the kind of vectors whose header (lanes_*.h) was
 * included before, and with the TAPS, POINTS and OUTPUTS of the algorithm whose header was. */
#pragma once

#include "kernels/cpu/conv/winograd_tile.h"

/* ---- weights */

/* The transform of an algorithm: taps of a vector of outputs to points, and behind them plain taps. */
TILE_INLINE void weights_transform(const Vector *w, Vector *u);

/* A vector of inputs from `in` on, for as many outputs from `out` on. */
TILE_INLINE void weights_square(Dtype dtype, const WinogradRun *run, int64_t in, int64_t out)
{
    const WinogradPlan *g = run->plan;
    const int held = word_elements(dtype);
    const int64_t words = g->x.c / held;
    Vector taps[LANES][TAPS], low[MOST], high[MOST], square[LANES];
    for (int i = 0; i < TAPS; i++) {
        tap_load(run->w, TAPS, g->rotated ? g->y.c : g->x.c, g->rotated, i, in, out, square);
        for (int k = 0; k < LANES; k++) taps[k][i] = square[k];
    }
    for (int k = 0; k < LANES; k += held) {
        int64_t width;
        uint32_t *to = words_at(&g->panels, run->u, words, g->points, (in + k) / held, out, &width);
        weights_transform(taps[k], low);
        weights_transform(taps[k + held - 1], high);
        for (int i = 0; i < g->points; i++) {
            int from = i < POINTS ? i : i + g->plain;
            words_join(dtype, to + i * words * width, low[from], high[from]);
        }
    }
}

TILE_CODE static void weights_chunk(void *context, int64_t first, int64_t end)
{
    const WinogradRun *run = context;
    const int64_t squares = run->plan->x.c / LANES; /* for a vector of outputs */
    for (int64_t i = first; i < end; i++)
        BY_WORDS(run->plan->dtype, weights_square, run, i % squares * LANES, i / squares * LANES);
}

/* ---- tiles of the four points of F(2, 3): B' = {1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1}, A' = {1 1 1 0; 0 1 -1 -1} */

TILE_INLINE void x_line(Vector a, Vector b, Vector c, Vector d, Vector to[4])
{
    to[0] = a - c;
    to[1] = b + c;
    to[2] = c - b;
    to[3] = b - d;
}

TILE_INLINE Vector back_even(Vector a, Vector b, Vector c)
{
    return a + b + c;
}

TILE_INLINE Vector back_odd(Vector b, Vector c, Vector d)
{
    return b - c - d;
}

/* Point 0 of tile `tile` of a block, where a point of a tile takes `width`. */
static int64_t tile_at(int64_t tile, int64_t width)
{
    return (tile / GROUP * GROUP * POINTS + tile % GROUP) * width;
}

/* A tile's outputs; NULL where a pixel does not exist, or nothing is added. */
typedef struct Outputs {
    void *to[OUTPUTS];
    const void *acc[OUTPUTS];
    const Finish *finish;
    int64_t channel; /* the first */
} Outputs;

TILE_INLINE void output_store(Dtype dtype, const Outputs *out, int i, int64_t channel, Vector y)
{
    if (!out->to[i]) return;
    if (out->acc[i]) y += vector_load(dtype, out->acc[i], channel);
    vector_store(dtype, out->to[i], channel, vector_finish(y, out->finish, out->channel + channel));
}
