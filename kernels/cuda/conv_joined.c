/* CONV_STATISTICS by one cuDNN kernel, or by the ops it joins where that is faster or cuDNN has none.
 *
 * Plans of the joined graph (conv_graph.h) are timed against the separate kernels, once for each task and device; the
 * plan cache keeps the winner, "separate" if it is that. Operands go through workspace as in conv.c: f32 weights become
 * 16-bit, slices and images are packed and padded. */
#include "kernels/cuda/conv_joined.h"

#include "kernels/cuda/autotune.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/plan_cache.h"

#include <stdlib.h>
#include <string.h>

enum { CHANNEL_STEP = 8, CANDIDATES = 10 };
static const size_t WORKSPACE_MAX = (size_t)512 << 20;

/* ---- the graph of a call */

static int32_t channels_padded(int32_t c)
{
    return (c + CHANNEL_STEP - 1) / CHANNEL_STEP * CHANNEL_STEP;
}

bool conv_joined_shape(const OpCall *call, ConvPattern *pattern, ConvShape *shape)
{
    const Tensor *x = &call->in[0], *w = &call->in[1], *y = &call->out[0];
    *pattern = PATTERN_STATISTICS;
    *shape =
        (ConvShape){.x = x->shape, .w = w->shape, .y = y->shape, .window = call->attr.conv.window, .dtype = x->dtype};
    shape->x.c = shape->w.c = channels_padded(x->shape.c);
    return x->dtype == DTYPE_F16 && y->shape.c % CHANNEL_STEP == 0;
}

static CudnnRules rules_of(bool deterministic)
{
    return (CudnnRules){
        .deterministic = deterministic, .tf32 = true, .no_runtime_compile = true, .workspace_max = WORKSPACE_MAX};
}

bool conv_joined_exists(CudnnLibrary *library, const OpCall *call, bool deterministic)
{
    ConvPattern pattern;
    ConvShape shape;
    ConvTensors tensors;
    CudnnRules rules = rules_of(deterministic);
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

static void task_text(ConvPattern pattern, const ConvShape *s, char *text, size_t bytes)
{
    const Window *v = &s->window;
    snprintf(text, bytes, "%s %s x %s w %s stride %dx%d pad %dx%d pitch %lld", conv_pattern_name(pattern),
             dtype_name(s->dtype), shape_text(s->x), shape_text(s->w), v->stride_h, v->stride_w, v->pad_h, v->pad_w,
             (long long)s->z_pitch);
}

/* A task that was timed before is known to have a plan, or to be better off without. */
bool conv_joins(Device *device, const OpCall *call)
{
    char text[256];
    ConvPattern pattern;
    ConvShape shape;
    if (!conv_joined_shape(call, &pattern, &shape)) return false;
    task_text(pattern, &shape, text, sizeof text);
    const CudaDevice *cuda = cuda_device(device);
    if (!device->config.deterministic && plan_cache_find(cuda->plans, text)) return true;
    return conv_joined_exists(cuda->cudnn, call, device->config.deterministic);
}

/* ---- state */

typedef struct Joined {
    ConvShape shape;
    ConvTensors tensor;
    CudnnPlan *plan;                         /* owned; NULL: the separate ops */
    OpCall conv;                             /* the separate convolution; owns its state */
    void *counters;                          /* owned: of the separate sums */
    size_t x_offset, w_offset, spare_offset; /* workspace: operands for cuDNN, sums that nobody reads */
    size_t task_offset;                      /* what the plan or the separate ops want */
    bool x_converts;
} Joined;

/* While choosing. */
typedef struct Choice {
    Joined *joined;
    CudnnPlan *plan[CANDIDATES]; /* candidate number `count` is the separate ops */
    int count;
    OpCall call;                              /* bound to memory of its own */
    void *memory[OP_MAX_IN + OP_MAX_OUT + 1]; /* owned: that memory */
    int held;
} Choice;

static size_t rounded_up(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static size_t tensor_bytes(const Tensor *t)
{
    return (size_t)(shape_pixels(t->shape) * t->pitch) * dtype_bytes(t->dtype);
}

/* Of two vectors. */
static size_t spare_bytes(const Joined *j)
{
    return 2 * rounded_up((size_t)j->shape.y.c * sizeof(float));
}

static void joined_layout(Joined *j, const OpCall *call)
{
    const Tensor *x = &call->in[0];
    size_t half = dtype_bytes(j->shape.dtype);
    j->x_converts = !tensor_is_packed(x) || x->shape.c != j->shape.x.c;
    j->w_offset = j->x_converts ? rounded_up((size_t)shape_count(j->shape.x) * half) : 0;
    j->spare_offset = j->w_offset + rounded_up((size_t)shape_count(j->shape.w) * half);
    j->task_offset = j->spare_offset + spare_bytes(j);
}

static size_t task_bytes(const Joined *j, const CudnnPlan *plan)
{
    size_t sums = kernel_channel_sum_bytes(j->shape.y);
    if (plan) return cudnn_plan_workspace(plan);
    return sums > j->conv.workspace_bytes ? sums : j->conv.workspace_bytes;
}

static Status separate_prepare(Device *device, const OpCall *call, Joined *j)
{
    j->conv = *call;
    j->conv.kind = OP_CONV;
    j->conv.out_count = 1;
    TRY(cuda_conv.prepare(device, &j->conv));
    return device->backend->alloc(device, KERNEL_COUNTERS_BYTES, &j->counters);
}

static void separate_free(Device *device, Joined *j)
{
    if (j->conv.state) cuda_conv.discard(device, &j->conv);
    if (j->counters) device->backend->release(device, j->counters);
    j->conv.state = j->counters = NULL;
}

static void joined_free(Device *device, Joined *j)
{
    if (!j) return;
    cudnn_plan_destroy(j->plan);
    separate_free(device, j);
    free(j);
}

/* ---- launch */

static Status separate_run(Device *device, Joined *j, const OpCall *call, char *workspace)
{
    cudaStream_t stream = cuda_stream(device, LANE_COMPUTE);
    memcpy(j->conv.in, call->in, sizeof j->conv.in);
    j->conv.out[0] = call->out[0];
    j->conv.workspace = workspace + j->task_offset;
    TRY(cuda_conv.launch(device, &j->conv));
    TRY_CUDA(kernel_channel_sums(&call->out[0], call->out[1].data, call->out[2].data, workspace + j->task_offset,
                                 j->counters, stream));
    return OK;
}

static Status fused_run(Device *device, const Joined *j, CudnnPlan *plan, const OpCall *call, char *workspace)
{
    cudaStream_t stream = cuda_stream(device, LANE_COMPUTE);
    const ConvTensors *t = &j->tensor;
    Tensor x = {workspace + j->x_offset, j->shape.x, j->shape.dtype, j->shape.x.c};
    Tensor w = {workspace + j->w_offset, j->shape.w, j->shape.dtype, j->shape.w.c};
    void *spare = workspace + j->spare_offset, *more = workspace + j->spare_offset + spare_bytes(j) / 2;
    if (j->x_converts) TRY_CUDA(convert_pixels(&x, &call->in[0], stream));
    TRY_CUDA(convert_pixels(&w, &call->in[1], stream));
    int tensor[] = {t->x, t->w, t->y, t->sum, t->square_sum};
    void *memory[] = {j->x_converts ? x.data : call->in[0].data, w.data, call->out[0].data,
                      call->out[1].data ? call->out[1].data : spare, call->out[2].data ? call->out[2].data : more};
    return cudnn_plan_run(plan, tensor, memory, 5, workspace + j->task_offset);
}

static Status joined_run(Device *device, Joined *j, CudnnPlan *plan, const OpCall *call)
{
    char *workspace = (char *)(((uintptr_t)call->workspace + 255) & ~(uintptr_t)255);
    return plan ? fused_run(device, j, plan, call, workspace) : separate_run(device, j, call, workspace);
}

static Status joined_launch(Device *device, OpCall *call)
{
    Joined *j = call->state;
    return joined_run(device, j, j->plan, call);
}

/* ---- the choice */

static Status candidate_run(Device *device, void *context, int number)
{
    Choice *c = context;
    return joined_run(device, c->joined, number < c->count ? c->plan[number] : NULL, &c->call);
}

static Status operand_create(Device *device, Choice *c, size_t bytes, void **made)
{
    TRY(device->backend->alloc(device, bytes, &c->memory[c->held]));
    *made = c->memory[c->held++];
    return OK;
}

/* Memory for every operand of the call, and a workspace that suffices for every candidate. */
static Status operands_create(Device *device, Choice *c)
{
    OpCall *call = &c->call;
    size_t most = task_bytes(c->joined, NULL);
    for (int i = 0; i < c->count; i++)
        if (task_bytes(c->joined, c->plan[i]) > most) most = task_bytes(c->joined, c->plan[i]);
    TRY(operand_create(device, c, c->joined->task_offset + most + 256, &call->workspace));
    for (int k = 0; k < call->in_count; k++)
        if (call->in[k].data) TRY(operand_create(device, c, tensor_bytes(&call->in[k]), &call->in[k].data));
    for (int k = 0; k < call->out_count; k++)
        if (call->out[k].data) TRY(operand_create(device, c, tensor_bytes(&call->out[k]), &call->out[k].data));
    return OK;
}

/* Where there is no memory for timing, the heuristics' first guess is taken. */
static Status choose_by_time(Device *device, Choice *c, const char *task, int *best)
{
    double time = 0;
    *best = 0;
    Status st = operands_create(device, c);
    if (st == OK) st = autotune(device, candidate_run, c, c->count + 1, best, &time);
    if (st == OK) {
        const char *text = *best < c->count ? cudnn_plan_text(c->plan[*best]) : "separate";
        st = plan_cache_add(cuda_device(device)->plans, task, text, time);
    }
    for (int i = 0; i < c->held; i++) device->backend->release(device, c->memory[i]);
    return st == ERR_MEMORY ? OK : st;
}

/* True if the cache knew what to take. A plan that this library refuses is no failure: it is found anew. */
static bool choose_known(Device *device, Choice *c, CudnnGraph *graph, const char *task)
{
    const char *known = plan_cache_find(cuda_device(device)->plans, task);
    if (!known) return false;
    if (strcmp(known, "separate") == 0) return true;
    if (cudnn_plan_named(graph, known, &c->plan[0]) != OK) return false;
    c->count = 1;
    return true;
}

/* c->plan[*best], or the separate ops if that is c->count. */
static Status choose(Device *device, Choice *c, ConvPattern pattern, CudnnGraph *graph, int *best)
{
    char task[256];
    bool deterministic = device->config.deterministic;
    CudnnRules rules = rules_of(deterministic);
    *best = 0;
    task_text(pattern, &c->joined->shape, task, sizeof task);
    if (!deterministic && choose_known(device, c, graph, task)) return OK;
    Status st = cudnn_plans(graph, &rules, deterministic ? 1 : CANDIDATES, c->plan, &c->count);
    if (st == ERR_UNSUPPORTED || deterministic) return st == ERR_UNSUPPORTED ? OK : st;
    TRY(st);
    return choose_by_time(device, c, task, best);
}

static Status plan_choose(Device *device, Joined *j, const OpCall *call, ConvPattern pattern)
{
    Status st = OK;
    CudnnGraph *graph = NULL;
    Choice c = {.joined = j, .call = *call};
    int best = 0;
    TRY_OUT(conv_graph_create(cuda_device(device)->cudnn, pattern, &j->shape, &j->tensor, &graph));
    TRY_OUT(choose(device, &c, pattern, graph, &best));
    if (best < c.count) j->plan = c.plan[best];
out:
    for (int i = 0; i < c.count; i++)
        if (c.plan[i] != j->plan) cudnn_plan_destroy(c.plan[i]);
    cudnn_graph_destroy(graph);
    return st;
}

static Status joined_prepare(Device *device, OpCall *call)
{
    Status st = OK;
    ConvPattern pattern;
    Joined *j = calloc(1, sizeof *j);
    if (!j) return FAIL(ERR_MEMORY, "'%s': state of a convolution", call->name);
    TRY_OUT(separate_prepare(device, call, j));
    bool asks = conv_joined_shape(call, &pattern, &j->shape);
    joined_layout(j, call);
    if (asks) TRY_OUT(plan_choose(device, j, call, pattern));
    if (j->plan)
        separate_free(device, j);
    else
        j->task_offset = 0;
    call->workspace_bytes = j->task_offset + task_bytes(j, j->plan) + 256; /* the plan aligns to 64 */
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

const OpKernel cuda_conv_statistics = {
    .prepare = joined_prepare, .launch = joined_launch, .discard = joined_discard, .strided_in = 1};
