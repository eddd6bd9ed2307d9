/* See undefined.h. */
#include "tests/gpu/emulation/undefined.h"
#include "tests/gpu/emulation/cuda_emulation.h"

__global__ void shuffle_kernel(int *y, unsigned lanes)
{
    if (threadIdx.x % warpSize >= lanes) return;
    y[threadIdx.x] = __shfl_xor_sync(0xFFFFFFFFu, (int)threadIdx.x, 1);
}

void undefined_shuffle(int threads, int lanes)
{
    int y[64];
    LAUNCH((shuffle_kernel), 1, (unsigned)threads, NULL, (int *)y, (unsigned)lanes);
}

__global__ void sum_kernel(int *parts, unsigned *counter, int *sum, int fences)
{
    parts[blockIdx.x] = 1;
    if (fences & 1) __threadfence();
    if (atomicInc(counter, gridDim.x - 1) != gridDim.x - 1) return;
    if (fences & 2) __threadfence();
    for (unsigned i = 0; i < gridDim.x; i++) *sum += parts[i];
}

void undefined_sum(int fences, int)
{
    int parts[3], sum = 0;
    unsigned counter = 0;
    LAUNCH((sum_kernel), 3, 1, NULL, (int *)parts, &counter, &sum, fences);
}
