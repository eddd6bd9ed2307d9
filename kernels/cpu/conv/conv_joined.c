/* CONV_STATISTICS, CONV_DW_APPLY, CONV_DX_SUMS, composed of the ops that they join.
 *
 * oneDNN has no such kernels, so they are no faster than the separate ops, and passes do not join ops on a CPU
 * (Backend.joins). They compute the same as a GPU's kernels, so that graphs of joined ops can be tested without one. */
#include "kernels/cpu/columns.h"
#include "kernels/cpu/span.h"

/* The inner calls. The workspace holds the normalized input, then their own workspaces. */
typedef struct ConvJoined {
    OpCall conv, norm; /* norm: of CONV_DX_SUMS; keeps no state */
    size_t inner_offset;
} ConvJoined;

static const OpKernel *inner_kernel(OpKind kind)
{
    static const OpKernel *const kernels[OP_COUNT] = {
        [OP_CONV_STATISTICS] = &cpu_conv, [OP_CONV_DX_SUMS] = &cpu_conv_dx, [OP_CONV_DW_APPLY] = &cpu_conv_dw};
    return kernels[kind];
}

static size_t larger_bytes(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* ---- relu(a x + b) */

static bool normalizes(const OpCall *call)
{
    return call->kind != OP_CONV_DX_SUMS && call->in_count > 2 && call->in[2].data;
}

static Tensor normalized(const OpCall *call, void *memory)
{
    const Tensor *x = &call->in[0];
    return (Tensor){memory, x->shape, x->dtype, x->shape.c};
}

/* ---- sums of a tensor and of its squares */

typedef struct Sums {
    Columns columns;
    const Tensor *x;
} Sums;

VECTOR_INLINE void sum_rows(Dtype dtype, const void *x, int64_t stride, int64_t rows, int64_t width, float *sum,
                            float *square)
{
    for (int64_t row = 0; row < rows; row++) {
        VECTOR_LOOP
        for (int64_t i = 0; i < width; i++) {
            float a = load(dtype, x, row * stride + i);
            sum[i] += a;
            square[i] += a * a;
        }
    }
}

CPU_CLONES static void statistics_rows(Dtype dtype, const void *x, int64_t stride, int64_t rows, int64_t width,
                                       float *sum, float *square)
{
    BY_DTYPE(dtype, sum_rows, x, stride, rows, width, sum, square);
}

static void statistics_body(void *context, int64_t pixel, int64_t rows, int64_t width, float *sum, float *square)
{
    const Sums *sums = context;
    const Tensor *x = sums->x;
    int64_t stride = x->pitch * (width / sums->columns.c);
    statistics_rows(x->dtype, element_at(x, pixel * x->pitch), stride, rows, width, sum, square);
}

static Sums sums_of(const Tensor *x)
{
    Sums sums = {.x = x};
    columns_init(&sums.columns, shape_pixels(x->shape), x->shape.c, tensor_is_packed(x));
    return sums;
}

static size_t totals_bytes(const Sums *sums)
{
    return (size_t)sums->columns.c * 2 * sizeof(double);
}

static void floats_store(float *to, const double *from, int64_t count)
{
    for (int64_t i = 0; to && i < count; i++) to[i] = (float)from[i];
}

/* ---- inner calls */

static void conv_bind(ConvJoined *j, const OpCall *call)
{
    memcpy(j->conv.in, call->in, sizeof j->conv.in);
    j->conv.out[0] = call->out[0];
    j->conv.workspace = (char *)call->workspace + j->inner_offset;
    if (normalizes(call)) j->conv.in[0] = normalized(call, call->workspace);
}

/* dy, x, beta, mean, var, gamma of the batch norm, whose dy the convolution has written to dx. */
static void norm_bind(ConvJoined *j, const OpCall *call)
{
    j->norm.in[0] = call->out[0];
    for (int k = 2; k < 7; k++) j->norm.in[k - 1] = call->in[k];
    memcpy(j->norm.out, call->out, sizeof j->norm.out);
    j->norm.workspace = (char *)call->workspace + j->inner_offset;
}

/* ---- the ops */

static size_t sums_bytes(const OpCall *call)
{
    if (call->kind != OP_CONV_STATISTICS) return 0;
    Sums sums = sums_of(&call->out[0]);
    return totals_bytes(&sums) + columns_bytes(&sums.columns);
}

static Status joined_prepare(Device *device, OpCall *call)
{
    Status st = OK;
    ConvJoined *j = calloc(1, sizeof *j);
    if (!j) return FAIL(ERR_MEMORY, "no memory for the state of the convolution '%s'", call->name);
    static const OpKind kinds[OP_COUNT] = {
        [OP_CONV_STATISTICS] = OP_CONV, [OP_CONV_DX_SUMS] = OP_CONV_DX, [OP_CONV_DW_APPLY] = OP_CONV_DW};
    j->conv = (OpCall){.kind = kinds[call->kind], .attr = call->attr, .name = call->name};
    j->conv.in_count = 2;
    j->conv.out_count = 1;
    conv_bind(j, call);
    TRY_OUT(inner_kernel(call->kind)->prepare(device, &j->conv));
    if (call->kind == OP_CONV_DX_SUMS) {
        j->norm = (OpCall){.kind = OP_BATCHNORM_DX, .name = call->name, .out_count = 3};
        j->norm.attr.norm.epsilon = call->attr.conv.epsilon;
        j->norm.attr.norm.relu = true;
        j->norm.in_count = call->in_count > 6 ? 6 : 5;
        norm_bind(j, call);
        TRY_OUT(cpu_batchnorm_dx.prepare(device, &j->norm));
    }
    size_t bytes = (size_t)shape_count(call->in[0].shape) * dtype_bytes(call->in[0].dtype);
    j->inner_offset = normalizes(call) ? align_up(bytes, 64) : 0;
    size_t inner = larger_bytes(j->conv.workspace_bytes, larger_bytes(j->norm.workspace_bytes, sums_bytes(call)));
    call->workspace_bytes = j->inner_offset + inner;
    call->state = j;
    j = NULL;
out:
    if (j && j->conv.state) inner_kernel(call->kind)->discard(device, &j->conv);
    free(j);
    return st;
}

static void joined_discard(Device *device, OpCall *call)
{
    ConvJoined *j = call->state;
    if (!j) return;
    inner_kernel(call->kind)->discard(device, &j->conv);
    free(j);
    call->state = NULL;
}

static Status conv_run(Device *device, ConvJoined *j, OpCall *call)
{
    conv_bind(j, call);
    if (normalizes(call)) {
        const Tensor *x = &call->in[0], *rows = &call->in[2];
        int64_t c = x->shape.c;
        for (int64_t p = 0; p < shape_pixels(x->shape); p++)
            for (int64_t i = 0; i < c; i++) {
                float a = load(x->dtype, rows->data, i), b = load(x->dtype, rows->data, c + i);
                float y = a * load(x->dtype, x->data, p * x->pitch + i) + b;
                store(x->dtype, j->conv.in[0].data, p * c + i, 0 > y ? 0 : y);
            }
    }
    return inner_kernel(call->kind)->launch(device, &j->conv);
}

static Status conv_statistics_launch(Device *device, OpCall *call)
{
    ConvJoined *j = call->state;
    Sums sums = sums_of(&call->out[0]);
    TRY(conv_run(device, j, call));
    double *total = j->conv.workspace;
    int64_t c = sums.columns.c;
    columns_run(device, &sums.columns, statistics_body, &sums, (char *)j->conv.workspace + totals_bytes(&sums), total);
    floats_store(call->out[1].data, total, c);
    floats_store(call->out[2].data, total + c, c);
    return OK;
}

static Status conv_dw_apply_launch(Device *device, OpCall *call)
{
    return conv_run(device, call->state, call);
}

static void joined_explain(Device *device, const OpCall *call, KernelChoice *choice)
{
    inner_kernel(call->kind)->explain(device, &((const ConvJoined *)call->state)->conv, choice);
}

static Status conv_dx_sums_launch(Device *device, OpCall *call)
{
    ConvJoined *j = call->state;
    TRY(conv_run(device, j, call));
    norm_bind(j, call);
    return cpu_batchnorm_mask(device, &j->norm);
}

const OpKernel cpu_conv_statistics = {
    .prepare = joined_prepare, .launch = conv_statistics_launch, .discard = joined_discard, .explain = joined_explain};
const OpKernel cpu_conv_dx_sums = {
    .prepare = joined_prepare, .launch = conv_dx_sums_launch, .discard = joined_discard, .explain = joined_explain};
const OpKernel cpu_conv_dw_apply = {
    .prepare = joined_prepare, .launch = conv_dw_apply_launch, .discard = joined_discard, .explain = joined_explain};
