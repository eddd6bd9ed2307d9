/* The order of an epoch: a pure function of (seed, epoch), a permutation of 0 .. count - 1 unless it is balanced. Up to
 * ORDER_TABLE_MAX samples it is a table (epoch_order, shuffle.h) that must be prepared. Above, it is a keyed permutation
 * without a table: a Feistel network on ceil(log2 count) bits with Philox as its round function, repeated until the
 * result is below count (cycle walking; Black & Rogaway, "Ciphers with Arbitrary Finite Domains", 2002), at most twice
 * on average. Without shuffling the order is the identity.
 *
 * With a window, for storage on which random reads are slow: the shards of a data set are permuted, and the samples of
 * every `window` consecutive shards are permuted together. This needs a table of the shards only.
 *
 * Balanced, the order is no permutation: at each position a class is drawn, each with equal probability, and of it a
 * sample (PyTorch's WeightedRandomSampler with weights 1 / samples of the class). */
#pragma once

#include "kernels/base/status.h"
#include "towers/data/sources/source.h"

typedef enum Sampler { SAMPLER_ONCE = 0, SAMPLER_BALANCED } Sampler;

#define ORDER_TABLE_MAX (INT64_C(1) << 22)

typedef struct Order {
    uint64_t seed;
    int64_t count;
    bool shuffle;
    int64_t epoch[2];           /* epoch of each table; -1: none */
    int32_t *ids[2];            /* owned; NULL if no table is needed. Epoch e uses table e & 1 */
    const int64_t *shard_first; /* borrowed: [shards + 1], the first sample of each shard, and their number */
    int shards, window;         /* window 0: none */
    int64_t *begins[2];         /* owned: [shards + 1], the position at which the k-th shard of the epoch begins */
    int64_t *members;           /* owned: [count], the samples class by class; NULL: not balanced */
    int64_t *class_first;       /* owned: [classes + 1], where those of each class that has samples begin */
    int classes;                /* that have samples */
} Order;

NODISCARD Status order_init(Order *order, uint64_t seed, int64_t count, bool shuffle);
/* With a window of at least 1 shard; every shard has at least one sample. */
NODISCARD Status order_init_window(Order *order, uint64_t seed, const int64_t *shard_first, int shards, int window);
/* Balanced, of a source's samples. */
NODISCARD Status order_init_balanced(Order *order, uint64_t seed, const Source *source);
void order_free(Order *order);
/* True if order_at may be called for this epoch. If not, order_prepare replaces the table of epoch - 2. */
bool order_is_ready(const Order *order, int64_t epoch);
void order_prepare(Order *order, int64_t epoch);
/* The sample at `position` in [0, count). Any thread. */
int64_t order_at(const Order *order, int64_t epoch, int64_t position);

/* The window that a position is in; and shard `place` of the epoch's order of shards. Window w has the places from
 * w * window on. */
int order_window(const Order *order, int64_t epoch, int64_t position);
int order_shard(const Order *order, int64_t epoch, int place);

/* The keyed permutation, for any count. Of few items, as a data set has shards, a Feistel network would reach some
 * permutations several times as often as others, so these are shuffled. */
int64_t order_permute(uint64_t seed, int64_t epoch, int64_t count, int64_t position);
