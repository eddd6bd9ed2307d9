/* The supervisor of a node: starts one process per device, watches them, shows the console, and ends them together. */
#pragma once

#include "towers/supervisor/children.h"
#include "towers/train/result.h"

/* Runs `tower_main` in each process of job->node. The status is the root cause of a failure. *ledger receives the ledger,
 * which the caller then frees; NULL: it is freed here. */
NODISCARD Status supervise(const TrainJob *job, TowerMain tower_main, TrainResult *result, Ledger **ledger);
