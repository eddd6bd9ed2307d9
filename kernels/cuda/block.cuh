/* What the threads of a block do together, always in the same order: one sum or one largest number, and to find out whether
 * their block is the last of several to finish. */
#pragma once

#include "kernels/cuda/device.cuh"

enum { WARPS = BLOCK / WARP };

/* The sum over the block, for all its threads. `space` has WARPS elements, which may be those of an earlier sum. */
DEVICE double block_sum(double value, double *space)
{
    for (int k = WARP / 2; k > 0; k /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, k);
    __syncthreads();
    if (threadIdx.x % WARP == 0) space[threadIdx.x / WARP] = value;
    __syncthreads();
    value = 0;
    for (uint32_t k = 0; k < blockDim.x / WARP; k++) value += space[k];
    return value;
}

/* NaN wins. */
DEVICE float larger_of(float a, float b)
{
    return b > a || b != b ? b : a;
}

/* The largest number of the block, for all its threads. `space` has WARPS elements and is used once. */
DEVICE float block_largest(float value, float *space)
{
    for (int k = WARP / 2; k > 0; k /= 2) value = larger_of(value, __shfl_xor_sync(0xFFFFFFFFu, value, k));
    if (threadIdx.x % WARP == 0) space[threadIdx.x / WARP] = value;
    __syncthreads();
    value = space[0];
    for (uint32_t k = 1; k < blockDim.x / WARP; k++) value = larger_of(value, space[k]);
    return value;
}

/* True in all threads of the last of `blocks` that come here, which sees what all threads of the others have written, past
 * the first-level cache (__ldcg, volatile). `*counter` is 0 before the first and after the last. */
DEVICE bool block_is_last(unsigned *counter, unsigned blocks)
{
    SHARED_ARRAY(bool, last, 1);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0) last[0] = atomicInc(counter, blocks - 1) == blocks - 1;
    __syncthreads();
    __threadfence();
    return last[0];
}
