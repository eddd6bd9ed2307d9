/* The choice made for each task: found once by timing, kept for later runs, and exchanged between the ranks of a run.
 *
 * A text file per device, cuDNN and cuBLASLt version in $XDG_CACHE_HOME/towers/plans (or ~/.cache/...), one line per
 * task:
 *     task <tab> plan <tab> microseconds
 * A later line for the same task replaces an earlier one; lines that cannot be read are ignored. If the folder cannot
 * be written, the cache lasts as long as the process. Delete the file to have everything timed again.
 *
 * The tasks of one process, as text, have a first line that names the device and the libraries; a run directory keeps
 * them as plans.txt. */
#pragma once

#include "kernels/base/status.h"

typedef struct PlanCache PlanCache;

NODISCARD Status plan_cache_open(const char *device_name, PlanCache **made);
void plan_cache_close(PlanCache *cache); /* NULL is fine */

/* The plan, borrowed; NULL if unknown. The task becomes one of this process. */
const char *plan_cache_find(PlanCache *cache, const char *task);
/* Remember a plan for this process, and, if it was timed (microseconds >= 0) and the folder can be written, for later
 * runs. */
NODISCARD Status plan_cache_add(PlanCache *cache, const char *task, const char *plan, double microseconds);

/* The tasks of this process, as text that the caller frees. `chosen`: those that it chose although others were given. */
NODISCARD Status plan_cache_text(const PlanCache *cache, char **text, int *chosen);
/* Take the plans of another process from its text. None is taken if its first line differs: engines have other numbers on
 * another device or in another version of a library. */
NODISCARD Status plan_cache_take(PlanCache *cache, const char *text, bool *taken);
