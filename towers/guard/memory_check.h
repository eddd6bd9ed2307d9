/* Whether a job can fit into the memory of this machine, by arithmetic: before a tower starts and before a run exists.
 *
 * What is counted is certain to be needed: arenas, optimizer slots, averages, statistics, queued images. Workspaces of
 * kernels and what libraries take are not, so that this never refuses what would have run; what passes and does not
 * fit all the same is refused when it is allocated (batch_explain). Of CPUs only: a GPU tells its memory to a process
 * that has opened it, which this one must not do before it forks. */
#ifndef TOWERS_GUARD_MEMORY_CHECK_H
#define TOWERS_GUARD_MEMORY_CHECK_H

#include "towers/replica/job.h"

/* ERR_MEMORY tells what is wanted, what is free, and what to make smaller. */
NODISCARD Status memory_check(const TrainJob *job);

#endif
