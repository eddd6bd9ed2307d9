/* The 16-bit copy of the weights: made by one flat cast, kept by the optimizer, found by address.
 *
 * A convolution that needs 16-bit weights looks them up here, and casts only those that are not here, such as the
 * averaged weights of an evaluation. */
#include "kernels/cuda/convert.h"
#include "kernels/cuda/cuda.h"

Status cuda_weights_copy(Device *device, const float *param, size_t count, void *half, Dtype dtype)
{
    CudaDevice *cuda = cuda_device(device);
    cuda->weights = (CudaWeights){0};
    if (!param) return OK;
    TRY_CUDA(convert_flat(half, dtype, param, DTYPE_F32, (int64_t)count, cuda_stream(device, STREAM_COMPUTE)));
    cuda->weights = (CudaWeights){.param = param, .half = half, .count = count, .dtype = dtype};
    return OK;
}

void *weights_half(const Device *device, const void *param, size_t count, Dtype dtype)
{
    const CudaWeights *kept = &cuda_device(device)->weights;
    uintptr_t at = (uintptr_t)param, start = (uintptr_t)kept->param;
    if (!kept->param || dtype != kept->dtype || at < start) return NULL;
    size_t first = (at - start) / sizeof(float);
    char *half = kept->half + first * dtype_bytes(dtype);
    bool inside = first < kept->count && count <= kept->count - first;
    return inside && (uintptr_t)half % 16 == 0 ? half : NULL;
}
