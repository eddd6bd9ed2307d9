/* Batch-norm running statistics of all towers: export and drift. */
#pragma once

#include "towers/replica/tower_process.h"

/* Collective. */
/* The statistics of every tower, on every rank: *found [towers][running_elements], host memory, owned by the caller. */
NODISCARD Status running_gather(TowerProcess *p, float **running, float **found);
NODISCARD Status norm_drift_record(TowerProcess *p); /* write their drift to norms.jsonl */
/* Fill replica->eval_running from all towers' running statistics, according to job->bn_stats. */
NODISCARD Status statistics_export(TowerProcess *p);
