/* Philox4x32-10: a counter-based random number generator (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3",
 * SC11). Every random decision of this project is philox(key, counter): order, crops, dropout and initial weights never
 * depend on threads, towers or devices, and there is no state to save. Also compiled as CUDA device code. */
#ifndef TOWERS_KERNELS_PHILOX_H
#define TOWERS_KERNELS_PHILOX_H

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

/* [0, 1) with 24 bits: every value is exact in f32. */
PHILOX_CALL float philox_unit(uint32_t word)
{
    return (float)(word >> 8) * (1.0f / 16777216.0f);
}

#endif
