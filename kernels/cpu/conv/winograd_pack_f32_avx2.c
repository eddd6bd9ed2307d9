/* winograd_pack.h for f32 with AVX2. */
#include "kernels/cpu/conv/winograd_pack.h"

#if defined(__x86_64__)
#define WORDS_CODE __attribute__((target("avx2,fma")))
enum { CHANNELS = 8 };

#include "kernels/cpu/conv/words_f32.h"

#include "kernels/cpu/conv/winograd_transforms.h"

#include "kernels/cpu/conv/winograd_transforms_six.h"

const WinogradPack winograd_pack_f32_avx2 = WINOGRAD_PACK(wgrad_f32_avx2, winograd_back_avx2, SIX_POINTS);
#endif
