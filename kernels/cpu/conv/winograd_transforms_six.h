/* The transforms of F(4x4, 3x3) and F(2x2, 5x5) for weight gradients, B' x B and A dy A', for words of f32
 * (words_f32.h, included before). Their points and matrices are those of winograd_points.h. */
#pragma once

#include "kernels/cpu/conv/winograd_points.h"

enum { SIX = 6 };

/* B' of six pixels */
WORDS_INLINE void x_six(const Pixel x[SIX], Pixel to[SIX])
{
    const float pp = NEAR * NEAR, qq = FAR * FAR;
    Pixel even = x[4] - qq * x[2], odd = x[3] - qq * x[1];
    to[0] = x[4] - (pp + qq) * x[2] + pp * qq * x[0];
    to[1] = even + NEAR * odd;
    to[2] = even - NEAR * odd;
    even = x[4] - pp * x[2], odd = x[3] - pp * x[1];
    to[3] = even + FAR * odd;
    to[4] = even - FAR * odd;
    to[5] = x[5] - (pp + qq) * x[3] + pp * qq * x[1];
}

/* A of `out` pixels, four or two */
WORDS_INLINE void dy_six(const Pixel *y, const int out, Pixel to[SIX])
{
    const float pp = NEAR * NEAR, qq = FAR * FAR;
    const Pixel third = out == 4 ? y[2] : pixel_zero(), fourth = out == 4 ? y[3] : pixel_zero();
    Pixel even = y[0] + pp * third, odd = NEAR * y[1] + pp * NEAR * fourth;
    to[0] = y[0];
    to[1] = even + odd;
    to[2] = even - odd;
    even = y[0] + qq * third, odd = FAR * y[1] + qq * FAR * fourth;
    to[3] = even + odd;
    to[4] = even - odd;
    to[5] = y[out - 1];
}

/* The points of row r of a tile. */
WORDS_INLINE void points_store(WordsPlace place, int r, const Pixel points[SIX])
{
    for (int s = 0; s < SIX; s++) words_store(place.words + (SIX * r + s) * place.point, points[s]);
}

WORDS_INLINE void x_column_six(const PixelRow *rows, int w, Pixel to[SIX])
{
    Pixel column[SIX];
    for (int r = 0; r < SIX; r++) column[r] = pixel_at(rows + r, w);
    x_six(column, to);
}

/* The last columns of a tile are the first of the next, which is `out` pixels further. */
WORDS_INLINE void x_six_pack(const PixelRow *rows, int left, int tiles, WordsPlace place, const int out)
{
    const int shared = SIX - out;
    Pixel columns[SIX][SIX], line[SIX], to[SIX];
    for (int s = 0; s < shared; s++) x_column_six(rows, left + s, columns[s]);
    for (int t = 0; t < tiles; t++, left += out, place.words += place.tile) {
        for (int s = shared; s < SIX; s++) x_column_six(rows, left + s, columns[s]);
        for (int r = 0; r < SIX; r++) {
            for (int s = 0; s < SIX; s++) line[s] = columns[s][r];
            x_six(line, to);
            points_store(place, r, to);
        }
        for (int s = 0; s < shared; s++)
            for (int r = 0; r < SIX; r++) columns[s][r] = columns[s + out][r];
    }
}

WORDS_INLINE void dy_six_pack(const PixelRow *rows, int tiles, WordsPlace place, const int out)
{
    Pixel columns[SIX][SIX], line[SIX], to[SIX];
    for (int t = 0; t < tiles; t++, place.words += place.tile) {
        for (int s = 0; s < out; s++) {
            for (int r = 0; r < out; r++) line[r] = pixel_at(rows + r, out * t + s);
            dy_six(line, out, columns[s]);
        }
        for (int r = 0; r < SIX; r++) {
            for (int s = 0; s < out; s++) line[s] = columns[s][r];
            dy_six(line, out, to);
            points_store(place, r, to);
        }
    }
}

WORDS_CODE static void x_4x4_pack(const PixelRow *rows, int left, int tiles, WordsPlace place)
{
    x_six_pack(rows, left, tiles, place, 4);
}

WORDS_CODE static void dy_4x4_pack(const PixelRow *rows, int tiles, WordsPlace place)
{
    dy_six_pack(rows, tiles, place, 4);
}

WORDS_CODE static void x_5x5_pack(const PixelRow *rows, int left, int tiles, WordsPlace place)
{
    x_six_pack(rows, left, tiles, place, 2);
}

WORDS_CODE static void dy_5x5_pack(const PixelRow *rows, int tiles, WordsPlace place)
{
    dy_six_pack(rows, tiles, place, 2);
}

#define SIX_POINTS                                                                                                     \
    .x_squares[BY_4X4] = x_4x4_pack, .dy_squares[BY_4X4] = dy_4x4_pack, .x_squares[BY_5X5] = x_5x5_pack,               \
    .dy_squares[BY_5X5] = dy_5x5_pack
