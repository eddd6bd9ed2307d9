/* The self-test: does every element of a sum and of a broadcast arrive at every tower? */
#ifndef TOWERS_GUARD_SELFTEST_H
#define TOWERS_GUARD_SELFTEST_H

#include "towers/replica/tower_process.h"

/* Known sums and broadcasts between the towers, every element checked; before the first step. The gradients
 * are zero afterwards. Collective. */
NODISCARD Status selftest_run(TowerProcess *p);

#endif
