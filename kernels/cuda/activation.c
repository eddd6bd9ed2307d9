/* ReLU, leaky ReLU, their gradients, the UNARY ops and dropout on the GPU; the kernels are in activation.cu. */
#include "kernels/cuda/operands.h"

static Status unary_prepare(Device *device, OpCall *call)
{
    (void)device;
    return check_same_dtype(call, 1);
}

static Status binary_prepare(Device *device, OpCall *call)
{
    (void)device;
    return check_same_dtype(call, 2);
}

LAUNCH_KERNEL(relu)
LAUNCH_KERNEL(relu_dx)
LAUNCH_KERNEL(leaky_relu)
LAUNCH_KERNEL(leaky_relu_dx)
LAUNCH_KERNEL(dropout)

const OpKernel cuda_relu = {.prepare = unary_prepare, .launch = relu_launch};

const OpKernel cuda_relu_dx = {.prepare = binary_prepare, .launch = relu_dx_launch};

const OpKernel cuda_leaky_relu = {.prepare = unary_prepare, .launch = leaky_relu_launch};

const OpKernel cuda_leaky_relu_dx = {.prepare = binary_prepare, .launch = leaky_relu_dx_launch};

#define UNARY(KIND, name, formula)                                                                                     \
    LAUNCH_KERNEL(name)                                                                                                \
    const OpKernel cuda_##name = {.prepare = unary_prepare, .launch = name##_launch};
#define UNARY_GRAD(KIND, name, formula, slope)                                                                         \
    UNARY(KIND, name, formula)                                                                                         \
    LAUNCH_KERNEL(name##_dx)                                                                                           \
    const OpKernel cuda_##name##_dx = {.prepare = binary_prepare, .launch = name##_dx_launch};
#include "kernels/ops.def"

static Status dropout_prepare(Device *device, OpCall *call)
{
    (void)device;
    if (!(call->attr.dropout.keep > 0.0f && call->attr.dropout.keep <= 1.0f))
        return FAIL(ERR_ARG, "dropout '%s': expected a probability to keep in (0, 1], found %g", call->name,
                    (double)call->attr.dropout.keep);
    return check_same_dtype(call, 1);
}

const OpKernel cuda_dropout = {.prepare = dropout_prepare, .launch = dropout_launch};
