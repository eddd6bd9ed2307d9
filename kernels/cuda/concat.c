/* Channels side by side on the GPU: concat, slice, and reshape; the copying kernel is in concat.cu. */
#include "kernels/cuda/operands.h"

/* Copy channels, unless they lie there already. */
static Status channels_copy(Device *device, const Tensor *from, int32_t from_channel, const Tensor *to,
                            int32_t to_channel, int32_t c)
{
    size_t size = dtype_bytes(to->dtype);
    const char *first = (const char *)from->data + (size_t)from_channel * size;
    if (first == (char *)to->data + (size_t)to_channel * size && from->pitch == to->pitch) return OK;
    TRY_CUDA(kernel_copy_channels(from, from_channel, to, to_channel, c, cuda_stream(device, STREAM_COMPUTE)));
    return OK;
}

static Status concat_launch(Device *device, OpCall *call)
{
    int32_t first = 0;
    for (int k = 0; k < call->in_count; k++) {
        if (!call->in[k].data) continue;
        TRY(channels_copy(device, &call->in[k], 0, &call->out[0], first, call->in[k].shape.c));
        first += call->in[k].shape.c;
    }
    return OK;
}

const OpKernel cuda_concat = {.prepare = cuda_check, .launch = concat_launch};

static Status slice_launch(Device *device, OpCall *call)
{
    return channels_copy(device, &call->in[0], call->attr.slice.first, &call->out[0], 0, call->out[0].shape.c);
}

const OpKernel cuda_slice = {.prepare = cuda_check, .launch = slice_launch};

static Status reshape_launch(Device *device, OpCall *call)
{
    Tensor from = call->in[0];
    if (from.data == call->out[0].data) return OK;
    from.shape = call->out[0].shape;
    from.pitch = call->out[0].pitch;
    return channels_copy(device, &from, 0, &call->out[0], 0, from.shape.c);
}

const OpKernel cuda_reshape = {.prepare = cuda_check, .launch = reshape_launch};
