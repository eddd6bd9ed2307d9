/* The largest batch that fits into a device's memory. Memory grows linearly with the batch, so the size is
 * interpolated from the plans of two batch sizes. It is confirmed by a plan of its own and, on a GPU, by creating the
 * replica once. */
#pragma once

#include "towers/replica/job.h"
#include "towers/replica/replica.h"

typedef struct BatchFit {
    int32_t n;                       /* samples of one tower; 0: not even one fits */
    size_t bytes, free_bytes, total; /* needed by a process for n; free and total memory of the empty device */
} BatchFit;

/* Search up to `most`, in a child process, because this process must not open a device before it forks the towers. */
NODISCARD Status batch_max_find(const TrainJob *job, int32_t most, BatchFit *fit);
/* batch_max_find for the replica of `config`, in this process; `sharers` processes share the memory. */
NODISCARD Status batch_fit(const ReplicaConfig *config, int sharers, int32_t most, BatchFit *fit);
/* Memory of a replica outside the arenas of its plans; `n`: the largest batch of a tower. */
size_t replica_rest_bytes(const ReplicaConfig *config, const Layout *layout, int32_t n);
/* After a replica ran out of memory: extend the message by the memory that it needs and the batch that would fit. */
NODISCARD Status batch_explain(const TrainJob *job, const ReplicaConfig *config);
