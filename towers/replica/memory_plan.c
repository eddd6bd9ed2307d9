/* The classes of memory_plan.h. */
#include "towers/replica/memory_plan.h"

const char *memory_class_name(MemoryClass kind)
{
    static const char *const names[MEMORY_CLASSES] = {
        [MEMORY_WEIGHTS] = "weights",
        [MEMORY_HALF] = "16-bit copy of the weights",
        [MEMORY_GRADIENTS] = "gradients",
        [MEMORY_SUM] = "sum over towers",
        [MEMORY_NCCL] = "NCCL's buffers, estimated",
        [MEMORY_OPTIMIZER_STATE] = "optimizer slots",
        [MEMORY_AVERAGE] = "weight average",
        [MEMORY_STATISTICS] = "batch-norm statistics",
        [MEMORY_UPLOADS] = "uploads",
        [MEMORY_INPUTS] = "inputs",
        [MEMORY_RESULTS] = "results",
        [MEMORY_ACTIVATIONS] = "activations and their gradients",
        [MEMORY_WORKSPACE] = "workspace",
    };
    return names[kind];
}

/* The mixing of images reads one more than the batch has. */
static int32_t largest_batch(const ReplicaConfig *config)
{
    int32_t n = 0;
    for (const int32_t *size = config->train_n; size && *size; size++)
        n = *size + config->program.mixes > n ? *size + config->program.mixes : n;
    for (const int32_t *size = config->eval_n; size && *size; size++) n = *size > n ? *size : n;
    return n;
}

void memory_plan_start(MemoryPlan *plan, const ReplicaConfig *config, const Layout *layout)
{
    size_t param = layout->param_elements * sizeof(float), trained = layout->trained_elements * sizeof(float),
           running = layout->running_elements * sizeof(float), local = (size_t)config->local,
           kept = config->accumulate ? local : 0, averages = config->ema ? local : 0;
    *plan = (MemoryPlan){0};
    plan->bytes[MEMORY_WEIGHTS] = param;
    plan->bytes[MEMORY_HALF] = replica_half_bytes(config, layout);
    plan->bytes[MEMORY_GRADIENTS] = (1 + kept) * trained;
    plan->bytes[MEMORY_SUM] = replica_sum_bytes(config, layout);
    plan->bytes[MEMORY_NCCL] = comm_library_bytes(config->backend, &config->sum, config->device.deterministic);
    plan->bytes[MEMORY_UPLOADS] = replica_upload_bytes(config, largest_batch(config));
    plan->bytes[MEMORY_OPTIMIZER_STATE] = (size_t)optimizer_state_count(&config->optimizer) * trained;
    if (optimizer_is_layerwise(config->optimizer.kind))
        plan->bytes[MEMORY_OPTIMIZER_STATE] += (size_t)layout->trained_count * sizeof(OptimizerTrust);
    plan->bytes[MEMORY_AVERAGE] = config->ema ? param : 0;
    plan->bytes[MEMORY_STATISTICS] =
        (3 * local + averages + 2 * kept + 1) * running; /* running, batch's, corrections */
}

static void grow(size_t *bytes, size_t to)
{
    if (to > *bytes) *bytes = to;
}

void memory_plan_add(MemoryPlan *plan, const Plan *of)
{
    PlanReport report;
    size_t *activations = &plan->bytes[MEMORY_ACTIVATIONS], *workspace = &plan->bytes[MEMORY_WORKSPACE];
    plan_report(of, &report);
    grow(&plan->bytes[MEMORY_INPUTS], report.arena_bytes[ARENA_INPUT]);
    grow(&plan->bytes[MEMORY_RESULTS], report.arena_bytes[ARENA_RESULT]);
    if (report.arena_bytes[ARENA_SCRATCH] <= *activations + *workspace) return;
    *workspace = report.workspace_bytes;
    *activations = report.arena_bytes[ARENA_SCRATCH] - *workspace;
}

size_t memory_plan_total(const MemoryPlan *plan)
{
    size_t sum = 0;
    for (int k = 0; k < MEMORY_CLASSES; k++) sum += plan->bytes[k];
    return sum;
}
