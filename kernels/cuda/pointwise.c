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

const OpKernel cuda_add = {
    .prepare = pointwise_prepare, .launch = add_launch, .strided_in = 0xFF, .strided_out = 1, .in_place = 0xFF};

const OpKernel cuda_mul = {
    .prepare = pointwise_prepare, .launch = mul_launch, .strided_in = 3, .strided_out = 1, .in_place = 3};

const OpKernel cuda_affine = {
    .prepare = pointwise_prepare, .launch = affine_launch, .strided_in = 1, .strided_out = 1, .in_place = 1};

const OpKernel cuda_power = {
    .prepare = pointwise_prepare, .launch = power_launch, .strided_in = 1, .strided_out = 1, .in_place = 1};
