/* Maximum over 3x3 and its gradient with AVX512-BF16; see pool_rows.h.
 *
 * The largest of nine and its place stay in registers. In the gradient, the 2x2 pixels at an even place are reached by
 * four windows:
 *   A B   pixel (0, 0) is place 8 of A, 6 of B, 2 of C, 0 of D; (0, 1) is 7 of B, 1 of D;
 *   C D   pixel (1, 0) is 5 of C, 3 of D; (1, 1) is 4 of D
 * so that every window is read four times instead of nine. */
#include "kernels/cpu/pool/pool_rows.h"

#if defined(__x86_64__)
#include <immintrin.h>

enum { LANES = 16, TAPS = 9, NOWHERE = 64 };

#define POOL_CODE __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#define POOL_INLINE POOL_CODE static inline __attribute__((always_inline))

bool pool_has_avx512(void)
{
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bw");
}

POOL_INLINE __m512 lanes_load(Dtype dtype, const void *base, int64_t index, __mmask16 mask)
{
    if (dtype == DTYPE_F32) return _mm512_maskz_loadu_ps(mask, (const float *)base + index);
    __m256i halves = _mm256_maskz_loadu_epi16(mask, (const uint16_t *)base + index);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

POOL_INLINE void lanes_store(Dtype dtype, void *base, int64_t index, __m512 value, __mmask16 mask)
{
    if (dtype == DTYPE_F32)
        _mm512_mask_storeu_ps((float *)base + index, mask, value);
    else
        _mm256_mask_storeu_epi16((uint16_t *)base + index, mask, (__m256i)_mm512_cvtneps_pbh(value));
}

/* Exact for numbers of the dtype; the processor's conversion would flush those below 2^-126 to zero. */
POOL_INLINE void lanes_store_exact(Dtype dtype, void *base, int64_t index, __m512 value, __mmask16 mask)
{
    if (dtype == DTYPE_F32)
        _mm512_mask_storeu_ps((float *)base + index, mask, value);
    else
        _mm512_mask_cvtepi32_storeu_epi16((uint16_t *)base + index, mask,
                                          _mm512_srli_epi32(_mm512_castps_si512(value), 16));
}

POOL_INLINE __mmask16 lanes_mask(int64_t left)
{
    return left >= LANES ? 0xFFFF : (__mmask16)((1u << left) - 1);
}

/* ---- maximum */

/* 16 channels; returns which of them have a NaN. */
POOL_INLINE __mmask16 nine_lanes(Dtype dtype, const void *x, int64_t row_stride, int64_t stride, __mmask16 mask,
                                 __m512 *best, __m512i *place)
{
    __m512 top = lanes_load(dtype, x, 0, mask);
    __m512i at = _mm512_setzero_si512();
    __mmask16 bad = _mm512_cmp_ps_mask(top, top, _CMP_UNORD_Q);
    for (int k = 1; k < TAPS; k++) {
        __m512 value = lanes_load(dtype, x, k / 3 * row_stride + k % 3 * stride, mask);
        bad |= _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
        at = _mm512_mask_mov_epi32(at, _mm512_cmp_ps_mask(value, top, _CMP_GT_OQ), _mm512_set1_epi32(k));
        top = _mm512_max_ps(value, top); /* if equal, the second operand: the earlier maximum */
    }
    *best = top;
    *place = at;
    return bad;
}

POOL_INLINE bool nine_max(Dtype dtype, const void *x, int64_t row_stride, int64_t stride, void *y, uint8_t *argmax,
                          int64_t c)
{
    const int64_t bytes = dtype == DTYPE_F32 ? 4 : 2;
    for (int64_t i = 0; i < c; i += LANES) {
        __mmask16 mask = lanes_mask(c - i);
        __m512 best;
        __m512i place;
        if (nine_lanes(dtype, (const char *)x + i * bytes, row_stride, stride, mask, &best, &place)) return false;
        if (y) lanes_store_exact(dtype, y, i, best, mask);
        if (argmax) _mm_mask_storeu_epi8(argmax + i, mask, _mm512_cvtepi32_epi8(place));
    }
    return true;
}

POOL_CODE bool pool_max_of_9(Dtype dtype, const void *x, int64_t row_stride, int64_t stride, void *y, uint8_t *argmax,
                             int64_t c)
{
    return dtype == DTYPE_F32 ? nine_max(DTYPE_F32, x, row_stride, stride, y, argmax, c)
                              : nine_max(DTYPE_BF16, x, row_stride, stride, y, argmax, c);
}

/* ---- gradient */

/* 2x2 pixels. Window w (A, B, C, D) has places `absent[w]` too large if it does not exist. */
typedef struct Four {
    const void *dy[4], *acc[4];
    const uint8_t *argmax[4];
    int absent[4];
    void *dx[4];
} Four;

typedef struct Lanes {
    __m512 dy[4];
    __m128i argmax[4];
} Lanes;

/* sum + the gradient that window w sends to its place `place`. */
POOL_INLINE __m512 sent(const Four *f, const Lanes *lanes, int w, int place, __m512 sum)
{
    __m128i here = _mm_set1_epi8((char)(place + f->absent[w]));
    return _mm512_mask_add_ps(sum, _mm_cmpeq_epi8_mask(lanes->argmax[w], here), sum, lanes->dy[w]);
}

POOL_INLINE void pixel_store(Dtype dtype, const Four *f, int pixel, int64_t i, __m512 sum, __mmask16 mask)
{
    if (!f->dx[pixel]) return;
    if (f->acc[pixel]) sum += lanes_load(dtype, f->acc[pixel], i, mask);
    lanes_store(dtype, f->dx[pixel], i, sum, mask);
}

POOL_INLINE void four_pixels(Dtype dtype, const Four *from, int64_t c)
{
    enum { A, B, C, D };
    const Four f = *from; /* a copy, which stores cannot alias */
    const __m512 zero = _mm512_setzero_ps();
    for (int64_t i = 0; i < c; i += LANES) {
        __mmask16 mask = lanes_mask(c - i);
        Lanes l;
        for (int w = 0; w < 4; w++) {
            l.dy[w] = lanes_load(dtype, f.dy[w], i, mask);
            l.argmax[w] = _mm_maskz_loadu_epi8(mask, f.argmax[w] + i);
        }
        __m512 corner = sent(&f, &l, B, 6, sent(&f, &l, A, 8, zero));
        pixel_store(dtype, &f, 0, i, sent(&f, &l, D, 0, sent(&f, &l, C, 2, corner)), mask);
        pixel_store(dtype, &f, 1, i, sent(&f, &l, D, 1, sent(&f, &l, B, 7, zero)), mask);
        pixel_store(dtype, &f, 2, i, sent(&f, &l, D, 3, sent(&f, &l, C, 5, zero)), mask);
        pixel_store(dtype, &f, 3, i, sent(&f, &l, D, 4, zero), mask);
    }
}

/* The 2x2 pixels from column 2 k on. */
POOL_INLINE Four four_at(const PoolBand *band, int64_t bytes, int64_t k)
{
    Four f;
    for (int w = 0; w < 4; w++) {
        int row = w / 2;
        int64_t window = k - 1 + w % 2, column = 2 * k + w % 2;
        bool there = band->exists[row] && window >= 0 && window < band->windows, inside = column < band->columns;
        if (!there) window = 0;
        f.absent[w] = there ? 0 : NOWHERE;
        f.dy[w] = (const char *)band->dy[row] + window * band->dy_pitch * bytes;
        f.argmax[w] = band->argmax[row] + window * band->argmax_pitch;
        f.dx[w] = band->dx[row] && inside ? (char *)band->dx[row] + column * band->dx_pitch * bytes : NULL;
        f.acc[w] = band->acc[row] && inside ? (const char *)band->acc[row] + column * band->acc_pitch * bytes : NULL;
    }
    return f;
}

POOL_INLINE void band_run(Dtype dtype, const PoolBand *band)
{
    for (int64_t k = 0; 2 * k < band->columns; k++) {
        Four f = four_at(band, dtype == DTYPE_F32 ? 4 : 2, k);
        four_pixels(dtype, &f, band->c);
    }
}

POOL_CODE void pool_band_dx(const PoolBand *band)
{
    if (band->dtype == DTYPE_F32)
        band_run(DTYPE_F32, band);
    else
        band_run(DTYPE_BF16, band);
}
#else /* never called where pool_has_avx512 says no */
bool pool_has_avx512(void)
{
    return false;
}

bool pool_max_of_9(Dtype dtype, const void *x, int64_t row_stride, int64_t stride, void *y, uint8_t *argmax, int64_t c)
{
    (void)dtype, (void)x, (void)row_stride, (void)stride, (void)y, (void)argmax, (void)c;
    return false;
}

void pool_band_dx(const PoolBand *band)
{
    (void)band;
}
#endif
