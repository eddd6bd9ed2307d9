/* One device with weights, optimizer states and programs; see replica.h. */
#include "towers/replica/replica.h"

int32_t replica_layout_samples(const Replica *r)
{
    return r->config.train_n[0] ? r->config.train_n[0] : r->config.eval_n[0];
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
    return r->layout->running_values[i] / replica_layout_samples(r) * samples;
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
