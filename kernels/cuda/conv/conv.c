/* CONV, CONV_DX, CONV_DW, DENSE, DENSE_DX, DENSE_DW over cuDNN, cuBLASLt and our own kernels for few channels.
 *
 * Each is a task (task.h) on packed operands of one dtype. An operand that is held otherwise (weights are f32 in the
 * parameter arena, slices have gaps, tensor cores need 8 channels, not 3) goes through workspace: converted before the
 * task, or, if it is the result, after. Channels of groups stay as they are. An image comes with its rows padded already
 * (OpCall.padded_in). cuDNN pads opposite sides alike: what one of them has more becomes zeros in a copy of x. dx + acc is
 * computed by the task, which adds to acc where dx lies. A dense layer is a convolution by one pixel over images of one
 * pixel with c * h * w channels. */
#include "kernels/cuda/conv/task.h"
#include "kernels/cuda/convert.h"

enum { X, W, Y, PARTS };

/* One operand: as the call holds it, and as the task wants it. */
typedef struct Part {
    Tensor as;     /* packed; data unused */
    bool converts; /* goes through workspace */
    bool placed;   /* x, with rows and columns of zeros around it: `top` and `left` before it, others behind */
    int32_t top, left;
    size_t offset; /* there */
} Part;

typedef struct ConvState {
    Task task;
    CudnnConv kind;
    Part part[PARTS];
    size_t bias_offset; /* of a task that ends with it: in workspace; 0 for channels that only the task has */
} ConvState;

/* The operands of a call, as views. */
typedef struct Operands {
    CudnnConv kind;
    Tensor held[PARTS], acc;
    const float *bias;
    Window window;
    bool dense, relu, has_bias, has_acc;
    bool folded;   /* the bias came out of a batch norm: an evaluation */
    bool x_padded; /* with zeros, up to its pitch */
} Operands;

static Tensor flattened(const Tensor *t)
{
    int32_t count = t->shape.c * t->shape.h * t->shape.w;
    return (Tensor){t->data, {t->shape.n, count, 1, 1}, t->dtype, count};
}

static void operands_set(Operands *o, const Tensor *x, const Tensor *w, const Tensor *y)
{
    o->held[X] = o->dense ? flattened(x) : *x;
    o->held[W] = o->dense ? flattened(w) : *w;
    o->held[Y] = *y;
}

static Operands operands_of(const OpCall *call)
{
    static const Window pixel = {.kh = 1, .kw = 1, .stride_h = 1, .stride_w = 1};
    const Tensor *in = call->in, *out = call->out;
    Operands o = {.dense = call->kind == OP_DENSE || call->kind == OP_DENSE_DX || call->kind == OP_DENSE_DW};
    bool third = call->in_count > 2 && in[2].data;
    o.window = o.dense ? pixel : call->attr.conv.window;
    switch (call->kind) {
    case OP_CONV_DX:
    case OP_DENSE_DX:
        o.kind = CUDNN_CONV_DATA;
        operands_set(&o, &out[0], &in[1], &in[0]);
        o.has_acc = third;
        if (third) o.acc = in[2];
        break;
    case OP_CONV_DW:
    case OP_DENSE_DW:
        o.kind = CUDNN_CONV_FILTER;
        o.x_padded = call->padded_in & 1;
        operands_set(&o, &in[0], &out[0], &in[1]);
        break;
    default:
        o.kind = CUDNN_CONV_FORWARD;
        operands_set(&o, &in[0], &in[1], &out[0]);
        o.x_padded = call->padded_in & 1;
        o.has_bias = third;
        o.folded = third && call->kept_in >> 2 & 1;
        if (third) o.bias = in[2].data;
        o.relu = o.dense ? call->attr.dense.relu : call->attr.conv.relu;
    }
    return o;
}

/* Conversions count the elements of padded operands with 32 bits. */
static Status conv_check(const OpCall *call, const TaskSpec *s)
{
    const Shape shapes[PARTS] = {[X] = s->x, [W] = s->w, [Y] = s->y};
    for (int k = 0; k < PARTS; k++)
        if (shape_count(shapes[k]) >= KERNEL_MAX_ELEMENTS)
            return FAIL(ERR_UNSUPPORTED, "'%s' (%s): %s has 2^31 elements or more; use a smaller batch", call->name,
                        op_name(call->kind), shape_text(shapes[k]));
    return OK;
}

/* ---- prepare */

/* Workspace: the task's own, then the operands that are converted. */
static void conv_layout(ConvState *state, OpCall *call, const Operands *o, const TaskSpec *s)
{
    Shape shapes[PARTS] = {[X] = s->x, [W] = s->w, [Y] = s->y};
    size_t end = align_up(state->task.workspace_bytes, 256);
    for (int k = 0; k < PARTS; k++) {
        Part *part = &state->part[k];
        const Tensor *held = &o->held[k];
        part->as = (Tensor){NULL, shapes[k], k == W ? state->task.w_dtype : s->dtype, shapes[k].c};
        bool same_rows = shape_equal(part->as.shape, held->shape) || (k == X && o->x_padded && !part->placed);
        part->converts = part->as.dtype != held->dtype || part->as.pitch != held->pitch || !same_rows;
        part->offset = end;
        if (part->converts) end += align_up((size_t)shape_count(shapes[k]) * dtype_bytes(part->as.dtype), 256);
    }
    state->bias_offset = end;
    if (state->task.ends) end += align_up((size_t)s->y.c * dtype_bytes(s->dtype), 256);
    call->workspace_bytes = end + 256; /* the plan aligns to 64 */
}

static Status conv_prepare(Device *device, OpCall *call)
{
    Status st = OK;
    Operands o = operands_of(call);
    ConvState *state = calloc(1, sizeof *state);
    if (!state) return FAIL(ERR_MEMORY, "no memory for the state of the convolution '%s'", call->name);
    Dtype dtype = o.held[X].dtype != DTYPE_F32 ? o.held[X].dtype : o.held[Y].dtype;
    TaskSpec spec = {.kind = o.kind,
                     .x = o.held[X].shape,
                     .w = o.held[W].shape,
                     .y = o.held[Y].shape,
                     .channels = o.held[X].shape.c,
                     .dtype = dtype,
                     .window = o.window,
                     .accumulate = o.has_acc,
                     .bias = o.folded,
                     .relu = o.folded && o.relu,
                     .dense = o.dense};
    Part *x = &state->part[X];
    x->placed = spec.window.more_h || spec.window.more_w;
    conv_fit(dtype, &spec.x, &spec.w, &spec.y, &spec.window, &x->top, &x->left);
    state->kind = o.kind;
    TRY_OUT(conv_check(call, &spec));
    TRY_OUT(task_choose(device, call->name, &spec, &state->task));
    conv_layout(state, call, &o, &spec);
    call->state = state;
    state = NULL;
out:
    free(state);
    return st;
}

/* ---- launch */

/* `held` as the task wants it. Rows of weights that the task has and the model has not are zeros. */
static Status part_load(const Part *part, void *memory, const Tensor *held, cudaStream_t stream)
{
    Tensor as = part->as;
    size_t row = (size_t)(shape_count(as.shape) / as.shape.n) * dtype_bytes(as.dtype);
    int32_t more = as.shape.n - held->shape.n;
    if (more > 0)
        TRY_CUDA(cudaMemsetAsync((char *)memory + (size_t)held->shape.n * row, 0, (size_t)more * row, stream));
    as.data = memory;
    as.shape.n = held->shape.n;
    TRY_CUDA(part->placed ? convert_placed(&as, held, part->top, part->left, stream)
                          : convert_pixels(&as, held, stream));
    return OK;
}

/* The opposite. */
static Status part_store(const Part *part, void *memory, const Tensor *held, cudaStream_t stream)
{
    Tensor as = part->as;
    as.data = memory;
    as.shape.n = held->shape.n;
    TRY_CUDA(part->placed ? convert_placed(held, &as, -part->top, -part->left, stream)
                          : convert_pixels(held, &as, stream));
    return OK;
}

/* Weights whose copy of this dtype is kept anyway; NULL: they must be cast. */
static void *weights_copied(const Device *device, const Part *part, const Tensor *held)
{
    if (!shape_equal(part->as.shape, held->shape)) return NULL;
    return weights_half(device, held->data, (size_t)shape_count(held->shape), part->as.dtype);
}

/* The bias as a plan takes it. */
static Status bias_load(const ConvState *state, const Operands *o, void *memory, cudaStream_t stream)
{
    const Tensor *y = &state->part[Y].as;
    size_t bytes = dtype_bytes(y->dtype);
    int32_t channels = o->held[Y].shape.c, more = y->shape.c - channels;
    if (more > 0) TRY_CUDA(cudaMemsetAsync((char *)memory + (size_t)channels * bytes, 0, (size_t)more * bytes, stream));
    TRY_CUDA(convert_flat(memory, y->dtype, o->bias, DTYPE_F32, channels, stream));
    return OK;
}

static Status conv_launch(Device *device, OpCall *call)
{
    static const int results[] = {[CUDNN_CONV_FORWARD] = Y, [CUDNN_CONV_DATA] = X, [CUDNN_CONV_FILTER] = W};
    const ConvState *state = call->state;
    cudaStream_t stream = cuda_stream(device, STREAM_COMPUTE);
    Operands o = operands_of(call);
    char *workspace = (char *)(((uintptr_t)call->workspace + 255) & ~(uintptr_t)255);
    int result = results[state->kind];
    void *memory[PARTS];
    for (int k = 0; k < PARTS; k++) {
        const Part *part = &state->part[k];
        memory[k] = part->converts ? workspace + part->offset : o.held[k].data;
        void *copy = part->converts && k == W && k != result ? weights_copied(device, part, &o.held[k]) : NULL;
        if (copy)
            memory[k] = copy;
        else if (part->converts && k != result)
            TRY(part_load(part, memory[k], &o.held[k], stream));
    }
    if (o.has_acc && memory[X] != o.acc.data) TRY(part_load(&state->part[X], memory[X], &o.acc, stream));
    void *bias = state->task.ends ? workspace + state->bias_offset : NULL;
    if (bias) TRY(bias_load(state, &o, bias, stream));
    TRY(task_run(device, &state->task, memory[X], memory[W], memory[Y], bias, workspace));
    if (state->part[result].converts) TRY(part_store(&state->part[result], memory[result], &o.held[result], stream));
    if (!bias && (o.has_bias || o.relu)) TRY_CUDA(convert_bias(&o.held[Y], o.bias, o.relu, stream));
    return OK;
}

static void conv_discard(Device *device, OpCall *call)
{
    ConvState *state = call->state;
    if (state) task_free(device, &state->task);
    free(state);
    call->state = NULL;
}

static void conv_explain(Device *device, const OpCall *call, KernelChoice *choice)
{
    const ConvState *state = call->state;
    task_plan_text(&state->task, choice->name, sizeof choice->name);
    kernel_choice_pass(choice, "other plans",
                       device->config.deterministic ? "results may differ between runs, or a later candidate"
                                                    : "slower when timed on this GPU");
}

#define CONV_KERNEL .prepare = conv_prepare, .launch = conv_launch, .discard = conv_discard, .explain = conv_explain
const OpKernel cuda_conv = {CONV_KERNEL, .pads_in = 1};
const OpKernel cuda_conv_dx = {CONV_KERNEL};
const OpKernel cuda_conv_dw = {CONV_KERNEL, .pads_in = 1};
const OpKernel cuda_dense = {CONV_KERNEL};
const OpKernel cuda_dense_dx = {CONV_KERNEL};
const OpKernel cuda_dense_dw = {CONV_KERNEL};
