/* Weight gradients with vectors of AVX-512, in f32 and bf16: tiles of wgrad, and Winograd's algorithms. A tile is 16 outputs x up
 * to 3 vectors of inputs, in two halves of 8 outputs, whose sums stay in registers for the whole tile. Words are pairs of bf16
 * (vdpbf16ps) or floats.
 *
 * Those of f32 are for Winograd's algorithms, which pack by themselves, and for windows of 5x5 and stride 2; other plain weight
 * gradients in f32 are as fast with oneDNN. */
#include "kernels/cpu/conv/wgrad.h"

#if defined(__x86_64__)
#include "kernels/cpu/conv/lanes_avx512.h"

#include "kernels/cpu/conv/gemm_tile.h"
#include "kernels/cpu/conv/winograd_dw_kernel.h"

enum { HALF = 8 };

TILE_INLINE void half_run(Dtype dtype, const WgradTile *tile, int first, const int vectors)
{
    GemmSums sum;
    gemm_begin(HALF, vectors, NULL, sum);
    for (int64_t group = 0; group < tile->groups; group++)
        for (int64_t row = 0; row < tile->rows; row++)
            gemm_add(dtype, HALF, vectors, tile->dy + group * tile->dy_group + row * tile->dy_row + first, 1,
                     WGRAD_LANES, tile->x + group * tile->x_group + row * tile->x_row, vectors * LANES, tile->columns,
                     sum);
    gemm_store_part(HALF, vectors, sum, tile->dw + first * tile->dw_out, tile->dw_out, tile->outs - first, tile->ins,
                    tile->add);
}

TILE_INLINE void tile_run(Dtype dtype, const WgradTile *tile)
{
    for (int first = 0; first < tile->outs; first += HALF)
        if (tile->vectors == 3)
            half_run(dtype, tile, first, 3);
        else if (tile->vectors == 2)
            half_run(dtype, tile, first, 2);
        else
            half_run(dtype, tile, first, 1);
}

TILE_CODE static void tile_run_bf16(const WgradTile *tile)
{
    tile_run(DTYPE_BF16, tile);
}

TILE_CODE static void tile_run_f32(const WgradTile *tile)
{
    tile_run(DTYPE_F32, tile);
}

const WgradCode wgrad_avx512 = WGRAD_VECTOR_CODE(2, tile_run_bf16, wgrad_pack);
const WgradCode wgrad_f32_avx512 = WGRAD_VECTOR_CODE(1, tile_run_f32, wgrad_pack_f32);

/* ---- Winograd's algorithms */

const WinogradDwCode winograd_dw_avx512[WINOGRAD_ALGORITHMS] = WINOGRAD_DW_CODES;

WINOGRAD_DW_PACK(F2_3, DTYPE_BF16)
WINOGRAD_DW_PACK(F4_7, DTYPE_BF16)
WINOGRAD_DW_PIXEL(DTYPE_BF16)
const WinogradDwCode winograd_dw_bf16[WINOGRAD_ALGORITHMS] = {WINOGRAD_DW_CODE(F2_3, DTYPE_BF16),
                                                              WINOGRAD_DW_CODE(F4_7, DTYPE_BF16)};
#endif
