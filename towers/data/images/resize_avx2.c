/* The inner loops of resize.c for x86 processors with AVX2: products of 8-bit pixels and 16-bit weights, two taps at a
 * time (vpmaddwd). On other processors these are stubs, and resize_has_avx2 returns false. */
#include "towers/data/images/resize_rows.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2")))

bool resize_has_avx2(void)
{
    return __builtin_cpu_supports("avx2");
}

AVX2 static inline __m256i two_rows(const uint8_t *row0, const uint8_t *row1)
{
    __m256i low = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)row0));
    return _mm256_inserti128_si256(low, _mm_loadu_si128((const __m128i *)row1), 1);
}

/* A pair of weights in every 32-bit word. */
AVX2 static inline __m256i weight_pair(const int16_t *weight)
{
    int32_t pair;
    memcpy(&pair, weight, sizeof pair);
    return _mm256_set1_epi32(pair);
}

/* Combine the sums of high and low words to 16-bit values. */
AVX2 static inline __m256i words_of(__m256i high, __m256i low)
{
    return _mm256_srai_epi32(_mm256_add_epi32(_mm256_slli_epi32(high, LOW_BITS), low), WEIGHT_BITS);
}

/* Store a pixel of each row from its R, G, B in the low words of each half. */
AVX2 static inline void pixel_store(__m256i words, uint8_t *out0, uint8_t *out1)
{
    words = _mm256_packus_epi16(_mm256_packs_epi32(words, words), _mm256_setzero_si256());
    uint32_t a = (uint32_t)_mm256_extract_epi32(words, 0), b = (uint32_t)_mm256_extract_epi32(words, 4);
    memcpy(out0, &a, 4);
    memcpy(out1, &b, 4);
}

/* Each half of a register holds four pixels of one row; a shuffle makes 16-bit pairs (r0 r1)(g0 g1)(b0 b1) of two of
 * them, which are multiplied with a pair of weights. The last pixel of a row is stored without a fourth byte. */
AVX2 void row_pair_resize_avx2(const Axis *axis, const uint8_t *in0, const uint8_t *in1, uint8_t *out0, uint8_t *out1)
{
    const __m256i first =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
    const __m256i second =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
    const int32_t taps = axis->taps;
    for (int32_t x = 0; x < axis->count; x++) {
        size_t at = (size_t)(axis->first[x] - axis->first_of_all) * 3;
        const int16_t *weight = axis->weight + 2 * (size_t)x * (size_t)taps;
        __m256i high = _mm256_setzero_si256(), low = _mm256_set1_epi32(1 << (WEIGHT_BITS - 1));
        for (int32_t i = 0; i < axis->n[x]; i += 4, at += 12) {
            __m256i four = two_rows(in0 + at, in1 + at);
            __m256i a = _mm256_shuffle_epi8(four, first), b = _mm256_shuffle_epi8(four, second);
            high = _mm256_add_epi32(high, _mm256_madd_epi16(a, weight_pair(weight + i)));
            low = _mm256_add_epi32(low, _mm256_madd_epi16(a, weight_pair(weight + taps + i)));
            high = _mm256_add_epi32(high, _mm256_madd_epi16(b, weight_pair(weight + i + 2)));
            low = _mm256_add_epi32(low, _mm256_madd_epi16(b, weight_pair(weight + taps + i + 2)));
        }
        if (x + 1 < axis->count) {
            pixel_store(words_of(high, low), out0 + 3 * x, out1 + 3 * x);
        } else {
            uint8_t last[2][4];
            pixel_store(words_of(high, low), last[0], last[1]);
            memcpy(out0 + 3 * x, last[0], 3);
            memcpy(out1 + 3 * x, last[1], 3);
        }
    }
}

/* 16 columns: values of two rows are interleaved to pairs, so that one instruction multiplies both. */
AVX2 static inline __m128i columns_16(const int16_t *weight, int32_t n, int32_t taps, const uint8_t *in, size_t pitch)
{
    __m256i low0 = _mm256_set1_epi32(1 << (WEIGHT_BITS - 1)), low1 = low0;
    __m256i high0 = _mm256_setzero_si256(), high1 = high0;
    for (int32_t i = 0; i < n; i += 2) {
        __m256i a = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(in + (size_t)i * pitch)));
        __m256i b = i + 1 < n ? _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(in + (size_t)(i + 1) * pitch)))
                              : _mm256_setzero_si256();
        __m256i pairs0 = _mm256_unpacklo_epi16(a, b), pairs1 = _mm256_unpackhi_epi16(a, b);
        __m256i high = weight_pair(weight + i), low = weight_pair(weight + taps + i);
        high0 = _mm256_add_epi32(high0, _mm256_madd_epi16(pairs0, high));
        high1 = _mm256_add_epi32(high1, _mm256_madd_epi16(pairs1, high));
        low0 = _mm256_add_epi32(low0, _mm256_madd_epi16(pairs0, low));
        low1 = _mm256_add_epi32(low1, _mm256_madd_epi16(pairs1, low));
    }
    __m256i words = _mm256_packs_epi32(words_of(high0, low0), words_of(high1, low1));
    return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

AVX2 void column_resize_avx2(const int16_t *weight, int32_t n, int32_t taps, const uint8_t *in, size_t pitch,
                             size_t width, uint8_t *out)
{
    size_t k = 0;
    for (; k + 16 <= width; k += 16) _mm_storeu_si128((__m128i *)(out + k), columns_16(weight, n, taps, in + k, pitch));
    if (k == width) return;
    uint8_t rest[16];
    _mm_storeu_si128((__m128i *)rest, columns_16(weight, n, taps, in + k, pitch)); /* reads into the slack */
    memcpy(out + k, rest, width - k);
}

#else

bool resize_has_avx2(void)
{
    return false;
}

void row_pair_resize_avx2(const Axis *axis, const uint8_t *in0, const uint8_t *in1, uint8_t *out0, uint8_t *out1)
{
    row_resize(axis, 3, in0, out0);
    row_resize(axis, 3, in1, out1);
}

void column_resize_avx2(const int16_t *weight, int32_t n, int32_t taps, const uint8_t *in, size_t pitch, size_t width,
                        uint8_t *out)
{
    column_resize(weight, n, taps, in, pitch, width, out);
}

#endif
