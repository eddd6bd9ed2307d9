/* Observation: between two steps, the weights of the run are passed to the observer of the job (job.h), which draws
 * and measures the images of a generator. */
#pragma once

#include "towers/replica/tower_process.h"

/* True if somebody observes the state after the last step. */
bool observation_is_due(const TowerProcess *p, bool epoch_ended);
/* Collective: the batch-norm statistics of all towers are combined, and every process receives the measure of rank 0's
 * observer in `kid`, NaN if there is none. */
NODISCARD Status observation_run(TowerProcess *p, double *kid);
