/* Rows of a batch norm with AVX-512; see norm_rows.h.
 *
 * A block is two vectors of channels of four rows that lie far apart. Their sums stay in registers and are added to
 * memory once, while loops along a row would read and write them for every row. The order of the sums depends on the
 * shape alone; it differs from that of the plain loops. */
#include "kernels/cpu/norm/norm_rows.h"

#if defined(__x86_64__)
#include <immintrin.h>

enum {
    LANES = 16,
    PAIR = 2 * LANES, /* channels of a block */
    STREAMS = 4
};

#define NORM_CODE __attribute__((target("avx512f,avx512bw,avx512vl")))
#define NORM_INLINE NORM_CODE static inline __attribute__((always_inline))

/* 32 neighboring channels in f32. */
typedef struct FloatPair {
    __m512 low, high;
} FloatPair;

NORM_INLINE __mmask16 low_mask(__mmask32 mask)
{
    return (__mmask16)mask;
}

NORM_INLINE __mmask16 high_mask(__mmask32 mask)
{
    return (__mmask16)(mask >> LANES);
}

/* ---- loads and stores: all 32, or with `whole` false those of the mask */

NORM_INLINE FloatPair floats_load(const float *from, bool whole, __mmask32 mask)
{
    if (whole) return (FloatPair){_mm512_loadu_ps(from), _mm512_loadu_ps(from + LANES)};
    return (FloatPair){_mm512_maskz_loadu_ps(low_mask(mask), from),
                       _mm512_maskz_loadu_ps(high_mask(mask), from + LANES)};
}

NORM_INLINE void floats_store(float *to, FloatPair value, bool whole, __mmask32 mask)
{
    if (whole) {
        _mm512_storeu_ps(to, value.low);
        _mm512_storeu_ps(to + LANES, value.high);
        return;
    }
    _mm512_mask_storeu_ps(to, low_mask(mask), value.low);
    _mm512_mask_storeu_ps(to + LANES, high_mask(mask), value.high);
}

/* Word 2 i + 1 of the result is word i of the first half, or of the second; the even words are 0. */
NORM_INLINE FloatPair halves_widen(__m512i halves)
{
    const __mmask32 odd = 0xAAAAAAAA;
    const __m512i low = _mm512_set_epi16(15, 0, 14, 0, 13, 0, 12, 0, 11, 0, 10, 0, 9, 0, 8, 0, 7, 0, 6, 0, 5, 0, 4, 0,
                                         3, 0, 2, 0, 1, 0, 0, 0);
    const __m512i high = _mm512_or_si512(low, _mm512_set1_epi32(16 << 16));
    return (FloatPair){_mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(odd, low, halves)),
                       _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(odd, high, halves))};
}

/* Rounded to the nearest bf16: vcvtne2ps2bf16, written out, because an intrinsic would ask AVX512-BF16 of the code for
 * f32, too, and many processors have AVX-512 without it. */
NORM_INLINE __m512i halves_round(FloatPair value)
{
    __m512i halves;
    __asm__("vcvtne2ps2bf16 %2, %1, %0" : "=v"(halves) : "v"(value.high), "v"(value.low));
    return halves;
}

NORM_INLINE FloatPair pair_load(Dtype dtype, const void *base, int64_t index, bool whole, __mmask32 mask)
{
    const uint16_t *half = (const uint16_t *)base + index;
    if (dtype == DTYPE_F32) return floats_load((const float *)base + index, whole, mask);
    return halves_widen(whole ? _mm512_loadu_si512(half) : _mm512_maskz_loadu_epi16(mask, half));
}

NORM_INLINE void pair_store(Dtype dtype, void *base, int64_t index, FloatPair value, bool whole, __mmask32 mask)
{
    uint16_t *half = (uint16_t *)base + index;
    if (dtype == DTYPE_F32) {
        floats_store((float *)base + index, value, whole, mask);
        return;
    }
    __m512i halves = halves_round(value);
    if (whole)
        _mm512_storeu_si512(half, halves);
    else
        _mm512_mask_storeu_epi16(half, mask, halves);
}

/* Stores that bypass the caches; the address is a multiple of 64. */
NORM_INLINE void pair_stream(Dtype dtype, void *base, int64_t index, FloatPair value)
{
    if (dtype == DTYPE_F32) {
        _mm512_stream_ps((float *)base + index, value.low);
        _mm512_stream_ps((float *)base + index + LANES, value.high);
    } else
        _mm512_stream_si512((void *)((uint16_t *)base + index), halves_round(value));
}

NORM_INLINE FloatPair pair_sub(FloatPair a, FloatPair b)
{
    return (FloatPair){a.low - b.low, a.high - b.high};
}

NORM_INLINE FloatPair pair_add(FloatPair a, FloatPair b)
{
    return (FloatPair){a.low + b.low, a.high + b.high};
}

NORM_INLINE FloatPair pair_mul(FloatPair a, FloatPair b)
{
    return (FloatPair){a.low * b.low, a.high * b.high};
}

/* a b + c */
NORM_INLINE FloatPair pair_fma(FloatPair a, FloatPair b, FloatPair c)
{
    return (FloatPair){_mm512_fmadd_ps(a.low, b.low, c.low), _mm512_fmadd_ps(a.high, b.high, c.high)};
}

/* dy where a scale + beta > floor, else 0. */
NORM_INLINE FloatPair pair_masked(FloatPair dy, FloatPair a, FloatPair scale, FloatPair beta, __m512 floor)
{
    FloatPair y = pair_fma(a, scale, beta);
    return (FloatPair){_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(y.low, floor, _CMP_GT_OQ), dy.low),
                       _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(y.high, floor, _CMP_GT_OQ), dy.high)};
}

/* ---- a block: channels i .. i + 31 of `streams` rows that lie far apart */

typedef struct NormBlock {
    const NormRows *rows;
    int64_t i, row, apart;
    __mmask32 mask;
} NormBlock;

NORM_INLINE FloatPair vector_load(const NormBlock *b, const float *vector, bool whole)
{
    return floats_load(vector + b->i, whole, b->mask);
}

/* x of stream k, minus the mean. */
NORM_INLINE FloatPair centered_load(Dtype dtype, bool whole, const NormBlock *b, int k, FloatPair mean)
{
    int64_t row = b->row + k * b->apart;
    return pair_sub(pair_load(dtype, b->rows->x, row * b->rows->x_stride + b->i, whole, b->mask), mean);
}

NORM_INLINE FloatPair dy_load(Dtype dtype, bool whole, const NormBlock *b, int k)
{
    int64_t row = b->row + k * b->apart;
    return pair_load(dtype, b->rows->dy, row * b->rows->dy_stride + b->i, whole, b->mask);
}

NORM_INLINE void y_store(Dtype dtype, bool whole, const NormBlock *b, int k, FloatPair y)
{
    int64_t row = b->row + k * b->apart, index = row * b->rows->y_stride + b->i;
    if (b->rows->away && whole)
        pair_stream(dtype, b->rows->y, index, y);
    else
        pair_store(dtype, b->rows->y, index, y, whole, b->mask);
}

/* Adds neighbors first, for a short chain of dependent additions. */
NORM_INLINE FloatPair streams_sum(int streams, const FloatPair *value)
{
    return streams == 1 ? value[0] : pair_add(pair_add(value[0], value[1]), pair_add(value[2], value[3]));
}

NORM_INLINE void sums_add(const NormBlock *b, bool whole, int streams, const FloatPair *first, const FloatPair *second,
                          float *to, float *to_second)
{
    floats_store(to + b->i, pair_add(vector_load(b, to, whole), streams_sum(streams, first)), whole, b->mask);
    floats_store(to_second + b->i, pair_add(vector_load(b, to_second, whole), streams_sum(streams, second)), whole,
                 b->mask);
}

NORM_INLINE void stat_block(Dtype dtype, bool whole, int streams, const NormBlock *b, float *sum, float *square)
{
    FloatPair first[STREAMS], second[STREAMS], mean = vector_load(b, b->rows->mean, whole);
    for (int k = 0; k < streams; k++) {
        first[k] = centered_load(dtype, whole, b, k, mean);
        second[k] = pair_mul(first[k], first[k]);
    }
    sums_add(b, whole, streams, first, second, sum, square);
}

NORM_INLINE void grad_sum_block(Dtype dtype, bool whole, int streams, const NormBlock *b, float *sum, float *product)
{
    FloatPair first[STREAMS], second[STREAMS], mean = vector_load(b, b->rows->mean, whole),
                                               scale = vector_load(b, b->rows->scale, whole),
                                               beta = vector_load(b, b->rows->beta, whole);
    __m512 floor = _mm512_set1_ps(b->rows->floor);
    for (int k = 0; k < streams; k++) {
        FloatPair a = centered_load(dtype, whole, b, k, mean);
        first[k] = pair_masked(dy_load(dtype, whole, b, k), a, scale, beta, floor);
        second[k] = pair_mul(first[k], a);
    }
    sums_add(b, whole, streams, first, second, sum, product);
}

NORM_INLINE void apply_block(Dtype dtype, bool whole, int streams, const NormBlock *b)
{
    FloatPair mean = vector_load(b, b->rows->mean, whole), scale = vector_load(b, b->rows->scale, whole),
              beta = vector_load(b, b->rows->beta, whole);
    __m512 floor = _mm512_set1_ps(b->rows->floor);
    for (int k = 0; k < streams; k++) {
        FloatPair y = pair_fma(centered_load(dtype, whole, b, k, mean), scale, beta);
        y = (FloatPair){_mm512_max_ps(floor, y.low),
                        _mm512_max_ps(floor, y.high)}; /* the second operand keeps its NaN */
        y_store(dtype, whole, b, k, y);
    }
}

NORM_INLINE void grad_block(Dtype dtype, bool whole, int streams, const NormBlock *b)
{
    FloatPair mean = vector_load(b, b->rows->mean, whole), scale = vector_load(b, b->rows->scale, whole),
              beta = vector_load(b, b->rows->beta, whole), slope = vector_load(b, b->rows->slope, whole),
              offset = vector_load(b, b->rows->offset, whole);
    __m512 floor = _mm512_set1_ps(b->rows->floor);
    for (int k = 0; k < streams; k++) {
        FloatPair a = centered_load(dtype, whole, b, k, mean);
        FloatPair g = pair_masked(dy_load(dtype, whole, b, k), a, scale, beta, floor);
        y_store(dtype, whole, b, k, pair_fma(g, scale, pair_fma(a, slope, offset)));
    }
}

/* ---- rows */

NORM_INLINE void block_run(NormPass pass, Dtype dtype, bool whole, int streams, const NormBlock *b, float *sum,
                           float *second)
{
    switch (pass) {
    case NORM_STAT: stat_block(dtype, whole, streams, b, sum, second); break;
    case NORM_GRAD_SUM: grad_sum_block(dtype, whole, streams, b, sum, second); break;
    case NORM_APPLY: apply_block(dtype, whole, streams, b); break;
    case NORM_GRAD: grad_block(dtype, whole, streams, b); break;
    }
}

/* Rows first .. end - 1, and with each of them those `apart` rows on. */
NORM_INLINE void streams_run(NormPass pass, Dtype dtype, int streams, const NormRows *r, int64_t first, int64_t end,
                             int64_t apart, float *sum, float *second)
{
    NormRows rows = *r; /* a copy, which stores cannot alias */
    rows.away = r->away && (uintptr_t)r->y % 64 == 0 && r->y_stride % PAIR == 0;
    __mmask32 rest = (__mmask32)((1u << rows.width % PAIR) - 1);
    for (int64_t row = first; row < end; row++) {
        NormBlock b = {&rows, 0, row, apart, rest};
        for (; b.i + PAIR <= rows.width; b.i += PAIR) block_run(pass, dtype, true, streams, &b, sum, second);
        if (b.i < rows.width) block_run(pass, dtype, false, streams, &b, sum, second);
    }
    if (rows.away) _mm_sfence();
}

NORM_INLINE void pass_run(NormPass pass, const NormRows *r, float *sum, float *second)
{
    int64_t quarter = r->rows / STREAMS;
    int64_t apart = quarter ? (quarter - 1) | 1 : 0; /* odd: streams a multiple of 4 KiB apart would share cache sets */
    int64_t done = apart * STREAMS;
    if (r->dtype == DTYPE_F32) {
        streams_run(pass, DTYPE_F32, STREAMS, r, 0, apart, apart, sum, second);
        streams_run(pass, DTYPE_F32, 1, r, done, r->rows, 0, sum, second);
    } else {
        streams_run(pass, DTYPE_BF16, STREAMS, r, 0, apart, apart, sum, second);
        streams_run(pass, DTYPE_BF16, 1, r, done, r->rows, 0, sum, second);
    }
}

NORM_CODE static void passes_run(NormPass pass, const NormRows *r, float *sum, float *second)
{
    switch (pass) {
    case NORM_STAT: pass_run(NORM_STAT, r, sum, second); break;
    case NORM_GRAD_SUM: pass_run(NORM_GRAD_SUM, r, sum, second); break;
    case NORM_APPLY: pass_run(NORM_APPLY, r, sum, second); break;
    case NORM_GRAD: pass_run(NORM_GRAD, r, sum, second); break;
    }
}

bool norm_rows_avx512(NormPass pass, const NormRows *r, float *sum, float *second)
{
    bool has = cpu_vectors(r->dtype) == CPU_AVX512;
    if (has) passes_run(pass, r, sum, second);
    return has;
}
#else
bool norm_rows_avx512(NormPass pass, const NormRows *r, float *sum, float *second)
{
    (void)pass, (void)r, (void)sum, (void)second;
    return false;
}
#endif
