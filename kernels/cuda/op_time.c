/* The time of one launch of an op, by which passes choose between equivalent graphs; see Backend.op_time.
 *
 * The op is prepared, launched on random operands with cold caches, and its time kept beside the plans. A deterministic
 * device measures nothing, so that all its runs take the same graph. */
#include "kernels/base/text.h"
#include "kernels/cuda/autotune.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/plan_cache.h"

enum { OPERANDS = OP_MAX_IN + OP_MAX_OUT, TEXT_BYTES = 700 };

typedef struct Timed {
    OpCall call; /* bound to memory of its own */
    void *memory[OPERANDS + 1];
    int held;
} Timed;

static void operand_add(Text *text, const Tensor *t)
{
    if (!t->data)
        text_add(text, " -");
    else
        text_add(text, " %s %s %" PRId64, dtype_name(t->dtype), shape_text(t->shape), t->pitch);
}

/* The call as the text of a task of the plan cache. */
static void call_text(const OpCall *call, char *buffer)
{
    Text text = text_start(buffer, TEXT_BYTES);
    bool pool = call->kind == OP_MAX_POOL || call->kind == OP_MAX_POOL_DX || call->kind == OP_MAX_POOL_NORM ||
                call->kind == OP_MAX_POOL_NORM_DX;
    const Window *v = &call->attr.pool.window;
    char window[WINDOW_TEXT_BYTES];
    text_add(&text, "time of %s", op_name(call->kind));
    for (int k = 0; k < call->in_count; k++) operand_add(&text, &call->in[k]);
    for (int k = 0; k < call->out_count; k++) operand_add(&text, &call->out[k]);
    if (pool) text_add(&text, " window %dx%d %s", v->kh, v->kw, window_text(v, window));
}

static Status operand_create(Device *device, Timed *t, Tensor *operand)
{
    size_t bytes = (size_t)(shape_pixels(operand->shape) * operand->pitch) * dtype_bytes(operand->dtype);
    if (!operand->data) return OK;
    operand->data = NULL;
    TRY(device->backend->alloc(device, bytes, &operand->data));
    t->memory[t->held++] = operand->data;
    return OK;
}

static Status timed_run(Device *device, void *context, int number)
{
    Timed *t = context;
    (void)number;
    return device->backend->kernels[t->call.kind]->launch(device, &t->call);
}

/* Whether an operand is a variance. */
static bool is_positive(OpKind kind, int k)
{
    return (kind == OP_BATCHNORM_DX && k == 4) || (kind == OP_MAX_POOL_NORM && k == 3) ||
           (kind == OP_MAX_POOL_NORM_DX && k == 5);
}

/* Places in a window stay zeros, the first of each. */
static Status timed_fill(Device *device, void *context)
{
    const OpCall *call = &((const Timed *)context)->call;
    uint32_t number = 0;
    for (int k = 0; k < call->in_count; k++) {
        bool normal = !is_positive(call->kind, k);
        if (call->in[k].data && call->in[k].dtype != DTYPE_U8)
            TRY(autotune_fill(device, &call->in[k], number++, normal));
    }
    return OK;
}

static Status call_time(Device *device, const OpCall *call, double *microseconds)
{
    Status st = OK;
    Timed t = {.call = *call};
    int best;
    const OpKernel *kernel = device->backend->kernels[call->kind];
    const Candidates one = {.count = 1, .context = &t, .run = timed_run, .reset = timed_fill};
    if (kernel->prepare) TRY(kernel->prepare(device, &t.call));
    for (int k = 0; k < t.call.in_count; k++) TRY_OUT(operand_create(device, &t, &t.call.in[k]));
    for (int k = 0; k < t.call.out_count; k++) TRY_OUT(operand_create(device, &t, &t.call.out[k]));
    TRY_OUT(device->backend->alloc(device, t.call.workspace_bytes, &t.call.workspace));
    t.memory[t.held++] = t.call.workspace;
    TRY_OUT(autotune(device, &one, &best, microseconds));
out:
    for (int i = 0; i < t.held; i++) device->backend->release(device, t.memory[i]);
    if (kernel->discard) kernel->discard(device, &t.call);
    return st;
}

double cuda_op_time(Device *device, const OpCall *call)
{
    char text[TEXT_BYTES], found[32];
    double microseconds = -1;
    if (device->config.deterministic) return -1;
    call_text(call, text);
    const char *known = plan_cache_find(cuda_device(device)->plans, text);
    if (known) return strtod(known, NULL);
    if (call_time(device, call, &microseconds) != OK) microseconds = -1;
    snprintf(found, sizeof found, "%.2f", microseconds);
    return plan_cache_add(cuda_device(device)->plans, text, found, microseconds) == OK ? strtod(found, NULL) : -1;
}
