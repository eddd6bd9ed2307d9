/* Maximum and mean over windows on the GPU; the kernels are in pool.cu. */
#include "kernels/cuda/operands.h"

/* Windows must touch the image, and their places fit into a byte. */
static Status window_check(const OpCall *call, bool places)
{
    const Window *w = &call->attr.pool.window;
    if (w->kh < 1 || w->kw < 1 || w->stride_h < 1 || w->stride_w < 1 || w->pad_h < 0 || w->pad_w < 0 ||
        w->pad_h >= w->kh || w->pad_w >= w->kw)
        return FAIL(ERR_SHAPE, "%s '%s': window %dx%d stride %dx%d padding %dx%d; padding must be less than the window",
                    op_name(call->kind), call->name, w->kh, w->kw, w->stride_h, w->stride_w, w->pad_h, w->pad_w);
    if (places && (int64_t)w->kh * w->kw > 256)
        return FAIL(ERR_UNSUPPORTED, "%s '%s': window %dx%d has more than 256 places", op_name(call->kind), call->name,
                    w->kh, w->kw);
    return OK;
}

static Status max_pool_prepare(Device *device, OpCall *call)
{
    (void)device;
    TRY(window_check(call, true));
    TRY(check_activation(call, &call->in[0]));
    return check_same_dtype(call, 1);
}

static Status max_pool_dx_prepare(Device *device, OpCall *call)
{
    (void)device;
    TRY(window_check(call, true));
    TRY(check_same_dtype(call, 1));
    for (int k = 2; k < 4; k++)
        if (call->in[k].data && call->in[k].dtype != call->out[0].dtype)
            return FAIL(ERR_UNSUPPORTED, "max_pool_dx '%s': input %d is %s, the output %s; they must be equal",
                        call->name, k, dtype_name(call->in[k].dtype), dtype_name(call->out[0].dtype));
    return OK;
}

static Status mean_prepare(Device *device, OpCall *call)
{
    (void)device;
    if (!call->attr.pool.adaptive) TRY(window_check(call, false));
    TRY(check_activation(call, &call->in[0]));
    return check_same_dtype(call, 2);
}

LAUNCH_KERNEL(max_pool)
LAUNCH_KERNEL(max_pool_dx)
LAUNCH_KERNEL(avg_pool)
LAUNCH_KERNEL(avg_pool_dx)

const OpKernel cuda_max_pool = {
    .prepare = max_pool_prepare, .launch = max_pool_launch, .strided_in = 1, .strided_out = 3};

const OpKernel cuda_max_pool_dx = {.prepare = max_pool_dx_prepare,
                                   .launch = max_pool_dx_launch,
                                   .strided_in = 15,
                                   .strided_out = 1,
                                   .in_place = 1u << 2};

const OpKernel cuda_avg_pool = {.prepare = mean_prepare, .launch = avg_pool_launch, .strided_in = 1, .strided_out = 1};

const OpKernel cuda_avg_pool_dx = {
    .prepare = mean_prepare, .launch = avg_pool_dx_launch, .strided_in = 3, .strided_out = 1, .in_place = 1u << 1};
