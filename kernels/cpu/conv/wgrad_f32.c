/* Tiles of wgrad for AVX512F: words are floats (wgrad_tile.h). For Winograd's algorithms, which pack by themselves, and for
 * windows of 5x5 and stride 2; other plain weight gradients in f32 are as fast with oneDNN. */
#include "kernels/cpu/conv/wgrad.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define WORDS_CODE __attribute__((target("avx512f")))
#define WORDS_INLINE WORDS_CODE static inline __attribute__((always_inline))

typedef __m512 Words;

WORDS_INLINE Words words_load(const uint32_t *from)
{
    return _mm512_loadu_ps(from);
}

WORDS_INLINE Words words_spread(uint32_t word)
{
    return _mm512_castsi512_ps(_mm512_set1_epi32((int)word));
}

WORDS_INLINE __m512 words_multiply(__m512 sum, Words a, Words b)
{
    return _mm512_fmadd_ps(a, b, sum);
}

#include "kernels/cpu/conv/wgrad_tile.h"

static bool usable(void)
{
    return __builtin_cpu_supports("avx512f");
}

const WgradCode wgrad_f32 = {.name = "avx512_f32",
                             .images = 1,
                             .panels = 1,
                             .vectors = VECTORS,
                             .step = 1,
                             .dy_bytes = WGRAD_BLOCK_BYTES,
                             .usable = usable,
                             .tile = tile_run,
                             .pack = wgrad_pack_f32};
#endif
