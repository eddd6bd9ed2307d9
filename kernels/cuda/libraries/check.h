/* Return codes of the CUDA libraries as Status.
 *
 * TRY_CUDA(call) returns from the function with an error message if the call failed; after a kernel launch,
 * TRY_CUDA(cudaGetLastError()). The _OUT forms are for functions that own things: a local `Status st`, a label `out:`.
 * A lack of memory is ERR_MEMORY, everything else ERR_DEVICE. */
#pragma once

#include "kernels/base/status.h"

#include <cuda_runtime_api.h>

#define CUDA_MEMORY_REMEDY ": use a smaller batch, fewer towers per device or 16-bit activations (--amp)"

NODISCARD Status cuda_failed(cudaError_t error, const char *file, int line, const char *call);
NODISCARD Status cudnn_failed(int status, const char *file, int line, const char *call);  /* a cudnnStatus_t */
NODISCARD Status cublas_failed(int status, const char *file, int line, const char *call); /* a cublasStatus_t */

/* The result of giving something back, which cannot be helped: forgotten, so that the check of a launch does not find it. */
void cuda_freed(cudaError_t error);

#define TRY_CUDA_CODE_(type, good, failed, call)                                                                       \
    do {                                                                                                               \
        type try_code_ = (call);                                                                                       \
        if (try_code_ != (good)) return failed(try_code_, __FILE__, __LINE__, #call);                                  \
    } while (0)
#define TRY_CUDA_CODE_OUT_(type, good, failed, call)                                                                   \
    do {                                                                                                               \
        type try_code_ = (call);                                                                                       \
        if (try_code_ != (good)) {                                                                                     \
            st = failed(try_code_, __FILE__, __LINE__, #call);                                                         \
            goto out;                                                                                                  \
        }                                                                                                              \
    } while (0)

#define TRY_CUDA(call) TRY_CUDA_CODE_(cudaError_t, cudaSuccess, cuda_failed, call)
#define TRY_CUDA_OUT(call) TRY_CUDA_CODE_OUT_(cudaError_t, cudaSuccess, cuda_failed, call)
/* Only where <cudnn_graph.h> or <cublasLt.h> is included. */
#define TRY_CUDNN(call) TRY_CUDA_CODE_(cudnnStatus_t, CUDNN_STATUS_SUCCESS, cudnn_failed, call)
#define TRY_CUDNN_OUT(call) TRY_CUDA_CODE_OUT_(cudnnStatus_t, CUDNN_STATUS_SUCCESS, cudnn_failed, call)
#define TRY_CUBLAS(call) TRY_CUDA_CODE_(cublasStatus_t, CUBLAS_STATUS_SUCCESS, cublas_failed, call)
#define TRY_CUBLAS_OUT(call) TRY_CUDA_CODE_OUT_(cublasStatus_t, CUBLAS_STATUS_SUCCESS, cublas_failed, call)
