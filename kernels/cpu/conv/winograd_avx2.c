/* Winograd's algorithms, forward and data gradient, with vectors of AVX2. */
#include "kernels/cpu/conv/winograd.h"

#if defined(__x86_64__)
#include "kernels/cpu/conv/lanes_avx2.h"

#include "kernels/cpu/conv/winograd_kernel.h"

const WinogradCode winograd_avx2[WINOGRAD_ALGORITHMS] = WINOGRAD_CODES;
#endif
