/* Weight gradients by Winograd's algorithms with vectors of AVX2. */
#include "kernels/cpu/conv/winograd_dw.h"

#if defined(__x86_64__)
#include "kernels/cpu/conv/lanes_avx2.h"

#include "kernels/cpu/conv/winograd_dw_kernel.h"

const WinogradDwCode winograd_dw_avx2[WINOGRAD_ALGORITHMS] = WINOGRAD_DW_CODES;
#endif
