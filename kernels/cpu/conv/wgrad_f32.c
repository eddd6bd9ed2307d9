/* Tiles of wgrad for AVX512F: words are floats (wgrad_tile.h). For Winograd's algorithms, which pack by themselves, and for
 * windows of 5x5 and stride 2; other plain weight gradients in f32 are as fast with oneDNN. */
#include "kernels/cpu/conv/wgrad.h"

#if defined(__x86_64__)
#include "kernels/cpu/conv/words_f32.h"

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
