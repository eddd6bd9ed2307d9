/* The transforms of winograd_pack.h for the kind of words whose header (words_*.h) was included before. */
#pragma once

#include "kernels/cpu/conv/winograd_pack.h"

enum { SIDE = 4 /* of a tile's square of pixels, and of that of its points */ };

WORDS_INLINE Pixel pixel_at(const PixelRow *row, int w)
{
    return w >= 0 && w < row->length ? pixel_load(row, w) : pixel_zero();
}

/* B' of four pixels. */
WORDS_INLINE void x_transform(Pixel a, Pixel b, Pixel c, Pixel d, Pixel to[SIDE])
{
    to[0] = pixel_sub(a, c);
    to[1] = pixel_add(b, c);
    to[2] = pixel_sub(c, b);
    to[3] = pixel_sub(b, d);
}

/* Points [first, end) of A of two pixels. */
WORDS_INLINE void dy_transform(Pixel a, Pixel b, uint32_t *to, int64_t point, int first, int end)
{
    if (first == 0) words_store(to, a);
    words_store(to + point, pixel_add(a, b));
    words_store(to + 2 * point, pixel_sub(a, b));
    if (end == SIDE) words_store(to + 3 * point, b);
}

/* ---- F(2x2, 3x3) */

/* Column w of B' x. */
WORDS_INLINE void x_column(const PixelRow rows[SIDE], int w, Pixel to[SIDE])
{
    if (w < 0 || w >= rows->length)
        for (int r = 0; r < SIDE; r++) to[r] = pixel_zero();
    else
        x_transform(pixel_load(rows, w), pixel_load(rows + 1, w), pixel_load(rows + 2, w), pixel_load(rows + 3, w), to);
}

/* B' x B. Two columns of a tile are the first of the next. */
WORDS_CODE static void x_squares_pack(const PixelRow *rows, int left, int tiles, WordsPlace place)
{
    Pixel first[SIDE], second[SIDE], third[SIDE];
    uint32_t *to = place.words;
    const int64_t step = place.point;
    x_column(rows, left, first);
    x_column(rows, left + 1, second);
    for (int t = 0; t < tiles; t++, to += place.tile) {
        left += 2;
        x_column(rows, left, third);
        for (int r = 0; r < SIDE; r++) {
            words_store(to + SIDE * r * step, pixel_sub(first[r], third[r]));
            words_store(to + (SIDE * r + 1) * step, pixel_add(second[r], third[r]));
            words_store(to + (SIDE * r + 2) * step, pixel_sub(third[r], second[r]));
            first[r] = third[r];
        }
        x_column(rows, left + 1, third);
        for (int r = 0; r < SIDE; r++) {
            words_store(to + (SIDE * r + 3) * step, pixel_sub(second[r], third[r]));
            second[r] = third[r];
        }
    }
}

/* A dy A' */
WORDS_CODE static void dy_squares_pack(const PixelRow *rows, int tiles, WordsPlace place)
{
    uint32_t *to = place.words;
    const int64_t step = place.point;
    for (int t = 0; t < tiles; t++, to += place.tile) {
        Pixel a = pixel_load(rows, 2 * t), b = pixel_at(rows, 2 * t + 1);
        Pixel c = pixel_load(rows + 1, 2 * t), d = pixel_at(rows + 1, 2 * t + 1);
        dy_transform(a, b, to, step, 0, SIDE);
        dy_transform(pixel_add(a, c), pixel_add(b, d), to + SIDE * step, step, 0, SIDE);
        dy_transform(pixel_sub(a, c), pixel_sub(b, d), to + 2 * SIDE * step, step, 0, SIDE);
        dy_transform(c, d, to + 3 * SIDE * step, step, 0, SIDE);
    }
}

/* ---- F(4, 7) */

WORDS_INLINE void x_store(uint32_t *to, int64_t step, Pixel rows[SIDE][SIDE])
{
    for (int i = 0; i < 3; i++) words_store(to + i * step, pixel_sub(rows[0][i], rows[2][i]));
    for (int i = 0; i < SIDE; i++) words_store(to + (3 + i) * step, pixel_add(rows[1][i], rows[2][i]));
    for (int i = 0; i < SIDE; i++) words_store(to + (7 + i) * step, pixel_sub(rows[2][i], rows[1][i]));
    for (int i = 1; i < SIDE; i++) words_store(to + (10 + i) * step, pixel_sub(rows[1][i], rows[3][i]));
}

/* d = B' x B, in rows of the square. */
WORDS_CODE static void x_line_pack(const PixelRow *line, int left, int tiles, WordsPlace place)
{
    Pixel rows[SIDE][SIDE], third = pixel_at(line, left + 2), fourth = pixel_at(line, left + 3);
    x_transform(pixel_at(line, left), pixel_at(line, left + 1), third, fourth, rows[0]);
    Pixel a = pixel_at(line, left + 4), b = pixel_at(line, left + 5);
    x_transform(third, fourth, a, b, rows[1]);
    for (int t = 0; t < tiles; t++, left += SIDE) {
        Pixel c = pixel_at(line, left + 6), d = pixel_at(line, left + 7);
        x_transform(a, b, c, d, rows[2]);
        a = pixel_at(line, left + 8), b = pixel_at(line, left + 9);
        x_transform(c, d, a, b, rows[3]);
        x_store(place.words + t * place.tile, place.point, rows);
        for (int i = 0; i < SIDE; i++) rows[0][i] = rows[2][i], rows[1][i] = rows[3][i];
    }
}

/* A dy A' without the two points that have no product. */
WORDS_CODE static void dy_line_pack(const PixelRow *line, int tiles, WordsPlace place)
{
    uint32_t *to = place.words;
    const int64_t step = place.point;
    for (int t = 0; t < tiles; t++, to += place.tile) {
        Pixel a = pixel_at(line, SIDE * t), b = pixel_at(line, SIDE * t + 1);
        Pixel c = pixel_at(line, SIDE * t + 2), d = pixel_at(line, SIDE * t + 3);
        dy_transform(a, b, to, step, 0, 3);
        dy_transform(pixel_add(a, c), pixel_add(b, d), to + 3 * step, step, 0, SIDE);
        dy_transform(pixel_sub(a, c), pixel_sub(b, d), to + 7 * step, step, 0, SIDE);
        dy_transform(c, d, to + 10 * step, step, 1, SIDE);
    }
}

WORDS_CODE static void pixel_pack(const PixelRow *line, int at, uint32_t *to)
{
    words_store(to, pixel_at(line, at));
}

/* Behind the back: x_squares and dy_squares of six points, if there are any. */
#define WINOGRAD_PACK(with_products, with_back, ...)                                                                   \
    {                                                                                                                  \
        .images = IMAGES, .element_bytes = ELEMENT_BYTES, .channels = CHANNELS, .products = &with_products,            \
        .back = &with_back, .x_squares[BY_2X2] = x_squares_pack, .dy_squares[BY_2X2] = dy_squares_pack,                \
        .x_line = x_line_pack, .dy_line = dy_line_pack, .pixel = pixel_pack, __VA_ARGS__                               \
    }
