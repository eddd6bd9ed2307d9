/* Buckets: consecutive ranges of the gradient arena, which is in the order in which backward completes it, so that the
 * all-reduce of one bucket runs while backward computes the next (Li et al., "PyTorch Distributed", VLDB 2020, section
 * 3.2). Every rank has the same buckets. The extras follow the last bucket: a few floats on which all towers must
 * agree. */
#pragma once

#include <stddef.h>

enum { BUCKETS_MAX = 64 };

typedef struct Bucket {
    size_t first, count; /* elements of the gradient arena */
} Bucket;

typedef struct Buckets {
    int count; /* >= 1 */
    Bucket bucket[BUCKETS_MAX];
} Buckets;

/* Cut [0, total) at parameter ends (ascending, ends[count - 1] <= total): the first bucket closes at `first_bytes`, so
 * that the collective starts early, the others at `bucket_bytes`; a small remainder joins the last one, of which at most
 * `first_bytes` then become a bucket of their own, so that little is left to reduce when backward ends. Elements are f32. */
void buckets_cut(const size_t *ends, int count, size_t total, size_t first_bytes, size_t bucket_bytes,
                 Buckets *buckets);

/* Extras: appended to the gradients at [total, total + EXTRAS) of the sum. */
typedef enum SumExtra {
    SUM_EXTRA_STOP = 0, /* towers whose process was asked to stop by a signal */
    SUM_EXTRAS = 16     /* rounded up to a line; the extras of each tower follow (kernels/gate.h) */
} SumExtra;

/* Floats behind the gradients in the sum of a step: SUM_EXTRAS, then what each of `towers` towers found. */
size_t sum_extra_count(int towers);
