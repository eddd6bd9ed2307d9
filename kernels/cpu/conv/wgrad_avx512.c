/* The code of wgrad for AVX512-BF16: tiles of words of bf16 (wgrad_tile.h, vdpbf16ps). */
#include "kernels/cpu/conv/wgrad.h"

#if defined(__x86_64__)
#include "kernels/cpu/conv/words_bf16.h"

#include "kernels/cpu/conv/wgrad_tile.h"

static bool usable(void)
{
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl");
}

const WgradCode wgrad_avx512 = {.name = "avx512_bf16",
                                .images = 2,
                                .panels = 1,
                                .vectors = VECTORS,
                                .step = 1,
                                .dy_bytes = WGRAD_BLOCK_BYTES,
                                .usable = usable,
                                .tile = tile_run,
                                .pack = wgrad_pack};
#endif
