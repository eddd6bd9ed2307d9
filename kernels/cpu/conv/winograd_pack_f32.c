/* winograd_pack.h for f32 with AVX512F. */
#include "kernels/cpu/conv/winograd_pack.h"

#if defined(__x86_64__)
#define WORDS_CODE __attribute__((target("avx512f")))
enum { CHANNELS = 16 };

#include "kernels/cpu/conv/words_f32.h"

#include "kernels/cpu/conv/winograd_transforms.h"

#include "kernels/cpu/conv/winograd_transforms_six.h"

const WinogradPack winograd_pack_f32 = WINOGRAD_PACK(wgrad_f32, winograd_back_avx512, SIX_POINTS);
#endif
