/* CONV_STATISTICS: a convolution, then a pass over its result for the sums.
 *
 * oneDNN has no such epilogue, so nothing is gained here over the separate ops; it computes what the GPU's joined
 * kernels compute, for tests and for whoever asks. */
#include "kernels/cpu/columns.h"

#include <stdlib.h>

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

static void sums_run(const Device *device, Sums *sums, void *workspace, float *sum, float *square_sum)
{
    double *total = workspace;
    int64_t c = sums->columns.c;
    columns_run(device, &sums->columns, statistics_body, sums, (char *)workspace + totals_bytes(sums), total);
    floats_store(sum, total, c);
    floats_store(square_sum, total + c, c);
}

/* ---- the convolution inside: a call of its own, kept as state */

static Status inner_prepare(Device *device, OpCall *call, OpKind kind, const OpKernel *kernel)
{
    Status st = OK;
    OpCall *inner = malloc(sizeof *inner);
    if (!inner) return FAIL(ERR_MEMORY, "'%s': state of a convolution", call->name);
    *inner = *call;
    inner->kind = kind;
    inner->out_count = 1;
    TRY_OUT(kernel->prepare(device, inner));
    call->state = inner;
    call->workspace_bytes = inner->workspace_bytes;
    inner = NULL;
out:
    free(inner);
    return st;
}

static Status inner_launch(Device *device, OpCall *call, const OpKernel *kernel)
{
    OpCall *inner = call->state;
    memcpy(inner->in, call->in, sizeof inner->in);
    inner->out[0] = call->out[0];
    inner->workspace = call->workspace;
    return kernel->launch(device, inner);
}

static void inner_discard(Device *device, OpCall *call, const OpKernel *kernel)
{
    if (!call->state) return;
    kernel->discard(device, call->state);
    free(call->state);
    call->state = NULL;
}

/* ---- conv_statistics */

static Status conv_statistics_prepare(Device *device, OpCall *call)
{
    TRY(inner_prepare(device, call, OP_CONV, &cpu_conv));
    Sums sums = sums_of(&call->out[0]);
    size_t bytes = totals_bytes(&sums) + columns_bytes(&sums.columns);
    if (bytes > call->workspace_bytes) call->workspace_bytes = bytes;
    return OK;
}

static Status conv_statistics_launch(Device *device, OpCall *call)
{
    Sums sums = sums_of(&call->out[0]);
    TRY(inner_launch(device, call, &cpu_conv));
    sums_run(device, &sums, call->workspace, call->out[1].data, call->out[2].data);
    return OK;
}

static void conv_statistics_discard(Device *device, OpCall *call)
{
    inner_discard(device, call, &cpu_conv);
}

const OpKernel cpu_conv_statistics = {.prepare = conv_statistics_prepare,
                                      .launch = conv_statistics_launch,
                                      .discard = conv_statistics_discard,
                                      .strided_in = 1};
