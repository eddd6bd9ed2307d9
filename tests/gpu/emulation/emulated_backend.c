/* The vtable of emulated_backend.h: malloc, memcpy, and the kernels. Memory has the exact size in bytes and a GPU's
 * alignment, so that the address sanitizer detects every access outside. */
#include "tests/gpu/emulation/emulated_backend.h"

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/kernels.h"

enum { ALIGNMENT = 256 };

Status cuda_failed(cudaError_t error, const char *file, int line, const char *call)
{
    return status_fail(ERR_DEVICE, file, line, "%s: error %d of the emulation", call, (int)error);
}

static Status emulated_open(const DeviceConfig *config, Device *device)
{
    device->backend = &emulated_backend;
    device->config = *config;
    CudaDevice *cuda = calloc(1, sizeof *cuda);
    if (!cuda) return FAIL(ERR_MEMORY, "emulated device");
    cuda->scratch = calloc(1, KERNEL_SQUARE_SUM_BYTES);
    device->impl = cuda;
    if (!cuda->scratch) return FAIL(ERR_MEMORY, "scratch of the emulated device");
    return OK;
}

static void emulated_close(Device *device)
{
    free(cuda_device(device)->scratch);
    free(device->impl);
    device->impl = NULL;
}

static Status emulated_alloc(Device *device, size_t bytes, void **made)
{
    (void)device;
    if (posix_memalign(made, ALIGNMENT, bytes ? bytes : 1) != 0) return FAIL(ERR_MEMORY, "%zu bytes", bytes);
    memset(*made, 0, bytes);
    return OK;
}

static void emulated_release(Device *device, void *memory)
{
    (void)device;
    free(memory);
}

static Status emulated_upload(Device *device, void *to, const void *host, size_t bytes)
{
    (void)device;
    memcpy(to, host, bytes);
    return OK;
}

static Status emulated_download(Device *device, void *host, const void *from, size_t bytes)
{
    (void)device;
    memcpy(host, from, bytes);
    return OK;
}

static Status emulated_fill(Device *device, void *to, float value, size_t count)
{
    (void)device;
    for (size_t i = 0; i < count; i++) ((float *)to)[i] = value;
    return OK;
}

static Status emulated_wait(Device *device, StreamKind waiter, StreamKind on)
{
    (void)device, (void)waiter, (void)on;
    return OK;
}

static Status emulated_finish(Device *device, StreamKind stream)
{
    (void)device, (void)stream;
    return OK;
}

static void emulated_describe(Device *device, char *text, size_t bytes)
{
    (void)device;
    snprintf(text, bytes, "emulated GPU");
}

static const OpKernel *const kernels[OP_COUNT] = {
    [OP_IMAGE] = &cuda_image,
    [OP_CHANNEL_SUM] = &cuda_channel_sum,
    [OP_CHANNEL_SPREAD] = &cuda_channel_spread,
    [OP_BATCHNORM] = &cuda_batchnorm,
    [OP_BATCHNORM_DX] = &cuda_batchnorm_dx,
    [OP_BATCHNORM_APPLY] = &cuda_batchnorm_apply,
    [OP_NORM_FOLD] = &cuda_norm_fold,
    [OP_LAYERNORM] = &cuda_layernorm,
    [OP_LAYERNORM_DX] = &cuda_layernorm_dx,
    [OP_RELU] = &cuda_relu,
    [OP_RELU_DX] = &cuda_relu_dx,
    [OP_LEAKY_RELU] = &cuda_leaky_relu,
    [OP_LEAKY_RELU_DX] = &cuda_leaky_relu_dx,
#define UNARY(KIND, name, formula) [OP_##KIND] = &cuda_##name,
#define UNARY_GRAD(KIND, name, formula, slope) UNARY(KIND, name, formula)[OP_##KIND##_DX] = &cuda_##name##_dx,
#include "kernels/ops.def"
    [OP_DROPOUT] = &cuda_dropout,
    [OP_STOCHASTIC_DEPTH] = &cuda_stochastic_depth,
    [OP_MAX_POOL] = &cuda_max_pool,
    [OP_MAX_POOL_DX] = &cuda_max_pool_dx,
    [OP_MAX_POOL_NORM] = &cuda_max_pool_norm,
    [OP_MAX_POOL_NORM_DX] = &cuda_max_pool_norm_dx,
    [OP_AVG_POOL] = &cuda_avg_pool,
    [OP_AVG_POOL_DX] = &cuda_avg_pool_dx,
    [OP_CONCAT] = &cuda_concat,
    [OP_SLICE] = &cuda_slice,
    [OP_RESHAPE] = &cuda_reshape,
    [OP_PAD] = &cuda_pad,
    [OP_SHUFFLE] = &cuda_shuffle,
    [OP_ADD] = &cuda_add,
    [OP_MUL] = &cuda_mul,
    [OP_AFFINE] = &cuda_affine,
    [OP_POWER] = &cuda_power,
    [OP_SUM_TO] = &cuda_sum_to,
    [OP_SPREAD_TO] = &cuda_spread_to,
    [OP_RANDOM] = &cuda_random,
    [OP_SOFTMAX_LOSS] = &cuda_softmax_loss,
    [OP_SOFTMAX_LOSS_DX] = &cuda_softmax_loss_dx,
    [OP_SIGMOID_LOSS] = &cuda_sigmoid_loss,
    [OP_SIGMOID_LOSS_DX] = &cuda_sigmoid_loss_dx,
};

bool emulated_has(OpKind kind)
{
    return kernels[kind] != NULL;
}

const Backend emulated_backend = {
    .name = "emulated",
    .open = emulated_open,
    .close = emulated_close,
    .alloc = emulated_alloc,
    .release = emulated_release,
    .upload = emulated_upload,
    .download = emulated_download,
    .fill = emulated_fill,
    .kernels = kernels,
    .storage = op_storage,
    .optimizer_apply = cuda_optimizer_apply,
    .square_sum = cuda_square_sum,
    .l2_term = cuda_l2_term,
    .hash = cuda_hash,
    .average = cuda_average,
    .gate_extras = cuda_gate_extras,
    .gate_decide = cuda_gate_decide,
    .wait = emulated_wait,
    .finish = emulated_finish,
    .describe = emulated_describe,
};
