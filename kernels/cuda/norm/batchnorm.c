/* Batch normalization with ReLU on the GPU; the kernels are in batchnorm.cu. The running averages are the backend's
 * `average`.
 *
 * With Device.allreduce the batch is that of all towers, by the formulas of kernels/cpu/norm/batchnorm.c. The sums lie in
 * workspace and are made in the order of the compute stream: the host does not wait, but such a launch cannot be part of
 * a captured graph. */
#include "kernels/cuda/operands.h"

static Status batchnorm_prepare(Device *device, OpCall *call)
{
    const Tensor *x = &call->in[call->kind == OP_BATCHNORM ? 0 : 1];
    TRY(cuda_check(device, call));
    call->workspace_bytes = kernel_batchnorm_bytes(x->shape);
    return column_counters_create(device, call, x);
}

static Status batchnorm_launch(Device *device, OpCall *call)
{
    if (device->allreduce) {
        cudaStream_t stream = cuda_stream(device, STREAM_COMPUTE);
        int c = call->in[0].shape.c;
        TRY_CUDA(kernel_batchnorm_sync_give(call, stream));
        TRY(device->allreduce(device->allreduce_context, kernel_batchnorm_sync_sums(call), 1 + c));
        TRY_CUDA(kernel_batchnorm_sync_mean(call, stream));
        TRY(device->allreduce(device->allreduce_context, kernel_batchnorm_sync_squares(call), c));
        TRY_CUDA(kernel_batchnorm_sync_apply(call, stream));
        return OK;
    }
    TRY_CUDA(kernel_batchnorm(call, cuda_stream(device, STREAM_COMPUTE)));
    return OK;
}

static Status batchnorm_dx_launch(Device *device, OpCall *call)
{
    if (device->allreduce) {
        cudaStream_t stream = cuda_stream(device, STREAM_COMPUTE);
        TRY_CUDA(kernel_batchnorm_dx_sync_give(call, stream));
        TRY(device->allreduce(device->allreduce_context, kernel_batchnorm_sync_sums(call),
                              1 + 2 * call->in[0].shape.c));
        TRY_CUDA(kernel_batchnorm_dx_sync_apply(call, stream));
        return OK;
    }
    TRY_CUDA(kernel_batchnorm_dx(call, cuda_stream(device, STREAM_COMPUTE)));
    return OK;
}

PLAIN(batchnorm_apply)
PLAIN(norm_fold)

const OpKernel cuda_batchnorm = {.prepare = batchnorm_prepare, .launch = batchnorm_launch, .discard = counters_destroy};
const OpKernel cuda_batchnorm_dx = {
    .prepare = batchnorm_prepare, .launch = batchnorm_dx_launch, .discard = counters_destroy};
