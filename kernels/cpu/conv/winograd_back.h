/* The last transform of weight gradients by Winograd's algorithms, from f32 products to taps:
 * G' = {1 1/2 1/2 0; 0 1/2 -1/2 0; 0 1/2 1/2 -1}. For AVX512F. */
#ifndef TOWERS_KERNELS_CPU_CONV_WINOGRAD_BACK_H
#define TOWERS_KERNELS_CPU_CONV_WINOGRAD_BACK_H

#include <immintrin.h>

#define BACK_CODE __attribute__((target("avx512f")))
#define BACK_INLINE BACK_CODE static inline __attribute__((always_inline))

/* Four points, `step` vectors apart, to three taps. */
BACK_INLINE void back_line(const __m512 *m, int step, __m512 *to, int to_step)
{
    __m512 half = _mm512_set1_ps(0.5f), mean = _mm512_mul_ps(half, _mm512_add_ps(m[step], m[2 * step]));
    to[0] = _mm512_add_ps(m[0], mean);
    to[to_step] = _mm512_mul_ps(half, _mm512_sub_ps(m[step], m[2 * step]));
    to[2 * to_step] = _mm512_sub_ps(mean, m[3 * step]);
}

#endif
