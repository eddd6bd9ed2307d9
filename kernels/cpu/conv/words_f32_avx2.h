/* Words of f32 in vectors of 8, for processors with AVX2 but not AVX-512; the names are those of words_f32.h, as far as
 * packing needs them. */
#pragma once

#include "kernels/cpu/conv/winograd_pack.h"

#include <immintrin.h>

#define WORDS_CODE __attribute__((target("avx2")))
#define WORDS_INLINE WORDS_CODE static inline __attribute__((always_inline))

enum { IMAGES = 1, ELEMENT_BYTES = 4, CHANNELS = 8 };

/* 8 channels of a pixel. */
typedef __m256 Pixel;

WORDS_INLINE Pixel pixel_zero(void)
{
    return _mm256_setzero_ps();
}

WORDS_INLINE Pixel pixel_load(const PixelRow *row, int64_t w)
{
    return _mm256_loadu_ps((const float *)row->even + w * row->even_step);
}

WORDS_INLINE Pixel pixel_add(Pixel a, Pixel b)
{
    return _mm256_add_ps(a, b);
}

WORDS_INLINE Pixel pixel_sub(Pixel a, Pixel b)
{
    return _mm256_sub_ps(a, b);
}

WORDS_INLINE void words_store(uint32_t *to, Pixel value)
{
    _mm256_storeu_ps((float *)(void *)to, value);
}
