/* The self-test of collectives: every element of a sum and of a broadcast must arrive at every tower. */
#pragma once

#include "towers/replica/tower_process.h"

/* Run known sums and broadcasts between the towers before the first step and check every element. Leaves the gradients
 * zero. Collective. */
NODISCARD Status selftest_run(TowerProcess *p);
