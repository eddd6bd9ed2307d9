/* Sigmoid cross-entropy and its gradient on the GPU; the kernels are in sigmoid_loss.cu. */
#include "kernels/cuda/operands.h"

static Status sigmoid_loss_prepare(Device *device, OpCall *call)
{
    TRY(check_activation(call, &call->in[0]));
    TRY(operands_logits(call));
    call->workspace_bytes = kernel_loss_bytes(call->in[0].shape.n);
    return counters_create(device, call);
}

LAUNCH_KERNEL(sigmoid_loss)

const OpKernel cuda_sigmoid_loss = {
    .prepare = sigmoid_loss_prepare, .launch = sigmoid_loss_launch, .discard = counters_destroy};

static Status sigmoid_loss_dx_prepare(Device *device, OpCall *call)
{
    (void)device;
    if (call->in[0].dtype != DTYPE_F32 || call->in[2].dtype != DTYPE_F32)
        return FAIL(ERR_UNSUPPORTED, "sigmoid_loss_dx '%s': prob and dloss must be f32", call->name);
    return check_activation(call, &call->out[0]);
}

LAUNCH_KERNEL(sigmoid_loss_dx)

const OpKernel cuda_sigmoid_loss_dx = {.prepare = sigmoid_loss_dx_prepare, .launch = sigmoid_loss_dx_launch};
