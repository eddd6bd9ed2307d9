/* Stands in for CUDA's header where the host emulates it: just what the sources of our own kernels name. */
#ifndef TOWERS_TESTS_GPU_EMULATION_INCLUDE_CUDA_RUNTIME_API_H
#define TOWERS_TESTS_GPU_EMULATION_INCLUDE_CUDA_RUNTIME_API_H

typedef enum cudaError { cudaSuccess = 0, cudaErrorUnknown = 999 } cudaError_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;

#endif
