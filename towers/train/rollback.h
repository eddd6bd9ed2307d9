/* --nan-policy rollback: back to the last good checkpoint, and on from there without the step that spoilt things.
 *
 * The steps between are run again, to the same bits; the step to blame runs without its update, as a skipped one. That
 * is the refused step itself, or, if the weights before it were not finite, the one before: its update spoilt them.
 * Which steps are left out is part of the state, so a resumed run leaves out the same ones. */
#ifndef TOWERS_TRAIN_ROLLBACK_H
#define TOWERS_TRAIN_ROLLBACK_H

#include "towers/replica/tower_process.h"

/* Collective, after the search of a refused step. ERR_NUMERIC if the limit is reached or it would not help. */
NODISCARD Status rollback_run(TowerProcess *p, int64_t refused_step);

/* The same for replicas that differ: back, and through the same steps again. `why`: what was found. */
NODISCARD Status rollback_drift(TowerProcess *p, const char *why);

#endif
