/* Shared by convolutions by Winograd's algorithms: loads, words, panels of outputs, G, and products of groups of tiles.
 *
 * A product is m[8][vectors * 16] = d[8][channels] u[channels][vectors * 16] for one point of the algorithm: 8 tiles, a
 * panel of up to 3 vectors of outputs, all sums in registers. d and u hold words, which one instruction multiplies at
 * once: a float, or two bf16 for vdpbf16ps. Bodies take the dtype as a constant. All are compiled for AVX512-BF16, but
 * only the bf16 intrinsics use its instructions: the f32 code needs AVX-512 alone. */
#ifndef TOWERS_KERNELS_CPU_CONV_WINOGRAD_TILE_H
#define TOWERS_KERNELS_CPU_CONV_WINOGRAD_TILE_H

#include "kernels/cpu/onednn.h"

#include <immintrin.h>
#include <stdint.h>

enum {
    LANES = 16,
    GROUP = 8,  /* tiles multiplied together */
    VECTORS = 3 /* of outputs in a panel, at most: 8 x 3 sums in registers */
};

#define TILE_CODE __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#define TILE_INLINE TILE_CODE static inline __attribute__((always_inline))

/* Why this processor or these tensors are not for the code below; NULL if they are (ONEDNN_MAX_CPU_ISA counts). */
static inline const char *tile_declines(const Tensor *x, const Tensor *y, int few_channels, int few_pixels)
{
    bool avx512 =
        __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    if (x->dtype != y->dtype || (x->dtype != DTYPE_F32 && x->dtype != DTYPE_BF16)) return "types are not f32 or bf16";
    if (x->dtype == DTYPE_F32 && !(onednn_has_avx512() && avx512)) return "processor has no AVX-512";
    if (x->dtype == DTYPE_BF16 && !(onednn_has_bf16() && __builtin_cpu_supports("avx512bf16")))
        return "processor has no AVX512-BF16";
    if (x->dtype == DTYPE_BF16 && onednn_has_amx()) return "plain products by AMX are faster";
    if (x->shape.c % LANES || y->shape.c % LANES) return "channels are not multiples of 16";
    if (x->shape.c < few_channels || y->shape.c < few_channels) return "too few channels";
    return shape_pixels(y->shape) < few_pixels ? "too few pixels" : NULL;
}

/* ---- vectors of 16 elements, in f32 */

TILE_INLINE void *vector_at(Dtype dtype, const void *base, int64_t index)
{
    return (char *)(uintptr_t)base + index * (dtype == DTYPE_F32 ? 4 : 2);
}

TILE_INLINE __m512 vector_load(Dtype dtype, const void *base, int64_t index)
{
    if (dtype == DTYPE_F32) return _mm512_loadu_ps((const float *)base + index);
    __m256i halves = _mm256_loadu_si256((const __m256i *)(const void *)((const uint16_t *)base + index));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

TILE_INLINE void vector_store(Dtype dtype, void *base, int64_t index, __m512 value)
{
    if (dtype == DTYPE_F32)
        _mm512_storeu_ps((float *)base + index, value);
    else
        _mm256_storeu_si256((__m256i *)(void *)((uint16_t *)base + index), (__m256i)_mm512_cvtneps_pbh(value));
}

/* Transposes 16 x 16: exchanges lanes of rows `step` apart, for steps of 1, 2, 4 and 8. */
TILE_INLINE void square_transpose(__m512 rows[LANES])
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (int step = 1; step < LANES; step *= 2) {
        __m512i by = _mm512_set1_epi32(step);
        __mmask16 odd = _mm512_test_epi32_mask(lane, by);
        __m512i low = _mm512_mask_add_epi32(lane, odd, lane, _mm512_set1_epi32(LANES - step));
        __m512i high = _mm512_mask_add_epi32(_mm512_add_epi32(lane, by), odd, lane, _mm512_set1_epi32(LANES));
        for (int i = 0; i < LANES; i++) {
            if (i & step) continue;
            __m512 a = rows[i], b = rows[i + step];
            rows[i] = _mm512_permutex2var_ps(a, low, b);
            rows[i + step] = _mm512_permutex2var_ps(a, high, b);
        }
    }
}

/* ---- words */

/* Elements of a word. */
static inline int word_elements(Dtype dtype)
{
    return dtype == DTYPE_F32 ? 1 : 2;
}

/* 16 words: `low`, or where a word holds two elements those of `low` and `high`. */
TILE_INLINE void words_join(Dtype dtype, uint32_t *to, __m512 low, __m512 high)
{
    if (dtype == DTYPE_F32) {
        _mm512_storeu_ps(to, low);
        return;
    }
    __m512i below = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(low));
    __m512i above = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(high));
    _mm512_storeu_si512(to, _mm512_or_si512(below, _mm512_slli_epi32(above, 16)));
}

/* sum += a b */
TILE_INLINE __m512 words_multiply(Dtype dtype, __m512 sum, __m512i a, __m512i b)
{
    if (dtype == DTYPE_F32) return _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), sum);
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

/* ---- panels: outputs are cut into about equal ones */

typedef struct Panels {
    int64_t vectors; /* of all outputs */
    int64_t count;
} Panels;

static inline Panels panels_of(int64_t outputs)
{
    int64_t vectors = outputs / LANES;
    return (Panels){vectors, (vectors + VECTORS - 1) / VECTORS};
}

/* The first output of panel k. */
static inline int64_t panels_first(const Panels *p, int64_t k)
{
    return p->vectors * k / p->count * LANES;
}

static inline int64_t panels_width(const Panels *p, int64_t k)
{
    return panels_first(p, k + 1) - panels_first(p, k);
}

static inline int64_t panels_find(const Panels *p, int64_t out)
{
    int64_t k = 0;
    while (panels_first(p, k + 1) <= out) k++;
    return k;
}

/* ---- weights, packed OHWI: `taps` places of a window, whose rows have `channels` */

/* Tap i of 16 inputs from `in` on, for 16 outputs from `out` on. `rotated`: for the gradient, whose inputs are the
 * outputs of the convolution and whose taps are reversed. */
TILE_INLINE void tap_load(const float *w, int taps, int64_t channels, bool rotated, int i, int64_t in, int64_t out,
                          __m512 to[LANES])
{
    const int64_t row = taps * channels;
    if (rotated) w += in * row + (taps - 1 - i) * channels + out;
    if (!rotated) w += out * row + i * channels + in;
    for (int k = 0; k < LANES; k++) to[k] = _mm512_loadu_ps(w + k * row);
    if (!rotated) square_transpose(to);
}

/* G = {1 0 0; 1/2 1/2 1/2; 1/2 -1/2 1/2; 0 0 1} of three taps; points are `step` vectors apart. */
TILE_INLINE void weights_line(__m512 a, __m512 b, __m512 c, __m512 *to, int step)
{
    __m512 half = _mm512_set1_ps(0.5f), outer = _mm512_mul_ps(half, _mm512_add_ps(a, c));
    __m512 inner = _mm512_mul_ps(half, b);
    to[0] = a;
    to[step] = _mm512_add_ps(outer, inner);
    to[2 * step] = _mm512_sub_ps(outer, inner);
    to[3 * step] = c;
}

/* Address of word `word` of the inputs for 16 outputs from `out` on in u[panel][point][words][width], for point 0. */
static inline uint32_t *words_at(const Panels *p, uint32_t *u, int64_t words, int points, int64_t word, int64_t out,
                                 int64_t *width)
{
    int64_t k = panels_find(p, out), first = panels_first(p, k);
    *width = panels_width(p, k);
    return u + first * words * points + word * *width + (out - first);
}

/* ---- products */

TILE_INLINE void group_sum(Dtype dtype, const void *d, int64_t words, const uint32_t *u, float *m, const int vectors)
{
    const uint32_t *a = d;
    __m512 sum[GROUP][VECTORS];
    for (int t = 0; t < GROUP; t++)
        for (int v = 0; v < vectors; v++) sum[t][v] = _mm512_setzero_ps();
    for (int64_t k = 0; k < words; k++, u += vectors * LANES) {
        __m512i b[VECTORS];
        for (int v = 0; v < vectors; v++) b[v] = _mm512_loadu_si512(u + v * LANES);
        for (int t = 0; t < GROUP; t++) {
            __m512i all = _mm512_set1_epi32((int)a[t * words + k]);
            for (int v = 0; v < vectors; v++) sum[t][v] = words_multiply(dtype, sum[t][v], all, b[v]);
        }
    }
    for (int t = 0; t < GROUP; t++)
        for (int v = 0; v < vectors; v++) _mm512_storeu_ps(m + (t * vectors + v) * LANES, sum[t][v]);
}

/* One point; `words` of each tile, `width` outputs. */
TILE_INLINE void group_product(Dtype dtype, const void *d, int64_t words, const uint32_t *u, float *m, int64_t width)
{
    if (width == 3 * LANES)
        group_sum(dtype, d, words, u, m, 3);
    else if (width == 2 * LANES)
        group_sum(dtype, d, words, u, m, 2);
    else
        group_sum(dtype, d, words, u, m, 1);
}

#endif
