/* Scan every value; see trace.h. Tensors are copied to the host, which is slow: used only after a refused step. */
#include "towers/guard/trace.h"

#include "towers/replica/hooks.h"

/* ---- one tensor */

static void scan_add(TensorScan *scan, int64_t index, float value, double *sum, int64_t *finite)
{
    if (!isfinite(value)) {
        if (scan->bad++ == 0) {
            scan->first = index;
            scan->value = value;
        }
        return;
    }
    if (*finite == 0 || (double)value < scan->min) scan->min = (double)value;
    if (*finite == 0 || (double)value > scan->max) scan->max = (double)value;
    *sum += (double)value;
    (*finite)++;
}

/* Scan `host`, all pixels of a tensor of this shape. With `samples`, also count the samples that have a bad element. */
static void host_scan(const void *host, Dtype dtype, Shape shape, int64_t pitch, TensorScan *scan, int *samples)
{
    int64_t pixels = shape_pixels(shape), finite = 0, of_sample = pixels / shape.n, before = 0;
    double sum = 0;
    *scan = (TensorScan){.min = NAN, .max = NAN};
    for (int64_t p = 0; p < pixels; p++) {
        if (p % of_sample == 0) before = scan->bad;
        for (int64_t c = 0; c < shape.c; c++)
            scan_add(scan, p * shape.c + c, element_read(dtype, host, p * pitch + c), &sum, &finite);
        if (samples && p % of_sample == of_sample - 1) *samples += scan->bad > before;
    }
    scan->mean = finite ? sum / (double)finite : NAN;
}

static Status device_scan(Replica *r, const Tensor *t, TensorScan *scan, int *samples)
{
    size_t bytes = (size_t)((shape_pixels(t->shape) - 1) * t->pitch + t->shape.c) * dtype_bytes(t->dtype);
    void *host = calloc(1, bytes);
    if (!host) return FAIL(ERR_MEMORY, "no memory for the copy of a tensor (%zu MiB)", bytes >> 20);
    Status st = replica_download(r, host, t->data, bytes);
    if (st == OK) host_scan(host, t->dtype, t->shape, t->pitch, scan, samples);
    free(host);
    return st;
}

static void found_set(Finding *found, FindingPlace place, const char *layer, const char *tensor, Shape shape,
                      Dtype dtype, const TensorScan *scan)
{
    found->place = place;
    found->shape = shape;
    found->dtype = dtype;
    found->index = scan->first;
    found->count = scan->bad;
    found->value = scan->value;
    snprintf(found->layer, sizeof found->layer, "%s", layer);
    snprintf(found->tensor, sizeof found->tensor, "%s", tensor);
}

/* ---- arenas, by the layout */

/* Scan `entries` of an arena, which begins with the first of them and has `elements` floats. The square sum, computed
 * on the device, shows whether any is bad. */
static Status arena_scan(Replica *r, const float *arena, const LayoutEntry *entries, int count, size_t elements,
                         FindingPlace place, const char *label, Finding *found)
{
    Status st = OK;
    double square;
    float *host = NULL;
    if (!arena || elements == 0 || found->place != FOUND_NOTHING) return OK;
    TRY(replica_square_sum(r, arena, elements, &square));
    if (isfinite(square)) return OK;
    host = calloc(elements, sizeof *host);
    if (!host)
        return FAIL(ERR_MEMORY, "no memory for the host copy of the %s (%zu MiB)", label,
                    elements * sizeof *host >> 20);
    TRY_OUT(replica_download(r, host, arena, elements * sizeof *host));
    for (int i = 0; i < count && found->place == FOUND_NOTHING; i++) {
        TensorScan scan;
        char tensor[sizeof found->tensor];
        host_scan(host + (entries[i].first - entries[0].first), DTYPE_F32, entries[i].shape, entries[i].shape.c, &scan,
                  NULL);
        snprintf(tensor, sizeof tensor, "%s%s%s", label, *label ? " of " : "", entries[i].name);
        if (scan.bad) found_set(found, place, label, tensor, entries[i].shape, DTYPE_F32, &scan);
    }
out:
    free(host);
    return st;
}

static Status params_scan(Replica *r, const float *arena, FindingPlace place, const char *label, Finding *found)
{
    const Layout *l = r->layout;
    bool only_trained = place == FOUND_OPTIMIZER_STATE; /* which frozen parameters do not have */
    return arena_scan(r, arena, l->params, only_trained ? l->trained_count : l->param_count,
                      only_trained ? l->trained_elements : l->param_elements, place, label, found);
}

static Status running_scan(Replica *r, float *const *arenas, int local, int first_tower, const char *label,
                           Finding *found)
{
    for (int t = 0; arenas && t < r->config.local && found->place == FOUND_NOTHING; t++) {
        if (local >= 0 && t != local) continue;
        TRY(arena_scan(r, arenas[t], r->layout->running, r->layout->running_count, r->layout->running_elements,
                       FOUND_STATISTIC, label, found));
        if (found->place != FOUND_NOTHING) found->tower = first_tower + t;
    }
    return OK;
}

Status trace_state(Replica *r, int first_tower, int local, Finding *found)
{
    static const char *const labels[OPTIMIZER_STATES] = {"optimizer slot 0", "optimizer slot 1"};
    *found = (Finding){.tower = -1, .op = -1};
    TRY(params_scan(r, r->arena[ARENA_PARAM], FOUND_WEIGHT, "", found));
    TRY(params_scan(r, r->ema, FOUND_AVERAGE, "average", found));
    TRY(running_scan(r, r->running, local, first_tower, "", found));
    TRY(running_scan(r, r->config.ema ? r->ema_running : NULL, local, first_tower, "average", found));
    for (int s = 0; s < OPTIMIZER_STATES; s++)
        TRY(params_scan(r, r->optimizer_state[s], FOUND_OPTIMIZER_STATE, labels[s], found));
    return OK;
}

Status trace_gradients(Replica *r, int phase, FindingPlace place, Finding *found)
{
    const LayoutPhase *range = &r->layout->phase[phase];
    *found = (Finding){.tower = -1, .op = -1};
    return arena_scan(r, (float *)r->arena[ARENA_GRAD] + range->first, r->layout->params + range->first_param,
                      range->param_count, range->elements, place, "gradient", found);
}

/* ---- ops */

/* "conv2.dx" of the backward pass belongs to layer "conv2" if the forward pass has an op of that name. */
static void layer_name(const Program *program, int op, char *name, size_t bytes)
{
    snprintf(name, bytes, "%s", plan_call(program->plan, op)->name);
    char *dot = strrchr(name, '.');
    if (op < program->forward_end || !dot) return;
    for (int i = 0; i < program->forward_end; i++) {
        const char *forward = plan_call(program->plan, i)->name;
        if (strncmp(forward, name, (size_t)(dot - name)) || forward[dot - name]) continue;
        *dot = 0;
        return;
    }
}

static FindingPlace place_of(const Program *program, int op)
{
    if (op >= program->forward_end) return FOUND_BACKWARD;
    for (int i = 0; i <= op; i++) {
        OpKind kind = plan_call(program->plan, i)->kind;
        if (kind == OP_SOFTMAX_LOSS || kind == OP_SIGMOID_LOSS) return FOUND_LOSS;
    }
    return FOUND_FORWARD;
}

static Status output_look(const TraceJob *job, Program *program, int op, int out, Finding *found)
{
    const OpCall *call = plan_call(program->plan, op);
    const ValueInfo *info = graph_value(program->graph, graph_op_at(program->graph, op)->out[out]);
    char layer[sizeof found->layer];
    int samples = 0;
    if (!call->out[out].data || info->dtype == DTYPE_U8 || info->dtype == DTYPE_I32) return OK;
    layer_name(program, op, layer, sizeof layer);
    TraceRow row = {op, place_of(program, op), call, layer, info->name, info->shape, info->dtype, {0}};
    TRY(device_scan(job->replica, &call->out[out], &row.scan,
                    (info->role == ROLE_TEMP && info->shape.n == program->n) ? &samples : NULL));
    if (job->row) job->row(job->context, &row);
    if (row.scan.bad == 0) return OK;
    found_set(found, row.place, layer, info->name, info->shape, info->dtype, &row.scan);
    found->op = op;
    found->kind = call->kind;
    found->samples = samples;
    if (samples && job->batch->ids)
        found->sample = job->batch->ids[row.scan.first / (shape_count(info->shape) / info->shape.n)];
    return OK;
}

static Status ops_run(const TraceJob *job, Program *program, int first, int end)
{
    Device *device = &job->replica->device;
    if (run_hooks) return run_hooks->ops(device, program, job->tower, job->step, first, end);
    return plan_run(program->plan, first, end);
}

static Status ops_look(const TraceJob *job, Program *program, int first, int end, Finding *found)
{
    int op = first;
    for (; op < end && found->place == FOUND_NOTHING; op++) {
        if (job->deadline_ns && clock_ns() > job->deadline_ns)
            return FAIL(ERR_COMM,
                        "the search stopped at op %d of %d, because the other towers are waiting (--comm-timeout)", op,
                        plan_op_count(program->plan));
        TRY(ops_run(job, program, op, op + 1));
        for (int k = 0; k < plan_call(program->plan, op)->out_count && found->place == FOUND_NOTHING; k++)
            TRY(output_look(job, program, op, k, found));
    }
    return job->through ? ops_run(job, program, op, end) : OK;
}

Status trace_run(const TraceJob *job, Finding *found)
{
    Replica *r = job->replica;
    *found = (Finding){.tower = job->tower, .step = job->step, .op = -1};
    Program *program = replica_program(r, job->phase, job->batch->n);
    if (!program) return FAIL(ERR_INTERNAL, "tower %d: no program for a batch of %d", job->tower, job->batch->n);
    TRY(replica_feed(r, program, job->batch, job->local, &job->key, job->scale));
    TRY(ops_look(job, program, 0, program->forward_end, found));
    if (found->place == FOUND_NOTHING) {
        /* Check the loss as read by the host. It is finite if its op's output was, unless a test injects a fault. */
        static const Shape scalar = {1, 1, 1, 1};
        LossRead read;
        float *loss = plan_tensor(program->plan, program->loss).data;
        if (run_hooks) TRY(run_hooks->loss(&job->replica->device, job->tower, job->step, loss));
        TRY(replica_read_loss(job->replica, program, &read));
        TensorScan scan = {.bad = 1, .value = (float)read.sum};
        if (!isfinite(read.sum)) found_set(found, FOUND_LOSS, "loss", "loss", scalar, DTYPE_F32, &scan);
    }
    if (found->place == FOUND_NOTHING || job->through)
        TRY(ops_look(job, program, program->forward_end, plan_op_count(program->plan), found));
    if (found->place != FOUND_NOTHING) return OK;
    float *gradients = (float *)r->arena[ARENA_GRAD] + r->layout->phase[job->phase].first;
    if (run_hooks) TRY(run_hooks->gradients(&r->device, job->tower, job->step, gradients));
    TRY(trace_gradients(r, job->phase, FOUND_GRADIENT, found));
    found->tower = job->tower;
    found->step = job->step;
    return OK;
}
