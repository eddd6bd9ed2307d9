/* If ONEDNN_MAX_CPU_ISA names an older processor, our own kernels for newer ones are not used either, so that the
 * results of an older machine can be computed on this one. oneDNN reads the variable once, so this is a program of its
 * own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "kernels/cpu/conv/conv_impl.h"

static void check_none_taken(Dtype dtype)
{
    Device device = {.config = {DEVICE_USUAL, .threads = 1}};
    Tensor t = {.shape = {.n = 2, .c = 64, .h = 20, .w = 20}, .dtype = dtype, .pitch = 64};
    ConvProblem square = {.kind = OP_CONV, .x = &t, .y = &t, .window = {3, 3, 1, 1, 1, 1, false}}, line = square;
    line.window = (Window){1, 7, 1, 1, 0, 3, false};
    assert_non_null(conv_winograd.takes(&device, &square));
    assert_non_null(conv_winograd_line.takes(&device, &line));
    square.kind = line.kind = OP_CONV_DW;
    assert_non_null(conv_winograd_dw.takes(&device, &square));
    assert_non_null(conv_winograd_line_dw.takes(&device, &line));
    assert_non_null(conv_wgrad_amx.takes(&device, &square));
    assert_non_null(conv_wgrad_avx512.takes(&device, &square));
}

static void test_nothing_newer_is_used(void **state)
{
    (void)state;
    check_none_taken(DTYPE_F32);
    check_none_taken(DTYPE_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nothing_newer_is_used)};
    setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
