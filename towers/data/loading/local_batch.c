/* Cuts an epoch into batches and batches into the towers' ranges; rules in local_batch.h. */
#include "towers/data/loading/local_batch.h"

int64_t global_batch_of(const LocalBatches *local)
{
    int64_t sum = 0;
    for (int t = 0; t < local->towers; t++) sum += local->batch[t];
    return sum;
}

int64_t steps_per_epoch_of(const LocalBatches *local, int64_t count)
{
    int64_t global = global_batch_of(local);
    return count / global + (count % global != 0);
}

static int largest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

void local_batch_of(const LocalBatches *local, int64_t count, int64_t step_in_epoch, int tower, int64_t *first,
                    int32_t *n)
{
    int32_t cut[TOWERS_MAX];
    int64_t global = global_batch_of(local), start = step_in_epoch * global;
    int64_t taken = start >= count ? 0 : count - start < global ? count - start : global;
    /* n[t] of `taken` samples for each tower, by largest remainder, lower towers first. For a full batch nothing remains
     * and n[t] is the local batch. */
    int64_t rest[TOWERS_MAX], left = taken;
    for (int t = 0; t < local->towers; t++) {
        cut[t] = (int32_t)(taken * local->batch[t] / global);
        rest[t] = taken * local->batch[t] % global * TOWERS_MAX + TOWERS_MAX - 1 - t;
        left -= cut[t];
    }
    if (left > 0) qsort(rest, (size_t)local->towers, sizeof *rest, largest_first);
    for (int i = 0; i < left; i++) cut[TOWERS_MAX - 1 - rest[i] % TOWERS_MAX]++;
    *first = start;
    for (int t = 0; t < tower; t++) *first += cut[t];
    *n = cut[tower];
}
