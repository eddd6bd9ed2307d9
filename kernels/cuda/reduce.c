/* Sums over axes, and their opposites, on the GPU; the kernels are in reduce.cu. */
#include "kernels/cuda/operands.h"

static Status channel_sum_prepare(Device *device, OpCall *call)
{
    TRY(check_activations(call, 1));
    call->workspace_bytes = kernel_channel_sum_bytes(call->in[0].shape);
    return column_counters_create(device, call, &call->in[0]);
}

LAUNCH_KERNEL(channel_sum)

const OpKernel cuda_channel_sum = {
    .prepare = channel_sum_prepare, .launch = channel_sum_launch, .discard = counters_destroy};

static Status fold_check(const OpCall *call, const Tensor *small, const Tensor *big)
{
    TRY(check_activations(call, 1));
    return operands_fold(call, small, big);
}

static Status spread_prepare(Device *device, OpCall *call)
{
    (void)device;
    return fold_check(call, &call->in[0], &call->out[0]);
}

LAUNCH_KERNEL(spread_to)

const OpKernel cuda_channel_spread = {.prepare = spread_prepare, .launch = spread_to_launch};
const OpKernel cuda_spread_to = {.prepare = spread_prepare, .launch = spread_to_launch};

/* All of x on one pixel with its channels: a channel sum, which many blocks share. */
static bool sums_to_channels(const OpCall *call)
{
    Shape y = call->out[0].shape;
    return y.n == 1 && y.h == 1 && y.w == 1 && y.c == call->in[0].shape.c;
}

static Status sum_to_prepare(Device *device, OpCall *call)
{
    TRY(fold_check(call, &call->out[0], &call->in[0]));
    return sums_to_channels(call) ? channel_sum_prepare(device, call) : OK;
}

LAUNCH_KERNEL(sum_to)

static Status sum_launch(Device *device, OpCall *call)
{
    return sums_to_channels(call) ? channel_sum_launch(device, call) : sum_to_launch(device, call);
}

const OpKernel cuda_sum_to = {.prepare = sum_to_prepare, .launch = sum_launch, .discard = counters_destroy};
