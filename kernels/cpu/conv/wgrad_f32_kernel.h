/* Tiles of wgrad in f32, 16 outputs x up to 48 inputs, in parts of TILE_ROWS outputs x 2 or 3 vectors, whose sums stay in
 * registers, for the kind of vectors whose header (lanes_*.h) was included before. */
#pragma once

#include "kernels/cpu/conv/gemm_tile.h"
#include "kernels/cpu/conv/wgrad_pack_f32.h"

enum { OUTS = TILE_ROWS };

/* Some pixels of a row, for OUTS outputs, added to sums[OUTS][vectors][LANES]. Each call sums by itself first: the rounding
 * error of f32 grows with the length of a sum. */
TILE_INLINE void pixels_multiply(const uint32_t *x, const uint32_t *dy, int64_t columns, int64_t width,
                                 const int vectors, float *sums)
{
    GemmSums sum;
    gemm_begin(OUTS, vectors, NULL, sum);
    gemm_add(DTYPE_F32, OUTS, vectors, dy, 1, WGRAD_LANES, x, width, columns, sum);
    gemm_store(OUTS, vectors, sum, sums, vectors * LANES, true);
}

/* A row of pixels, added to sums[part of the inputs][part of the outputs]. Every part reads the same pixels again, so the row is
 * taken a few pixels at a time, which stay in the first-level cache. */
TILE_INLINE void tile_row_run(const WgradTile *tile, const uint32_t *x, const uint32_t *dy, const int vectors,
                              float *sums)
{
    enum { BLOCK_PIXELS = 64 };
    const int64_t width = (int64_t)tile->vectors * WGRAD_LANES;
    for (int64_t at = 0; at < tile->columns; at += BLOCK_PIXELS) {
        int64_t columns = tile->columns - at < BLOCK_PIXELS ? tile->columns - at : BLOCK_PIXELS;
        float *part = sums;
        for (int in = 0; in < width; in += vectors * LANES)
            for (int out = 0; out < tile->outs; out += OUTS, part += OUTS * vectors * LANES)
                pixels_multiply(x + at * width + in, dy + at * WGRAD_LANES + out, columns, width, vectors, part);
    }
}

TILE_CODE static void row_of_2(const WgradTile *tile, const uint32_t *x, const uint32_t *dy, float *sums)
{
    tile_row_run(tile, x, dy, 2, sums);
}

TILE_CODE static void row_of_3(const WgradTile *tile, const uint32_t *x, const uint32_t *dy, float *sums)
{
    tile_row_run(tile, x, dy, 3, sums);
}

/* One vector of sums; `left`: lanes that exist. */
TILE_INLINE void sums_store(const float *sums, bool add, int left, float *to)
{
    Vector value = floats_load(sums);
    if (add) value += floats_load_some(to, left);
    floats_store_some(to, left, value);
}

TILE_CODE static void tile_store(const WgradTile *tile, int vectors, const float *sums)
{
    for (int in = 0; in < tile->vectors * WGRAD_LANES; in += vectors * LANES)
        for (int out = 0; out < tile->outs; out += OUTS)
            for (int m = out; m < out + OUTS; m++)
                for (int c = in; c < in + vectors * LANES; c += LANES, sums += LANES)
                    if (m < tile->outs) sums_store(sums, tile->add, tile->ins - c, tile->dw + m * tile->dw_out + c);
}

static void tile_run_f32(const WgradTile *tile)
{
    /* 48 inputs are parts of three vectors, 32 and 16 are parts of two. */
    const int vectors = tile->vectors == WGRAD_VECTORS ? 3 : 2;
    _Alignas(32) float sums[WGRAD_LANES * WGRAD_VECTORS * WGRAD_LANES] = {0};
    for (int64_t group = 0; group < tile->groups; group++)
        for (int64_t row = 0; row < tile->rows; row++) {
            const uint32_t *x = tile->x + group * tile->x_group + row * tile->x_row;
            const uint32_t *dy = tile->dy + group * tile->dy_group + row * tile->dy_row;
            (vectors == 3 ? row_of_3 : row_of_2)(tile, x, dy, sums);
        }
    tile_store(tile, vectors, sums);
}
