/* A joined convolution computed by the ops that it joins, for cases in which cuDNN has no joined kernel or only a
 * slower one.
 *
 * CONV_STATISTICS: (normalize,) CONV, sums. CONV_DW_APPLY: normalize, CONV_DW. CONV_DX_SUMS: CONV_DX, the sums of
 * BATCHNORM_DX, the mask. Workspace: the normalized input, then what the inner calls need. */
#include "kernels/cuda/conv/conv_joined.h"

static const OpKernel *inner_kernel(OpKind kind)
{
    return kind == OP_CONV ? &cuda_conv : kind == OP_CONV_DX ? &cuda_conv_dx : &cuda_conv_dw;
}

static OpKind inner_kind(OpKind kind)
{
    return kind == OP_CONV_STATISTICS ? OP_CONV : kind == OP_CONV_DX_SUMS ? OP_CONV_DX : OP_CONV_DW;
}

static bool normalizes(const OpCall *call)
{
    return call->kind != OP_CONV_DX_SUMS && call->in_count > 2 && call->in[2].data;
}

static Tensor normalized(const OpCall *call, void *memory)
{
    const Tensor *x = &call->in[0];
    return (Tensor){memory, x->shape, x->dtype, x->shape.c};
}

static void conv_bind(Separate *s, const OpCall *call, char *workspace)
{
    memcpy(s->conv.in, call->in, 2 * sizeof s->conv.in[0]);
    s->conv.out[0] = call->out[0];
    s->conv.workspace = workspace + s->inner_offset;
    s->conv.padded_in = normalizes(call) ? 0 : call->padded_in;
    if (normalizes(call)) s->conv.in[0] = normalized(call, workspace);
}

/* dy, x, beta, mean, var, gamma of the batch norm, whose dy the convolution has written to dx; its own dx is
 * not made. */
static void norm_bind(Separate *s, const OpCall *call, char *workspace)
{
    s->norm.in[0] = call->out[0];
    for (int k = 2; k < 7; k++) s->norm.in[k - 1] = call->in[k];
    memcpy(s->norm.out, call->out, sizeof s->norm.out);
    s->norm.workspace = workspace + s->inner_offset;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

Status separate_prepare(Device *device, const OpCall *call, Separate *s)
{
    size_t sums = call->kind == OP_CONV_STATISTICS ? kernel_channel_sum_bytes(call->out[0].shape) : 0;
    Tensor a = normalized(call, NULL);
    s->conv = (OpCall){.kind = inner_kind(call->kind), .name = call->name, .in_count = 2, .out_count = 1};
    s->conv.attr.conv.window = call->attr.conv.window;
    if (normalizes(call)) s->inner_offset = align_up((size_t)shape_count(a.shape) * dtype_bytes(a.dtype), 256);
    conv_bind(s, call, (char *)(uintptr_t)256); /* prepare looks at which operands there are, no further */
    TRY(inner_kernel(s->conv.kind)->prepare(device, &s->conv));
    if (call->kind == OP_CONV_DX_SUMS) {
        s->norm = (OpCall){
            .kind = OP_BATCHNORM_DX, .name = call->name, .out_count = 3, .in_count = call->in_count > 6 ? 6 : 5};
        s->norm.attr.norm.epsilon = call->attr.conv.epsilon;
        s->norm.attr.norm.relu = true;
        norm_bind(s, call, NULL);
        TRY(cuda_batchnorm_dx.prepare(device, &s->norm));
    }
    if (call->kind == OP_CONV_STATISTICS) TRY(device->backend->alloc(device, KERNEL_COUNTERS_BYTES, &s->counters));
    s->workspace_bytes = s->inner_offset + larger(sums, larger(s->conv.workspace_bytes, s->norm.workspace_bytes)) + 256;
    return OK;
}

void separate_free(Device *device, Separate *s)
{
    if (s->conv.state) inner_kernel(s->conv.kind)->discard(device, &s->conv);
    if (s->norm.state) cuda_batchnorm_dx.discard(device, &s->norm);
    if (s->counters) device->backend->release(device, s->counters);
    *s = (Separate){0};
}

Status separate_run(Device *device, Separate *s, const OpCall *call, char *workspace)
{
    cudaStream_t stream = cuda_stream(device, STREAM_COMPUTE);
    conv_bind(s, call, workspace);
    if (normalizes(call)) TRY_CUDA(kernel_batchnorm_normalize(&call->in[0], &call->in[2], &s->conv.in[0], stream));
    TRY(inner_kernel(s->conv.kind)->launch(device, &s->conv));
    if (call->kind == OP_CONV_DX_SUMS) {
        norm_bind(s, call, workspace);
        s->norm.out[0].data = NULL;
        TRY(cuda_batchnorm_dx.launch(device, &s->norm));
        TRY_CUDA(kernel_batchnorm_mask(&s->norm, cuda_stream(device, STREAM_COMPUTE)));
        return OK;
    }
    if (call->kind == OP_CONV_STATISTICS)
        TRY_CUDA(kernel_channel_sums(&call->out[0], call->out[1].data, call->out[2].data, workspace + s->inner_offset,
                                     s->counters, stream));
    return OK;
}
