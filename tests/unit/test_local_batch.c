/* Local batches and orders: every sample exactly once for any counts, local batches and towers; every permutation equally likely. */
#include "towers/data/loading/local_batch.h"
#include "towers/data/loading/shuffle.h"

#include "kernels/philox.h"
#include "tests/support/local_batches.h"
#include "tests/support/unit.h"

static uint32_t random_below(uint32_t bound, uint32_t *at)
{
    return (uint32_t)((uint64_t)philox(99, (*at)++, 0, 0, 0).v[0] * bound >> 32);
}

static LocalBatches random_batches(uint32_t *at)
{
    int32_t batch[256];
    int towers = 1 + (int)random_below(random_below(4, at) ? 9 : 256, at);
    for (int t = 0; t < towers; t++) batch[t] = (int32_t)random_below(4, at) ? (int32_t)random_below(40, at) : 0;
    if (global_batch_of(&(LocalBatches){towers, batch}) == 0) batch[towers / 2] = 3;
    return batches_of(towers, batch);
}

/* Walks an epoch: runs follow each other without gap or overlap, none is larger than its local batch. */
static void check_epoch(const LocalBatches *s, int64_t count)
{
    int64_t next = 0, steps = steps_per_epoch_of(s, count), global = global_batch_of(s);
    for (int64_t step = 0; step < steps; step++) {
        int64_t left = count - step * global;
        for (int t = 0; t < s->towers; t++) {
            int64_t first = -1;
            int32_t n = -1;
            local_batch_of(s, count, step, t, &first, &n);
            assert_int_equal(first, next);
            assert_in_range(n, 0, s->batch[t]);
            if (left >= global) assert_int_equal(n, s->batch[t]);
            double exact = (double)left * s->batch[t] / (double)global;
            if (left < global) assert_true(n > exact - 1 && n < exact + 1);
            next += n;
        }
        assert_true(next > step * global);
    }
    assert_int_equal(next, count);
}

TEST(test_every_sample_once)
{
    uint32_t at = 0;
    for (int i = 0; i < 400; i++) {
        LocalBatches s = random_batches(&at);
        check_epoch(&s, 1 + random_below(2000, &at));
    }
    int32_t *many = batches_room(TOWERS_MAX);
    LocalBatches most = {TOWERS_MAX, many};
    for (int t = 0; t < TOWERS_MAX; t++) many[t] = 1 + t % 3;
    check_epoch(&most, TOWERS_MAX - 1);
}

static void expect_cut(const LocalBatches *s, int64_t count, int64_t step, const int32_t *n)
{
    for (int t = 0; t < s->towers; t++) {
        int64_t first;
        int32_t found;
        local_batch_of(s, count, step, t, &first, &found);
        assert_int_equal(found, n[t]);
    }
}

TEST(test_by_hand)
{
    LocalBatches s = {.towers = 4, .batch = (const int32_t[]){4, 0, 2, 2}};
    assert_int_equal(global_batch_of(&s), 8);
    assert_int_equal(steps_per_epoch_of(&s, 16), 2);
    assert_int_equal(steps_per_epoch_of(&s, 17), 3);
    expect_cut(&s, 17, 0, (int32_t[]){4, 0, 2, 2});
    expect_cut(&s, 17, 2, (int32_t[]){1, 0, 0, 0}); /* remainders 4, 0, 2, 2 of 8 */
    expect_cut(&s, 19, 2, (int32_t[]){1, 0, 1, 1}); /* 1.5, 0, .75, .75: two left for the last two */
    expect_cut(&s, 5, 0, (int32_t[]){3, 0, 1, 1});  /* 2.5, 0, 1.25, 1.25 */
    expect_cut(&s, 2, 0, (int32_t[]){1, 0, 1, 0});  /* 1, 0, .5, .5: the lower tower */
    expect_cut(&s, 17, 3, (int32_t[]){0, 0, 0, 0}); /* past the end */
}

TEST(test_order_is_permutation)
{
    const int64_t counts[] = {1, 2, 3, 10, 1000, 65537};
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        int64_t n = counts[k];
        int32_t *order = malloc((size_t)n * sizeof *order);
        bool *seen = calloc((size_t)n, 1);
        epoch_order(1, 2, n, order);
        for (int64_t i = 0; i < n; i++) {
            assert_true(order[i] >= 0 && order[i] < n && !seen[order[i]]);
            seen[order[i]] = true;
        }
        free(seen);
        free(order);
    }
}

TEST(test_order_depends_on_seed_and_epoch)
{
    int32_t a[100], b[100];
    epoch_order(1, 2, 100, a);
    epoch_order(1, 2, 100, b);
    assert_memory_equal(a, b, sizeof a);
    epoch_order(1, 3, 100, b);
    assert_memory_not_equal(a, b, sizeof a);
    epoch_order(2, 2, 100, b);
    assert_memory_not_equal(a, b, sizeof a);
    epoch_order(1, INT64_C(2) + (INT64_C(1) << 32), 100, b);
    assert_memory_not_equal(a, b, sizeof a);
}

/* The 24 orders of 4 samples over 24,000 epochs: chi square with 23 degrees of freedom is below 50 (p = 0.001). */
TEST(test_order_is_fair)
{
    int seen[256] = {0}, kinds = 0;
    double chi2 = 0;
    for (int64_t epoch = 0; epoch < 24000; epoch++) {
        int32_t o[4];
        epoch_order(7, epoch, 4, o);
        seen[o[0] + 4 * o[1] + 16 * o[2] + 64 * o[3]]++;
    }
    for (int i = 0; i < 256; i++) {
        kinds += seen[i] > 0;
        if (seen[i]) chi2 += (seen[i] - 1000.0) * (seen[i] - 1000.0) / 1000.0;
    }
    assert_int_equal(kinds, 24);
    assert_true(chi2 < 50);
}
