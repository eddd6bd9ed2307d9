/* Vectors of 16 lanes, and words of f32 or bf16 as winograd_panels.h defines them; lanes_avx2.h has the same names. All are
 * compiled for AVX512-BF16, but only the bf16 intrinsics use its instructions: the f32 code needs AVX-512 alone. */
#pragma once

#include "kernels/cpu/vector.h"

#include <immintrin.h>

#define TILE_CODE __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#define TILE_INLINE TILE_CODE static inline __attribute__((always_inline))
#define BY_WORDS BY_DTYPE /* bodies take the dtype as a constant */

enum {
    LANES = 16,
    AT_ONCE = 8 /* tiles multiplied at once: 8 x 3 sums in registers */
};

typedef __m512 Vector; /* in f32 */
typedef __m512i Words;

/* The second operand is the result if one is NaN. */
TILE_INLINE Vector vector_relu(Vector a)
{
    return _mm512_max_ps(_mm512_setzero_ps(), a);
}

/* a + factor b, rounded once */
TILE_INLINE Vector add_times(Vector a, Vector b, float factor)
{
    return _mm512_fmadd_ps(b, _mm512_set1_ps(factor), a);
}

TILE_INLINE Vector floats_load(const float *from)
{
    return _mm512_loadu_ps(from);
}

TILE_INLINE void floats_store(float *to, Vector value)
{
    _mm512_storeu_ps(to, value);
}

TILE_INLINE Vector vector_load(Dtype dtype, const void *base, int64_t index)
{
    if (dtype == DTYPE_F32) return _mm512_loadu_ps((const float *)base + index);
    __m256i halves = _mm256_loadu_si256((const __m256i *)(const void *)((const uint16_t *)base + index));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

TILE_INLINE void vector_store(Dtype dtype, void *base, int64_t index, Vector value)
{
    if (dtype == DTYPE_F32)
        _mm512_storeu_ps((float *)base + index, value);
    else
        _mm256_storeu_si256((__m256i *)(void *)((uint16_t *)base + index), (__m256i)_mm512_cvtneps_pbh(value));
}

/* Exchanges lanes of two rows that are `step` apart: one step of a transposition. */
TILE_INLINE void rows_exchange(Vector *a, Vector *b, int step)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i by = _mm512_set1_epi32(step);
    __mmask16 odd = _mm512_test_epi32_mask(lane, by);
    __m512i low = _mm512_mask_add_epi32(lane, odd, lane, _mm512_set1_epi32(LANES - step));
    __m512i high = _mm512_mask_add_epi32(_mm512_add_epi32(lane, by), odd, lane, _mm512_set1_epi32(LANES));
    Vector first = *a, second = *b;
    *a = _mm512_permutex2var_ps(first, low, second);
    *b = _mm512_permutex2var_ps(first, high, second);
}

/* ---- words */

/* LANES words: `low`, or where a word holds two elements those of `low` and `high`. */
TILE_INLINE void words_join(Dtype dtype, uint32_t *to, Vector low, Vector high)
{
    if (dtype == DTYPE_F32) {
        _mm512_storeu_ps(to, low);
        return;
    }
    __m512i below = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(low));
    __m512i above = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(high));
    _mm512_storeu_si512(to, _mm512_or_si512(below, _mm512_slli_epi32(above, 16)));
}

TILE_INLINE Words words_load(const uint32_t *from)
{
    return _mm512_loadu_si512(from);
}

TILE_INLINE Words words_spread(uint32_t word)
{
    return _mm512_set1_epi32((int)word);
}

/* sum += a b */
TILE_INLINE Vector words_multiply(Dtype dtype, Vector sum, Words a, Words b)
{
    if (dtype == DTYPE_F32) return _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), sum);
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}
