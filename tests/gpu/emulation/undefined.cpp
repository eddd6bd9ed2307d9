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

struct Bits {
    unsigned short bits;
};

static float widened(Bits x)
{
    return x.bits;
}

__global__ void product_kernel(const uint4 *ones, int needs)
{
    SHARED_ROOM(unsigned char, room);
    float sum[16] = {0};
    unsigned a[4] = {0};
    copy_async(room + threadIdx.x * 16, ones, threadIdx.x < 64);
    copy_commit();
    copy_wait<0>();
    if (needs > 0) group_sees_copies();
    __syncthreads();
    if (needs > 1) group_begin();
    group_multiply_add<32>(Bits(), a, shared_matrix(room, 128, needs > 2 ? 256 : 1024), sum);
    if (needs > 3) group_commit();
    if (needs != 4) group_wait<16>(sum);
}

void undefined_product(int needs, int)
{
    uint4 ones = {1, 1, 1, 1};
    LAUNCH_ROOM((product_kernel), 1, 128, 2048, NULL, (const uint4 *)&ones, needs);
}
