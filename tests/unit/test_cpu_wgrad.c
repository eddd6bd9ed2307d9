/* Our own weight gradients of bf16 and f32 convolutions against plain loops: all codes, blocks, edges, slices, threads.
 *
 * Values are small integers, so every sum is exact and the comparison is for equality. The tile instructions of AMX
 * are replaced by loops that follow the manual: the layout and the reading of tiles are tested, not the processor. */
#include <stdint.h>

#include "kernels/cpu/conv/wgrad.h"
#include "tests/support/unit.h"
#include "tests/support/weight_gradient.h"

/* ---- cases */

static const GradientCase cases[] = {
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
    {"color, stride 2", 3, 3, 32, 15, 17, 3, 3, 2, 2, 0, 0},
    {"color, same", 2, 3, 20, 9, 10, 3, 3, 1, 1, 1, 1},
    {"color, 7x7 stride 2", 3, 3, 16, 19, 20, 7, 7, 2, 2, 3, 3},
    {"color, a slice", 3, 3, 16, 9, 9, 3, 3, 1, 1, 1, 1, .x_gap = 2},
    {"gray, 5x5 on few pixels", 2, 1, 6, 3, 2, 5, 5, 1, 1, 2, 2},
    {"several blocks of rows", 3, 4, 64, 80, 60, 3, 3, 1, 1, 1, 1},
    {"several blocks of rows, stride 2", 2, 20, 70, 120, 90, 3, 3, 2, 2, 1, 1},
    {"several blocks of images", 13, 8, 64, 20, 20, 3, 3, 1, 1, 1, 1},
    {"a large dw, several blocks of rows", 2, 44, 2000, 35, 33, 1, 1, 1, 1, 0, 0},
};
enum { CASES = sizeof cases / sizeof cases[0] };

/* ---- the kernel */

static const char *takes_all(const Device *device, const ConvProblem *problem)
{
    return NULL;
}

/* The implementations of the list but for their rules, so that they meet all cases; set up by main. */
static ConvImpl all_by_f32;

static const GradientKernel f32 = {"f32", DTYPE_F32, 2, &all_by_f32};

TEST(test_tiles_of_f32)
{
    if (!wgrad_for_f32()) {
        skip("this processor has no AVX-512, AVX2 or NEON");
    }
    for (int i = 0; i < CASES; i++) gradient_check(&f32, &cases[i]);
    gradient_check(&f32, &(GradientCase){"a single image", 1, 32, 24, 13, 12, 5, 5, 2, 2, 1, 1});
    gradient_check_threads(&f32, &(GradientCase){"a dw for each slice", 17, 16, 32, 15, 15, 5, 5, 2, 2, 1, 1});
    gradient_check_threads(&f32, &(GradientCase){"one dw", 7, 64, 128, 15, 15, 5, 5, 2, 2, 1, 1});
}

/* Sums of many pixels are cut, so that their error does not grow with them. */
TEST(test_error_of_f32_without_avx512)
{
    static const GradientCase many[] = {{"5x5", 4, 64, 48, 35, 35, 5, 5, 1, 1, 2, 2},
                                        {"1x1, one row of 9,800 pixels", 8, 48, 64, 35, 35, 1, 1, 1, 1, 0, 0}};
    if (!wgrad_for_f32() || cpu_isa() >= CPU_AVX512) return; /* test_cpu_wgrad_avx2 */
    for (int i = 0; i < 2; i++) {
        double error = gradient_error(&f32, &many[i]);
        if (!(error < 6e-7)) fail_msg("%s: %g", many[i].name, error);
    }
}

TEST(test_what_f32_takes)
{
    Tensor x = {.shape = {4, 32, 12, 12}, .dtype = DTYPE_BF16, .pitch = 32}, wide = x;
    wide.dtype = DTYPE_F32;
    const Window five = {5, 5, 2, 2, 1, 1, false}, three = {3, 3, 2, 2, 1, 1, false};
    Tensor half = {.shape = {4, 32, 5, 5}, .dtype = DTYPE_F32, .pitch = 32}, many = half;
    many.shape.n = 8;
    const char *answers[] = {
        conv_wgrad_f32.takes(NULL, &(ConvProblem){.x = &wide, .y = &many, .window = five}),
        conv_wgrad_f32.takes(NULL, &(ConvProblem){.x = &wide, .y = &half, .window = five}),
        conv_wgrad_f32.takes(NULL, &(ConvProblem){.x = &wide, .y = &many, .window = three}),
        conv_wgrad_f32.takes(NULL, &(ConvProblem){.x = &x, .y = &many, .window = five}),
    };
    if (wgrad_for_f32()) assert_null(answers[0]);
    assert_string_equal(answers[1], "too few pixels");
    assert_string_equal(answers[2], cpu_isa() < CPU_AVX512 ? "rows are short" : "window is not 5x5 of stride 2");
    assert_string_equal(answers[3], "types are not f32");
}

#if defined(__x86_64__)
/* ---- pairs of bf16: tile registers */

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
#define wgrad_amx_multiplies emulated_amx_multiplies
bool emulated_amx_multiplies(void);
#include "kernels/cpu/conv/wgrad_amx.c"

/* ---- pairs of bf16: their kernels and tests */

static Status emulated_create(Device *device, const ConvProblem *problem, void **made)
{
    return wgrad_create(&emulated_amx, problem, device->config.threads, made);
}

static ConvImpl all_by_avx512, all_by_emulated_amx, all_by_amx;

/* The emulated tiles are those of one thread. */
static const GradientKernel avx512 = {"avx512_bf16", DTYPE_BF16, 2, &all_by_avx512};
static const GradientKernel emulated = {"amx, emulated", DTYPE_BF16, 1, &all_by_emulated_amx};
static const GradientKernel amx = {"amx", DTYPE_BF16, 2, &all_by_amx};

static void need_avx512(void)
{
    if (cpu_isa() >= CPU_AVX512_BF16) return;
    skip("this processor has no AVX512-BF16, with which the panels are packed");
}

TEST(test_tiles_of_avx512)
{
    need_avx512();
    for (int i = 0; i < CASES; i++) gradient_check(&avx512, &cases[i]);
}

TEST(test_tiles_of_amx_emulated)
{
    need_avx512();
    assert_true(emulated_amx_multiplies());
    for (int i = 0; i < CASES; i++) gradient_check(&emulated, &cases[i]);
}

TEST(test_tiles_of_amx)
{
    (void)state;
    if (cpu_isa() < CPU_AMX) {
        skip("this processor has no AMX");
    }
    for (int i = 0; i < CASES; i++) gradient_check(&amx, &cases[i]);
    gradient_check_threads(&amx, &(GradientCase){"a dw for each slice", 17, 40, 50, 40, 41, 3, 3, 1, 1, 1, 1});
    gradient_check_threads(&amx, &(GradientCase){"dy filled up beyond x", 2, 32, 32, 71, 71, 5, 5, 1, 1, 2, 2});
    gradient_check_threads(&amx, &(GradientCase){"one dw, several blocks", 9, 96, 320, 33, 31, 3, 3, 1, 1, 1, 1});
}

TEST(test_threads_change_no_bit)
{
    need_avx512();
    gradient_check_threads(&avx512, &(GradientCase){"a dw for each slice", 17, 40, 50, 40, 41, 3, 3, 1, 1, 1, 1});
    gradient_check_threads(&avx512, &(GradientCase){"one dw", 7, 96, 112, 13, 11, 3, 3, 1, 1, 1, 1});
}

TEST(test_what_bf16_takes)
{
    Tensor x = {.shape = {4, 32, 12, 12}, .dtype = DTYPE_BF16, .pitch = 32}, dy = x, wide = x, one = x, thin = x;
    wide.dtype = DTYPE_F32;
    one.shape.n = 1;
    thin.shape.c = 3;
    const Window pixel = {1, 1, 1, 1, 0, 0, false};
    const struct {
        const Tensor *x, *dy;
        const char *declines;
    } rows[] = {{&x, &dy, NULL},
                {&wide, &dy, "types are not bf16"},
                {&x, &wide, "types are not bf16"},
                {&one, &one, "a single image cannot be paired"},
                {&thin, &dy, "too few channels"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ConvProblem problem = gradient_problem(rows[i].x, rows[i].dy, &pixel);
        const char *declines = wgrad_declines(&problem);
        assert_string_equal(declines ? declines : "taken", rows[i].declines ? rows[i].declines : "taken");
    }
}

static void set_up_pairs(void)
{
    all_by_avx512 = all_by_emulated_amx = conv_wgrad_avx512;
    all_by_amx = conv_wgrad_amx;
    all_by_avx512.takes = all_by_emulated_amx.takes = all_by_amx.takes = takes_all;
    all_by_emulated_amx.create = emulated_create;
}
#else
static void set_up_pairs(void)
{
}
#endif

static int set_up(void **state)
{
    all_by_f32 = conv_wgrad_f32;
    all_by_f32.takes = takes_all;
    set_up_pairs();
    return 0;
}

TESTS_WITH(set_up, NULL)
