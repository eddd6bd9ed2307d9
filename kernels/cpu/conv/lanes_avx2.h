/* Vectors of 8 lanes and words of f32, for processors that have AVX2 and FMA but not AVX-512; the names are those of
 * lanes_avx512.h. They have no bf16 arithmetic, so `dtype` is always f32. */
#pragma once

#include "kernels/cpu/vector.h"

#include <immintrin.h>

#define TILE_CODE __attribute__((target("avx2,fma")))
#define TILE_INLINE TILE_CODE static inline __attribute__((always_inline))
#define LANES_NAME "AVX2"

enum {
    LANES = 8,
    TILE_ROWS = 4 /* of a product in registers (gemm_tile.h): 4 x 3 sums */
};

typedef __m256 Vector, Words;
typedef __m256i Mask; /* 0 or -1 */

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

/* sum + a b, rounded once */
TILE_INLINE Vector add_product(Vector sum, Vector a, Vector b)
{
    return _mm256_fmadd_ps(a, b, sum);
}

TILE_INLINE Vector floats_load(const float *from)
{
    return _mm256_loadu_ps(from);
}

TILE_INLINE void floats_store(float *to, Vector value)
{
    _mm256_storeu_ps(to, value);
}

/* The first `count` lanes, or all. */
TILE_INLINE Mask mask_first(int64_t count)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)smaller(count, LANES)), lane);
}

/* The first `count` lanes, if there are fewer; others are 0, or stay as they are. Masked stores are slow on some processors. */
TILE_INLINE Vector floats_load_some(const float *from, int count)
{
    return count >= LANES ? _mm256_loadu_ps(from) : _mm256_maskload_ps(from, mask_first(count));
}

TILE_INLINE void floats_store_some(float *to, int count, Vector value)
{
    if (count >= LANES)
        _mm256_storeu_ps(to, value);
    else if (count > 0)
        _mm256_maskstore_ps(to, mask_first(count), value);
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

TILE_INLINE Words words_spread(uint32_t word)
{
    return _mm256_castsi256_ps(_mm256_set1_epi32((int)word));
}

/* ---- some lanes, and choices by lane */

typedef __m256i Positions, Bytes;

TILE_INLINE bool mask_any(Mask mask)
{
    return _mm256_movemask_epi8(mask) != 0;
}

TILE_INLINE Mask mask_or(Mask a, Mask b)
{
    return _mm256_or_si256(a, b);
}

TILE_INLINE Vector some_load(Dtype dtype, const void *base, int64_t index, Mask mask)
{
    (void)dtype;
    return _mm256_maskload_ps((const float *)base + index, mask);
}

TILE_INLINE void some_store(Dtype dtype, void *base, int64_t index, Vector value, Mask mask)
{
    (void)dtype;
    _mm256_maskstore_ps((float *)base + index, mask, value);
}

TILE_INLINE Vector vector_max(Vector a, Vector b)
{
    return _mm256_max_ps(a, b);
}

TILE_INLINE Mask vector_above(Vector a, Vector b)
{
    return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_GT_OQ));
}

TILE_INLINE Mask vector_is_nan(Vector a)
{
    return _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}

TILE_INLINE Vector add_some(Vector a, Vector b, Mask mask)
{
    return _mm256_blendv_ps(a, _mm256_add_ps(a, b), _mm256_castsi256_ps(mask));
}

TILE_INLINE Positions positions_same(int position)
{
    return _mm256_set1_epi32(position);
}

TILE_INLINE Positions positions_choose(Positions a, Positions b, Mask mask)
{
    return _mm256_blendv_epi8(a, b, mask);
}

TILE_INLINE int mask_count(Mask mask)
{
    return __builtin_popcount((unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(mask)));
}

/* Positions are below 128, so that no saturation changes them. */
TILE_INLINE void positions_store(uint8_t *to, Positions positions, Mask mask)
{
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(positions), _mm256_extracti128_si256(positions, 1));
    int64_t bytes = _mm_cvtsi128_si64(_mm_packus_epi16(words, words));
    int count = mask_count(mask);
    if (count == LANES)
        memcpy(to, &bytes, sizeof bytes);
    else
        memcpy(to, &bytes, (size_t)count);
}

/* As 32-bit integers. */
TILE_INLINE Bytes bytes_load(const uint8_t *from, Mask mask)
{
    int64_t bytes = 0;
    int count = mask_count(mask);
    if (count == LANES)
        memcpy(&bytes, from, sizeof bytes);
    else
        memcpy(&bytes, from, (size_t)count);
    return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(bytes));
}

TILE_INLINE Mask bytes_equal(Bytes bytes, int value)
{
    return _mm256_cmpeq_epi32(bytes, _mm256_set1_epi32(value));
}

#include "kernels/cpu/conv/lanes_f32.h"
