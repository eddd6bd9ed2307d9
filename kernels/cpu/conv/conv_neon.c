/* All that convolutions compute with vectors of NEON, in f32: Winograd's algorithms, forward and both gradients, the tiles of
 * wgrad, and depthwise convolutions. (The two files that have vectors of one kind each, position_gemm.c and image_dw.c, name theirs
 * themselves.) */
#include "kernels/cpu/conv/wgrad.h"

#if defined(__aarch64__)
#include "kernels/cpu/conv/lanes_neon.h"

#include "kernels/cpu/conv/depthwise_code.h"
#include "kernels/cpu/conv/wgrad_f32_kernel.h"
#include "kernels/cpu/conv/winograd_dw_kernel.h"
#include "kernels/cpu/conv/winograd_kernel.h"

const WinogradCode winograd_neon[WINOGRAD_ALGORITHMS] = WINOGRAD_CODES;
const WinogradDwCode winograd_dw_neon[WINOGRAD_ALGORITHMS] = WINOGRAD_DW_CODES;
const DepthwiseCode depthwise_neon = {depthwise_row, depthwise_taps};
const WgradCode wgrad_f32_neon = WGRAD_VECTOR_CODE(1, tile_run_f32, pack_f32);
#endif
