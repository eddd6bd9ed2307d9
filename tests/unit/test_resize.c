/* The resizer equals Pillow's pixels (golden_resize.h) exactly, and has the properties that follow from its
 * definition. */
#include "towers/data/images/resize.h"

#include "tests/support/unit.h"
#include "tests/unit/golden_resize.h"
#include "towers/data/images/resize_rows.h"

static Pixels pixels_of(int32_t h, int32_t w, int32_t c, const uint8_t *values)
{
    Pixels p = {0};
    assert_int_equal(pixels_shape(&p, h, w, c), OK);
    memcpy(p.at, values, (size_t)(h * w * c));
    return p;
}

static void resize(int32_t in_h, int32_t in_w, int32_t out_h, int32_t out_w, int32_t c, const uint8_t *in, uint8_t *out,
                   size_t pitch)
{
    Resizer *r = NULL;
    Pixels from = pixels_of(in_h, in_w, c, in);
    Resize to = {.in_h = in_h, .in_w = in_w, .out_h = out_h, .out_w = out_w, .window = {0, 0, out_h, out_w}};
    assert_int_equal(resizer_create(&r), OK);
    assert_int_equal(resizer_run(r, &to, &from, out, pitch), OK);
    resizer_destroy(r);
    pixels_free(&from);
}

TEST(test_golden)
{
    for (size_t k = 0; k < sizeof golden / sizeof *golden; k++) {
        size_t n = (size_t)(golden[k].in_h * golden[k].in_w * golden[k].c);
        size_t m = (size_t)(golden[k].out_h * golden[k].out_w * golden[k].c);
        uint8_t *in = malloc(n), out[600];
        for (size_t i = 0; i < n; i++) in[i] = (uint8_t)(i * 73 + i * i * 5 + i / 7);
        resize(golden[k].in_h, golden[k].in_w, golden[k].out_h, golden[k].out_w, golden[k].c, in, out,
               (size_t)(golden[k].out_w * golden[k].c));
        for (size_t i = 0; i < m; i++)
            if (out[i] != golden[k].out[i])
                fail_msg("case %zu, value %zu: wanted %d, found %d", k, i, golden[k].out[i], out[i]);
        free(in);
    }
}

TEST(test_constant_stays)
{
    uint8_t in[31 * 17], out[299 * 40];
    memset(in, 201, sizeof in);
    resize(31, 17, 299, 40, 1, in, out, 40);
    for (size_t i = 0; i < sizeof out; i++) assert_int_equal(out[i], 201);
    resize(31, 17, 3, 299, 1, in, out, 299);
    for (size_t i = 0; i < 3 * 299; i++) assert_int_equal(out[i], 201);
}

TEST(test_pitch_leaves_the_rest)
{
    uint8_t in[12], out[4 * 10], packed[4 * 6];
    for (int i = 0; i < 12; i++) in[i] = (uint8_t)(20 * i);
    memset(out, 77, sizeof out);
    resize(2, 2, 4, 2, 3, in, out, 10);
    resize(2, 2, 4, 2, 3, in, packed, 6);
    for (int y = 0; y < 4; y++) {
        assert_memory_equal(out + y * 10, packed + y * 6, 6);
        for (int x = 6; x < 10; x++) assert_int_equal(out[y * 10 + x], 77);
    }
}

/* A window is the same pixels of the whole, from no more of the input than resize_support names. */
TEST(test_window_is_part_of_the_whole)
{
    enum { H = 90, W = 70, OUT_H = 40, OUT_W = 150 };
    static uint8_t in[H * W * 3], whole[OUT_H * OUT_W * 3], part[OUT_H * OUT_W * 3];
    Resizer *r = NULL;
    assert_int_equal(resizer_create(&r), OK);
    for (size_t i = 0; i < sizeof in; i++) in[i] = (uint8_t)(i * 73 + i * i * 5 + i / 7);
    Pixels from = pixels_of(H, W, 3, in);
    for (int filter = 0; filter < 2; filter++) {
        Resize all = {(ResizeFilter)filter, H, W, OUT_H, OUT_W, {0, 0, OUT_H, OUT_W}};
        assert_int_equal(resizer_run(r, &all, &from, whole, OUT_W * 3), OK);
        const Rect windows[] = {{0, 0, 1, 1}, {7, 11, 20, 33}, {39, 149, 1, 1}, {0, 100, 40, 50}};
        for (size_t k = 0; k < sizeof windows / sizeof *windows; k++) {
            Rect w = windows[k];
            Resize some = {(ResizeFilter)filter, H, W, OUT_H, OUT_W, w};
            Rect s = resize_support(&some);
            Pixels cut = {0};
            assert_int_equal(pixels_shape(&cut, s.h, s.w, 3), OK);
            for (int y = 0; y < s.h; y++)
                memcpy(cut.at + (size_t)y * cut.pitch, in + ((s.y + y) * W + s.x) * 3, cut.pitch);
            assert_int_equal(resizer_run(r, &some, &cut, part, (size_t)w.w * 3), OK);
            for (int y = 0; y < w.h; y++)
                assert_memory_equal(part + y * w.w * 3, whole + ((w.y + y) * OUT_W + w.x) * 3, (size_t)w.w * 3);
            pixels_free(&cut);
        }
    }
    pixels_free(&from);
    resizer_destroy(r);
}

/* Resizing to the same size is a copy, whatever the filter and the window. */
TEST(test_same_size_copies)
{
    enum { H = 28, W = 31 };
    const Rect windows[] = {{0, 0, H, W}, {1, 2, 20, 25}, {H - 1, W - 1, 1, 1}};
    uint8_t in[H * W * 3], out[H * W * 3];
    for (size_t i = 0; i < sizeof in; i++) in[i] = (uint8_t)(i * 73 + i * i * 5 + i / 7);
    Resizer *r = NULL;
    assert_int_equal(resizer_create(&r), OK);
    for (int filter = 0; filter < 2; filter++)
        for (size_t k = 0; k < sizeof windows / sizeof *windows; k++) {
            const Rect w = windows[k];
            Resize same = {(ResizeFilter)filter, H, W, H, W, w};
            Rect s = resize_support(&same);
            Pixels cut = {0};
            assert_int_equal(pixels_shape(&cut, s.h, s.w, 3), OK);
            for (int y = 0; y < s.h; y++)
                memcpy(cut.at + (size_t)y * cut.pitch, in + ((s.y + y) * W + s.x) * 3, (size_t)s.w * 3);
            assert_int_equal(resizer_run(r, &same, &cut, out, (size_t)w.w * 3), OK);
            for (int y = 0; y < w.h; y++)
                assert_memory_equal(out + y * w.w * 3, in + ((w.y + y) * W + w.x) * 3, (size_t)w.w * 3);
            pixels_free(&cut);
        }
    resizer_destroy(r);
}

/* The AVX2 loops give what the plain ones give, in every byte. */
TEST(test_processors_agree)
{
    enum { ROWS = 9, WIDTH = 301, COUNT = 45 };
    static uint8_t in[ROWS * WIDTH * 3 + PIXELS_SLACK], plain[2][COUNT * 3 + 1], fast[2][COUNT * 3 + 1];
    if (!resize_has_avx2()) skip("this processor has no AVX2");
    int32_t first[COUNT], n[COUNT];
    int16_t weight[COUNT * 2 * 12];
    for (size_t i = 0; i < sizeof in; i++) in[i] = (uint8_t)(i * 73 + i * i * 5 + i / 7);
    for (int i = 0; i < COUNT; i++) {
        first[i] = 6 * i;
        n[i] = 1 + i % 12;
        for (int k = 0; k < 12; k++) {
            weight[i * 24 + k] = k < n[i] ? (int16_t)((i * 7919 + k * 104729) % 600 - 100) : 0;
            weight[i * 24 + 12 + k] = k < n[i] ? (int16_t)((i * 104729 + k * 7919) % 2048) : 0;
        }
    }
    Axis axis = {.count = COUNT, .taps = 12, .first = first, .n = n, .weight = weight};
    for (int k = 0; k < 2; k++) {
        row_resize(&axis, 3, in + k * WIDTH * 3, plain[k]);
        plain[k][COUNT * 3] = fast[k][COUNT * 3] = 7;
    }
    row_pair_resize_avx2(&axis, in, in + WIDTH * 3, fast[0], fast[1]);
    assert_memory_equal(plain, fast, sizeof plain);
    for (int taps = 1; taps <= ROWS; taps++)
        for (size_t width = 1; width <= sizeof *plain; width++) {
            column_resize(weight + 24 * 11, taps, 12, in, WIDTH * 3, width, plain[0]);
            column_resize_avx2(weight + 24 * 11, taps, 12, in, WIDTH * 3, width, fast[0]);
            assert_memory_equal(plain[0], fast[0], width);
        }
}

TEST(test_refused)
{
    uint8_t value = 9, out[64];
    Pixels one = pixels_of(1, 1, 1, &value);
    Resizer *r = NULL;
    assert_int_equal(resizer_create(&r), OK);
    const Resize bad[] = {
        {0, 0, 1, 1, 1, {0, 0, 1, 1}}, {0, 1, 65501, 1, 1, {0, 0, 1, 1}}, {0, 1, 1, 2, 2, {0, 0, 3, 1}},
        {0, 1, 1, 2, 2, {1, 1, 1, 2}}, {0, 1, 1, 2, 2, {-1, 0, 1, 1}},    {0, 9, 9, 2, 2, {0, 0, 2, 2}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(resizer_run(r, &bad[i], &one, out, 8), ERR_ARG);
    one.c = 5;
    assert_int_equal(resizer_run(r, &(Resize){0, 1, 1, 1, 1, {0, 0, 1, 1}}, &one, out, 8), ERR_ARG);
    pixels_free(&one);
    resizer_destroy(r);
    resizer_destroy(NULL);
}
