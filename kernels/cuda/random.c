/* Random values on the GPU, equal to those of the CPU up to rounding; the kernel is in random.cu. */
#include "kernels/cuda/operands.h"

static Status random_prepare(Device *device, OpCall *call)
{
    (void)device;
    return check_activation(call, &call->out[0]);
}

LAUNCH_KERNEL(random)

const OpKernel cuda_random = {.prepare = random_prepare, .launch = random_launch};
