/* Vectors of 8 lanes and words of f32, for processors that have AVX2 and FMA but not AVX-512; the names are those of
 * lanes_avx512.h. They have no bf16 arithmetic, so `dtype` is always f32. */
#pragma once

#include "kernels/cpu/vector.h"

#include <immintrin.h>

#define TILE_CODE __attribute__((target("avx2,fma")))
#define TILE_INLINE TILE_CODE static inline __attribute__((always_inline))
#define BY_WORDS(dtype, body, ...) body(DTYPE_F32, __VA_ARGS__)

enum {
    LANES = 8,
    AT_ONCE = 4 /* tiles multiplied at once: 4 x 3 sums in registers */
};

typedef __m256 Vector, Words;

/* The second operand is the result if one is NaN. */
TILE_INLINE Vector vector_relu(Vector a)
{
    return _mm256_max_ps(_mm256_setzero_ps(), a);
}

/* a + factor b, rounded once */
TILE_INLINE Vector add_times(Vector a, Vector b, float factor)
{
    return _mm256_fmadd_ps(b, _mm256_set1_ps(factor), a);
}

TILE_INLINE Vector floats_load(const float *from)
{
    return _mm256_loadu_ps(from);
}

TILE_INLINE void floats_store(float *to, Vector value)
{
    _mm256_storeu_ps(to, value);
}

TILE_INLINE Vector vector_load(Dtype dtype, const void *base, int64_t index)
{
    (void)dtype;
    return _mm256_loadu_ps((const float *)base + index);
}

TILE_INLINE void vector_store(Dtype dtype, void *base, int64_t index, Vector value)
{
    (void)dtype;
    _mm256_storeu_ps((float *)base + index, value);
}

/* Exchanges lanes of two rows that are `step` apart: one step of a transposition. */
TILE_INLINE void rows_exchange(Vector *a, Vector *b, int step)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), by = _mm256_set1_epi32(step);
    __m256 odd = _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(lane, by), by));
    Vector up = _mm256_permutevar8x32_ps(*b, _mm256_sub_epi32(lane, by)); /* lanes count modulo 8 */
    Vector down = _mm256_permutevar8x32_ps(*a, _mm256_add_epi32(lane, by));
    *a = _mm256_blendv_ps(*a, up, odd);
    *b = _mm256_blendv_ps(down, *b, odd);
}

/* ---- words */

TILE_INLINE void words_join(Dtype dtype, uint32_t *to, Vector low, Vector high)
{
    (void)dtype;
    (void)high;
    _mm256_storeu_ps((float *)(void *)to, low);
}

TILE_INLINE Words words_load(const uint32_t *from)
{
    return _mm256_loadu_ps((const float *)(const void *)from);
}

TILE_INLINE Words words_spread(uint32_t word)
{
    return _mm256_castsi256_ps(_mm256_set1_epi32((int)word));
}

/* sum += a b */
TILE_INLINE Vector words_multiply(Dtype dtype, Vector sum, Words a, Words b)
{
    (void)dtype;
    return _mm256_fmadd_ps(a, b, sum);
}
