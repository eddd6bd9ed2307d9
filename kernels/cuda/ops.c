/* Ops that are one or two kernels of this project, with what they need besides: counters and workspace. The kernels are in
 * the .cu files. Shapes and types have been checked by the shape rules (towers/graph/rules_*.c). */
#include "kernels/cuda/operands.h"

PLAIN(relu)
PLAIN(relu_dx)
PLAIN(leaky_relu)
PLAIN(leaky_relu_dx)
#define UNARY(KIND, name, formula) PLAIN(name)
#define UNARY_GRAD(KIND, name, formula, slope) PLAIN(name) PLAIN(name##_dx)
#include "kernels/ops.def"
PLAIN(layernorm)
PLAIN(dropout)
PLAIN(stochastic_depth)
PLAIN(add)
PLAIN(mul)
PLAIN(affine)
PLAIN(power)
PLAIN(random)
PLAIN(pad)
PLAIN(shuffle)
PLAIN(max_pool)
PLAIN(max_pool_dx)
PLAIN(avg_pool)
PLAIN(avg_pool_dx)
PLAIN(spread_to)
PLAIN(softmax_loss_dx)
PLAIN(sigmoid_loss_dx)

const OpKernel cuda_channel_spread = {.prepare = cuda_check, .launch = spread_to_launch};

/* Unlike the CPU's, rows of y may be padded with zeros, for the tensor cores of the first convolution. */
LAUNCH_KERNEL(image)

const OpKernel cuda_image = {.prepare = cuda_check, .launch = image_launch, .pads_out = 1};

/* ---- sums over samples or pixels, whose last block adds what the others have made */

static Status loss_prepare(Device *device, OpCall *call)
{
    TRY(cuda_check(device, call));
    call->workspace_bytes = kernel_loss_bytes(call->in[0].shape.n);
    return counters_create(device, call);
}

LAUNCH_KERNEL(softmax_loss)
LAUNCH_KERNEL(sigmoid_loss)

const OpKernel cuda_softmax_loss = {
    .prepare = loss_prepare, .launch = softmax_loss_launch, .discard = counters_destroy};
const OpKernel cuda_sigmoid_loss = {
    .prepare = loss_prepare, .launch = sigmoid_loss_launch, .discard = counters_destroy};

static Status channel_sum_prepare(Device *device, OpCall *call)
{
    TRY(cuda_check(device, call));
    call->workspace_bytes = kernel_channel_sum_bytes(call->in[0].shape);
    return column_counters_create(device, call, &call->in[0]);
}

LAUNCH_KERNEL(channel_sum)

const OpKernel cuda_channel_sum = {
    .prepare = channel_sum_prepare, .launch = channel_sum_launch, .discard = counters_destroy};

static Status layernorm_dx_prepare(Device *device, OpCall *call)
{
    TRY(cuda_check(device, call));
    call->workspace_bytes = kernel_layernorm_dx_bytes(call->in[1].shape);
    return column_counters_create(device, call, &call->in[1]);
}

LAUNCH_KERNEL(layernorm_dx)

const OpKernel cuda_layernorm_dx = {
    .prepare = layernorm_dx_prepare, .launch = layernorm_dx_launch, .discard = counters_destroy};

/* ---- max pools that normalize what they read */

PLAIN(max_pool_norm)

static Status max_pool_norm_dx_prepare(Device *device, OpCall *call)
{
    TRY(cuda_check(device, call));
    call->workspace_bytes = kernel_batchnorm_bytes(call->in[2].shape);
    return column_counters_create(device, call, &call->in[2]);
}

LAUNCH_KERNEL(max_pool_norm_dx)

const OpKernel cuda_max_pool_norm_dx = {
    .prepare = max_pool_norm_dx_prepare, .launch = max_pool_norm_dx_launch, .discard = counters_destroy};

/* ---- sums over some axes */

/* All of x on one pixel with its channels: a channel sum, which many blocks share. */
static bool sums_to_channels(const OpCall *call)
{
    Shape y = call->out[0].shape;
    return y.n == 1 && y.h == 1 && y.w == 1 && y.c == call->in[0].shape.c;
}

static Status sum_to_prepare(Device *device, OpCall *call)
{
    return sums_to_channels(call) ? channel_sum_prepare(device, call) : cuda_check(device, call);
}

LAUNCH_KERNEL(sum_to)

static Status sum_launch(Device *device, OpCall *call)
{
    return sums_to_channels(call) ? channel_sum_launch(device, call) : sum_to_launch(device, call);
}

const OpKernel cuda_sum_to = {.prepare = sum_to_prepare, .launch = sum_launch, .discard = counters_destroy};
