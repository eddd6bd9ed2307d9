/* A hash of device memory: the launch; the kernel is in hash.cu. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/kernels.h"

Status cuda_hash(Device *device, const float *x, size_t count, uint64_t first, uint64_t *sum)
{
    TRY_CUDA(kernel_hash(x, count, first, sum, cuda_stream(device, STREAM_COMPUTE)));
    return OK;
}
