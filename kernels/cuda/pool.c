/* Maximum and mean over windows on the GPU; the kernels are in pool.cu. */
#include "kernels/cuda/operands.h"

static Status max_pool_prepare(Device *device, OpCall *call)
{
    (void)device;
    TRY(operands_window(call, true));
    TRY(check_activation(call, &call->in[0]));
    return check_same_dtype(call, 1);
}

static Status max_pool_dx_prepare(Device *device, OpCall *call)
{
    (void)device;
    TRY(operands_window(call, true));
    TRY(check_same_dtype(call, 1));
    return operands_same_dtype(call, 2, 4);
}

static Status mean_prepare(Device *device, OpCall *call)
{
    (void)device;
    if (!call->attr.pool.adaptive) TRY(operands_window(call, false));
    TRY(check_activation(call, &call->in[0]));
    return check_same_dtype(call, 2);
}

LAUNCH_KERNEL(max_pool)
LAUNCH_KERNEL(max_pool_dx)
LAUNCH_KERNEL(avg_pool)
LAUNCH_KERNEL(avg_pool_dx)

const OpKernel cuda_max_pool = {.prepare = max_pool_prepare, .launch = max_pool_launch};

const OpKernel cuda_max_pool_dx = {.prepare = max_pool_dx_prepare, .launch = max_pool_dx_launch};

const OpKernel cuda_avg_pool = {.prepare = mean_prepare, .launch = avg_pool_launch};

const OpKernel cuda_avg_pool_dx = {.prepare = mean_prepare, .launch = avg_pool_dx_launch};
