/* Weight gradients in f32 with vectors of AVX2: tiles of wgrad, and Winograd's algorithms. */
#include "kernels/cpu/conv/wgrad.h"

#if defined(__x86_64__)
#include "kernels/cpu/conv/lanes_avx2.h"

#include "kernels/cpu/conv/wgrad_f32_kernel.h"
#include "kernels/cpu/conv/winograd_dw_kernel.h"

const WgradCode wgrad_f32_avx2 = WGRAD_VECTOR_CODE(1, tile_run_f32, pack_f32);
const WinogradDwCode winograd_dw_avx2[WINOGRAD_ALGORITHMS] = WINOGRAD_DW_CODES;
#endif
