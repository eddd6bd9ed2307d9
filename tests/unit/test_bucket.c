/* Buckets are cut at ends of parameters, cover every element once, and never exceed their largest number. */
#include "nccl_sync/bucket.h"

#include <stdint.h>

#include "kernels/philox.h"
#include "tests/support/unit.h"

static bool is_end(const size_t *ends, int count, size_t at)
{
    for (int i = 0; i < count; i++)
        if (ends[i] == at) return true;
    return false;
}

/* One after another, from 0 to total, each ending where a parameter does (or at the padding behind the last). */
static void check(const size_t *ends, int count, size_t total, const Buckets *b)
{
    size_t at = 0;
    assert_in_range(b->count, 1, BUCKETS_MAX);
    for (int k = 0; k < b->count; k++) {
        assert_int_equal(b->bucket[k].first, at);
        at += b->bucket[k].count;
        if (k + 1 == b->count) break;
        assert_true(b->bucket[k].count > 0);
        assert_true(is_end(ends, count, at));
    }
    assert_int_equal(at, total);
}

TEST(test_sizes)
{
    Buckets b;
    const size_t ends[] = {100, 250, 400, 1000, 1600, 1650};
    buckets_cut(ends, 6, 1660, 150 * 4, 500 * 4, &b);
    check(ends, 6, 1660, &b);
    assert_int_equal(b.count, 4); /* [0, 250) closes early, [250, 1000), [1000, 1600), and a tail of 50 and padding */
    assert_int_equal(b.bucket[0].count, 250);
    assert_int_equal(b.bucket[1].count, 750);
    assert_int_equal(b.bucket[2].count, 600);
    assert_int_equal(b.bucket[3].count, 60);
}

/* The bucket that is summed after backward has ended is no larger than the first bucket. */
TEST(test_tail_is_small)
{
    Buckets b;
    const size_t ends[] = {100, 200, 210};
    buckets_cut(ends, 3, 210, 100 * 4, 100 * 4, &b);
    check(ends, 3, 210, &b);
    assert_int_equal(b.count, 3);
    assert_int_equal(b.bucket[1].count, 100);
    assert_int_equal(b.bucket[2].count, 10);
    buckets_cut(ends, 3, 210, 100 * 4, 1000 * 4, &b); /* nor where the second bucket never fills */
    assert_int_equal(b.bucket[b.count - 1].count, 10);
}

TEST(test_small_network_is_one_bucket)
{
    Buckets b;
    const size_t ends[] = {10, 20};
    buckets_cut(ends, 2, 32, 4 << 20, 25 << 20, &b);
    check(ends, 2, 32, &b);
    assert_int_equal(b.count, 1);
    buckets_cut(ends, 0, 0, 4 << 20, 25 << 20, &b); /* a network without parameters still has a place for the extras */
    assert_int_equal(b.count, 1);
    assert_int_equal(b.bucket[0].count, 0);
}

TEST(test_random_networks)
{
    enum { ENDS = 300 };
    size_t ends[ENDS];
    for (uint32_t round = 0; round < 2000; round++) {
        Philox sizes = philox(5, round, 0, 0, 0);
        int count = 1 + (int)(sizes.v[0] % ENDS);
        size_t at = 0;
        for (int i = 0; i < count; i++) {
            Philox r = philox(5, round, (uint32_t)i, 1, 0);
            at += 1 + r.v[0] % (r.v[1] % 7 ? 50 : 5000);
            ends[i] = at;
        }
        Buckets b;
        buckets_cut(ends, count, at + sizes.v[1] % 16, sizes.v[2] % 4000, 1 + sizes.v[3] % 20000, &b);
        check(ends, count, at + sizes.v[1] % 16, &b);
    }
}
