/* Words of f32: one float each; the names are those of words_bf16.h. For AVX512F. */
#pragma once

#include "kernels/cpu/conv/winograd_pack.h"

#include <immintrin.h>

#define WORDS_CODE __attribute__((target("avx512f")))
#define WORDS_INLINE WORDS_CODE static inline __attribute__((always_inline))

enum { IMAGES = 1, ELEMENT_BYTES = 4, CHANNELS = 16 };

/* 16 channels of a pixel. */
typedef __m512 Pixel;

WORDS_INLINE Pixel pixel_zero(void)
{
    return _mm512_setzero_ps();
}

WORDS_INLINE Pixel pixel_load(const PixelRow *row, int64_t w)
{
    return _mm512_loadu_ps((const float *)row->even + w * row->even_step);
}

WORDS_INLINE Pixel pixel_add(Pixel a, Pixel b)
{
    return _mm512_add_ps(a, b);
}

WORDS_INLINE Pixel pixel_sub(Pixel a, Pixel b)
{
    return _mm512_sub_ps(a, b);
}

WORDS_INLINE void words_store(uint32_t *to, Pixel value)
{
    _mm512_storeu_ps(to, value);
}

/* ---- products of 16 words */

typedef __m512 Words;

WORDS_INLINE Words words_load(const uint32_t *from)
{
    return _mm512_loadu_ps(from);
}

WORDS_INLINE Words words_spread(uint32_t word)
{
    return _mm512_castsi512_ps(_mm512_set1_epi32((int)word));
}

WORDS_INLINE __m512 words_multiply(__m512 sum, Words a, Words b)
{
    return _mm512_fmadd_ps(a, b, sum);
}
