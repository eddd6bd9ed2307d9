/* Cutting the gradient arena into buckets; see bucket.h. */
#include "nccl_sync/bucket.h"

#include "kernels/gate.h"

void buckets_cut(const size_t *ends, int count, size_t total, size_t first_bytes, size_t bucket_bytes, Buckets *buckets)
{
    size_t start = 0;
    buckets->count = 0;
    for (int i = 0; i < count; i++) {
        size_t limit = buckets->count == 0 ? first_bytes : bucket_bytes;
        size_t rest = (total - ends[i]) * sizeof(float);
        if ((ends[i] - start) * sizeof(float) < limit || rest < bucket_bytes / 2 || buckets->count == BUCKETS_MAX - 1)
            continue;
        buckets->bucket[buckets->count++] = (Bucket){start, ends[i] - start};
        start = ends[i];
    }
    if (start < total || buckets->count == 0) buckets->bucket[buckets->count++] = (Bucket){start, total - start};
    /* The last all-reduce runs after backward has ended and is not overlapped, so a large last bucket is split. */
    Bucket *last = &buckets->bucket[buckets->count - 1];
    if (last->count * sizeof(float) <= first_bytes || buckets->count == BUCKETS_MAX) return;
    for (int i = 0; i < count; i++) {
        bool inside = ends[i] > last->first && ends[i] < total;
        if (!inside || (total - ends[i]) * sizeof(float) > first_bytes) continue;
        buckets->bucket[buckets->count++] = (Bucket){ends[i], total - ends[i]};
        last->count = ends[i] - last->first;
        return;
    }
}

size_t sum_extra_count(int towers)
{
    return SUM_EXTRAS + (size_t)towers * GATE_EXTRAS;
}
