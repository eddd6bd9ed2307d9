/* Packing for wgrad: pixels of two images become words (the first image's bf16 below, the second's above) in panels, or
 * floats of one image.
 *
 * Transposes 16 x 16 words by four rounds of exchanges; see wgrad.h for the layouts. */
#include "kernels/cpu/conv/wgrad.h"

#if defined(__x86_64__)
#include "kernels/cpu/conv/lanes_avx512.h"

#include "kernels/cpu/conv/wgrad_pack_f32.h"

typedef struct Masks {
    Mask even, odd;
} Masks;

TILE_INLINE Masks masks_for(const WgradRow *row, int channel)
{
    Mask mask = mask_first(row->channels - channel);
    return (Masks){mask, row->single ? 0 : mask};
}

TILE_INLINE __m512i pairs_load_some(const uint16_t *even, const uint16_t *odd, Masks masks)
{
    __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(masks.even, even));
    __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(masks.odd, odd));
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

/* 16 channels that exist, of two images. */
TILE_INLINE __m512i pairs_load(const uint16_t *even, const uint16_t *odd)
{
    const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i turns = _mm512_or_si512(low, _mm512_slli_epi32(_mm512_add_epi32(low, _mm512_set1_epi32(16)), 16));
    __m512i first = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)even));
    __m256i second = _mm256_loadu_si256((const __m256i *)(const void *)odd);
    return _mm512_permutexvar_epi16(turns, _mm512_inserti64x4(first, second, 1));
}

TILE_CODE void wgrad_pack(const WgradPanels *panels, int64_t at, const WgradRow *row)
{
    enum { AHEAD_BYTES = 2048 };
    int whole = row->single ? 0 : row->channels / WGRAD_LANES * WGRAD_LANES;
    for (int64_t p = 0; p < row->pixels; p++) {
        const uint16_t *even = (const uint16_t *)row->even + p * row->step,
                       *odd = (const uint16_t *)row->odd + p * row->step;
        for (int k = 0; k < panels->count; k++) {
            int first = panels->first[k], end = panels->first[k + 1];
            uint32_t *to = panels->words + first * panels->pixels + (at + p) * (end - first);
            for (int c = first; c < end; c += WGRAD_LANES, to += WGRAD_LANES) {
                _mm_prefetch((const char *)(even + c) + AHEAD_BYTES, _MM_HINT_T0);
                _mm_prefetch((const char *)(odd + c) + AHEAD_BYTES, _MM_HINT_T0);
                _mm512_storeu_si512(to, c < whole ? pairs_load(even + c, odd + c)
                                                  : pairs_load_some(even + c, odd + c, masks_for(row, c)));
            }
        }
    }
}

TILE_CODE void wgrad_pack_f32(const WgradPanels *panels, int64_t at, const WgradRow *row)
{
    pack_f32(panels, at, row);
}

/* r[i] lane j <- r[j] lane i. */
TILE_INLINE void transpose(__m512i r[WGRAD_LANES])
{
    __m512i t[WGRAD_LANES];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) { /* now r[4 g + i] has, in each quarter q, column 4 q + i of rows 4 g .. 4 g + 3 */
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 8] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xDD);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xDD);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 4], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 4], 0xDD);
        r[i + 4] = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0xDD);
    }
}

/* Up to 16 pixels of 16 channels, as positions `at` and following of a panel: the end of a square and the beginning of the next. */
TILE_CODE static void pack_square(const WgradRow *row, int64_t pixel, int channel, uint32_t *panel, int64_t at)
{
    enum { SQUARE = WGRAD_LANES * WGRAD_LANES };
    __m512i r[WGRAD_LANES];
    int64_t left = row->pixels - pixel, positions = row->positions - pixel;
    unsigned columns = positions >= WGRAD_LANES ? 0xFFFF : (1u << positions) - 1, offset = (unsigned)(at % WGRAD_LANES);
    unsigned here = columns & (0xFFFFu >> offset);
    uint32_t *to = panel + at / WGRAD_LANES * SQUARE + offset;
    Masks masks = masks_for(row, channel), none = {0, 0};
    for (int i = 0; i < WGRAD_LANES; i++) {
        int64_t p = (pixel + (i < left ? i : 0)) * row->step + channel;
        r[i] = left > 0 ? pairs_load_some((const uint16_t *)row->even + p, (const uint16_t *)row->odd + p,
                                          i < left ? masks : none)
                        : _mm512_setzero_si512();
    }
    transpose(r);
    for (int i = 0; i < WGRAD_LANES; i++) _mm512_mask_storeu_epi32(to + i * WGRAD_LANES, (__mmask16)here, r[i]);
    if (columns == here) return;
    for (int i = 0; i < WGRAD_LANES; i++)
        _mm512_mask_storeu_epi32(to + SQUARE - WGRAD_LANES + i * WGRAD_LANES, (__mmask16)(columns & ~here), r[i]);
}

TILE_CODE void wgrad_pack_rows(const WgradPanels *panels, int64_t at, const WgradRow *row)
{
    for (int64_t p = 0; p < row->positions; p += WGRAD_LANES)
        for (int k = 0; k < panels->count; k++)
            pack_square(row, p, panels->first[k], panels->words + panels->first[k] * panels->pixels, at + p);
}
#endif
