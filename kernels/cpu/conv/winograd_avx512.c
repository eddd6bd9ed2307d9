/* Winograd's algorithms, forward and data gradient, with vectors of AVX-512, in f32 and bf16. */
#include "kernels/cpu/conv/winograd.h"

#if defined(__x86_64__)
#include "kernels/cpu/conv/lanes_avx512.h"

#include "kernels/cpu/conv/winograd_kernel.h"

const WinogradCode winograd_avx512[WINOGRAD_ALGORITHMS] = WINOGRAD_CODES;
#endif
