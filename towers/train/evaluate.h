/* Evaluation of the test set by all towers. */
#ifndef TOWERS_TRAIN_EVALUATE_H
#define TOWERS_TRAIN_EVALUATE_H

#include "towers/replica/tower_process.h"

/* The towers share the test set; every sample exactly once. Results are equal on all ranks. A stop signal
 * ends it after the batch of the moment: then p->stop is set, and *whole is false if a batch was left out. */
NODISCARD Status evaluate(TowerProcess *p, EvalResult *result, bool *whole);

#endif
