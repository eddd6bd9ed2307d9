/* Error messages of failed calls of CUDA libraries; see check.h. */
#include "kernels/cuda/libraries/check.h"

#include <cublasLt.h>
#include <cudnn.h>

/* A call that fails on the device leaves the process without a usable device: only a new process can go on. */
Status cuda_failed(cudaError_t error, const char *file, int line, const char *call)
{
    (void)cudaGetLastError(); /* a failure that can be recovered from must not be found again by a later check */
    bool memory = error == cudaErrorMemoryAllocation;
    return status_fail(memory ? ERR_MEMORY : ERR_DEVICE, file, line, "CUDA: %s (%s) in %s%s", cudaGetErrorString(error),
                       cudaGetErrorName(error), call, memory ? CUDA_MEMORY_REMEDY : "");
}

Status cudnn_failed(int status, const char *file, int line, const char *call)
{
    char words[512] = "";
    bool of_device = status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED,
         memory = of_device || status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    cudnnGetLastErrorString(words, sizeof words);
    return status_fail(memory ? ERR_MEMORY : ERR_DEVICE, file, line, "cuDNN: %s in %s%s%s%s",
                       cudnnGetErrorString((cudnnStatus_t)status), call, *words ? ": " : "", words,
                       of_device ? CUDA_MEMORY_REMEDY : "");
}

Status cublas_failed(int status, const char *file, int line, const char *call)
{
    bool memory = status == CUBLAS_STATUS_ALLOC_FAILED;
    return status_fail(memory ? ERR_MEMORY : ERR_DEVICE, file, line, "cuBLASLt: %s in %s%s",
                       cublasLtGetStatusString((cublasStatus_t)status), call, memory ? CUDA_MEMORY_REMEDY : "");
}

void cuda_freed(cudaError_t error)
{
    if (error != cudaSuccess) (void)cudaGetLastError();
}
