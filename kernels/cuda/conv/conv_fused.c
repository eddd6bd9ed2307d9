/* A joined convolution as one cuDNN graph: the choice of the graph, and its operands.
 *
 * As in conv.c, the weights are the optimizer's 16-bit copy or a copy in workspace, and images are padded. cuDNN makes plans for
 * slices, but its joined kernels read and write them as if they were packed (9.19.0 on an H200), so the input that is normalized and
 * the result of the gradient must be packed, and all other operands are packed first. */
#include "kernels/cuda/conv/conv_joined.h"
#include "kernels/cuda/convert.h"

enum { CHANNEL_STEP = 8, VECTORS = 6 };

/* x, w and y of a call, whichever of them it computes; z: the normalized input. */
typedef struct FusedOperands {
    const Tensor *x, *w, *y, *z;
} FusedOperands;

static FusedOperands operands_of(const OpCall *call)
{
    const Tensor *in = call->in, *out = call->out;
    bool applies = call->in_count > 2 && in[2].data;
    if (call->kind == OP_CONV_DX_SUMS) return (FusedOperands){&out[0], &in[1], &in[0], &in[2]};
    if (call->kind == OP_CONV_DW_APPLY) return (FusedOperands){&in[0], &out[0], &in[1], &in[0]};
    return (FusedOperands){&in[0], &in[1], &out[0], applies ? &in[0] : NULL};
}

static ConvPattern pattern_of(const OpCall *call)
{
    if (call->kind == OP_CONV_DX_SUMS) return PATTERN_DATA_SUMS;
    if (call->kind == OP_CONV_DW_APPLY) return PATTERN_APPLY_FILTER;
    return call->in_count > 2 && call->in[2].data ? PATTERN_APPLY_STATISTICS : PATTERN_STATISTICS;
}

bool conv_joined_shape(const OpCall *call, ConvPattern *pattern, ConvShape *shape)
{
    FusedOperands o = operands_of(call);
    *pattern = pattern_of(call);
    *shape = (ConvShape){
        .x = o.x->shape, .w = o.w->shape, .y = o.y->shape, .window = call->attr.conv.window, .dtype = o.y->dtype};
    bool packed = (!o.z || tensor_is_packed(o.z)) && (*pattern != PATTERN_DATA_SUMS || tensor_is_packed(o.x));
    if (!o.z) shape->x.c = shape->w.c = (o.x->shape.c + CHANNEL_STEP - 1) / CHANNEL_STEP * CHANNEL_STEP;
    return packed && shape->dtype == DTYPE_F16 && o.x->dtype == DTYPE_F16 && shape->x.c % CHANNEL_STEP == 0 &&
           shape->y.c % CHANNEL_STEP == 0;
}

/* ---- workspace */

static size_t vector_bytes(const Fused *f)
{
    int32_t widest = f->shape.x.c > f->shape.y.c ? f->shape.x.c : f->shape.y.c;
    return align_up((size_t)widest * sizeof(float), 256);
}

static size_t half_bytes(const Fused *f, Shape shape)
{
    return align_up((size_t)shape_count(shape) * dtype_bytes(f->shape.dtype), 256);
}

void fused_layout(const OpCall *call, Fused *f)
{
    (void)!conv_joined_shape(call, &f->pattern, &f->shape);
    FusedOperands o = operands_of(call);
    bool as_it_is = o.z || f->pattern == PATTERN_DATA_SUMS;
    bool whole_rows = o.x->shape.c == f->shape.x.c || (call->padded_in & 1);
    f->x_converts = !as_it_is && (o.x->pitch != f->shape.x.c || !whole_rows);
    f->y_converts = !tensor_is_packed(o.y);
    f->x_offset = 0;
    f->y_offset = f->x_offset + (f->x_converts ? half_bytes(f, f->shape.x) : 0);
    f->w_offset = f->y_offset + (f->y_converts ? half_bytes(f, f->shape.y) : 0);
    f->vector_offset = f->w_offset + half_bytes(f, f->shape.w);
    f->task_offset = f->vector_offset + VECTORS * vector_bytes(f);
}

/* ---- launch */

typedef struct Binding {
    int tensor[CUDNN_TENSORS];
    void *memory[CUDNN_TENSORS];
    int count;
} Binding;

static void bind(Binding *b, int tensor, const void *memory)
{
    b->tensor[b->count] = tensor;
    b->memory[b->count++] = (void *)memory;
}

static void *vector_at(const Fused *f, char *workspace, int number)
{
    return workspace + f->vector_offset + (size_t)number * vector_bytes(f);
}

/* Outputs without readers go into the workspace. */
static void bind_sums(Binding *b, const Fused *f, const OpCall *call, int first, int second, char *workspace)
{
    bind(b, first, call->out[1].data ? call->out[1].data : vector_at(f, workspace, 0));
    bind(b, second, call->out[2].data ? call->out[2].data : vector_at(f, workspace, 1));
}

/* The vectors of the batch norm whose gradient is summed; three more that cuDNN writes and nobody reads. */
static Status bind_norm(Binding *b, const Fused *f, const OpCall *call, char *workspace, cudaStream_t stream)
{
    const ConvTensors *t = &f->tensor;
    const Tensor *z = &call->in[2], *gamma = &call->in[6], *rstd = &call->in[7];
    void *inverse = rstd->data ? rstd->data : vector_at(f, workspace, 2);
    if (!rstd->data)
        TRY_CUDA(kernel_batchnorm_rstd(call->in[5].data, call->attr.conv.epsilon, inverse, z->shape.c, stream));
    bind(b, t->z, z->data);
    bind(b, t->beta, call->in[3].data);
    bind(b, t->mean, call->in[4].data);
    bind(b, t->inverse_deviation, inverse);
    bind(b, t->gamma, gamma->data ? gamma->data : f->ones);
    bind(b, t->dy_factor, vector_at(f, workspace, 3));
    bind(b, t->x_factor, vector_at(f, workspace, 4));
    bind(b, t->constant, vector_at(f, workspace, 5));
    bind_sums(b, f, call, t->dbeta, t->dgamma, workspace);
    return OK;
}

static Status bind_all(Binding *b, const Fused *f, const OpCall *call, const void *x, const void *w, const void *y,
                       char *workspace, cudaStream_t stream)
{
    bind(b, f->tensor.x, x);
    bind(b, f->tensor.w, w);
    bind(b, f->tensor.y, y);
    if (f->pattern == PATTERN_DATA_SUMS) return bind_norm(b, f, call, workspace, stream);
    if (f->pattern != PATTERN_STATISTICS) {
        bind(b, f->tensor.scale, call->in[2].data);
        bind(b, f->tensor.shift,
             (char *)call->in[2].data + (size_t)call->in[2].shape.c * dtype_bytes(call->in[2].dtype));
    }
    if (f->pattern != PATTERN_APPLY_FILTER) bind_sums(b, f, call, f->tensor.sum, f->tensor.square_sum, workspace);
    return OK;
}

Status fused_run(Device *device, const Fused *f, CudnnPlan *plan, const OpCall *call, char *workspace)
{
    cudaStream_t stream = cuda_stream(device, STREAM_COMPUTE);
    FusedOperands o = operands_of(call);
    const ConvShape *s = &f->shape;
    bool makes_w = f->pattern == PATTERN_APPLY_FILTER;
    Tensor x = {workspace + f->x_offset, s->x, s->dtype, s->x.c}, y = {workspace + f->y_offset, s->y, s->dtype, s->y.c};
    Tensor w = {workspace + f->w_offset, s->w, s->dtype, s->w.c};
    Binding b = {.count = 0};
    if (f->x_converts) TRY_CUDA(convert_pixels(&x, o.x, stream));
    if (f->y_converts) TRY_CUDA(convert_pixels(&y, o.y, stream));
    bool same_w = shape_equal(s->w, o.w->shape);
    void *kept = same_w && !makes_w ? weights_half(device, o.w->data, (size_t)shape_count(s->w), s->dtype) : NULL;
    if (kept)
        w.data = kept;
    else if (!makes_w)
        TRY_CUDA(convert_pixels(&w, o.w, stream));
    TRY(bind_all(&b, f, call, f->x_converts ? x.data : o.x->data, w.data, f->y_converts ? y.data : o.y->data, workspace,
                 stream));
    TRY(cudnn_plan_run(plan, b.tensor, b.memory, b.count, workspace + f->task_offset));
    if (makes_w) TRY_CUDA(convert_pixels(o.w, &w, stream));
    return OK;
}
