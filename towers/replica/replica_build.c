/* Building a replica: its programs, its memory, its first values; see replica.h. */
#include "towers/replica/replica.h"

#include "kernels/base/array.h"
#include "nccl_sync/bucket.h"

/* ---- memory */

/* Device memory, which replica_destroy releases; `made` is a pointer to a pointer. */
static Status device_bytes(Replica *r, size_t bytes, void *made)
{
    void **memory;
    TRY(array_grow(&r->owned, r->owned_count, sizeof *r->owned, "the memory of a replica"));
    memory = &r->owned[r->owned_count];
    TRY(r->device.backend->alloc(&r->device, bytes ? bytes : sizeof(float), memory));
    memcpy(made, memory, sizeof *memory);
    r->owned_count++;
    return OK;
}

static Status device_floats(Replica *r, size_t count, float **made)
{
    return device_bytes(r, count * sizeof **made, made);
}

static void arenas_grow(const Plan *plan, size_t bytes[ARENA_COUNT])
{
    for (int a = 0; a < ARENA_COUNT; a++)
        if (plan_bytes(plan, (Arena)a) > bytes[a]) bytes[a] = plan_bytes(plan, (Arena)a);
}

static Status kept_create(Replica *r)
{
    size_t local = (size_t)r->config.local;
    if (!r->config.accumulate) return OK;
    r->grad_sum = calloc(local, sizeof *r->grad_sum);
    r->statistics_mean = calloc(local, sizeof *r->statistics_mean);
    r->statistics_exist = calloc(local, sizeof *r->statistics_exist);
    r->statistics_exist_over = calloc(local, sizeof *r->statistics_exist_over);
    r->statistics_count = calloc(local, sizeof *r->statistics_count);
    if (!r->grad_sum || !r->statistics_mean || !r->statistics_exist || !r->statistics_exist_over ||
        !r->statistics_count)
        return FAIL(ERR_MEMORY, "no memory for the stored batches of %zu towers", local);
    for (size_t t = 0; t < local; t++) {
        TRY(device_floats(r, r->layout->trained_elements, &r->grad_sum[t]));
        TRY(device_floats(r, r->layout->running_elements, &r->statistics_mean[t]));
        TRY(device_floats(r, r->layout->running_elements, &r->statistics_exist[t]));
    }
    TRY(device_floats(r, 1, &r->keep_decay));
    TRY(device_floats(r, 1, &r->one));
    return r->device.backend->fill(&r->device, r->one, 1, 1);
}

size_t replica_half_bytes(const ReplicaConfig *config, const Layout *layout)
{
    Dtype compute = config->program.compute;
    return compute == DTYPE_F32 || !config->backend->weights_copy ? 0 : layout->param_elements * dtype_bytes(compute);
}

void replica_sum_sized(const Layout *layout, CommConfig *sum)
{
    size_t grads = layout->trained_elements;
    if (layout->running_elements > sum->staged) sum->staged = layout->running_elements;
    sum->gradients = grads;
    sum->max_count = (grads > sum->staged ? grads : sum->staged) + sum_extra_count(sum->towers);
}

size_t replica_sum_bytes(const ReplicaConfig *config, const Layout *layout)
{
    CommConfig sum = config->sum;
    if (sum.towers == 0) return 0;
    replica_sum_sized(layout, &sum);
    return comm_bytes(config->backend, &sum);
}

size_t replica_upload_bytes(const ReplicaConfig *config, int32_t n)
{
    size_t image =
        (size_t)config->program.canvas * (size_t)config->program.canvas * (size_t)config->program.data_channels;
    return config->backend->upload_bytes ? config->backend->upload_bytes((size_t)n * image) : 0;
}

static Status optimizer_create(Replica *r)
{
    const Backend *backend = r->device.backend;
    size_t elements = r->layout->trained_elements;
    for (int s = 0; s < optimizer_state_count(&r->config.optimizer); s++) {
        TRY(device_floats(r, elements, &r->optimizer_state[s]));
        TRY(backend->fill(&r->device, r->optimizer_state[s], optimizer_state_start(&r->config.optimizer, s), elements));
    }
    if (r->config.ema) TRY(device_floats(r, r->layout->param_elements, &r->ema));
    TRY(device_floats(r, r->layout->running_elements, &r->eval_running));
    TRY(device_bytes(r, sizeof *r->scalars, &r->scalars));
    TRY(device_bytes(r, sizeof *r->square, &r->square));
    size_t half = replica_half_bytes(&r->config, r->layout);
    r->half_stale = half > 0;
    r->fold_stale = true;
    return half ? device_bytes(r, half, &r->half) : OK;
}

/* One segment per parameter of the phase, including the padding after it; adjacent segments of the same kind are
 * merged, except for LARS and LAMB, which adapt the rate of each tensor that decays. */
static Status optimizer_segments_create(Replica *r, int phase)
{
    const Layout *layout = r->layout;
    const LayoutPhase *range = &layout->phase[phase];
    PhaseUpdate *u = &r->update[phase];
    bool layerwise = optimizer_is_layerwise(r->config.optimizer.kind);
    u->segments = calloc((size_t)range->param_count + 1, sizeof *u->segments);
    if (!u->segments)
        return FAIL(ERR_MEMORY, "no memory for the optimizer segments of %d parameters", range->param_count);
    for (int i = range->first_param; i < range->first_param + range->param_count; i++) {
        const LayoutEntry *entry = &layout->params[i];
        size_t end = layout_param_end(layout, i);
        bool decays = entry->decay || r->config.decay_all;
        float decay = decays ? (float)r->config.weight_decay : 0;
        float rate = (float)names_factor(r->config.rates, r->config.rate_count, entry->name);
        bool late = names_match(r->config.unfrozen, entry->name);
        OptimizerSegment *last = u->segment_count ? &u->segments[u->segment_count - 1] : NULL;
        if (last && last->weight_decay == decay && last->lr_factor == rate && last->late == late && !layerwise)
            last->count = end - last->first;
        else
            u->segments[u->segment_count++] =
                (OptimizerSegment){entry->first, end - entry->first, decay, rate, layerwise && decays, late};
    }
    return layerwise ? device_bytes(r, (size_t)u->segment_count * sizeof *u->trust, &u->trust) : OK;
}

static Status ranges_create(Replica *r, int phase)
{
    const Layout *layout = r->layout;
    PhaseUpdate *u = &r->update[phase];
    u->ranges = calloc((size_t)layout->running_count + 1, sizeof *u->ranges);
    if (!u->ranges) return FAIL(ERR_MEMORY, "no memory for ranges of %d statistics", layout->running_count);
    for (int i = 0; i < layout->running_count; i++) {
        const LayoutEntry *entry = &layout->running[i];
        size_t end = layout_running_end(layout, i);
        RunningRange *last = u->range_count ? &u->ranges[u->range_count - 1] : NULL;
        if (!(entry->moves & 1u << phase)) continue;
        if (last && last->first + last->count == entry->first)
            last->count = end - last->first;
        else
            u->ranges[u->range_count++] = (RunningRange){entry->first, end - entry->first};
    }
    return OK;
}

/* ---- programs */

static int sizes_count(const int32_t *sizes)
{
    int count = 0;
    while (sizes && sizes[count]) count++;
    return count;
}

static Status sizes_keep(const ReplicaConfig *config, Replica *r)
{
    int trains = sizes_count(config->train_n), evals = sizes_count(config->eval_n);
    r->sizes = calloc((size_t)trains + (size_t)evals + 2, sizeof *r->sizes);
    if (!r->sizes) return FAIL(ERR_MEMORY, "no memory for %d batch sizes", trains + evals);
    for (int i = 0; i < trains; i++) r->sizes[i] = config->train_n[i];
    for (int i = 0; i < evals; i++) r->sizes[trains + 1 + i] = config->eval_n[i];
    r->config.train_n = r->sizes;
    r->config.eval_n = r->sizes + trains + 1;
    return OK;
}

static Status programs_create(Replica *r)
{
    ProgramConfig config = r->config.program;
    int sizes = sizes_count(r->config.train_n), eval_count = sizes_count(r->config.eval_n);
    int train_count = sizes * program_phases(config.model);
    r->phases = program_phases(config.model);
    r->train = calloc((size_t)train_count + 1, sizeof *r->train);
    r->eval = calloc((size_t)eval_count + 1, sizeof *r->eval);
    if (!r->train || !r->eval)
        return FAIL(ERR_MEMORY, "no memory for the programs of %d batch sizes", train_count + eval_count);
    config.training = true;
    for (; r->train_count < train_count; r->train_count++) {
        config.phase = r->train_count / sizes;
        TRY(program_create(&config, r->config.train_n[r->train_count % sizes], r->layout, &r->device,
                           &r->train[r->train_count]));
    }
    config.phase = 0;
    config.training = false;
    for (; r->eval_count < eval_count; r->eval_count++)
        TRY(program_create(&config, r->config.eval_n[r->eval_count], r->layout, &r->device, &r->eval[r->eval_count]));
    return OK;
}

static void program_bind(const Replica *r, Plan *plan, float *running)
{
    for (int a = 0; a < ARENA_COUNT; a++)
        if (r->arena[a]) plan_bind(plan, (Arena)a, r->arena[a]);
    plan_bind(plan, ARENA_RUNNING, running);
    plan_bind(plan, ARENA_BATCH_STATISTICS, r->batch_statistics[0]);
}

static Status values_start(Replica *r)
{
    size_t params = r->layout->param_elements, elements = params + r->layout->running_elements;
    float *host = calloc(elements + 1, sizeof *host);
    if (!host) return FAIL(ERR_MEMORY, "no memory for the initial weights (%zu MiB)", elements * sizeof *host >> 20);
    layout_init_params(r->layout, r->config.seed, host);
    layout_init_running(r->layout, host + params);
    Status st = replica_values_set(r, host, host + params);
    free(host);
    return st;
}

/* ---- the whole */

Status replica_begin(const ReplicaConfig *config, Replica **made)
{
    Status st = OK;
    bool taken;
    Replica *r = calloc(1, sizeof *r);
    if (!r) return FAIL(ERR_MEMORY, "no memory for the replica");
    r->config = *config;
    TRY_OUT(sizes_keep(config, r));
    TRY_OUT(config->backend->open(&config->device, &r->device));
    if (config->choices && config->backend->choices_take)
        TRY_OUT(config->backend->choices_take(&r->device, config->choices, &taken));
    r->config.choices = NULL;
    TRY_OUT(program_layout(&r->config.program, replica_layout_samples(r), &r->layout));
    *made = r;
    r = NULL;
out:
    replica_destroy(r);
    return st;
}

Status replica_create(const ReplicaConfig *config, Replica **made)
{
    TRY(replica_begin(config, made));
    Status st = replica_build(*made);
    if (st == OK) return OK;
    replica_destroy(*made);
    *made = NULL;
    return st;
}

Status replica_choose_for(Replica *r, int32_t n)
{
    Status st = OK;
    ProgramConfig config = r->config.program;
    config.training = true;
    for (config.phase = 0; st == OK && config.phase < program_phases(config.model); config.phase++) {
        Program program = {0};
        st = program_create(&config, n, r->layout, &r->device, &program);
        program_destroy(&program);
    }
    return st;
}

static Status arenas_create(Replica *r)
{
    size_t bytes[ARENA_COUNT] = {0};
    bytes[ARENA_PARAM] = r->layout->param_elements * sizeof(float);
    bytes[ARENA_GRAD] = r->layout->trained_elements * sizeof(float);
    for (int i = 0; i < r->train_count; i++) arenas_grow(r->train[i].plan, bytes);
    for (int i = 0; i < r->eval_count; i++) arenas_grow(r->eval[i].plan, bytes);
    for (int a = 0; a < ARENA_COUNT; a++) {
        if (a == ARENA_RUNNING || a == ARENA_BATCH_STATISTICS || a == ARENA_GRAD) continue;
        TRY(device_bytes(r, bytes[a] ? bytes[a] : 64, &r->arena[a]));
    }
    TRY(comm_memory_create(&r->device, bytes[ARENA_GRAD] ? bytes[ARENA_GRAD] : 64, &r->grad_memory));
    r->arena[ARENA_GRAD] = r->grad_memory.data;
    return OK;
}

static Status statistics_create(Replica *r)
{
    size_t local = (size_t)r->config.local, elements = r->layout->running_elements;
    r->running = calloc(local, sizeof *r->running);
    r->batch_statistics = calloc(local, sizeof *r->batch_statistics);
    r->ema_running = calloc(local, sizeof *r->ema_running);
    r->unbias = calloc(local, sizeof *r->unbias);
    r->unbias_over = calloc(local, sizeof *r->unbias_over);
    if (!r->running || !r->batch_statistics || !r->ema_running || !r->unbias || !r->unbias_over)
        return FAIL(ERR_MEMORY, "no memory for the statistics of %zu towers", local);
    for (size_t t = 0; t < local; t++) {
        TRY(device_floats(r, elements, &r->running[t]));
        TRY(device_floats(r, elements, &r->batch_statistics[t]));
        TRY(device_floats(r, elements, &r->unbias[t]));
        TRY(replica_statistics_over(r, (int)t, replica_layout_samples(r)));
        if (r->config.ema) TRY(device_floats(r, elements, &r->ema_running[t]));
    }
    return OK;
}

static void programs_bind(Replica *r)
{
    for (int i = 0; i < r->train_count; i++) program_bind(r, r->train[i].plan, r->running[0]);
    for (int i = 0; i < r->eval_count; i++) {
        program_bind(r, r->eval[i].plan, r->eval_running);
        if (r->ema) plan_bind(r->eval[i].plan, ARENA_PARAM, r->ema);
    }
}

Status replica_build(Replica *r)
{
    TRY(captured_graphs_create(&r->device, r->config.capture, &r->captured));
    TRY(programs_create(r));
    TRY(arenas_create(r));
    TRY(statistics_create(r));
    TRY(optimizer_create(r));
    for (int p = 0; p < r->phases; p++) {
        TRY(optimizer_segments_create(r, p));
        TRY(ranges_create(r, p));
    }
    TRY(kept_create(r));
    programs_bind(r);
    return values_start(r);
}

void replica_destroy(Replica *r)
{
    if (!r) return;
    captured_graphs_destroy(r->captured);
    for (int i = 0; i < r->train_count; i++) program_destroy(&r->train[i]);
    for (int i = 0; i < r->eval_count; i++) program_destroy(&r->eval[i]);
    free(r->train);
    free(r->eval);
    free(r->sizes);
    comm_memory_destroy(&r->device, &r->grad_memory);
    for (int i = 0; i < r->owned_count; i++) r->device.backend->release(&r->device, r->owned[i]);
    free(r->owned);
    if (r->device.backend) r->device.backend->close(&r->device);
    layout_destroy(r->layout);
    free(r->running);
    free(r->batch_statistics);
    free(r->ema_running);
    free(r->unbias);
    free(r->unbias_over);
    free(r->grad_sum);
    free(r->statistics_mean);
    free(r->statistics_exist);
    free(r->statistics_exist_over);
    free(r->statistics_count);
    for (int p = 0; p < PHASES_MAX; p++) {
        free(r->update[p].ranges);
        free(r->update[p].segments);
    }
    free(r);
}
