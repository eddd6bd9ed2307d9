/* Fisher-Yates with draws from Philox, bounded by multiplication with rejection (Lemire, "Fast Random Integer Generation
 * in an Interval", 2019), so that every permutation is equally likely. */
#include "towers/data/loading/shuffle.h"

#include "kernels/philox.h"

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
