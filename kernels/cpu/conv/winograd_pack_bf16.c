/* winograd_pack.h for bf16. */
#include "kernels/cpu/conv/winograd_pack.h"

#if defined(__x86_64__)
#include "kernels/cpu/conv/words_bf16.h"

#include "kernels/cpu/conv/winograd_transforms.h"

const WinogradPack winograd_pack_bf16 = WINOGRAD_PACK(wgrad_avx512, winograd_back_avx512);
#endif
