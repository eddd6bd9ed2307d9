/* Cuts an epoch into batches and batches into the towers' ranges; rules in share.h. The order of an epoch is a
 * Fisher-Yates shuffle with draws from Philox: bounded by multiplication with rejection (Lemire, "Fast Random Integer
 * Generation in an Interval", 2019), so every permutation is equally likely. */
#include "towers/data/loading/share.h"

#include "kernels/philox.h"

int64_t shares_global(const Shares *shares)
{
    int64_t sum = 0;
    for (int t = 0; t < shares->towers; t++) sum += shares->batch[t];
    return sum;
}

int64_t shares_steps_per_epoch(const Shares *shares, int64_t count)
{
    int64_t global = shares_global(shares);
    return count / global + (count % global != 0);
}

static int largest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

void shares_of(const Shares *shares, int64_t count, int64_t step_in_epoch, int tower, int64_t *first, int32_t *n)
{
    int32_t cut[TOWERS_MAX];
    int64_t global = shares_global(shares), start = step_in_epoch * global;
    int64_t taken = start >= count ? 0 : count - start < global ? count - start : global;
    /* n[t] of `taken` samples for each tower, by largest remainder, lower towers first. For a full batch nothing remains
     * and n[t] is the share. */
    int64_t rest[TOWERS_MAX], left = taken;
    for (int t = 0; t < shares->towers; t++) {
        cut[t] = (int32_t)(taken * shares->batch[t] / global);
        rest[t] = taken * shares->batch[t] % global * TOWERS_MAX + TOWERS_MAX - 1 - t;
        left -= cut[t];
    }
    if (left > 0) qsort(rest, (size_t)shares->towers, sizeof *rest, largest_first);
    for (int i = 0; i < left; i++) cut[TOWERS_MAX - 1 - rest[i] % TOWERS_MAX]++;
    *first = start;
    for (int t = 0; t < tower; t++) *first += cut[t];
    *n = cut[tower];
}

typedef struct Draws {
    uint64_t seed, epoch, block;
    uint64_t spare; /* the second half of the last block */
    int spares;
} Draws;

static const uint64_t ORDER_KEY = 0x6f72646572000000u; /* separates these draws from other uses of the seed */

static uint64_t draw(Draws *d)
{
    if (d->spares) {
        d->spares = 0;
        return d->spare;
    }
    Philox words = philox(d->seed ^ ORDER_KEY, (uint32_t)d->block, (uint32_t)(d->block >> 32), (uint32_t)d->epoch,
                          (uint32_t)(d->epoch >> 32));
    d->block++;
    d->spare = (uint64_t)words.v[3] << 32 | words.v[2];
    d->spares = 1;
    return (uint64_t)words.v[1] << 32 | words.v[0];
}

/* Uniform in [0, bound). */
static uint64_t draw_below(Draws *d, uint64_t bound)
{
    unsigned __int128 product = (unsigned __int128)draw(d) * bound;
    if ((uint64_t)product < bound) {
        uint64_t unfair = -bound % bound;
        while ((uint64_t)product < unfair) product = (unsigned __int128)draw(d) * bound;
    }
    return (uint64_t)(product >> 64);
}

void epoch_order(uint64_t seed, int64_t epoch, int64_t count, int32_t *order)
{
    Draws draws = {.seed = seed, .epoch = (uint64_t)epoch};
    for (int64_t i = 0; i < count; i++) order[i] = (int32_t)i;
    for (int64_t i = count - 1; i > 0; i--) {
        int64_t j = (int64_t)draw_below(&draws, (uint64_t)i + 1);
        int32_t kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
}
