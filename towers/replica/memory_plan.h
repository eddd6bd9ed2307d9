/* Memory plan: what a tower process takes for training, by class: the table of `towers info` and --dry-run, and
 * memory.json. What libraries take for themselves is not in it. */
#ifndef TOWERS_REPLICA_MEMORY_PLAN_H
#define TOWERS_REPLICA_MEMORY_PLAN_H

#include "towers/replica/replica.h"

typedef enum MemoryClass {
    MEMORY_WEIGHTS = 0,
    MEMORY_HALF,      /* the 16-bit copy of the weights, where the device keeps one */
    MEMORY_GRADIENTS, /* with several batches a step, also their sums */
    MEMORY_SUM,       /* what the sum over towers takes beside them: slots in shared memory, or buffers of a GPU */
    MEMORY_SLOTS,
    MEMORY_AVERAGE,
    MEMORY_STATISTICS,
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

/* Of a replica so configured, without its plans; and then of each of its plans, which share their memory. */
void memory_plan_start(MemoryPlan *plan, const ReplicaConfig *config, const Layout *layout);
void memory_plan_add(MemoryPlan *plan, const Plan *of);
size_t memory_plan_total(const MemoryPlan *plan);

#endif
