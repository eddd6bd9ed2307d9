/* Memory plan: the memory of a tower process in training, by class: the table of `towers info` and --dry-run, and
 * memory.json. Does not include the libraries' own memory except NCCL's buffers, which are estimated. The buffers for uploads
 * are only made if memory is left for them (kernels/cuda/staging.h). */
#pragma once

#include "towers/replica/replica.h"

typedef enum MemoryClass {
    MEMORY_WEIGHTS = 0,
    MEMORY_HALF,      /* the 16-bit copy of the weights, if the device keeps one */
    MEMORY_GRADIENTS, /* with several batches per step, also their sums */
    MEMORY_SUM,       /* additional memory of the all-reduce: contributions in shared memory, or buffers on a GPU */
    MEMORY_NCCL,      /* comm_library_bytes */
    MEMORY_OPTIMIZER_STATE,
    MEMORY_AVERAGE,
    MEMORY_STATISTICS,
    MEMORY_UPLOADS, /* of pixels, on their way to a GPU */
    MEMORY_INPUTS,
    MEMORY_RESULTS,
    MEMORY_ACTIVATIONS,
    MEMORY_WORKSPACE,
    MEMORY_CLASSES
} MemoryClass;

typedef struct MemoryPlan {
    size_t bytes[MEMORY_CLASSES];
} MemoryPlan;

const char *memory_class_name(MemoryClass kind);

/* Memory of a replica with this configuration, without its plans; then that of each plan, which share theirs. */
void memory_plan_start(MemoryPlan *plan, const ReplicaConfig *config, const Layout *layout);
void memory_plan_add(MemoryPlan *plan, const Plan *of);
size_t memory_plan_total(const MemoryPlan *plan);
