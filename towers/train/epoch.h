/* From step to step, and what ends an epoch. */
#ifndef TOWERS_TRAIN_EPOCH_H
#define TOWERS_TRAIN_EPOCH_H

#include "towers/replica/tower_process.h"

/* Train to the end, or until all ranks agree to stop. */
NODISCARD Status epochs_run(TowerProcess *p);

/* Compare the replicas if it is due, once no step is under way, and do what --sdc-policy says if they differ.
 * ERR_NUMERIC if the run ends for it. Collective. */
NODISCARD Status replicas_compare(TowerProcess *p, bool now);

#endif
