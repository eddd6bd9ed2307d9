/* Estimate whether a job fits into the memory of this machine, before a tower starts and before the run directory is
 * created.
 *
 * Only what is certain to be needed is counted: arenas, optimizer states, averages, statistics, queued images.
 * Workspaces of kernels and the libraries' own memory are not, so a job that would have run is never refused. A job
 * that passes but does not fit fails when it allocates (batch_explain). CPU only: a GPU's free memory is known only to
 * a process that has opened it, and this process must not do so before it forks. */
#pragma once

#include "towers/replica/job.h"

/* ERR_MEMORY states how much is needed, how much is free, and which settings to reduce. */
NODISCARD Status memory_check(const TrainJob *job);
