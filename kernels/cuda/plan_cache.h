/* The best plan of each task, found once by timing and kept for later runs.
 *
 * A text file per device, cuDNN and cuBLASLt version in $XDG_CACHE_HOME/towers/plans (or ~/.cache/...), one line per
 * task:
 *     task <tab> plan <tab> microseconds
 * A later line for the same task replaces an earlier one; lines that cannot be read are ignored. If the folder cannot
 * be written, the cache lasts as long as the process. Delete the file to have everything timed again. */
#ifndef TOWERS_KERNELS_CUDA_PLAN_CACHE_H
#define TOWERS_KERNELS_CUDA_PLAN_CACHE_H

#include "kernels/status.h"

typedef struct PlanCache PlanCache;

NODISCARD Status plan_cache_open(const char *device_name, PlanCache **made);
void plan_cache_close(PlanCache *cache); /* NULL is fine */

const char *plan_cache_find(const PlanCache *cache, const char *task); /* the plan, borrowed; NULL if unknown */
/* Remember, also for later runs if the folder can be written. */
NODISCARD Status plan_cache_add(PlanCache *cache, const char *task, const char *plan, double microseconds);

#endif
