/* Our own weight gradients of bf16 convolutions against plain loops: both codes, blocks, edges, slices, threads.
 *
 * Values are small integers, so every sum is exact and the comparison is for equality. The tile instructions of AMX are
 * replaced by loops that follow the manual: what is checked is how tiles are laid out and read, not the processor. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/wgrad.h"

/* ---- tile registers */

typedef struct Register {
    uint32_t words[16][16];
} Register;

static Register registers[8];
static bool configured;

static void tile_configure_emulated(const void *config)
{
    const uint8_t *bytes = config;
    const uint16_t *row_bytes = (const uint16_t *)(const void *)(bytes + 16);
    assert_int_equal(bytes[0], 1);
    for (int t = 0; t < 8; t++) {
        assert_int_equal(row_bytes[t], 64);
        assert_int_equal(bytes[48 + t], 16);
    }
    memset(registers, 0xFF, sizeof registers);
    configured = true;
}

static void tile_release_emulated(void)
{
    configured = false;
}

static void tile_zero_emulated(int t)
{
    assert_true(configured);
    memset(&registers[t], 0, sizeof registers[t]);
}

static void tile_load_emulated(int t, const void *base, int64_t stride)
{
    assert_true(configured);
    for (int row = 0; row < 16; row++) memcpy(registers[t].words[row], (const char *)base + row * stride, 64);
}

static void tile_store_emulated(int t, void *base, int64_t stride)
{
    for (int row = 0; row < 16; row++) memcpy((char *)base + row * stride, registers[t].words[row], 64);
}

static float bf16_value(uint32_t bits)
{
    float value;
    bits <<= 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Intel's manual, TDPBF16PS. */
static void tile_multiply_emulated(int c, int a, int b)
{
    for (int m = 0; m < 16; m++)
        for (int k = 0; k < 16; k++)
            for (int n = 0; n < 16; n++) {
                uint32_t left = registers[a].words[m][k], right = registers[b].words[k][n];
                float sum;
                memcpy(&sum, &registers[c].words[m][n], sizeof sum);
                sum += bf16_value(left & 0xFFFF) * bf16_value(right & 0xFFFF);
                sum += bf16_value(left >> 16) * bf16_value(right >> 16);
                memcpy(&registers[c].words[m][n], &sum, sizeof sum);
            }
}

#define WGRAD_TILES_EMULATED
#define tile_configure(config) tile_configure_emulated(config)
#define tile_release() tile_release_emulated()
#define tile_zero(t) tile_zero_emulated(t)
#define tile_load(t, base, stride) tile_load_emulated(t, base, stride)
#define tile_store(t, base, stride) tile_store_emulated(t, base, stride)
#define tile_multiply(c, a, b) tile_multiply_emulated(c, a, b)
#define wgrad_amx emulated_amx
#include "kernels/cpu/wgrad_amx.c"

/* ---- cases */

typedef struct Case {
    const char *name;
    int n, ic, oc, h, w, kh, kw, stride_h, stride_w, pad_h, pad_w;
    int x_gap, y_gap; /* channels between the pixels of x and of dy */
} Case;

static const Case cases[] = {
    {"1x1", 2, 16, 16, 5, 5, 1, 1, 1, 1, 0, 0},
    {"1x1, an odd number of images", 5, 48, 40, 7, 5, 1, 1, 1, 1, 0, 0},
    {"1x1 of odd channels", 4, 21, 37, 3, 6, 1, 1, 1, 1, 0, 0},
    {"1x1 on one pixel", 3, 33, 10, 1, 1, 1, 1, 1, 1, 0, 0},
    {"1x1 stride 2", 3, 20, 24, 9, 8, 1, 1, 2, 2, 0, 0},
    {"3x3 valid", 2, 16, 48, 9, 7, 3, 3, 1, 1, 0, 0},
    {"3x3 same", 3, 80, 33, 8, 8, 3, 3, 1, 1, 1, 1},
    {"3x3 stride 2, a row left over", 3, 35, 16, 10, 10, 3, 3, 2, 2, 0, 0},
    {"3x3 stride 2, padded", 2, 64, 48, 11, 9, 3, 3, 2, 2, 1, 1},
    {"4x4 stride 2", 3, 18, 16, 8, 8, 4, 4, 2, 2, 1, 1},
    {"2x2 stride 3", 2, 17, 5, 10, 11, 2, 2, 3, 3, 0, 0},
    {"1x7", 3, 32, 32, 9, 9, 1, 7, 1, 1, 0, 3},
    {"7x1", 2, 24, 70, 9, 9, 7, 1, 1, 1, 3, 0},
    {"5x5, padding beyond the image", 3, 16, 16, 2, 2, 5, 5, 1, 1, 2, 2},
    {"3x2 with unequal strides", 4, 20, 12, 11, 8, 3, 2, 2, 1, 0, 1},
    {"3x3 of slices", 3, 17, 30, 6, 7, 3, 3, 1, 1, 1, 1, .x_gap = 5, .y_gap = 3},
    {"colour, stride 2", 3, 3, 32, 15, 17, 3, 3, 2, 2, 0, 0},
    {"colour, same", 2, 3, 20, 9, 10, 3, 3, 1, 1, 1, 1},
    {"colour, 7x7 stride 2", 3, 3, 16, 19, 20, 7, 7, 2, 2, 3, 3},
    {"colour, a slice", 3, 3, 16, 9, 9, 3, 3, 1, 1, 1, 1, .x_gap = 2},
    {"grey, 5x5 on few pixels", 2, 1, 6, 3, 2, 5, 5, 1, 1, 2, 2},
    {"several blocks of rows", 3, 4, 64, 80, 60, 3, 3, 1, 1, 1, 1},
    {"several blocks of rows, stride 2", 2, 20, 70, 120, 90, 3, 3, 2, 2, 1, 1},
    {"several blocks of images", 13, 8, 64, 20, 20, 3, 3, 1, 1, 1, 1},
    {"a large dw, several blocks of rows", 2, 44, 2000, 35, 33, 1, 1, 1, 1, 0, 0},
};
enum { CASES = sizeof cases / sizeof cases[0], GUARD_BYTES = 4096 };

static uint64_t random_state = 1;

static int random_below(int limit)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int)(random_state >> 33) % limit;
}

static uint16_t bf16_bits(float value)
{
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    return (uint16_t)(word >> 16);
}

/* Integers from -3 to 3, or (`fine`) any value; NaN between the pixels. */
static Tensor tensor_make(Shape shape, int gap, bool fine)
{
    Tensor t = {.shape = shape, .dtype = DTYPE_BF16, .pitch = shape.c + gap};
    uint16_t *data = malloc((size_t)(shape_pixels(shape) * t.pitch) * sizeof *data);
    assert_non_null(data);
    for (int64_t i = 0; i < shape_pixels(shape) * t.pitch; i++) {
        float value = fine ? (float)random_below(65536) / 32768.0f - 1.0f : (float)(random_below(7) - 3);
        data[i] = i % t.pitch < shape.c ? bf16_bits(value) : 0xFFFF;
    }
    t.data = data;
    return t;
}

static float value_at(const Tensor *t, int n, int h, int w, int c)
{
    int64_t pixel = ((int64_t)n * t->shape.h + h) * t->shape.w + w;
    return bf16_value(((const uint16_t *)t->data)[pixel * t->pitch + c]);
}

static Tensor dy_make(const Case *c, bool fine)
{
    Shape shape = {c->n, c->oc, window_out(c->h, c->kh, c->stride_h, c->pad_h, false),
                   window_out(c->w, c->kw, c->stride_w, c->pad_w, false)};
    return tensor_make(shape, c->y_gap, fine);
}

static Tensor x_make(const Case *c, bool fine)
{
    return tensor_make((Shape){c->n, c->ic, c->h, c->w}, c->x_gap, fine);
}

static size_t dw_count(const Case *c)
{
    return (size_t)c->oc * (size_t)(c->kh * c->kw) * (size_t)c->ic;
}

static void row_add(double *dw, const Tensor *x, const Tensor *dy, int n, const int from[2], const int to[2],
                    size_t out)
{
    for (int o = 0; o < dy->shape.c; o++) {
        double factor = (double)value_at(dy, n, to[0], to[1], o);
        for (int i = 0; i < x->shape.c; i++)
            dw[(size_t)o * out + (size_t)i] += factor * (double)value_at(x, n, from[0], from[1], i);
    }
}

static double *dw_wanted(const Case *c, const Tensor *x, const Tensor *dy)
{
    double *dw = calloc(dw_count(c), sizeof *dw);
    assert_non_null(dw);
    size_t taps = (size_t)(c->kh * c->kw), ins = (size_t)c->ic;
    for (int n = 0; n < c->n; n++)
        for (int oh = 0; oh < dy->shape.h; oh++)
            for (int ow = 0; ow < dy->shape.w; ow++)
                for (int tap = 0; tap < (int)taps; tap++) {
                    int h = oh * c->stride_h + tap / c->kw - c->pad_h, w = ow * c->stride_w + tap % c->kw - c->pad_w;
                    if (h < 0 || w < 0 || h >= c->h || w >= c->w) continue;
                    row_add(dw + (size_t)tap * ins, x, dy, n, (int[]){h, w}, (int[]){oh, ow}, taps * ins);
                }
    return dw;
}

/* Output and workspace start as NaN, with bytes behind them that must stay. */
static float *dw_run(const WgradCode *code, const Case *c, const Tensor *x, const Tensor *dy, int threads)
{
    Wgrad *wgrad;
    Window window = {c->kh, c->kw, c->stride_h, c->stride_w, c->pad_h, c->pad_w, false};
    Device device = {.config.threads = threads};
    if (wgrad_create(code, x, dy, &window, threads, &wgrad) != OK) fail_msg("%s", status_message());
    size_t bytes = wgrad_workspace_bytes(wgrad), dw_bytes = dw_count(c) * sizeof(float);
    unsigned char *workspace = aligned_alloc(64, bytes + GUARD_BYTES), *dw = malloc(dw_bytes + GUARD_BYTES);
    assert_non_null(workspace);
    assert_non_null(dw);
    assert_int_equal(bytes % 64, 0);
    memset(workspace, 0xFF, bytes + GUARD_BYTES);
    memset(dw, 0xFF, dw_bytes + GUARD_BYTES);
    wgrad_run(wgrad, &device, x->data, dy->data, (float *)(void *)dw, workspace);
    for (int i = 0; i < GUARD_BYTES; i++) {
        assert_int_equal(workspace[bytes + (size_t)i], 0xFF);
        assert_int_equal(dw[dw_bytes + (size_t)i], 0xFF);
    }
    wgrad_destroy(wgrad);
    free(workspace);
    return (float *)(void *)dw;
}

static void check_case(const WgradCode *code, const Case *c)
{
    Tensor x = x_make(c, false), dy = dy_make(c, false);
    double *wanted = dw_wanted(c, &x, &dy);
    float *dw = dw_run(code, c, &x, &dy, 1);
    for (size_t i = 0; i < dw_count(c); i++)
        if ((double)dw[i] != wanted[i])
            fail_msg("%s, %s: output %zu, tap %zu, input %zu is %g, wanted %g", code->name, c->name,
                     i / (size_t)(c->ic * c->kh * c->kw), i / (size_t)c->ic % (size_t)(c->kh * c->kw),
                     i % (size_t)c->ic, (double)dw[i], wanted[i]);
    free(wanted);
    free(dw);
    free(x.data);
    free(dy.data);
}

static void need_avx512(void)
{
    if (wgrad_avx512.usable()) return;
    print_message("skipped: this processor has no AVX512-BF16, with which the panels are packed\n");
    skip();
}

static void test_tiles_of_avx512(void **state)
{
    (void)state;
    need_avx512();
    for (int i = 0; i < CASES; i++) check_case(&wgrad_avx512, &cases[i]);
}

static void test_tiles_of_amx_emulated(void **state)
{
    (void)state;
    need_avx512();
    assert_true(emulated_amx.usable());
    for (int i = 0; i < CASES; i++) check_case(&emulated_amx, &cases[i]);
}

/* Values whose sums round. */
static void check_threads(const Case *c)
{
    Tensor x = x_make(c, true), dy = dy_make(c, true);
    float *one = dw_run(&wgrad_avx512, c, &x, &dy, 1);
    for (int threads = 2; threads <= 5; threads++) {
        float *more = dw_run(&wgrad_avx512, c, &x, &dy, threads);
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
    need_avx512();
    check_threads(&(Case){"a dw for each slice", 17, 40, 50, 40, 41, 3, 3, 1, 1, 1, 1});
    check_threads(&(Case){"one dw", 7, 96, 112, 13, 11, 3, 3, 1, 1, 1, 1});
}

static void test_what_it_takes(void **state)
{
    (void)state;
    Tensor x = {.shape = {4, 32, 12, 12}, .dtype = DTYPE_BF16, .pitch = 32}, dy = x, wide = x, one = x, thin = x;
    wide.dtype = DTYPE_F32;
    one.shape.n = 1;
    thin.shape.c = 3;
    assert_true(wgrad_takes(&wgrad_avx512, &x, &dy));
    assert_false(wgrad_takes(NULL, &x, &dy));
    assert_false(wgrad_takes(&wgrad_avx512, &wide, &dy));
    assert_false(wgrad_takes(&wgrad_avx512, &x, &wide));
    assert_false(wgrad_takes(&wgrad_avx512, &one, &one));
    assert_false(wgrad_takes(&wgrad_avx512, &thin, &dy));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiles_of_avx512),
        cmocka_unit_test(test_tiles_of_amx_emulated),
        cmocka_unit_test(test_threads_change_no_bit),
        cmocka_unit_test(test_what_it_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
