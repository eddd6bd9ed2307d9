/* One device with weights, optimizer states and programs; see replica.h. */
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

/* The batch size for which the layout was made. */
static int32_t layout_samples(const Replica *r)
{
    return r->config.train_n[0] ? r->config.train_n[0] : r->config.eval_n[0];
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
        StateRange *last = u->range_count ? &u->ranges[u->range_count - 1] : NULL;
        if (!(entry->moves & 1u << phase)) continue;
        if (last && last->first + last->count == entry->first)
            last->count = end - last->first;
        else
            u->ranges[u->range_count++] = (StateRange){entry->first, end - entry->first};
    }
    return OK;
}

/* ---- programs */

static int sizes_count(const int32_t *sizes)
{
    int count = 0;
    while (sizes[count]) count++;
    return count;
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

/* ---- copies and values */

Status replica_download(Replica *r, void *host, const void *from, size_t bytes)
{
    TRY(r->device.backend->download(&r->device, host, from, bytes));
    return r->device.backend->finish(&r->device, STREAM_COMPUTE);
}

Status replica_upload(Replica *r, void *to, const void *host, size_t bytes)
{
    TRY(r->device.backend->upload(&r->device, to, host, bytes));
    return r->device.backend->finish(&r->device, STREAM_COMPUTE);
}

Status replica_values_set(Replica *r, const float *params, const float *running)
{
    const Backend *backend = r->device.backend;
    size_t param_bytes = r->layout->param_elements * sizeof *params,
           running_bytes = r->layout->running_elements * sizeof *running;
    for (int t = 0; t < r->config.local; t++) {
        TRY(backend->upload(&r->device, r->running[t], running, running_bytes));
        if (r->ema_running[t]) TRY(backend->upload(&r->device, r->ema_running[t], running, running_bytes));
    }
    if (r->ema) TRY(backend->upload(&r->device, r->ema, params, param_bytes));
    replica_weights_changed(r);
    return replica_upload(r, r->arena[ARENA_PARAM], params, param_bytes);
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

Status replica_begin(const ReplicaConfig *config, Replica **made)
{
    Status st = OK;
    bool taken;
    Replica *r = calloc(1, sizeof *r);
    if (!r) return FAIL(ERR_MEMORY, "no memory for the replica");
    r->config = *config;
    TRY_OUT(config->backend->open(&config->device, &r->device));
    if (config->choices && config->backend->choices_take)
        TRY_OUT(config->backend->choices_take(&r->device, config->choices, &taken));
    r->config.choices = NULL;
    TRY_OUT(program_layout(&r->config.program, layout_samples(r), &r->layout));
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

Status replica_build(Replica *r)
{
    TRY(captured_graphs_create(&r->device, r->config.capture, &r->captured));
    TRY(programs_create(r));
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
    size_t local = (size_t)r->config.local, elements = r->layout->running_elements;
    r->running = calloc(local, sizeof *r->running);
    r->batch_statistics = calloc(local, sizeof *r->batch_statistics);
    r->ema_running = calloc(local, sizeof *r->ema_running);
    r->unbias = calloc(local, sizeof *r->unbias);
    r->unbias_over = calloc(local, sizeof *r->unbias_over);
    if (!r->running || !r->batch_statistics || !r->ema_running || !r->unbias || !r->unbias_over)
        TRY(FAIL(ERR_MEMORY, "no memory for the statistics of %zu towers", local));
    for (size_t t = 0; t < local; t++) {
        TRY(device_floats(r, elements, &r->running[t]));
        TRY(device_floats(r, elements, &r->batch_statistics[t]));
        TRY(device_floats(r, elements, &r->unbias[t]));
        TRY(replica_statistics_over(r, (int)t, layout_samples(r)));
        if (r->config.ema) TRY(device_floats(r, elements, &r->ema_running[t]));
    }
    TRY(optimizer_create(r));
    for (int p = 0; p < r->phases; p++) {
        TRY(optimizer_segments_create(r, p));
        TRY(ranges_create(r, p));
    }
    TRY(kept_create(r));
    for (int i = 0; i < r->train_count; i++) program_bind(r, r->train[i].plan, r->running[0]);
    for (int i = 0; i < r->eval_count; i++) {
        program_bind(r, r->eval[i].plan, r->eval_running);
        if (r->ema) plan_bind(r->eval[i].plan, ARENA_PARAM, r->ema);
    }
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

Program *replica_program(Replica *r, int phase, int32_t n)
{
    for (int i = 0; i < r->train_count; i++)
        if (r->train[i].phase == phase && r->train[i].n == n) return &r->train[i];
    return NULL;
}

Program *replica_eval_program(Replica *r, int32_t n)
{
    for (int i = 0; i < r->eval_count; i++)
        if (r->eval[i].n == n) return &r->eval[i];
    return NULL;
}

/* ---- one tower's micro-batch */

/* to[i] = to[i] (+ or *) by[i] */
static Status floats_change(Replica *r, OpKind kind, const char *name, float *to, const float *by, size_t count)
{
    Tensor t = {.shape = {1, (int32_t)count, 1, 1}, .dtype = DTYPE_F32, .pitch = (int64_t)count};
    OpCall call = {.kind = kind, .name = name, .in_count = 2, .in = {t, t}, .out = {t}, .out_count = 1};
    const OpKernel *kernel = r->device.backend->kernels[kind];
    call.in[0].data = call.out[0].data = to;
    call.in[1].data = (void *)by;
    if (kernel->prepare) TRY(kernel->prepare(&r->device, &call));
    Status st = kernel->launch(&r->device, &call);
    if (kernel->discard) kernel->discard(&r->device, &call);
    return st;
}

void replica_scale_by(Replica *r, const GatePhase *scale)
{
    r->loss_scale = scale;
}

Status replica_scale(Replica *r, const Program *program)
{
    if (!r->loss_scale || !program->dloss.id) return OK;
    return floats_change(r, OP_MUL, "loss scale", plan_tensor(program->plan, program->dloss).data,
                         &r->loss_scale[program->phase].scale, 1);
}

static Status upload_value(Replica *r, const Program *program, Value value, const void *host, size_t bytes)
{
    if (!value.id) return OK;
    return r->device.backend->upload(&r->device, plan_tensor(program->plan, value).data, host, bytes);
}

static Status half_refresh(Replica *r)
{
    if (!r->half || !r->half_stale) return OK;
    r->half_stale = false;
    return r->device.backend->weights_copy(&r->device, r->arena[ARENA_PARAM], r->layout->param_elements, r->half,
                                           r->config.program.compute);
}

Status replica_feed(Replica *r, Program *program, const Batch *batch, int local, const RandomKey *key, float scale)
{
    size_t n = (size_t)batch->n, image = (size_t)batch->canvas * (size_t)batch->canvas * (size_t)batch->c;
    uint32_t counter[4] = {(uint32_t)key->seed, (uint32_t)(key->seed >> 32), (uint32_t)key->step, (uint32_t)key->first};
    TRY(half_refresh(r));
    const int32_t *labels = batch->predicted && program->dloss.id ? batch->predicted : batch->labels;
    size_t images = n + (r->config.program.mixes && program->dloss.id),
           classes = (size_t)r->config.program.options.classes;
    TRY(upload_value(r, program, program->pixels, batch->pixels, images * image));
    TRY(upload_value(r, program, program->labels, labels, n * sizeof(int32_t)));
    TRY(upload_value(r, program, program->targets, batch->targets, n * classes * sizeof(float)));
    TRY(upload_value(r, program, program->positive_weight, r->config.program.positive_weight, classes * sizeof(float)));
    TRY(upload_value(r, program, program->weight, &batch->weight, sizeof batch->weight));
    TRY(upload_value(r, program, program->augment, batch->augment, images * IMAGE_RECORD * sizeof(int32_t)));
    TRY(upload_value(r, program, program->counter, counter, sizeof counter));
    TRY(upload_value(r, program, program->dloss, &scale, sizeof scale));
    if (program->dloss.id) {
        plan_bind(program->plan, ARENA_RUNNING, r->running[local]);
        plan_bind(program->plan, ARENA_BATCH_STATISTICS, r->batch_statistics[local]);
    }
    return OK;
}

void replica_pin(Replica *r, const Loader *loader, bool often)
{
    void *memory;
    size_t bytes;
    for (int i = 0; loader && r->device.backend->pin && loader_pixels(loader, i, &memory, &bytes); i++)
        r->device.backend->pin(&r->device, memory, bytes, often ? PIN_UPLOADS : PIN_NOT);
}

void replica_weights_changed(Replica *r)
{
    r->half_stale = r->fold_stale = true;
}

/* All batch sizes have the same folds, in the same places. */
Status replica_fold(Replica *r)
{
    if (!r->fold_stale || !r->eval_count) return OK;
    TRY(plan_run(r->eval[0].plan, 0, r->eval[0].fold_end));
    for (int i = 1; i < r->eval_count; i++) plan_renew(r->eval[i].plan);
    r->fold_stale = false;
    return OK;
}

Status replica_read_loss(Replica *r, const Program *program, LossRead *read)
{
    float loss = 0, correct[2] = {0}, term[PHASE_TERMS] = {0};
    const Backend *backend = r->device.backend;
    TRY(backend->download(&r->device, &loss, plan_tensor(program->plan, program->loss).data, sizeof loss));
    if (program->correct.id)
        TRY(backend->download(&r->device, correct, plan_tensor(program->plan, program->correct).data, sizeof correct));
    for (int i = 0; i < program->term_count; i++) {
        const float *sum = plan_tensor(program->plan, program->term[i].sum).data;
        TRY(backend->download(&r->device, &term[i], sum, sizeof *term));
    }
    TRY(backend->finish(&r->device, STREAM_COMPUTE));
    *read = (LossRead){.sum = loss, .correct = {(int64_t)correct[0], (int64_t)correct[1]}};
    for (int i = 0; i < program->term_count; i++) read->term[i] = term[i];
    return OK;
}

Status replica_square_sum(Replica *r, const float *x, size_t count, double *sum)
{
    TRY(r->device.backend->square_sum(&r->device, x, count, r->square));
    return replica_download(r, sum, r->square, sizeof *sum);
}

Status replica_l2_term(Replica *r, int phase, double *term)
{
    const PhaseUpdate *u = &r->update[phase];
    return r->device.backend->l2_term(&r->device, r->arena[ARENA_PARAM], u->segments, u->segment_count, term);
}

/* ---- sample counts of statistics */

/* Pixels per sample times samples: neither depends on which towers share this process. */
int64_t replica_values(const Replica *r, size_t i, int64_t samples)
{
    return r->layout->running_values[i] / layout_samples(r) * samples;
}

float replica_unbias(const Replica *r, size_t i, int64_t samples)
{
    int64_t values = replica_values(r, i, samples);
    if (values == 1) return 0;
    return values && r->layout->running_unbiased[i] ? (float)((double)values / (double)(values - 1)) : 1;
}

static float statistic_exists(const Replica *r, size_t i, int64_t samples)
{
    return replica_values(r, i, samples) == 1 ? 0 : 1;
}

/* Factors for statistics over `samples`, in device memory, unless they are those already, as *over says. */
static Status factors_set(Replica *r, float (*factor)(const Replica *r, size_t i, int64_t samples), int64_t samples,
                          float *to, int64_t *over)
{
    size_t elements = r->layout->running_elements;
    if (*over == samples) return OK;
    float *host = calloc(elements + 1, sizeof *host);
    if (!host) return FAIL(ERR_MEMORY, "no memory for the correction of %zu statistics", elements);
    for (size_t i = 0; i < elements; i++) host[i] = factor(r, i, samples);
    Status st = replica_upload(r, to, host, elements * sizeof *host);
    if (st == OK) *over = samples;
    free(host);
    return st;
}

Status replica_statistics_over(Replica *r, int local, int64_t samples)
{
    return factors_set(r, replica_unbias, samples, r->unbias[local], &r->unbias_over[local]);
}

/* ---- gradient accumulation */

/* sum[i] += x[i] */
static Status floats_add(Replica *r, float *sum, const float *x, size_t count)
{
    return floats_change(r, OP_ADD, "gradients", sum, x, count);
}

Status replica_keep_start(Replica *r, int local)
{
    const Backend *backend = r->device.backend;
    r->statistics_count[local] = 0;
    TRY(backend->fill(&r->device, r->statistics_mean[local], 0, r->layout->running_elements));
    return backend->fill(&r->device, r->grad_sum[local], 0, r->layout->trained_elements);
}

Status replica_keep_statistics(Replica *r, int local)
{
    size_t elements = r->layout->running_elements;
    float before = (float)r->statistics_count[local], decay = before / (before + 1); /* the mean so far */
    r->statistics_count[local]++;
    if (!elements) return OK;
    if (before == 0)
        TRY(factors_set(r, statistic_exists, r->unbias_over[local], r->statistics_exist[local],
                        &r->statistics_exist_over[local]));
    TRY(r->device.backend->upload(&r->device, r->keep_decay, &decay, sizeof decay));
    return r->device.backend->average(&r->device, r->statistics_mean[local], r->batch_statistics[local],
                                      r->unbias[local], r->keep_decay, elements, r->one);
}

Status replica_keep_gradients(Replica *r, int local)
{
    return floats_add(r, r->grad_sum[local], r->arena[ARENA_GRAD], r->layout->trained_elements);
}

Status replica_add_kept(Replica *r, int local, size_t first, size_t count)
{
    return floats_add(r, (float *)r->arena[ARENA_GRAD] + first, r->grad_sum[local] + first, count);
}

/* ---- the update */

static Status statistics_update(Replica *r, const PhaseUpdate *u, const bool *fed)
{
    const Backend *backend = r->device.backend;
    const float *commit = &r->scalars->commit;
    for (int t = 0; t < r->config.local; t++) {
        const float *batch = r->statistics_mean ? r->statistics_mean[t] : r->batch_statistics[t];
        const float *correct =
            r->statistics_mean ? r->statistics_exist[t] : r->unbias[t]; /* the mean is one of unbiased values */
        for (int i = 0; i < u->range_count; i++) {
            size_t first = u->ranges[i].first, count = u->ranges[i].count;
            if (fed[t])
                TRY(backend->average(&r->device, r->running[t] + first, batch + first, correct + first,
                                     &r->scalars->bn_decay, count, commit));
            if (r->ema_running[t])
                TRY(backend->average(&r->device, r->ema_running[t] + first, r->running[t] + first, NULL,
                                     &r->scalars->ema_decay, count, commit));
        }
    }
    return OK;
}

Status replica_update(Replica *r, int phase, const bool *fed)
{
    const PhaseUpdate *u = &r->update[phase];
    OptimizerUpdate update = {
        .hyper = r->config.optimizer,
        .param = r->arena[ARENA_PARAM],
        .grad = r->arena[ARENA_GRAD],
        .state = {r->optimizer_state[0], r->optimizer_state[1]},
        .ema = r->ema,
        .half = r->half,
        .half_dtype = r->config.program.compute,
        .segments = u->segments,
        .segment_count = u->segment_count,
        .scalars = r->scalars,
        .unfrozen_updates = r->unfrozen_updates,
        .trust = u->trust,
    };
    r->fold_stale = true;
    TRY(r->device.backend->optimizer_apply(&r->device, &update));
    return statistics_update(r, u, fed);
}
