/* Weight gradients by Winograd's algorithm against plain loops: edges, slices, many blocks, any number of threads.
 *
 * Values are small integers, of which transforms and sums are exact, so the comparison is for equality; bits that
 * threads might change are looked for with values that round. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/winograd_dw.h"

enum { TAPS = 9, GUARD_BYTES = 4096 };

typedef struct Case {
    const char *name;
    int n, ic, oc, h, w, pad_h, pad_w;
    int x_gap, y_gap; /* channels between the pixels of x and of dy */
} Case;

static const Case cases[] = {
    {"padded", 2, 32, 32, 16, 16, 1, 1},
    {"valid, odd sides", 3, 32, 48, 19, 21, 0, 0},
    {"unequal padding, odd outputs", 3, 80, 32, 17, 20, 2, 0},
    {"slices", 2, 48, 64, 18, 17, 1, 1, .x_gap = 16, .y_gap = 5},
    {"small images", 9, 112, 64, 8, 8, 1, 1},
    {"small images of odd sides, slices", 16, 64, 96, 9, 7, 0, 2, .x_gap = 3, .y_gap = 16},
    {"more blocks than slices, an image alone", 5, 32, 32, 60, 41, 0, 1},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static uint64_t random_state = 1;

static int random_below(int limit)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int)(random_state >> 33) % limit;
}

static float value_of(uint16_t bits)
{
    uint32_t word = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

/* Integers from -2 to 2, or (`fine`) any value; NaN between the pixels. */
static Tensor tensor_make(Shape shape, int gap, bool fine)
{
    Tensor t = {.shape = shape, .dtype = DTYPE_BF16, .pitch = shape.c + gap};
    uint16_t *data = malloc((size_t)(shape_pixels(shape) * t.pitch) * sizeof *data);
    assert_non_null(data);
    for (int64_t i = 0; i < shape_pixels(shape) * t.pitch; i++) {
        float value = fine ? (float)random_below(65536) / 32768.0f - 1.0f : (float)(random_below(5) - 2);
        uint32_t word;
        memcpy(&word, &value, sizeof word);
        data[i] = i % t.pitch < shape.c ? (uint16_t)(word >> 16) : 0xFFFF;
    }
    t.data = data;
    return t;
}

static Tensor x_make(const Case *c, bool fine)
{
    return tensor_make((Shape){.n = c->n, .c = c->ic, .h = c->h, .w = c->w}, c->x_gap, fine);
}

static Tensor dy_make(const Case *c, bool fine)
{
    Shape shape = {.n = c->n, .c = c->oc, .h = c->h + 2 * c->pad_h - 2, .w = c->w + 2 * c->pad_w - 2};
    return tensor_make(shape, c->y_gap, fine);
}

static const uint16_t *pixel_at(const Tensor *t, int n, int h, int w)
{
    return (const uint16_t *)t->data + (((int64_t)n * t->shape.h + h) * t->shape.w + w) * t->pitch;
}

static size_t dw_count(const Case *c)
{
    return (size_t)c->oc * TAPS * (size_t)c->ic;
}

static void tap_add(const Case *c, float *dw, const uint16_t *x, const uint16_t *dy)
{
    for (int o = 0; o < c->oc; o++)
        for (int i = 0; i < c->ic; i++) dw[(size_t)(o * TAPS * c->ic + i)] += value_of(dy[o]) * value_of(x[i]);
}

static float *dw_wanted(const Case *c, const Tensor *x, const Tensor *dy)
{
    float *dw = calloc(dw_count(c), sizeof *dw);
    assert_non_null(dw);
    for (int n = 0; n < c->n; n++)
        for (int oh = 0; oh < dy->shape.h; oh++)
            for (int ow = 0; ow < dy->shape.w; ow++)
                for (int tap = 0; tap < TAPS; tap++) {
                    int h = oh + tap / 3 - c->pad_h, w = ow + tap % 3 - c->pad_w;
                    if (h < 0 || w < 0 || h >= c->h || w >= c->w) continue;
                    tap_add(c, dw + tap * c->ic, pixel_at(x, n, h, w), pixel_at(dy, n, oh, ow));
                }
    return dw;
}

/* Output and workspace start as NaN, with bytes behind them that must stay. */
static float *dw_run(const Case *c, const Tensor *x, const Tensor *dy, int threads)
{
    WinogradDw *winograd;
    Window window = {.kh = 3, .kw = 3, .stride_h = 1, .stride_w = 1, .pad_h = c->pad_h, .pad_w = c->pad_w};
    Device device = {.config.threads = threads};
    assert_true(winograd_dw_takes(x, dy, &window));
    assert_int_equal(winograd_dw_create(x, dy, &window, threads, &winograd), OK);
    size_t bytes = winograd_dw_workspace_bytes(winograd), dw_bytes = dw_count(c) * sizeof(float);
    unsigned char *workspace = aligned_alloc(64, bytes + GUARD_BYTES), *dw = malloc(dw_bytes + GUARD_BYTES);
    assert_non_null(workspace);
    assert_non_null(dw);
    assert_int_equal(bytes % 64, 0);
    memset(workspace, 0xFF, bytes + GUARD_BYTES);
    memset(dw, 0xFF, dw_bytes + GUARD_BYTES);
    winograd_dw_run(winograd, &device, x->data, dy->data, (float *)(void *)dw, workspace);
    for (int i = 0; i < GUARD_BYTES; i++) {
        assert_int_equal(workspace[bytes + (size_t)i], 0xFF);
        assert_int_equal(dw[dw_bytes + (size_t)i], 0xFF);
    }
    winograd_dw_destroy(winograd);
    free(workspace);
    return (float *)(void *)dw;
}

static void need_winograd(void)
{
    Tensor t = {.shape = {.n = 2, .c = 32, .h = 16, .w = 16}, .dtype = DTYPE_BF16, .pitch = 32};
    Window window = {.kh = 3, .kw = 3, .stride_h = 1, .stride_w = 1, .pad_h = 1, .pad_w = 1};
    if (winograd_dw_takes(&t, &t, &window)) return;
    print_message("skipped: this processor has no AVX512-BF16, or has AMX\n");
    skip();
}

static void check_case(const Case *c)
{
    Tensor x = x_make(c, false), dy = dy_make(c, false);
    float *wanted = dw_wanted(c, &x, &dy), *dw = dw_run(c, &x, &dy, 2);
    for (size_t i = 0; i < dw_count(c); i++)
        if (dw[i] != wanted[i])
            fail_msg("%s: output %zu, tap %zu, input %zu is %g, wanted %g", c->name, i / (size_t)(c->ic * TAPS),
                     i / (size_t)c->ic % TAPS, i % (size_t)c->ic, (double)dw[i], (double)wanted[i]);
    free(wanted);
    free(dw);
    free(x.data);
    free(dy.data);
}

static void test_against_loops(void **state)
{
    (void)state;
    need_winograd();
    for (int i = 0; i < CASES; i++) check_case(&cases[i]);
}

static void check_threads(const Case *c)
{
    Tensor x = x_make(c, true), dy = dy_make(c, true);
    float *one = dw_run(c, &x, &dy, 1);
    for (int threads = 2; threads <= 5; threads++) {
        float *more = dw_run(c, &x, &dy, threads);
        if (memcmp(one, more, dw_count(c) * sizeof *one) != 0)
            fail_msg("%s: %d threads make other bits than one", c->name, threads);
        free(more);
    }
    free(one);
    free(x.data);
    free(dy.data);
}

static void test_threads_change_no_bit(void **state)
{
    (void)state;
    need_winograd();
    for (int i = 0; i < CASES; i++) check_threads(&cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_loops),
        cmocka_unit_test(test_threads_change_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
