/* The order of an epoch: a permutation of 0 .. count - 1 that is a pure function of (seed, epoch). Up to ORDER_TABLE_MAX
 * samples it is a table (epoch_order, share.h), which has to be prepared; above, a keyed permutation that needs none:
 * a Feistel network on ceil(log2 count) bits with Philox as its round function, applied again while the result is not
 * below count (cycle walking; Black & Rogaway, "Ciphers with Arbitrary Finite Domains", 2002), twice at most on average.
 * Without shuffling it is the identity. */
#ifndef TOWERS_DATA_ORDER_H
#define TOWERS_DATA_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/status.h"

#define ORDER_TABLE_MAX (INT64_C(1) << 22)

typedef struct Order {
    uint64_t seed;
    int64_t count;
    bool shuffle;
    int64_t epoch[2]; /* whose tables these are; -1: nobody's */
    int32_t *ids[2];  /* owned; NULL where no table is needed. Epoch e uses number e & 1 */
} Order;

NODISCARD Status order_init(Order *order, uint64_t seed, int64_t count, bool shuffle);
void order_free(Order *order);
/* May order_at be called for this epoch? If not, order_prepare replaces the table of two epochs before. */
bool order_is_ready(const Order *order, int64_t epoch);
void order_prepare(Order *order, int64_t epoch);
/* The sample at `position` in [0, count). Any thread. */
int64_t order_at(const Order *order, int64_t epoch, int64_t position);

/* The permutation without a table, for any count. */
int64_t order_permute(uint64_t seed, int64_t epoch, int64_t count, int64_t position);

#endif
