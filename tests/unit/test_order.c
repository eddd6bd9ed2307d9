/* Orders: permutations, pure functions of seed and epoch, with and without a table. */
#include "towers/data/order.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "towers/data/share.h"

static void test_permutes_any_count(void **state)
{
    (void)state;
    const int64_t counts[] = {1, 2, 3, 5, 64, 65, 1000, 4096, 10007, (1 << 18) + 1};
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        bool *seen = calloc((size_t)counts[k], sizeof *seen);
        for (int64_t i = 0; i < counts[k]; i++) {
            int64_t id = order_permute(5, 3, counts[k], i);
            assert_true(id >= 0 && id < counts[k] && !seen[id]);
            seen[id] = true;
        }
        free(seen);
    }
}

/* Over many epochs a sample comes to all parts of the order equally often: chi square of 16 parts, 15 degrees of freedom,
 * is below 38 (p = 0.001). And within an epoch where a sample goes says nothing about where it came from. */
static void test_permutes_fairly(void **state)
{
    (void)state;
    enum { EPOCHS = 16000, PARTS = 16 };
    int seen[PARTS] = {0};
    double chi2 = 0, both = 0;
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++)
        seen[order_permute(7, epoch, INT64_C(5000000000), 123456789) * PARTS / INT64_C(5000000000)]++;
    for (int i = 0; i < PARTS; i++) chi2 += (seen[i] - 1000.0) * (seen[i] - 1000.0) / 1000.0;
    assert_true(chi2 < 38);
    const int64_t count = INT64_C(5000000000), draws = 20000;
    for (int64_t i = 0; i < draws; i++) {
        int64_t position = i * (count / draws);
        both += ((double)position / (double)count - 0.5) *
                ((double)order_permute(1, 0, count, position) / (double)count - 0.5);
    }
    both = both / (double)draws * 12; /* the correlation; its deviation is 1 / sqrt(draws) = 0.007 */
    assert_true(both > -0.03 && both < 0.03);
}

static void test_small_sets_use_the_table(void **state)
{
    (void)state;
    Order order;
    int32_t wanted[100];
    assert_int_equal(order_init(&order, 9, 100, true), OK);
    for (int64_t epoch = 0; epoch < 4; epoch++) {
        assert_false(order_is_ready(&order, epoch));
        order_prepare(&order, epoch);
        assert_true(order_is_ready(&order, epoch));
        if (epoch > 0) assert_true(order_is_ready(&order, epoch - 1));
        epoch_order(9, epoch, 100, wanted);
        for (int64_t i = 0; i < 100; i++) assert_int_equal(order_at(&order, epoch, i), wanted[i]);
    }
    order_free(&order);
}

static void test_large_sets_need_none(void **state)
{
    (void)state;
    Order order;
    assert_int_equal(order_init(&order, 9, ORDER_TABLE_MAX + 1, true), OK);
    assert_null(order.ids[0]);
    assert_true(order_is_ready(&order, 77));
    assert_int_equal(order_at(&order, 77, 5), order_permute(9, 77, ORDER_TABLE_MAX + 1, 5));
    assert_int_not_equal(order_at(&order, 77, 5), order_at(&order, 78, 5));
    order_free(&order);
    assert_int_equal(order_init(&order, 9, 1000, false), OK);
    assert_true(order_is_ready(&order, 3));
    assert_int_equal(order_at(&order, 3, 123), 123);
    order_free(&order);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_permutes_any_count),
        cmocka_unit_test(test_permutes_fairly),
        cmocka_unit_test(test_small_sets_use_the_table),
        cmocka_unit_test(test_large_sets_need_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
