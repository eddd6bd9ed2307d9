/* Vectors of 16 lanes, and words of f32 or bf16, which one instruction multiplies; lanes_avx2.h and lanes_neon.h have the same names. All are
 * compiled for AVX512-BF16, but only the bf16 intrinsics use its instructions: the f32 code needs AVX-512 alone. */
#pragma once

#include "kernels/cpu/vector.h"

#include <immintrin.h>

#define TILE_CODE __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#define TILE_INLINE TILE_CODE static inline __attribute__((always_inline))
#define BY_WORDS BY_DTYPE /* bodies take the dtype as a constant */
#define LANES_NAME "AVX-512"

enum {
    LANES = 16,
    TILE_ROWS = 8 /* of a product in registers (gemm_tile.h): 8 x 3 sums */
};

typedef __m512 Vector; /* in f32 */
typedef __m512i Words;
typedef __mmask16 Mask;

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

/* sum + a b, rounded once */
TILE_INLINE Vector add_product(Vector sum, Vector a, Vector b)
{
    return _mm512_fmadd_ps(a, b, sum);
}

TILE_INLINE Vector floats_load(const float *from)
{
    return _mm512_loadu_ps(from);
}

TILE_INLINE void floats_store(float *to, Vector value)
{
    _mm512_storeu_ps(to, value);
}

/* The first `count` lanes, or all; none if it is negative. */
TILE_INLINE Mask mask_first(int64_t count)
{
    return count >= LANES ? 0xFFFF : (Mask)((1u << (count > 0 ? count : 0)) - 1);
}

/* The first `count` lanes, if there are fewer; others are 0, or stay as they are. */
TILE_INLINE Vector floats_load_some(const float *from, int count)
{
    return _mm512_maskz_loadu_ps(mask_first(count), from);
}

TILE_INLINE void floats_store_some(float *to, int count, Vector value)
{
    _mm512_mask_storeu_ps(to, mask_first(count), value);
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

/* ---- words of weight gradients: bf16 of two images */

/* Channels of a pixel in the order of their words: LANES floats, or half as many bf16 of one image, each followed by that of the
 * other one. */
TILE_INLINE Vector pixel_load(Dtype dtype, const void *even, const void *odd)
{
    if (dtype == DTYPE_F32) return _mm512_loadu_ps(even);
    const __m512i turns = _mm512_setr_epi32(0 << 16, 8 << 16, 1 << 16, 9 << 16, 2 << 16, 10 << 16, 3 << 16, 11 << 16,
                                            4 << 16, 12 << 16, 5 << 16, 13 << 16, 6 << 16, 14 << 16, 7 << 16, 15 << 16);
    const __mmask32 upper = 0xAAAAAAAA; /* bf16 is the upper half of f32 */
    __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(even)), _mm_loadu_si128(odd), 1);
    return (Vector)_mm512_maskz_permutexvar_epi16(upper, turns, _mm512_castsi256_si512(both));
}

/* As the words of these channels. */
TILE_INLINE void pixel_store(Dtype dtype, uint32_t *to, Vector value)
{
    if (dtype == DTYPE_F32)
        _mm512_storeu_ps(to, value);
    else
        _mm256_storeu_si256((__m256i *)(void *)to, (__m256i)_mm512_cvtneps_pbh(value));
}

/* ---- some lanes, and choices by lane */

typedef __m512i Positions; /* 32-bit integers */
typedef __m128i Bytes;

TILE_INLINE bool mask_any(Mask mask)
{
    return mask != 0;
}

TILE_INLINE Mask mask_or(Mask a, Mask b)
{
    return a | b;
}

/* Lanes outside of the mask are 0. */
TILE_INLINE Vector some_load(Dtype dtype, const void *base, int64_t index, Mask mask)
{
    if (dtype == DTYPE_F32) return _mm512_maskz_loadu_ps(mask, (const float *)base + index);
    __m256i halves = _mm256_maskz_loadu_epi16(mask, (const uint16_t *)base + index);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

TILE_INLINE void some_store(Dtype dtype, void *base, int64_t index, Vector value, Mask mask)
{
    if (dtype == DTYPE_F32)
        _mm512_mask_storeu_ps((float *)base + index, mask, value);
    else
        _mm256_mask_storeu_epi16((uint16_t *)base + index, mask, (__m256i)_mm512_cvtneps_pbh(value));
}

/* For numbers of the dtype; the processor's conversion would flush those below 2^-126 to zero. */
TILE_INLINE void some_store_exact(Dtype dtype, void *base, int64_t index, Vector value, Mask mask)
{
    if (dtype == DTYPE_F32)
        _mm512_mask_storeu_ps((float *)base + index, mask, value);
    else
        _mm512_mask_cvtepi32_storeu_epi16((uint16_t *)base + index, mask,
                                          _mm512_srli_epi32(_mm512_castps_si512(value), 16));
}

/* The larger one; b if they are equal or one is NaN. */
TILE_INLINE Vector vector_max(Vector a, Vector b)
{
    return _mm512_max_ps(a, b);
}

TILE_INLINE Mask vector_above(Vector a, Vector b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
}

TILE_INLINE Mask vector_is_nan(Vector a)
{
    return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
}

/* a + b in the lanes of the mask, else a */
TILE_INLINE Vector add_some(Vector a, Vector b, Mask mask)
{
    return _mm512_mask_add_ps(a, mask, a, b);
}

TILE_INLINE Positions positions_same(int position)
{
    return _mm512_set1_epi32(position);
}

/* b in the lanes of the mask, else a */
TILE_INLINE Positions positions_choose(Positions a, Positions b, Mask mask)
{
    return _mm512_mask_mov_epi32(a, mask, b);
}

TILE_INLINE void positions_store(uint8_t *to, Positions positions, Mask mask)
{
    _mm_mask_storeu_epi8(to, mask, _mm512_cvtepi32_epi8(positions));
}

TILE_INLINE Bytes bytes_load(const uint8_t *from, Mask mask)
{
    return _mm_maskz_loadu_epi8(mask, from);
}

TILE_INLINE Mask bytes_equal(Bytes bytes, int value)
{
    return _mm_cmpeq_epi8_mask(bytes, _mm_set1_epi8((char)value));
}
