/* The resizer against Pillow (golden_resize.h), within one count; and what follows from its definition. */
#include "towers/data/resize.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/golden_resize.h"

static void resize(int32_t in_h, int32_t in_w, int32_t out_h, int32_t out_w, int32_t c, const uint8_t *in, uint8_t *out,
                   size_t pitch)
{
    Resizer *r = NULL;
    assert_int_equal(resizer_create(in_h, in_w, out_h, out_w, c, &r), OK);
    uint8_t *scratch = malloc(resizer_scratch_bytes(r));
    resizer_run(r, in, scratch, out, pitch);
    free(scratch);
    resizer_destroy(r);
}

static void test_golden(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof golden / sizeof *golden; k++) {
        size_t n = (size_t)(golden[k].in_h * golden[k].in_w * golden[k].c);
        size_t m = (size_t)(golden[k].out_h * golden[k].out_w * golden[k].c);
        uint8_t *in = malloc(n), out[600];
        for (size_t i = 0; i < n; i++) in[i] = (uint8_t)(i * 73 + i * i * 5 + i / 7);
        resize(golden[k].in_h, golden[k].in_w, golden[k].out_h, golden[k].out_w, golden[k].c, in, out,
               (size_t)(golden[k].out_w * golden[k].c));
        for (size_t i = 0; i < m; i++)
            if (abs(out[i] - golden[k].out[i]) > 1)
                fail_msg("case %zu, value %zu: wanted %d, found %d", k, i, golden[k].out[i], out[i]);
        free(in);
    }
}

static void test_constant_stays(void **state)
{
    (void)state;
    uint8_t in[31 * 17], out[299 * 40];
    memset(in, 201, sizeof in);
    resize(31, 17, 299, 40, 1, in, out, 40);
    for (size_t i = 0; i < sizeof out; i++) assert_int_equal(out[i], 201);
    resize(31, 17, 3, 299, 1, in, out, 299);
    for (size_t i = 0; i < 3 * 299; i++) assert_int_equal(out[i], 201);
}

static void test_pitch_leaves_the_rest(void **state)
{
    (void)state;
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

static void test_refused(void **state)
{
    (void)state;
    Resizer *r = NULL;
    assert_int_equal(resizer_create(0, 1, 1, 1, 1, &r), ERR_ARG);
    assert_int_equal(resizer_create(1, 1, 1, 65501, 1, &r), ERR_ARG);
    assert_int_equal(resizer_create(1, 1, 1, 1, 0, &r), ERR_ARG);
    assert_int_equal(resizer_create(1, 1, 1, 1, 5, &r), ERR_ARG);
    assert_null(r);
    resizer_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_constant_stays),
        cmocka_unit_test(test_pitch_leaves_the_rest),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
