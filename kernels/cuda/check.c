/* Error messages of failed calls of CUDA libraries; see check.h. */
#include "kernels/cuda/check.h"

#include <cublasLt.h>
#include <cudnn.h>

/* A call that fails on the device leaves the process without a usable device: only a new process can go on. */
Status cuda_failed(cudaError_t error, const char *file, int line, const char *call)
{
    (void)cudaGetLastError(); /* a failure that can be recovered from must not be found again by a later check */
    Status code = error == cudaErrorMemoryAllocation ? ERR_MEMORY : ERR_DEVICE;
    return status_fail(code, file, line, "CUDA: %s (%s) in %s", cudaGetErrorString(error), cudaGetErrorName(error),
                       call);
}

Status cudnn_failed(int status, const char *file, int line, const char *call)
{
    char words[512] = "";
    cudnnGetLastErrorString(words, sizeof words);
    return status_fail(ERR_DEVICE, file, line, "cuDNN: %s in %s%s%s", cudnnGetErrorString((cudnnStatus_t)status), call,
                       *words ? ": " : "", words);
}

Status cublas_failed(int status, const char *file, int line, const char *call)
{
    return status_fail(ERR_DEVICE, file, line, "cuBLASLt: %s in %s", cublasLtGetStatusString((cublasStatus_t)status),
                       call);
}

void cuda_freed(cudaError_t error)
{
    if (error != cudaSuccess) (void)cudaGetLastError();
}
