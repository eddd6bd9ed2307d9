/* Evaluation of the test set by all towers. */
#pragma once

#include "towers/replica/tower_process.h"
#include "towers/train/step_outcome.h"

/* All towers share the test set; every sample is evaluated exactly once. Results are equal on all ranks. A stop signal
 * ends the evaluation after the current batch: then the outcome is STOP, and *whole is false if a batch is missing. */
NODISCARD Status evaluate(TowerProcess *p, EvalResult *result, bool *whole, StepOutcome *outcome);
