/* Orders: permutations, pure functions of seed and epoch, with and without a table. */
#include "towers/data/loading/order.h"

#include "tests/support/unit.h"
#include "towers/data/loading/shuffle.h"

TEST(test_permutes_any_count)
{
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
TEST(test_permutes_fairly)
{
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

/* Every permutation of a few items, such as shards, is equally likely: chi square of 120 and of 720 permutations per degree of
 * freedom is below 1.5 (its deviation is 0.13 and 0.05). */
TEST(test_permutes_few_fairly)
{
    enum { EPOCHS = 72000 };
    for (int count = 5; count <= 6; count++) {
        int seen[46656] = {0}, permutations = count == 5 ? 120 : 720;
        double chi2 = 0, wanted = (double)EPOCHS / permutations;
        for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
            int number = 0;
            for (int i = 0; i < count; i++) number = number * count + (int)order_permute(11, epoch, count, i);
            seen[number]++;
        }
        for (int i = 0; i < 46656; i++)
            if (seen[i]) chi2 += (seen[i] - wanted) * (seen[i] - wanted) / wanted, permutations--;
        chi2 += permutations * wanted; /* those that never came */
        chi2 /= (count == 5 ? 120 : 720) - 1;
        if (chi2 > 1.5) fail_msg("%d items: chi square is %g for each degree of freedom", count, chi2);
    }
}

TEST(test_small_sets_use_the_table)
{
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

TEST(test_large_sets_need_none)
{
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

/* Every sample once; the samples of a window are those of its shards; shards and samples move with epoch and seed. */
TEST(test_windows)
{
    enum { SHARDS = 23, WINDOW = 4 };
    int64_t first[SHARDS + 1] = {0};
    for (int i = 0; i < SHARDS; i++) first[i + 1] = first[i] + 1 + 37 * i % 50;
    Order order, other;
    assert_int_equal(order_init_window(&order, 9, first, SHARDS, WINDOW), OK);
    assert_int_equal(order_init_window(&other, 10, first, SHARDS, WINDOW), OK);
    int64_t count = first[SHARDS], same_epoch = 0, same_seed = 0, in_line = 0;
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        bool *seen = calloc((size_t)count, sizeof *seen), of_window[SHARDS] = {false};
        int window = -1, shards_seen = 0;
        assert_false(order_is_ready(&order, epoch));
        order_prepare(&order, epoch);
        order_prepare(&other, epoch);
        assert_true(order_is_ready(&order, epoch));
        for (int64_t i = 0; i < count; i++) {
            int64_t id = order_at(&order, epoch, i);
            int shard = 0;
            assert_true(id >= 0 && id < count && !seen[id]);
            seen[id] = true;
            while (first[shard + 1] <= id) shard++;
            if (order_window(&order, epoch, i) != window) {
                assert_int_equal(order_window(&order, epoch, i), window + 1);
                assert_true(window < 0 || shards_seen == WINDOW);
                window++;
                shards_seen = 0;
                memset(of_window, 0, sizeof of_window);
                for (int place = window * WINDOW; place < (window + 1) * WINDOW && place < SHARDS; place++)
                    of_window[order_shard(&order, epoch, place)] = true;
                for (int k = 0; k < SHARDS; k++) shards_seen += of_window[k];
            }
            assert_true(of_window[shard]);
            same_seed += id == order_at(&other, epoch, i);
            same_epoch += epoch > 0 && id == order_at(&order, epoch - 1, i);
            in_line += i > 0 && id == order_at(&order, epoch, i - 1) + 1;
        }
        assert_int_equal(window, (SHARDS - 1) / WINDOW);
        free(seen);
    }
    assert_true(same_seed < count / 10 && same_epoch < count / 10 && in_line < count / 10);
    int moved = 0;
    for (int place = 0; place < SHARDS; place++)
        moved += order_shard(&order, 0, place) != order_shard(&order, 1, place);
    assert_true(moved > SHARDS / 2);
    order_free(&order);
    order_free(&other);
    static const int64_t only[] = {0, 100}; /* in one shard, the samples alone move */
    int stay = 0;
    assert_int_equal(order_init_window(&order, 9, only, 1, 1), OK);
    order_prepare(&order, 0);
    order_prepare(&order, 1);
    for (int64_t i = 0; i < 100; i++) stay += order_at(&order, 0, i) == order_at(&order, 1, i);
    assert_true(stay < 20);
    order_free(&order);
}
