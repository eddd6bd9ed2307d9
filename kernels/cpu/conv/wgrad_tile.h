/* Tiles of wgrad for the kind of words (words_bf16.h, wgrad_f32.c) that was defined before: 16 outputs x up to 3 vectors of
 * inputs, in two halves of 8 outputs.
 *
 * A half keeps 8 x 3 sums in registers; for every pixel, one word of dy is spread over a vector and multiplied with
 * three vectors of x. With 24 products for 11 loads, only the products limit the speed. */
#pragma once

#include "kernels/cpu/conv/wgrad.h"

enum { HALF = 8, VECTORS = 3 };

WORDS_INLINE void half_store(const WgradTile *tile, int first, const int vectors, __m512 sum[HALF][VECTORS])
{
    for (int m = 0; m < HALF; m++)
        for (int v = 0; v < vectors; v++) {
            int left = tile->ins - v * WGRAD_LANES;
            __mmask16 mask = left >= WGRAD_LANES ? 0xFFFF : (__mmask16)((1u << left) - 1);
            float *to = tile->dw + (first + m) * tile->dw_out + v * WGRAD_LANES;
            if (first + m >= tile->outs) return;
            if (tile->add) sum[m][v] += _mm512_maskz_loadu_ps(mask, to);
            _mm512_mask_storeu_ps(to, mask, sum[m][v]);
        }
}

WORDS_INLINE void half_sum(const WgradTile *tile, int first, const int vectors)
{
    __m512 sum[HALF][VECTORS];
    for (int m = 0; m < HALF; m++)
        for (int v = 0; v < vectors; v++) sum[m][v] = _mm512_setzero_ps();
    for (int64_t pair = 0; pair < tile->pairs; pair++)
        for (int64_t row = 0; row < tile->rows; row++) {
            const uint32_t *x = tile->x + pair * tile->x_pair + row * tile->x_row;
            const uint32_t *dy = tile->dy + pair * tile->dy_pair + row * tile->dy_row + first;
            for (int64_t k = 0; k < tile->columns; k++, x += vectors * WGRAD_LANES, dy += WGRAD_LANES) {
                Words b[VECTORS];
                for (int v = 0; v < vectors; v++) b[v] = words_load(x + v * WGRAD_LANES);
                for (int m = 0; m < HALF; m++) {
                    Words a = words_spread(dy[m]);
                    for (int v = 0; v < vectors; v++) sum[m][v] = words_multiply(sum[m][v], a, b[v]);
                }
            }
        }
    half_store(tile, first, vectors, sum);
}

WORDS_CODE static void half_of_1(const WgradTile *tile, int first)
{
    half_sum(tile, first, 1);
}

WORDS_CODE static void half_of_2(const WgradTile *tile, int first)
{
    half_sum(tile, first, 2);
}

WORDS_CODE static void half_of_3(const WgradTile *tile, int first)
{
    half_sum(tile, first, 3);
}

static void tile_run(const WgradTile *tile)
{
    static void (*const halves[])(const WgradTile *, int) = {half_of_1, half_of_2, half_of_3};
    for (int first = 0; first < tile->outs; first += HALF) halves[tile->vectors - 1](tile, first);
}
