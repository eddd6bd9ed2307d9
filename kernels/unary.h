/* The functions of the UNARY rows of ops.def: y = unary_NAME(x), and for UNARY_GRAD rows the derivative unary_NAME_slope(x),
 * in f32. Also compiled as CUDA device code. */
#ifndef TOWERS_KERNELS_UNARY_H
#define TOWERS_KERNELS_UNARY_H

#include <math.h>

#ifdef __CUDACC__
#define UNARY_CALL __host__ __device__ static inline
#else
#define UNARY_CALL static inline
#endif

UNARY_CALL float unary_tanh(float x)
{
    return tanhf(x);
}

#endif
