/* Replaces CUDA's header in the emulation: only the names that the sources of this project's kernels use. */
#pragma once

typedef enum cudaError { cudaSuccess = 0, cudaErrorUnknown = 999 } cudaError_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
