/* The factors of weight gradients by Winograd's algorithms, B' x B and A dy A' as words, and the way back from their products to
 * taps, for the kind of vectors whose header (lanes_*.h) was included before. Every function takes the algorithm, and the type,
 * as constants. */
#pragma once

#include "kernels/cpu/conv/wgrad.h"
#include "kernels/cpu/conv/winograd_matrices.h"

TILE_INLINE Vector row_load(Dtype dtype, const PixelRow *row, int64_t w)
{
    const int64_t bytes = dtype == DTYPE_F32 ? 4 : 2;
    return pixel_load(dtype, (const char *)row->even + w * row->even_step * bytes,
                      (const char *)row->odd + w * row->odd_step * bytes);
}

TILE_INLINE Vector pixel_at(Dtype dtype, const PixelRow *row, int w)
{
    return w >= 0 && w < row->length ? row_load(dtype, row, w) : (Vector){0};
}

/* ---- tiles of m x m */

/* Column w of B' x. Rows are equally long, so F(2x2, 3x3) asks once for all of them. (Six points ask for each, as their sums do
 * not round alike otherwise: compilers fuse multiplications and additions within a block of code alone.) */
TILE_INLINE void x_column(Dtype dtype, const WinogradAlgorithm a, const PixelRow *rows, int w, Vector *to)
{
    const int alpha = winograd_alpha(a);
    Vector column[ALPHA_MOST];
    if (a == F2_3 && (w < 0 || w >= rows->length)) {
        for (int r = 0; r < alpha; r++) to[r] = (Vector){0};
        return;
    }
    for (int r = 0; r < alpha; r++) column[r] = a == F2_3 ? row_load(dtype, rows + r, w) : pixel_at(dtype, rows + r, w);
    x_transform(a, column, to);
}

/* The last columns of a tile are the first of the next, which is m pixels further. */
TILE_INLINE void x_tiles_pack(Dtype dtype, const WinogradAlgorithm a, const PixelRow *rows, int left, int tiles,
                              WordSteps to)
{
    const int alpha = winograd_alpha(a), m = winograd_m(a), shared = alpha - m;
    Vector columns[ALPHA_MOST][ALPHA_MOST], from[ALPHA_MOST], points[ALPHA_MOST];
    for (int s = 0; s < shared; s++) x_column(dtype, a, rows, left + s, columns[s]);
    for (int t = 0; t < tiles; t++, left += m, to.words += to.tile) {
        for (int s = shared; s < alpha; s++) x_column(dtype, a, rows, left + s, columns[s]);
        for (int r = 0; r < alpha; r++) {
            for (int s = 0; s < alpha; s++) from[s] = columns[s][r];
            x_transform(a, from, points);
            for (int s = 0; s < alpha; s++) pixel_store(dtype, to.words + (alpha * r + s) * to.point, points[s]);
        }
        for (int s = 0; s < shared; s++)
            for (int r = 0; r < alpha; r++) columns[s][r] = columns[s + m][r];
    }
}

TILE_INLINE void dy_tiles_pack(Dtype dtype, const WinogradAlgorithm a, const PixelRow *rows, int tiles, WordSteps to)
{
    const int alpha = winograd_alpha(a), m = winograd_m(a);
    Vector columns[M_MOST][ALPHA_MOST], from[M_MOST], points[ALPHA_MOST];
    for (int t = 0; t < tiles; t++, to.words += to.tile) {
        for (int s = 0; s < m; s++) {
            for (int r = 0; r < m; r++) from[r] = pixel_at(dtype, rows + r, m * t + s);
            dy_transform(a, from, columns[s]);
        }
        for (int r = 0; r < alpha; r++) {
            for (int s = 0; s < m; s++) from[s] = columns[s][r];
            dy_transform(a, from, points);
            for (int s = 0; s < alpha; s++) pixel_store(dtype, to.words + (alpha * r + s) * to.point, points[s]);
        }
    }
}

/* ---- 1-D tiles */

/* The last two rows of a tile are the first two of the next. */
TILE_INLINE void x_line_pack(Dtype dtype, const PixelRow *line, int left, int tiles, WordSteps to)
{
    Vector x[6], rows[4][4], points[F4_7_POINTS];
    for (int i = 0; i < 6; i++) x[i] = pixel_at(dtype, line, left + i);
    x_transform_4(x, rows[0]);
    x_transform_4(x + 2, rows[1]);
    for (int t = 0; t < tiles; t++, left += F4_7_OUTPUTS, to.words += to.tile) {
        x[0] = x[4], x[1] = x[5];
        for (int i = 2; i < 6; i++) x[i] = pixel_at(dtype, line, left + 4 + i);
        x_transform_4(x, rows[2]);
        x_transform_4(x + 2, rows[3]);
        x_transform_1d(rows, points);
        for (int i = 0; i < F4_7_POINTS; i++) pixel_store(dtype, to.words + i * to.point, points[i]);
        for (int i = 0; i < 4; i++) rows[0][i] = rows[2][i], rows[1][i] = rows[3][i];
    }
}

TILE_INLINE void dy_line_pack(Dtype dtype, const PixelRow *line, int tiles, WordSteps to)
{
    Vector y[F4_7_OUTPUTS], points[F4_7_POINTS];
    for (int t = 0; t < tiles; t++, to.words += to.tile) {
        for (int i = 0; i < F4_7_OUTPUTS; i++) y[i] = pixel_at(dtype, line, F4_7_OUTPUTS * t + i);
        dy_transform_1d(y, points);
        for (int i = 0; i < F4_7_POINTS; i++) pixel_store(dtype, to.words + i * to.point, points[i]);
    }
}

/* ---- back: dw = G' m G */

/* Vectors at channel c of the points, the sums of all slices. */
TILE_INLINE void sums_load(const PointSums *sums, const int count, int64_t channels, int64_t c, Vector *points)
{
    for (int i = 0; i < count; i++) points[i] = floats_load(sums->m + i * channels + c);
    for (int k = 1; k < sums->slices; k++)
        for (int i = 0; i < count; i++) points[i] += floats_load(sums->m + k * sums->step + i * channels + c);
}

TILE_INLINE void taps_find(const WinogradAlgorithm a, const Vector *points, Vector *taps)
{
    const int alpha = winograd_alpha(a), r = winograd_r(a);
    Vector rows[5 * ALPHA_MOST];
    for (int s = 0; s < alpha; s++) dw_transform(a, points + s, alpha, rows + s, alpha);
    for (int i = 0; i < r; i++) dw_transform(a, rows + alpha * i, 1, taps + r * i, 1);
}

TILE_INLINE void dw_back(const WinogradAlgorithm a, const PointSums *sums, int64_t channels, float *dw, int64_t tap)
{
    for (int64_t c = 0; c < channels; c += LANES) {
        Vector points[POINTS_MOST], taps[TAPS_MOST];
        sums_load(sums, winograd_points(a), channels, c, points);
        if (a == F4_7)
            dw_transform_1d(points, taps);
        else
            taps_find(a, points, taps);
        for (int i = 0; a == F4_7 && i < sums->plain; i++)
            taps[sums->plain_first + i] += floats_load(sums->m + (F4_7_POINTS + i) * channels + c);
        for (int i = 0; i < winograd_taps(a); i++) floats_store(dw + i * tap + c, taps[i]);
    }
}

/* ---- the code of each algorithm */

#define WINOGRAD_DW_PACK(a, dtype)                                                                                     \
    TILE_CODE static void x_pack_##a##_##dtype(const PixelRow *rows, int left, int tiles, WordSteps to)                \
    {                                                                                                                  \
        if (a == F4_7)                                                                                                 \
            x_line_pack(dtype, rows, left, tiles, to);                                                                 \
        else                                                                                                           \
            x_tiles_pack(dtype, a, rows, left, tiles, to);                                                             \
    }                                                                                                                  \
    TILE_CODE static void dy_pack_##a##_##dtype(const PixelRow *rows, int tiles, WordSteps to)                         \
    {                                                                                                                  \
        if (a == F4_7)                                                                                                 \
            dy_line_pack(dtype, rows, tiles, to);                                                                      \
        else                                                                                                           \
            dy_tiles_pack(dtype, a, rows, tiles, to);                                                                  \
    }
#define WINOGRAD_DW_PIXEL(dtype)                                                                                       \
    TILE_CODE static void pixel_pack_##dtype(const PixelRow *row, int at, uint32_t *to)                                \
    {                                                                                                                  \
        pixel_store(dtype, to, pixel_at(dtype, row, at));                                                              \
    }
#define WINOGRAD_DW_BACK(a)                                                                                            \
    TILE_CODE static void back_##a(const PointSums *sums, int64_t channels, float *dw, int64_t tap)                    \
    {                                                                                                                  \
        dw_back(a, sums, channels, dw, tap);                                                                           \
    }
#define WINOGRAD_DW_CODE(a, dtype)                                                                                     \
    [a] = {(dtype) == DTYPE_F32 ? LANES : LANES / 2, x_pack_##a##_##dtype, dy_pack_##a##_##dtype, pixel_pack_##dtype,  \
           back_##a}

WINOGRAD_DW_PACK(F2_3, DTYPE_F32)
WINOGRAD_DW_PACK(F4_3, DTYPE_F32)
WINOGRAD_DW_PACK(F2_5, DTYPE_F32)
WINOGRAD_DW_PACK(F4_7, DTYPE_F32)
WINOGRAD_DW_PIXEL(DTYPE_F32)
WINOGRAD_DW_BACK(F2_3)
WINOGRAD_DW_BACK(F4_3)
WINOGRAD_DW_BACK(F2_5)
WINOGRAD_DW_BACK(F4_7)

#define WINOGRAD_DW_CODES                                                                                              \
    {                                                                                                                  \
        WINOGRAD_DW_CODE(F2_3, DTYPE_F32), WINOGRAD_DW_CODE(F4_3, DTYPE_F32), WINOGRAD_DW_CODE(F2_5, DTYPE_F32),       \
            WINOGRAD_DW_CODE(F4_7, DTYPE_F32)                                                                          \
    }
