/* What weight gradients by Winograd's algorithms share: pixels of two images, whose halves become words.
 *
 * A word is what vdpbf16ps multiplies at once: the bf16 of an even image and that of the next one. Pixels are read into
 * f32 in the order in which they are stored, so that transforms lie between without a shuffle. For AVX512-BF16. */
#ifndef TOWERS_KERNELS_CPU_WINOGRAD_WORDS_H
#define TOWERS_KERNELS_CPU_WINOGRAD_WORDS_H

#include "kernels/cpu/winograd_tile.h"

/* 16 channels of a pixel of two images as f32, in the order in which their halves shall stand in words. */
typedef struct Pixel {
    __m512 low, high; /* channels 0 .. 7 and 8 .. 15 */
} Pixel;

/* A row of pixels of both images. A row outside the image is zeros, with a pitch of 0. */
typedef struct Row {
    const uint16_t *even, *odd;
    int64_t even_pitch, odd_pitch;
} Row;

TILE_INLINE Pixel pixel_load(const Row *row, int64_t w)
{
    const __m512i turns = _mm512_setr_epi32(0 << 16, 16 << 16, 1 << 16, 17 << 16, 2 << 16, 18 << 16, 3 << 16, 19 << 16,
                                            4 << 16, 20 << 16, 5 << 16, 21 << 16, 6 << 16, 22 << 16, 7 << 16, 23 << 16);
    const __m512i above = _mm512_add_epi32(turns, _mm512_set1_epi32(8 << 16));
    const __mmask32 upper = 0xAAAAAAAA; /* bf16 is the upper half of f32 */
    __m256i even = _mm256_loadu_si256((const __m256i *)(const void *)(row->even + w * row->even_pitch));
    __m256i odd = _mm256_loadu_si256((const __m256i *)(const void *)(row->odd + w * row->odd_pitch));
    __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(even), odd, 1);
    return (Pixel){(__m512)_mm512_maskz_permutexvar_epi16(upper, turns, both),
                   (__m512)_mm512_maskz_permutexvar_epi16(upper, above, both)};
}

TILE_INLINE Pixel pixel_add(Pixel a, Pixel b)
{
    return (Pixel){_mm512_add_ps(a.low, b.low), _mm512_add_ps(a.high, b.high)};
}

TILE_INLINE Pixel pixel_sub(Pixel a, Pixel b)
{
    return (Pixel){_mm512_sub_ps(a.low, b.low), _mm512_sub_ps(a.high, b.high)};
}

TILE_INLINE void words_store(uint32_t *to, Pixel value)
{
    _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(value.high, value.low));
}

#endif
