/* The sequence of steps and epochs. */
#pragma once

#include "towers/replica/tower_process.h"
#include "towers/train/step_outcome.h"

/* Train until the last step, or until all ranks agree to stop: *outcome is STOP then, and DRIFTED after an error of replicas that
 * differ. */
NODISCARD Status epochs_run(TowerProcess *p, StepOutcome *outcome);

/* Compare the replicas if that is due and no step is in flight, and apply --sdc-policy if they differ. ERR_NUMERIC if
 * that ends the run. Collective. */
NODISCARD Status replicas_compare(TowerProcess *p, bool now, StepOutcome *outcome);
