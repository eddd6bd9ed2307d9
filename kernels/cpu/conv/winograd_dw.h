/* Weight gradients of 3x3 convolutions of stride 1 by Winograd's F(2x2, 3x3), in bf16 and in f32: dw = G' (sum over
 * tiles of (A dy A') * (B' x B)) G, point by point 16 products where the window has 36.
 *
 * Made as in wgrad.h: in bf16 two images are paired, tiles take the place of pixels and points that of taps; the
 * transform comes with the packing, and the products are wgrad's. In bf16 what winograd.h says of rounding and
 * processors holds here too. f32 needs AVX512F; its error is half to twice that of oneDNN's sums, whose order decides:
 * see docs/decisions/0006-winograd.md. */
#ifndef TOWERS_KERNELS_CPU_CONV_WINOGRAD_DW_H
#define TOWERS_KERNELS_CPU_CONV_WINOGRAD_DW_H

#include "kernels/backend.h"

typedef struct WinogradDw WinogradDw;

bool winograd_dw_takes(const Tensor *x, const Tensor *dy, const Window *window);

NODISCARD Status winograd_dw_create(const Tensor *x, const Tensor *dy, const Window *window, int threads,
                                    WinogradDw **made);
void winograd_dw_destroy(WinogradDw *winograd);

size_t winograd_dw_workspace_bytes(const WinogradDw *winograd);

/* x and dy: of the type that winograd_dw_create has seen; dw: packed OHWI. Equal to the bit for any number of
 * threads. */
void winograd_dw_run(const WinogradDw *winograd, const Device *device, const void *x, const void *dy, float *dw,
                     void *workspace);

#endif
