/* The choice between one kernel and several for joined convolutions; see conv_joined.h.
 *
 * Plans of the joined graph (conv_graph.h) are timed against the separate kernels, once for each task and device; the
 * plan cache keeps the winner: "separate" if that is faster, "none" if cuDNN has no plan, "exists" if it has one that
 * nobody has prepared. */
#include "kernels/cuda/conv/conv_joined.h"

#include "kernels/cuda/autotune.h"
#include "kernels/cuda/plan_cache.h"

enum { CANDIDATES = 20 };
static const size_t WORKSPACE_MAX = (size_t)512 << 20;

/* ---- is there a plan? */

static CudnnRules joined_rules(void)
{
    return (CudnnRules){.tensor_cores = true, .no_runtime_compile = true, .workspace_max = WORKSPACE_MAX};
}

bool conv_joined_exists(CudnnLibrary *library, const OpCall *call)
{
    ConvPattern pattern;
    ConvShape shape;
    ConvTensors tensors;
    CudnnRules rules = joined_rules();
    CudnnGraph *graph = NULL;
    CudnnPlan *plan = NULL;
    int found = 0;
    bool asked = conv_joined_shape(call, &pattern, &shape);
    bool exists = asked && conv_graph_create(library, pattern, &shape, &tensors, &graph) == OK &&
                  cudnn_plans(graph, &rules, 1, &plan, &found) == OK;
    cudnn_plan_destroy(plan);
    cudnn_graph_destroy(graph);
    return exists;
}

/* A padded image is named as such: its separate kernels are others (task.h). */
static void task_text(ConvPattern pattern, const ConvShape *s, int32_t channels, char *text, size_t bytes)
{
    const Window *v = &s->window;
    char of[16] = "";
    if (pattern == PATTERN_STATISTICS && channels < s->x.c) snprintf(of, sizeof of, " of %d", channels);
    snprintf(text, bytes, "%s %s x %s w %s stride %dx%d pad %dx%d%s", conv_pattern_name(pattern), dtype_name(s->dtype),
             shape_text(s->x), shape_text(s->w), v->stride_h, v->stride_w, v->pad_h, v->pad_w, of);
}

/* A task that was seen before is known to have a plan, to be better off without, or to have none. */
static bool conv_joins(Device *device, const OpCall *call)
{
    char text[256];
    ConvPattern pattern;
    ConvShape shape;
    const CudaDevice *cuda = cuda_device(device);
    if (!cudnn_joins() || !conv_joined_shape(call, &pattern, &shape)) return false;
    if (device->config.deterministic) return conv_joined_exists(cuda->cudnn, call);
    task_text(pattern, &shape, call->in[0].shape.c, text, sizeof text);
    const char *known = plan_cache_find(cuda->plans, text);
    if (known) return strcmp(known, "none") != 0;
    bool exists = conv_joined_exists(cuda->cudnn, call);
    return plan_cache_add(cuda->plans, text, exists ? "exists" : "none", -1) == OK && exists;
}

/* ---- state */

typedef struct Joined {
    Fused fused;
    CudnnPlan *plan; /* owned; NULL: the separate ops */
    Separate separate;
    void *ones; /* owned: of `fused` */
} Joined;

/* While choosing. */
typedef struct JoinedChoice {
    Joined *joined;
    CudnnPlan *plan[CANDIDATES]; /* candidate number `count` is the separate ops */
    int count;
    OpCall call;                              /* bound to memory of its own */
    void *memory[OP_MAX_IN + OP_MAX_OUT + 1]; /* owned: that memory */
    int held;
} JoinedChoice;

static size_t tensor_bytes(const Tensor *t)
{
    return (size_t)(shape_pixels(t->shape) * t->pitch) * dtype_bytes(t->dtype);
}

static size_t workspace_bytes(const Joined *j, const CudnnPlan *plan)
{
    return plan ? j->fused.task_offset + cudnn_plan_workspace(plan) : j->separate.workspace_bytes;
}

static void joined_free(Device *device, Joined *j)
{
    if (!j) return;
    cudnn_plan_destroy(j->plan);
    separate_free(device, &j->separate);
    if (j->ones) device->backend->release(device, j->ones);
    free(j);
}

static Status joined_run(Device *device, Joined *j, CudnnPlan *plan, const OpCall *call)
{
    char *workspace = (char *)(((uintptr_t)call->workspace + 255) & ~(uintptr_t)255);
    return plan ? fused_run(device, &j->fused, plan, call, workspace)
                : separate_run(device, &j->separate, call, workspace);
}

static Status joined_launch(Device *device, OpCall *call)
{
    Joined *j = call->state;
    return joined_run(device, j, j->plan, call);
}

/* ---- the choice */

static Status candidate_run(Device *device, void *context, int number)
{
    JoinedChoice *c = context;
    return joined_run(device, c->joined, number < c->count ? c->plan[number] : NULL, &c->call);
}

/* Variances are positive, with the 1 / sqrt(variance + epsilon) that belongs to them: one kernel reads the one, another the
 * other. All else is around zero. */
static Status operands_fill(Device *device, void *context)
{
    const OpCall *call = &((const JoinedChoice *)context)->call;
    const Tensor *var = &call->in[5], *rstd = &call->in[7];
    bool norm = call->kind == OP_CONV_DX_SUMS;
    uint32_t number = 0;
    for (int k = 0; k < call->in_count; k++)
        if (call->in[k].data) TRY(autotune_fill(device, &call->in[k], number++, !(norm && k == 5)));
    if (norm && rstd->data)
        TRY_CUDA(kernel_batchnorm_rstd(var->data, call->attr.conv.epsilon, rstd->data, var->shape.c,
                                       cuda_stream(device, STREAM_COMPUTE)));
    for (int k = 0; k < call->out_count; k++)
        if (call->out[k].data) TRY(autotune_fill(device, &call->out[k], number++, true));
    return OK;
}

static Tensor candidate_result(void *context, int number, int result)
{
    (void)number;
    return ((const JoinedChoice *)context)->call.out[result];
}

static Status operand_create(Device *device, JoinedChoice *c, size_t bytes, void **made)
{
    TRY(device->backend->alloc(device, bytes, &c->memory[c->held]));
    *made = c->memory[c->held++];
    return OK;
}

/* Memory for every operand of the call, and a workspace that suffices for every candidate. */
static Status operands_create(Device *device, JoinedChoice *c)
{
    OpCall *call = &c->call;
    size_t most = workspace_bytes(c->joined, NULL);
    for (int i = 0; i < c->count; i++)
        if (workspace_bytes(c->joined, c->plan[i]) > most) most = workspace_bytes(c->joined, c->plan[i]);
    TRY(operand_create(device, c, most + 256, &call->workspace));
    for (int k = 0; k < call->in_count; k++)
        if (call->in[k].data) TRY(operand_create(device, c, tensor_bytes(&call->in[k]), &call->in[k].data));
    for (int k = 0; k < call->out_count; k++)
        if (call->out[k].data) TRY(operand_create(device, c, tensor_bytes(&call->out[k]), &call->out[k].data));
    return OK;
}

/* The library's first guess, and a negative time, if there is no memory for timing. */
static Status choose_by_time(Device *device, JoinedChoice *c, int *best, double *time)
{
    *best = 0;
    Status st = operands_create(device, c);
    const Candidates candidates = {.count = c->count + 1,
                                   .context = c,
                                   .run = candidate_run,
                                   .reset = operands_fill,
                                   .result = candidate_result,
                                   .results = c->call.out_count,
                                   .witness = 1 + c->count};
    if (st == OK) st = autotune(device, &candidates, best, time);
    for (int i = 0; i < c->held; i++) device->backend->release(device, c->memory[i]);
    return st == ERR_MEMORY ? OK : st;
}

/* True if the cache knew what to take. A plan that this library refuses is no failure: another one is chosen. */
static bool choose_known(Device *device, JoinedChoice *c, CudnnGraph *graph, const char *task)
{
    const char *known = plan_cache_find(cuda_device(device)->plans, task);
    CudnnRules rules = joined_rules();
    if (!known) return false;
    if (strcmp(known, "separate") == 0 || strcmp(known, "none") == 0) return true;
    if (cudnn_plan_named(graph, &rules, known, &c->plan[0]) != OK) return false;
    c->count = 1;
    return true;
}

/* c->plan[*best], or the separate ops if that is c->count. */
static Status choose(Device *device, JoinedChoice *c, CudnnGraph *graph, int *best)
{
    char task[256];
    double time = -1;
    bool deterministic = device->config.deterministic;
    CudnnRules rules = joined_rules();
    *best = 0;
    task_text(c->joined->fused.pattern, &c->joined->fused.shape, c->call.in[0].shape.c, task, sizeof task);
    if (!deterministic && choose_known(device, c, graph, task)) return OK;
    /* Whatever the library says of the graph, the separate ops are left. */
    Status st = cudnn_plans(graph, &rules, deterministic ? 1 : CANDIDATES, c->plan, &c->count);
    if (st == ERR_MEMORY) return st;
    if (st != OK) c->count = 0;
    if (deterministic) return OK;
    if (c->count) TRY(choose_by_time(device, c, best, &time));
    const char *text = !c->count ? "none" : *best < c->count ? cudnn_plan_text(c->plan[*best]) : "separate";
    return plan_cache_add(cuda_device(device)->plans, task, text, time);
}

static Status plan_choose(Device *device, Joined *j, const OpCall *call)
{
    Status st = OK;
    CudnnGraph *graph = NULL;
    JoinedChoice c = {.joined = j, .call = *call};
    int best = 0;
    Fused *f = &j->fused;
    TRY_OUT(conv_graph_create(cuda_device(device)->cudnn, f->pattern, &f->shape, &f->tensor, &graph));
    TRY_OUT(choose(device, &c, graph, &best));
    if (best < c.count) j->plan = c.plan[best];
out:
    for (int i = 0; i < c.count; i++)
        if (c.plan[i] != j->plan) cudnn_plan_destroy(c.plan[i]);
    cudnn_graph_destroy(graph);
    return st;
}

/* cuDNN wants a gamma. */
static Status ones_create(Device *device, const OpCall *call, Joined *j)
{
    size_t channels = (size_t)call->in[2].shape.c;
    if (j->fused.pattern != PATTERN_DATA_SUMS || call->in[6].data) return OK;
    TRY(device->backend->alloc(device, channels * sizeof(float), &j->ones));
    j->fused.ones = j->ones;
    return device->backend->fill(device, j->ones, 1, channels);
}

static Status joined_prepare(Device *device, OpCall *call)
{
    Status st = OK;
    ConvPattern pattern;
    ConvShape shape;
    Joined *j = calloc(1, sizeof *j);
    if (!j) return FAIL(ERR_MEMORY, "no memory for the state of the convolution '%s'", call->name);
    TRY_OUT(separate_prepare(device, call, &j->separate));
    fused_layout(call, &j->fused);
    TRY_OUT(ones_create(device, call, j));
    if (cudnn_joins() && conv_joined_shape(call, &pattern, &shape)) TRY_OUT(plan_choose(device, j, call));
    call->workspace_bytes = workspace_bytes(j, j->plan) + 256; /* the plan aligns to 64 */
    if (j->plan) separate_free(device, &j->separate);
    call->state = j;
    j = NULL;
out:
    joined_free(device, j);
    return st;
}

static void joined_discard(Device *device, OpCall *call)
{
    joined_free(device, call->state);
    call->state = NULL;
}

static void joined_explain(Device *device, const OpCall *call, KernelChoice *choice)
{
    const Joined *j = call->state;
    bool timed = !device->config.deterministic;
    if (j->plan) {
        snprintf(choice->name, sizeof choice->name, "one kernel (%.70s)", cudnn_plan_text(j->plan));
        kernel_choice_pass(choice, "separate kernels",
                           timed ? "slower when timed on this GPU" : "used only if there is no single kernel");
    } else {
        KernelChoice conv = {.name = ""};
        device->backend->kernels[j->separate.conv.kind]->explain(device, &j->separate.conv, &conv);
        snprintf(choice->name, sizeof choice->name, "separate kernels (%.70s)", conv.name);
        kernel_choice_pass(choice, "one kernel",
                           timed ? "cuDNN has none for this task, or it is slower when timed on this GPU"
                                 : "cuDNN has none for this task");
    }
}

#define JOINED_KERNEL                                                                                                  \
    .prepare = joined_prepare, .launch = joined_launch, .discard = joined_discard, .explain = joined_explain
const OpKernel cuda_conv_statistics = {JOINED_KERNEL, .joins = conv_joins, .pads_in = 1};
const OpKernel cuda_conv_dx_sums = {JOINED_KERNEL, .joins = conv_joins};
const OpKernel cuda_conv_dw_apply = {JOINED_KERNEL, .joins = conv_joins};
