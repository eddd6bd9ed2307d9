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

/* What the division of a short batch leaves of tower t's part, in parts of one sample's `global`. */
static int64_t rest_of(const LocalBatches *local, int64_t taken, int64_t global, int t)
{
    return taken * local->batch[t] % global;
}

static int64_t rests_from(const LocalBatches *local, int64_t taken, int64_t global, int64_t least)
{
    int64_t count = 0;
    for (int t = 0; t < local->towers; t++) count += rest_of(local, taken, global, t) >= least;
    return count;
}

/* The least rest for which a tower gets one of the `left` samples, found by halving: no list of all towers is kept or sorted. */
static int64_t rest_least(const LocalBatches *local, int64_t taken, int64_t global, int64_t left)
{
    int64_t low = 0, high = global; /* at least `left` towers have a rest from `low` on, fewer one from `high` on */
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (rests_from(local, taken, global, middle) >= left)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void local_batch_of(const LocalBatches *local, int64_t count, int64_t step_in_epoch, int tower, int64_t *first,
                    int32_t *n)
{
    int64_t global = global_batch_of(local), start = step_in_epoch * global;
    int64_t taken = start >= count ? 0 : count - start < global ? count - start : global;
    /* n[t] of `taken` samples for each tower, by largest remainder, lower towers first. For a full batch nothing remains
     * and n[t] is the local batch. */
    int64_t left = taken, least = global;
    for (int t = 0; t < local->towers; t++) left -= taken * local->batch[t] / global;
    if (left > 0) {
        least = rest_least(local, taken, global, left);
        left -= rests_from(local, taken, global, least + 1);
    }
    *first = start;
    for (int t = 0; t <= tower; t++) {
        int64_t rest = rest_of(local, taken, global, t);
        bool more = rest > least || (rest == least && left-- > 0); /* of equal rests the lower towers */
        *n = (int32_t)(taken * local->batch[t] / global) + more;
        if (t < tower) *first += *n;
    }
}
