/* If ONEDNN_MAX_CPU_ISA names an older processor, our own kernels for newer ones are not used either, so that the
 * results of an older machine can be computed on this one. oneDNN reads the variable once, so every processor is tried by
 * a process of its own. */
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/cpu/conv/wgrad.h"
#include "kernels/cpu/conv/winograd.h"
#include "tests/support/unit.h"

enum {
    SQUARE = 1,
    LINE = 2,
    SQUARE_DW = 4,
    LINE_DW = 8,
    WINOGRAD = 15,
    PRODUCTS_F32 = 16,
    NEWER = 32,
    IMAGE_DW = 64,
    SIX = 128
};

/* Which of our own implementations take a problem that is made for them. */
static int takers(Dtype dtype)
{
    const Device device = {.config = {DEVICE_USUAL, .threads = 1}};
    const Tensor t = {.shape = {.n = 2, .c = 64, .h = 20, .w = 20}, .dtype = dtype, .pitch = 64};
    const Tensor half = {.shape = {.n = 2, .c = 64, .h = 9, .w = 9}, .dtype = dtype, .pitch = 64};
    ConvProblem square = {.kind = OP_CONV, .x = &t, .y = &t, .window = {3, 3, 1, 1, 1, 1, false}}, line = square;
    line.window = (Window){1, 7, 1, 1, 0, 3, false};
    int taken = (conv_winograd_f2_3.takes(&device, &square) ? 0 : SQUARE) |
                (conv_winograd_f4_7.takes(&device, &line) ? 0 : LINE);
    square.kind = line.kind = OP_CONV_DW;
    ConvProblem large = {.kind = OP_CONV_DW, .x = &t, .y = &half, .window = {5, 5, 2, 2, 1, 1, false}};
    taken |= conv_winograd_dw_f2_3.takes(&device, &square) ? 0 : SQUARE_DW;
    taken |= conv_winograd_dw_f4_7.takes(&device, &line) ? 0 : LINE_DW;
    taken |= conv_wgrad_f32.takes(&device, &large) ? 0 : PRODUCTS_F32;
    const Tensor image = {.shape = {.n = 8, .c = 3, .h = 20, .w = 20}, .dtype = dtype, .pitch = 3};
    ConvProblem first = {.kind = OP_CONV_DW, .x = &image, .y = &t, .window = {3, 3, 1, 1, 1, 1, false}};
    const Device asked = {.config = {DEVICE_USUAL, .winograd = true, .threads = 1}};
    const Tensor many = {.shape = {.n = 8, .c = 64, .h = 20, .w = 20}, .dtype = dtype, .pitch = 64};
    ConvProblem three = {.kind = OP_CONV, .x = &many, .y = &many, .window = {3, 3, 1, 1, 1, 1, false}}, five = three;
    five.window = (Window){5, 5, 1, 1, 2, 2, false};
    int six = !conv_winograd_f4_3.takes(&asked, &three) + !conv_winograd_f2_5.takes(&asked, &five);
    three.kind = five.kind = OP_CONV_DW;
    six += !conv_winograd_dw_f4_3.takes(&asked, &three) + !conv_winograd_dw_f2_5.takes(&asked, &five);
    taken |= six == 4 ? SIX : six; /* all of them or none */
    taken |= conv_image_dw.takes(&device, &first) ? 0 : IMAGE_DW;
    bool newer = !conv_wgrad_amx.takes(&device, &square) || !conv_wgrad_avx512.takes(&device, &square);
    return taken | (newer ? NEWER : 0);
}

static int f32_takers(void)
{
    return takers(DTYPE_F32);
}

static int bf16_takers(void)
{
    return takers(DTYPE_BF16);
}

/* Whether the code that runs is the one for AVX2. */
static int code_is_for_avx2(void)
{
    return cpu_isa() == CPU_AVX2 && wgrad_for_f32() == &wgrad_f32_avx2;
}

static void expect(const char *isa, int (*find)(void), int wanted)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("ONEDNN_MAX_CPU_ISA", isa, 1);
        _exit(find());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), wanted);
}

TEST(test_without_avx512)
{
    if (!__builtin_cpu_supports("avx2")) {
        skip("this processor has no AVX2");
    }
    expect("AVX2", code_is_for_avx2, true);
    expect("AVX2", f32_takers, WINOGRAD | SIX | PRODUCTS_F32 | IMAGE_DW);
    expect("AVX2", bf16_takers, 0);
}

TEST(test_without_avx2)
{
    expect("SSE41", f32_takers, 0);
    expect("SSE41", bf16_takers, 0);
}
