/* Pad and crop on the GPU; the kernel is in pad.cu. */
#include "kernels/cuda/operands.h"

static Status pad_prepare(Device *device, OpCall *call)
{
    (void)device;
    TRY(check_activation(call, &call->out[0]));
    return operands_pad(call);
}

LAUNCH_KERNEL(pad)

const OpKernel cuda_pad = {.prepare = pad_prepare, .launch = pad_launch};
