/* Weight gradients by Winograd's algorithms with vectors of AVX-512, in f32 and bf16. */
#include "kernels/cpu/conv/winograd_dw.h"

#if defined(__x86_64__)
#include "kernels/cpu/conv/lanes_avx512.h"

#include "kernels/cpu/conv/winograd_dw_kernel.h"

const WinogradDwCode winograd_dw_avx512[WINOGRAD_ALGORITHMS] = WINOGRAD_DW_CODES;

WINOGRAD_DW_PACK(F2_3, DTYPE_BF16)
WINOGRAD_DW_PACK(F4_7, DTYPE_BF16)
WINOGRAD_DW_PIXEL(DTYPE_BF16)
const WinogradDwCode winograd_dw_bf16[WINOGRAD_ALGORITHMS] = {WINOGRAD_DW_CODE(F2_3, DTYPE_BF16),
                                                              WINOGRAD_DW_CODE(F4_7, DTYPE_BF16)};
#endif
