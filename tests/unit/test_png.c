/* PNG files, checked with zlib and the specification: chunks, checksums, and the same pixels after decoding. */
#include <zlib.h>

#include "tests/support/unit.h"
#include "towers/record/png.h"

static uint32_t big(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* The data of the chunk at *at, whose type and check are right; *at moves to the next. */
static const uint8_t *chunk(const uint8_t **at, const char *type, uint32_t *count)
{
    const uint8_t *start = *at;
    *count = big(start);
    assert_memory_equal(start + 4, type, 4);
    assert_int_equal(big(start + 8 + *count), crc32(0, start + 4, 4 + *count));
    *at = start + 12 + *count;
    return start + 8;
}

static void same_pixels(int32_t width, int32_t height, int32_t channels)
{
    size_t row = (size_t)(width * channels), size = (size_t)height * row, count;
    uint8_t *pixels = malloc(size), *bytes, *raw = malloc((size_t)height * (row + 1));
    uint32_t n;
    for (size_t i = 0; i < size; i++) pixels[i] = (uint8_t)(i * 37 + i / 11);
    assert_int_equal(png_encode(pixels, width, height, channels, &bytes, &count), OK);
    const uint8_t *at = bytes + 8, *data;
    assert_memory_equal(bytes, "\x89PNG\r\n\x1a\n", 8);
    data = chunk(&at, "IHDR", &n);
    assert_int_equal(n, 13);
    assert_int_equal(big(data), width);
    assert_int_equal(big(data + 4), height);
    assert_int_equal(data[8], 8);
    assert_int_equal(data[9], channels == 3 ? 2 : 0);
    data = chunk(&at, "IDAT", &n);
    uLongf got = (uLongf)((size_t)height * (row + 1));
    assert_int_equal(uncompress(raw, &got, data, n), Z_OK);
    assert_int_equal(got, (size_t)height * (row + 1));
    for (int32_t y = 0; y < height; y++) {
        assert_int_equal(raw[(size_t)y * (row + 1)], 0);
        assert_memory_equal(raw + (size_t)y * (row + 1) + 1, pixels + (size_t)y * row, row);
    }
    chunk(&at, "IEND", &n);
    assert_int_equal(n, 0);
    assert_ptr_equal(at, bytes + count);
    free(pixels);
    free(bytes);
    free(raw);
}

TEST(images)
{
    same_pixels(1, 1, 1);
    same_pixels(28, 28, 1);
    same_pixels(7, 5, 3);
    same_pixels(299, 301, 3);
}

TEST(refused)
{
    uint8_t pixel[4] = {0}, *bytes = NULL;
    size_t count;
    static const int32_t sizes[][3] = {{0, 1, 1}, {1, -1, 1}, {1, 1, 2}, {1, 1, 4}, {1 << 20, 1, 1}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        assert_int_equal(png_encode(pixel, sizes[i][0], sizes[i][1], sizes[i][2], &bytes, &count), ERR_ARG);
    assert_null(bytes);
}
