/* Whether the disk has room for a checkpoint, before the first step: who learns it after an epoch has lost the epoch.
 *
 * Only what is certain to be written is counted: weights, optimizer states, averages and the statistics of each tower. */
#pragma once

#include "towers/replica/job.h"

/* Bytes of the tensors of one checkpoint. Errors: those of the network. */
NODISCARD Status disk_check_bytes(const TrainJob *job, uint64_t *bytes);
/* ERR_IO states how much is needed and how much is free where the run directory is, which exists (disk_spare of files.h). */
NODISCARD Status disk_check(const TrainJob *job);
