/* With ONEDNN_MAX_CPU_ISA of an older processor our own kernels for newer ones are left out too, so that what an older
 * machine computes can be made again on this one. oneDNN reads the variable once: hence a program of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "kernels/cpu/conv/wgrad.h"
#include "kernels/cpu/conv/winograd.h"
#include "kernels/cpu/conv/winograd_dw.h"
#include "kernels/cpu/conv/winograd_line.h"
#include "kernels/cpu/conv/winograd_line_dw.h"

static void check_none_taken(Dtype dtype)
{
    Tensor t = {.shape = {.n = 2, .c = 64, .h = 20, .w = 20}, .dtype = dtype, .pitch = 64};
    Window square = {3, 3, 1, 1, 1, 1, false}, line = {1, 7, 1, 1, 0, 3, false};
    assert_false(winograd_takes(&t, &t, &square));
    assert_false(winograd_line_takes(&t, &t, &line));
    assert_false(winograd_dw_takes(&t, &t, &square));
    assert_false(winograd_line_dw_takes(&t, &t, &line));
}

static void test_nothing_newer_is_used(void **state)
{
    (void)state;
    assert_null(wgrad_code());
    check_none_taken(DTYPE_F32);
    check_none_taken(DTYPE_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nothing_newer_is_used)};
    setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
