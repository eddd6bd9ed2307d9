/* A hash of device memory, so that replicas can be compared without a copy of them in host memory.
 *
 * Every word is mixed with its number by the finalizer of SplitMix64 (Steele, Lea, Flood 2014), a bijection, and the
 * results are added in 2^64. A sum of integers does not depend on the order of its terms, and one word that changes always
 * changes it. */
#include "kernels/cuda/device.cuh"

enum { HASH_BLOCKS = 1024 };

DEVICE uint64_t word_mixed(uint64_t word, uint64_t number)
{
    uint64_t z = (number << 32 ^ word) + 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

BOUNDED hash_kernel(const uint32_t *x, uint64_t count, uint64_t first, unsigned long long *sum)
{
    uint64_t mine = 0, step = (uint64_t)gridDim.x * BLOCK;
    for (uint64_t i = (uint64_t)blockIdx.x * BLOCK + threadIdx.x; i < count; i += step)
        mine += word_mixed(x[i], first + i);
    if (mine) atomicAdd(sum, (unsigned long long)mine);
}

extern "C" cudaError_t kernel_hash(const float *x, size_t count, uint64_t first, uint64_t *sum, cudaStream_t stream)
{
    uint32_t blocks = (uint32_t)clamped(ceil_divided((int64_t)count, BLOCK * 4), 1, HASH_BLOCKS);
    LAUNCH((hash_kernel), blocks, BLOCK, stream, (const uint32_t *)x, (uint64_t)count, first,
           (unsigned long long *)sum);
    return LAUNCH_ERROR();
}
