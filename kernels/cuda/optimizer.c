/* The update of the weights, the global square sum and the running averages on the GPU; the kernels are in
 * optimizer.cu. What changes from step to step (rate, scale, gate) is read from device memory by the kernels. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/kernels.h"

static Status update_check(const OptimizerUpdate *u)
{
    TRY(optimizer_check(u));
    for (int k = 0; k < u->segment_count; k++)
        if (u->segments[k].count >= (size_t)KERNEL_MAX_ELEMENTS)
            return FAIL(ERR_UNSUPPORTED, "optimizer: a segment of %zu elements; at most 2^31 - 1",
                        u->segments[k].count);
    return OK;
}

Status cuda_optimizer_apply(Device *device, const OptimizerUpdate *update)
{
    TRY(update_check(update));
    TRY_CUDA(kernel_optimizer(update, cuda_stream(device, STREAM_COMPUTE)));
    return OK;
}

Status cuda_square_sum(Device *device, const float *x, size_t count, double *sum_of_squares)
{
    TRY_CUDA(
        kernel_square_sum(x, count, cuda_device(device)->scratch, sum_of_squares, cuda_stream(device, STREAM_COMPUTE)));
    return OK;
}

Status cuda_average(Device *device, float *running, const float *batch, const float *correct, const float *decay,
                    size_t count, const float *commit)
{
    if (count >= (size_t)KERNEL_MAX_ELEMENTS)
        return FAIL(ERR_UNSUPPORTED, "averages of %zu elements; at most 2^31 - 1", count);
    TRY_CUDA(kernel_average(running, batch, correct, decay, count, commit, cuda_stream(device, STREAM_COMPUTE)));
    return OK;
}
