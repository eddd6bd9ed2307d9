/* winograd_pack.h for f32 with AVX2: each transform is made for both halves of 16 channels. */
#include "kernels/cpu/conv/winograd_pack.h"

#if defined(__x86_64__)
#include "kernels/cpu/conv/words_f32_avx2.h"

#include "kernels/cpu/conv/winograd_transforms.h"

static PixelRow upper_row(const PixelRow *row)
{
    PixelRow upper = *row;
    upper.even = (const float *)row->even + WORDS_LANES;
    return upper;
}

static WordsPlace upper_place(WordsPlace place)
{
    place.words += WORDS_LANES;
    return place;
}

static void x_squares(const PixelRow rows[SIDE], int left, int tiles, WordsPlace to)
{
    PixelRow upper[SIDE];
    for (int r = 0; r < SIDE; r++) upper[r] = upper_row(&rows[r]);
    x_squares_pack(rows, left, tiles, to);
    x_squares_pack(upper, left, tiles, upper_place(to));
}

static void dy_squares(const PixelRow rows[2], int tiles, WordsPlace to)
{
    PixelRow upper[2] = {upper_row(&rows[0]), upper_row(&rows[1])};
    dy_squares_pack(rows, tiles, to);
    dy_squares_pack(upper, tiles, upper_place(to));
}

static void x_line(const PixelRow *line, int left, int tiles, WordsPlace to)
{
    PixelRow upper = upper_row(line);
    x_line_pack(line, left, tiles, to);
    x_line_pack(&upper, left, tiles, upper_place(to));
}

static void dy_line(const PixelRow *line, int tiles, WordsPlace to)
{
    PixelRow upper = upper_row(line);
    dy_line_pack(line, tiles, to);
    dy_line_pack(&upper, tiles, upper_place(to));
}

static void pixel(const PixelRow *line, int at, uint32_t *to)
{
    PixelRow upper = upper_row(line);
    pixel_pack(line, at, to);
    pixel_pack(&upper, at, to + WORDS_LANES);
}

const WinogradPack winograd_pack_f32_avx2 = {.images = IMAGES,
                                             .element_bytes = ELEMENT_BYTES,
                                             .products = &wgrad_f32_avx2,
                                             .back = &winograd_back_avx2,
                                             .x_squares = x_squares,
                                             .dy_squares = dy_squares,
                                             .x_line = x_line,
                                             .dy_line = dy_line,
                                             .pixel = pixel};
#endif
