/* The shuffle of an epoch of up to 2^31 samples, as a table; order.h has those of larger sets. */
#pragma once

#include "kernels/base/status.h"

/* A permutation of 0 .. count - 1, a function of seed and epoch. order[count], count below 2^31. */
void epoch_order(uint64_t seed, int64_t epoch, int64_t count, int32_t *order);
