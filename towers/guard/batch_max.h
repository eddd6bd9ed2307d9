/* The largest batch that a device's memory takes: by calculation from the plans of two batch sizes, which memory grows
 * between in a straight line, then a plan of the size found, and on a GPU the replica itself, as a probe. */
#ifndef TOWERS_GUARD_BATCH_MAX_H
#define TOWERS_GUARD_BATCH_MAX_H

#include "towers/replica/job.h"
#include "towers/replica/replica.h"

typedef struct BatchFit {
    int32_t n;                       /* samples of one tower; 0: not even one */
    size_t bytes, free_bytes, total; /* what a process takes with n; of the device when nothing was allocated */
} BatchFit;

/* At most `most`. Asked in a child process: this one must not start a device before it forks the towers. */
NODISCARD Status batch_max_find(const TrainJob *job, int32_t most, BatchFit *fit);
/* The same for the replica that `config` describes, in this process; `sharers` processes share the memory. */
NODISCARD Status batch_fit(const ReplicaConfig *config, int sharers, int32_t most, BatchFit *fit);
/* What a replica takes beside the arenas of its plans, `n`: the largest batch of a tower. */
size_t replica_rest_bytes(const ReplicaConfig *config, const Layout *layout, int32_t n);
/* A replica has run out of memory: adds to the message what it wanted in all, and the batch that would fit. */
NODISCARD Status batch_explain(const TrainJob *job, const ReplicaConfig *config);

#endif
