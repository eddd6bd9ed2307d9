/* Philox4x32-10: a counter-based random number generator (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3",
 * SC11). Every random decision of this project is philox(key, counter), so order, crops, dropout and initial weights
 * never depend on threads, towers or devices, and there is no state to save. Also compiled as CUDA device code. */
#pragma once

#include <stdint.h>

#ifdef __CUDACC__
#define PHILOX_CALL __host__ __device__ static inline
#else
#define PHILOX_CALL static inline
#endif

typedef struct Philox {
    uint32_t v[4];
} Philox;

/* Four independent 32-bit words for (key, counter). */
PHILOX_CALL Philox philox(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    Philox out = {{c0, c1, c2, c3}};
    return out;
}

/* The random bits of tensors whose first axis is samples. Element i of all samples of a step, in packed NHWC order, has
 * word i % 4 of group i / 4, whichever batches the samples are in: `counter` is {seed low, seed high, step, place of the
 * batch's first sample in the step}, in device memory. */
PHILOX_CALL Philox philox_group(const uint32_t *counter, uint64_t group, uint32_t stream)
{
    return philox(counter[0] | (uint64_t)counter[1] << 32, (uint32_t)group, counter[2], (uint32_t)(group >> 32),
                  stream);
}

/* The number of a batch's first element in the step. */
PHILOX_CALL uint64_t philox_first(const uint32_t *counter, uint32_t elements_per_sample)
{
    return (uint64_t)counter[3] * elements_per_sample;
}

/* [0, 1) with 24 bits: every value is exact in f32. */
PHILOX_CALL float philox_unit(uint32_t word)
{
    return (float)(word >> 8) * (1.0f / 16777216.0f);
}
