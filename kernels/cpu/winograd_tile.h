/* What convolutions by Winograd's algorithms share in bf16: halves of vectors, and products of groups of tiles.
 *
 * A product is m[8][vectors * 16] = d[8][channels] u[channels][vectors * 16] for one point of the algorithm: 8 tiles, a
 * panel of up to 3 vectors of outputs, all sums in registers. u holds words: two inputs that vdpbf16ps multiplies at
 * once. For AVX512-BF16; included by the files that check for it. */
#ifndef TOWERS_KERNELS_CPU_WINOGRAD_TILE_H
#define TOWERS_KERNELS_CPU_WINOGRAD_TILE_H

#include <immintrin.h>
#include <stdint.h>

enum {
    LANES = 16,
    GROUP = 8,  /* tiles multiplied together */
    VECTORS = 3 /* of outputs in a panel, at most: 8 x 3 sums in registers */
};

#define TILE_CODE __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#define TILE_INLINE TILE_CODE static inline __attribute__((always_inline))

TILE_INLINE __m512 half_load(const uint16_t *from)
{
    __m256i halves = _mm256_loadu_si256((const __m256i *)(const void *)from);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

TILE_INLINE void half_store(uint16_t *to, __m512 value)
{
    _mm256_storeu_si256((__m256i *)(void *)to, (__m256i)_mm512_cvtneps_pbh(value));
}

TILE_INLINE void group_sum(const uint16_t *d, int64_t channels, const uint32_t *u, float *m, const int vectors)
{
    const int64_t pairs = channels / 2;
    const uint32_t *words = (const uint32_t *)(const void *)d;
    __m512 sum[GROUP][VECTORS];
    for (int t = 0; t < GROUP; t++)
        for (int v = 0; v < vectors; v++) sum[t][v] = _mm512_setzero_ps();
    for (int64_t k = 0; k < pairs; k++, u += vectors * LANES) {
        __m512bh b[VECTORS];
        for (int v = 0; v < vectors; v++) b[v] = (__m512bh)_mm512_loadu_si512(u + v * LANES);
        for (int t = 0; t < GROUP; t++) {
            __m512bh a = (__m512bh)_mm512_set1_epi32((int)words[t * pairs + k]);
            for (int v = 0; v < vectors; v++) sum[t][v] = _mm512_dpbf16_ps(sum[t][v], a, b[v]);
        }
    }
    for (int t = 0; t < GROUP; t++)
        for (int v = 0; v < vectors; v++) _mm512_storeu_ps(m + (t * vectors + v) * LANES, sum[t][v]);
}

/* One point. */
TILE_INLINE void group_product(const uint16_t *d, int64_t channels, const uint32_t *u, float *m, int vectors)
{
    if (vectors == 3)
        group_sum(d, channels, u, m, 3);
    else if (vectors == 2)
        group_sum(d, channels, u, m, 2);
    else
        group_sum(d, channels, u, m, 1);
}

#endif
