/* Sums, products and powers of whole tensors on the GPU; the kernels are in pointwise.cu. Operands may differ
 * in type. */
#include "kernels/cuda/operands.h"

static Status pointwise_prepare(Device *device, OpCall *call)
{
    (void)device;
    return check_activations(call, call->in_count);
}

LAUNCH_KERNEL(add)
LAUNCH_KERNEL(mul)
LAUNCH_KERNEL(affine)
LAUNCH_KERNEL(power)

const OpKernel cuda_add = {.prepare = pointwise_prepare, .launch = add_launch};

const OpKernel cuda_mul = {.prepare = pointwise_prepare, .launch = mul_launch};

const OpKernel cuda_affine = {.prepare = pointwise_prepare, .launch = affine_launch};

const OpKernel cuda_power = {.prepare = pointwise_prepare, .launch = power_launch};
