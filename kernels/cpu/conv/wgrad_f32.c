/* Tiles of wgrad for AVX512F: words are floats (wgrad_tile.h). Only for Winograd's algorithms, which pack by themselves:
 * plain weight gradients in f32 are as fast with oneDNN. */
#include "kernels/cpu/conv/wgrad.h"

#if defined(__x86_64__)
#include "kernels/cpu/conv/words_f32.h"

#include "kernels/cpu/conv/wgrad_tile.h"

static bool usable(void)
{
    return __builtin_cpu_supports("avx512f");
}

const WgradCode wgrad_f32 = {
    .name = "avx512_f32", .panels = 1, .vectors = VECTORS, .step = 1, .usable = usable, .tile = tile_run};
#endif
