/* The last transform of weight gradients by Winograd's algorithms, from f32 products to taps, for the kind of vectors whose
 * header (lanes_*.h) was included before. G' = {1 1/2 1/2 0; 0 1/2 -1/2 0; 0 1/2 1/2 -1}. */
#pragma once

#include "kernels/cpu/conv/winograd_pack.h"

enum { SIDE = 4, SQUARE_TAPS = 9, LINE_TAPS = 7, LINE_POINTS = 14 };

/* Four points, `step` vectors apart, to three taps. */
TILE_INLINE void back_line(const Vector *m, int step, Vector *to, int to_step)
{
    Vector mean = 0.5f * (m[step] + m[2 * step]);
    to[0] = m[0] + mean;
    to[to_step] = 0.5f * (m[step] - m[2 * step]);
    to[2 * to_step] = mean - m[3 * step];
}

/* ---- F(2x2, 3x3) */

/* dw = G' m G */
TILE_CODE static void squares_back(const SquareSums *sums, int64_t channels, float *dw, int64_t tap)
{
    enum { POINTS = SIDE * SIDE };
    for (int64_t c = 0; c < channels; c += LANES) {
        Vector points[POINTS], rows[3 * SIDE], taps[SQUARE_TAPS];
        for (int i = 0; i < POINTS; i++) points[i] = floats_load(sums->m + i * channels + c);
        for (int k = 1; k < sums->slices; k++)
            for (int i = 0; i < POINTS; i++) points[i] += floats_load(sums->m + k * sums->step + i * channels + c);
        for (int s = 0; s < SIDE; s++) back_line(points + s, SIDE, rows + s, SIDE);
        for (int r = 0; r < 3; r++) back_line(rows + SIDE * r, 1, taps + 3 * r, 1);
        for (int i = 0; i < SQUARE_TAPS; i++) floats_store(dw + i * tap + c, taps[i]);
    }
}

/* ---- F(4, 7) */

/* The taps of a vector of inputs: dh = G' m G. Points are `step` floats apart; two of the square have no product. */
TILE_INLINE void taps_find(const float *m, int64_t step, Vector taps[LINE_TAPS])
{
    static const int8_t points_at[LINE_POINTS] = {0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15};
    static const int8_t taps_at[LINE_TAPS] = {0, 1, 3, 4, 5, 7, 8};
    Vector square[SIDE * SIDE], rows[SIDE * 3], all[3 * 3];
    square[3] = square[12] = (Vector){0};
    for (int i = 0; i < LINE_POINTS; i++) square[points_at[i]] = floats_load(m + i * step);
    for (int r = 0; r < SIDE; r++) back_line(square + SIDE * r, 1, rows + 3 * r, 1);
    for (int i = 0; i < 3; i++) back_line(rows + i, 3, all + i, 3);
    for (int i = 0; i < LINE_TAPS; i++) taps[i] = all[taps_at[i]];
}

TILE_CODE static void line_back(const LineSums *sums, int64_t channels, float *dw)
{
    for (int64_t c = 0; c < channels; c += LANES) {
        Vector taps[LINE_TAPS];
        taps_find(sums->m + c, channels, taps);
        for (int i = 0; i < sums->plain; i++) {
            Vector *tap = &taps[sums->plain_first + i];
            *tap += floats_load(sums->m + (LINE_POINTS + i) * channels + c);
        }
        for (int i = 0; i < LINE_TAPS; i++) floats_store(dw + i * channels + c, taps[i]);
    }
}
