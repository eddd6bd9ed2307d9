/* Words of bf16, the unit of multiplication of weight gradients, for AVX512-BF16.
 *
 * A word is a pair that vdpbf16ps multiplies along the sum: the bf16 of one image and that of the next one. Pixels are
 * read into f32 in the order in which they are stored, so transforms need no shuffle. words_f32.h has the same names for
 * f32, so that code including either works for both. */
#pragma once

#include "kernels/cpu/conv/winograd_pack.h"

#include <immintrin.h>

#define WORDS_CODE __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#define WORDS_INLINE WORDS_CODE static inline __attribute__((always_inline))

enum { IMAGES = 2, ELEMENT_BYTES = 2, CHANNELS = 16 };

/* 16 channels of a pixel of two images as f32, in the order of their halves in words. */
typedef struct Pixel {
    __m512 low, high; /* channels 0 .. 7 and 8 .. 15 */
} Pixel;

WORDS_INLINE Pixel pixel_zero(void)
{
    return (Pixel){_mm512_setzero_ps(), _mm512_setzero_ps()};
}

WORDS_INLINE Pixel pixel_load(const PixelRow *row, int64_t w)
{
    const __m512i turns = _mm512_setr_epi32(0 << 16, 16 << 16, 1 << 16, 17 << 16, 2 << 16, 18 << 16, 3 << 16, 19 << 16,
                                            4 << 16, 20 << 16, 5 << 16, 21 << 16, 6 << 16, 22 << 16, 7 << 16, 23 << 16);
    const __m512i above = _mm512_add_epi32(turns, _mm512_set1_epi32(8 << 16));
    const __mmask32 upper = 0xAAAAAAAA; /* bf16 is the upper half of f32 */
    __m256i even =
        _mm256_loadu_si256((const __m256i *)(const void *)((const uint16_t *)row->even + w * row->even_step));
    __m256i odd = _mm256_loadu_si256((const __m256i *)(const void *)((const uint16_t *)row->odd + w * row->odd_step));
    __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(even), odd, 1);
    return (Pixel){(__m512)_mm512_maskz_permutexvar_epi16(upper, turns, both),
                   (__m512)_mm512_maskz_permutexvar_epi16(upper, above, both)};
}

WORDS_INLINE Pixel pixel_add(Pixel a, Pixel b)
{
    return (Pixel){a.low + b.low, a.high + b.high};
}

WORDS_INLINE Pixel pixel_sub(Pixel a, Pixel b)
{
    return (Pixel){a.low - b.low, a.high - b.high};
}

WORDS_INLINE void words_store(uint32_t *to, Pixel value)
{
    _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(value.high, value.low));
}

/* ---- products of 16 words */

typedef __m512bh Words;

WORDS_INLINE Words words_load(const uint32_t *from)
{
    return (__m512bh)_mm512_loadu_si512(from);
}

WORDS_INLINE Words words_spread(uint32_t word)
{
    return (__m512bh)_mm512_set1_epi32((int)word);
}

/* sum + even a x even b + odd a x odd b */
WORDS_INLINE __m512 words_multiply(__m512 sum, Words a, Words b)
{
    return _mm512_dpbf16_ps(sum, a, b);
}
