/* Words of f32: one float each, in vectors of CHANNELS floats, compiled as WORDS_CODE says; the including file defines both.
 * The names are those of words_bf16.h, as far as packing needs them. */
#pragma once

#include "kernels/cpu/conv/winograd_pack.h"

#define WORDS_INLINE WORDS_CODE static inline __attribute__((always_inline))

enum { IMAGES = 1, ELEMENT_BYTES = 4 };

/* Neighboring channels of a pixel. */
typedef float Pixel __attribute__((vector_size(CHANNELS * sizeof(float))));

WORDS_INLINE Pixel pixel_zero(void)
{
    return (Pixel){0};
}

WORDS_INLINE Pixel pixel_load(const PixelRow *row, int64_t w)
{
    Pixel pixel;
    memcpy(&pixel, (const float *)row->even + w * row->even_step, sizeof pixel);
    return pixel;
}

WORDS_INLINE Pixel pixel_add(Pixel a, Pixel b)
{
    return a + b;
}

WORDS_INLINE Pixel pixel_sub(Pixel a, Pixel b)
{
    return a - b;
}

WORDS_INLINE void words_store(uint32_t *to, Pixel value)
{
    memcpy(to, &value, sizeof value);
}
