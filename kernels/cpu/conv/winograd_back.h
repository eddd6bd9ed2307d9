/* The last transform of weight gradients by Winograd's algorithms, from f32 products to taps, for the kind of vectors
 * whose header (lanes_*.h) was included before. G' = {1 1/2 1/2 0; 0 1/2 -1/2 0; 0 1/2 1/2 -1}. */
#pragma once

#include "kernels/cpu/conv/winograd_pack.h"
#include "kernels/cpu/conv/winograd_points.h"

enum { SIDE = 4, LINE_TAPS = 7, LINE_POINTS = 14 };

/* Four points, `step` vectors apart, to three taps. */
TILE_INLINE void back_line(const Vector *m, int step, Vector *to, int to_step)
{
    Vector mean = 0.5f * (m[step] + m[2 * step]);
    to[0] = m[0] + mean;
    to[to_step] = 0.5f * (m[step] - m[2 * step]);
    to[2 * to_step] = mean - m[3 * step];
}

/* ---- squares: dw = G' m G */

/* Vectors at channel c of `count` points, the sums of all slices. */
TILE_INLINE void sums_load(const SquareSums *sums, int count, int64_t channels, int64_t c, Vector *points)
{
    for (int i = 0; i < count; i++) points[i] = floats_load(sums->m + i * channels + c);
    for (int k = 1; k < sums->slices; k++)
        for (int i = 0; i < count; i++) points[i] += floats_load(sums->m + k * sums->step + i * channels + c);
}

TILE_CODE static void squares_2x2_back(const SquareSums *sums, int64_t channels, float *dw, int64_t tap)
{
    for (int64_t c = 0; c < channels; c += LANES) {
        Vector points[SIDE * SIDE], rows[3 * SIDE], taps[3 * 3];
        sums_load(sums, SIDE * SIDE, channels, c, points);
        for (int s = 0; s < SIDE; s++) back_line(points + s, SIDE, rows + s, SIDE);
        for (int r = 0; r < 3; r++) back_line(rows + SIDE * r, 1, taps + 3 * r, 1);
        for (int i = 0; i < 3 * 3; i++) floats_store(dw + i * tap + c, taps[i]);
    }
}

/* Six points, `step` vectors apart, to three or five taps. */
TILE_INLINE void back_six(const Vector *m, int step, const int taps, Vector *to, int to_step)
{
    const float pp = NEAR * NEAR, qq = FAR * FAR;
    Vector even = NEAR_SCALE * (m[step] + m[2 * step]), odd = NEAR_SCALE * NEAR * (m[step] - m[2 * step]);
    Vector far_even = FAR_SCALE * (m[3 * step] + m[4 * step]), far_odd = FAR_SCALE * FAR * (m[3 * step] - m[4 * step]);
    to[0] = add_times(even + far_even, m[0], 1 / (pp * qq));
    to[to_step] = odd + far_odd;
    to[2 * to_step] = add_times(pp * even, far_even, qq);
    if (taps == 5) {
        to[3 * to_step] = add_times(pp * odd, far_odd, qq);
        to[4 * to_step] = add_times(pp * pp * even, far_even, qq * qq);
    }
    to[(taps - 1) * to_step] += m[5 * step];
}

TILE_INLINE void six_back(const SquareSums *sums, int64_t channels, float *dw, int64_t tap, const int side)
{
    enum { SIX = 6, MOST = 5 };
    for (int64_t c = 0; c < channels; c += LANES) {
        Vector points[SIX * SIX], rows[MOST * SIX], taps[MOST * MOST];
        sums_load(sums, SIX * SIX, channels, c, points);
        for (int s = 0; s < SIX; s++) back_six(points + s, SIX, side, rows + s, SIX);
        for (int r = 0; r < side; r++) back_six(rows + SIX * r, 1, side, taps + side * r, 1);
        for (int i = 0; i < side * side; i++) floats_store(dw + i * tap + c, taps[i]);
    }
}

TILE_CODE static void squares_4x4_back(const SquareSums *sums, int64_t channels, float *dw, int64_t tap)
{
    six_back(sums, channels, dw, tap, 3);
}

TILE_CODE static void squares_5x5_back(const SquareSums *sums, int64_t channels, float *dw, int64_t tap)
{
    six_back(sums, channels, dw, tap, 5);
}

/* The field of WinogradBack. */
#define SQUARES_BACK                                                                                                   \
    {                                                                                                                  \
        [BY_2X2] = squares_2x2_back, [BY_4X4] = squares_4x4_back, [BY_5X5] = squares_5x5_back                          \
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
