/* Weight gradients of 1x7 and 7x1 convolutions of stride 1 by F(4, 7), in bf16 and in f32: dh = G' (sum over tiles of
 * (A dy A') * (B' x B)) G, in 14 products where the window has 28, with the matrices of winograd_line.h.
 *
 * In bf16 two images are paired as in wgrad.h, and the products are wgrad's. Processors and rounding: as in
 * winograd_dw.h. */
#ifndef TOWERS_KERNELS_CPU_CONV_WINOGRAD_LINE_DW_H
#define TOWERS_KERNELS_CPU_CONV_WINOGRAD_LINE_DW_H

#include "kernels/backend.h"

typedef struct WinogradLineDw WinogradLineDw;

bool winograd_line_dw_takes(const Tensor *x, const Tensor *dy, const Window *window);

NODISCARD Status winograd_line_dw_create(const Tensor *x, const Tensor *dy, const Window *window,
                                         WinogradLineDw **made);
void winograd_line_dw_destroy(WinogradLineDw *winograd);

size_t winograd_line_dw_workspace_bytes(const WinogradLineDw *winograd);

/* x and dy: of the type that winograd_line_dw_create has seen; dw: packed OHWI. Equal to the bit for any number of
 * threads. */
void winograd_line_dw_run(const WinogradLineDw *winograd, const Device *device, const void *x, const void *dy,
                          float *dw, void *workspace);

#endif
