/* Weight gradients by Winograd's algorithms, in squares and along lines, in bf16 and f32, against plain loops: edges,
 * slices, many blocks, any number of threads. Transforms of small integers are exact, see weight_gradient.h. */
#include <stdint.h>

#include "tests/support/unit.h"
#include "tests/support/weight_gradient.h"

#define SQUARE 3, 3, 1, 1
#define FIVE 5, 5, 1, 1
#define ROW 1, 7, 1, 1
#define COLUMN 7, 1, 1, 1

static const GradientCase squares[] = {
    {"padded", 2, 32, 32, 16, 16, SQUARE, 1, 1},
    {"valid, odd sides", 3, 32, 48, 19, 21, SQUARE, 0, 0},
    {"unequal padding, odd outputs", 3, 80, 32, 17, 20, SQUARE, 2, 0},
    {"slices", 2, 48, 64, 18, 17, SQUARE, 1, 1, .x_gap = 16, .y_gap = 5},
    {"small images", 9, 112, 64, 8, 8, SQUARE, 1, 1},
    {"small images of odd sides, slices", 16, 64, 96, 9, 7, SQUARE, 0, 2, .x_gap = 3, .y_gap = 16},
    {"small images in many blocks", 40, 32, 48, 8, 8, SQUARE, 1, 1},
    {"more blocks than slices, an image alone", 5, 32, 32, 60, 41, SQUARE, 0, 1},
};
/* Tiles of 4x4. */
static const GradientCase large_squares[] = {
    {"padded", 4, 32, 32, 16, 16, SQUARE, 1, 1},
    {"valid, odd sides", 4, 32, 48, 19, 21, SQUARE, 0, 0},
    {"unequal padding, odd outputs", 3, 80, 32, 17, 20, SQUARE, 2, 0},
    {"slices", 4, 48, 64, 18, 15, SQUARE, 1, 1, .x_gap = 16, .y_gap = 5},
    {"small images", 17, 112, 64, 8, 8, SQUARE, 1, 1},
    {"small images of odd sides, slices", 16, 64, 96, 9, 7, SQUARE, 0, 2, .x_gap = 3, .y_gap = 16},
    {"small images in many blocks", 150, 32, 48, 7, 7, SQUARE, 1, 1},
    {"more blocks than slices, an image alone", 5, 32, 32, 80, 61, SQUARE, 0, 1},
    {"an image alone", 1, 48, 32, 35, 33, SQUARE, 1, 1},
};
static const GradientCase fives[] = {
    {"5x5", 4, 48, 64, 15, 16, FIVE, 2, 2},
    {"5x5 valid, odd sides, slices", 3, 32, 48, 19, 21, FIVE, 0, 0, .x_gap = 16, .y_gap = 5},
    {"5x5 padded by 4, many blocks", 9, 32, 32, 35, 17, FIVE, 4, 0},
    {"5x5 of small images", 20, 64, 32, 8, 7, FIVE, 2, 2},
};
static const GradientCase lines[] = {
    {"1x7 with a last output", 2, 32, 48, 17, 17, ROW, 0, 3},
    {"7x1 with a last output, slices", 3, 80, 32, 17, 15, COLUMN, 3, 0, .x_gap = 16, .y_gap = 5},
    {"1x7 without a last output", 3, 48, 64, 12, 16, ROW, 0, 3, .x_gap = 3},
    {"7x1 of less than a tile", 3, 32, 32, 3, 90, COLUMN, 3, 0},
    {"7x1 of one output", 3, 32, 32, 1, 90, COLUMN, 3, 0},
    {"1x7 valid", 2, 32, 32, 9, 51, ROW, 0, 0},
    {"1x7 padded by 6, several blocks", 21, 96, 80, 13, 20, ROW, 0, 6},
};
static const GradientCase square_alone = {"an image alone", 1, 48, 32, 35, 33, SQUARE, 1, 1};
static const GradientCase line_alone = {"an image alone, 1x7", 1, 48, 32, 17, 17, ROW, 0, 3};
enum {
    SQUARES = sizeof squares / sizeof squares[0],
    LARGE_SQUARES = sizeof large_squares / sizeof large_squares[0],
    FIVES = sizeof fives / sizeof fives[0],
    LINES = sizeof lines / sizeof lines[0]
};

static GradientKernel square_kernel(Dtype dtype)
{
    return (GradientKernel){dtype_name(dtype), dtype, 2, &conv_winograd_dw_f2_3};
}

static GradientKernel line_kernel(Dtype dtype)
{
    return (GradientKernel){dtype_name(dtype), dtype, 2, &conv_winograd_dw_f4_7};
}

/* ---- tests */

static bool takes(Dtype dtype, int n, int channels)
{
    Tensor t = {.shape = {.n = n, .c = channels, .h = 20, .w = 20}, .dtype = dtype, .pitch = channels};
    Window square = {3, 3, 1, 1, 1, 1, false}, line = {1, 7, 1, 1, 0, 3, false};
    Device device = {.config = {DEVICE_USUAL, .threads = 1}};
    ConvProblem in_squares = gradient_problem(&t, &t, &square), in_lines = gradient_problem(&t, &t, &line);
    bool taken = !conv_winograd_dw_f2_3.takes(&device, &in_squares);
    assert_int_equal(taken, !conv_winograd_dw_f4_7.takes(&device, &in_lines));
    return taken;
}

static void need(Dtype dtype)
{
    if (takes(dtype, 2, 32)) return;
    skip("this processor has no use for it: no AVX-512, AVX2 or NEON for %s, or AMX for bf16", dtype_name(dtype));
}

static void check_all(Dtype dtype, void (*check)(const GradientKernel *kernel, const GradientCase *c))
{
    need(dtype);
    GradientKernel square = square_kernel(dtype), line = line_kernel(dtype);
    for (int i = 0; i < SQUARES; i++) check(&square, &squares[i]);
    for (int i = 0; i < LINES; i++) check(&line, &lines[i]);
    if (dtype != DTYPE_F32) return;
    check(&square, &square_alone);
    check(&line, &line_alone);
}

TEST(test_bf16_against_loops)
{
    check_all(DTYPE_BF16, gradient_check);
}

TEST(test_f32_against_loops)
{
    check_all(DTYPE_F32, gradient_check);
}

TEST(test_threads_change_no_bit_of_bf16)
{
    check_all(DTYPE_BF16, gradient_check_threads);
}

TEST(test_threads_change_no_bit_of_f32)
{
    check_all(DTYPE_F32, gradient_check_threads);
}

/* The error of oneDNN's plain sums is 2e-7 to 1.2e-6 for such shapes. */
static void check_error(const GradientKernel *kernel, const GradientCase *c)
{
    const double most = 6e-7;
    double error = gradient_error(kernel, c);
    if (!(error < most)) fail_msg("%s, %s: an error of %g, at most %g is known", kernel->name, c->name, error, most);
}

TEST(test_error_of_f32)
{
    check_all(DTYPE_F32, check_error);
}

/* Transforms of six points round integers, too, so their sums have no other test; what is misplaced makes an error of
 * 1. */
static void check_six_points(const GradientKernel *kernel, const GradientCase *c)
{
    const double most = 1.3e-6;
    double error = gradient_error(kernel, c);
    print_message("%s, %s: %.2g\n", kernel->name, c->name, error);
    if (!(error < most)) fail_msg("%s, %s: an error of %g, at most %g is known", kernel->name, c->name, error, most);
    gradient_check_threads(kernel, c);
}

TEST(test_six_points)
{
    need(DTYPE_F32);
    GradientKernel large = {"F(4x4, 3x3)", DTYPE_F32, 2, &conv_winograd_dw_f4_3};
    GradientKernel five = {"F(2x2, 5x5)", DTYPE_F32, 2, &conv_winograd_dw_f2_5};
    for (int i = 0; i < LARGE_SQUARES; i++) check_six_points(&large, &large_squares[i]);
    for (int i = 0; i < FIVES; i++) check_six_points(&five, &fives[i]);
}

TEST(test_six_points_are_for_f32_where_they_are_asked_for)
{
    need(DTYPE_F32);
    Tensor t = {.shape = {4, 64, 20, 20}, .dtype = DTYPE_F32, .pitch = 64}, half = t, odd = t;
    half.dtype = DTYPE_BF16;
    odd.shape = (Shape){64, 64, 6, 6};
    Window square = {3, 3, 1, 1, 1, 1, false};
    ConvProblem full = gradient_problem(&t, &t, &square), in_bf16 = gradient_problem(&half, &half, &square);
    ConvProblem wasteful = gradient_problem(&odd, &odd, &square);
    Device usual = {.config = {DEVICE_USUAL, .threads = 1}}, asked = {.config = {DEVICE_USUAL, .winograd = true}};
    asked.config.threads = 1;
    assert_non_null(conv_winograd_dw_f4_3.takes(&usual, &full));
    assert_null(conv_winograd_dw_f4_3.takes(&asked, &full));
    assert_non_null(conv_winograd_dw_f4_3.takes(&asked, &in_bf16));
    assert_non_null(conv_winograd_dw_f4_3.takes(&asked, &wasteful));
}

/* Words have places for the slices that run at once, not for all threads. */
TEST(test_many_threads_need_no_more_memory)
{
    need(DTYPE_F32);
    Tensor t = {.shape = {8, 64, 40, 40}, .dtype = DTYPE_F32, .pitch = 64};
    Window square = {3, 3, 1, 1, 1, 1, false};
    ConvProblem problem = gradient_problem(&t, &t, &square);
    size_t bytes[2];
    for (int i = 0; i < 2; i++) {
        Device device = {.config = {DEVICE_USUAL, .threads = i ? 64 : 8}};
        void *made;
        assert_int_equal(conv_winograd_dw_f2_3.create(&device, &problem, &made), OK);
        bytes[i] = conv_winograd_dw_f2_3.workspace(made);
        conv_winograd_dw_f2_3.destroy(made);
    }
    assert_int_equal(bytes[0], bytes[1]);
}

TEST(test_what_it_takes)
{
    assert_false(takes(DTYPE_BF16, 1, 64)); /* a pair of which one is missing */
    assert_false(takes(DTYPE_BF16, 2, 40));
    assert_false(takes(DTYPE_F32, 2, 40));
    assert_false(takes(DTYPE_F32, 2, 16));
    assert_false(takes(DTYPE_F16, 2, 32));
    need(DTYPE_F32);
    assert_true(takes(DTYPE_F32, 1, 32));
}
