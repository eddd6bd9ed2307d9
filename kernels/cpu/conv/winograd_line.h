/* 1x7 and 7x1 convolutions of stride 1 by F(4, 7): 14 products where the window has 28.
 *
 * F(2, 3) nested in itself with a stride of 2: output 2i + j sums taps 2k + l, i and j < 2, k and l < 3, which has two
 * places for taps 2 and 4; with the right ones empty two of the 16 products vanish:
 *     h0 h1 .          d = B' x B of x[2p + q], p and q < 4, B' and A' as in winograd.c, G in winograd_tile.h
 *     h2 h3 h4         u = G h G'
 *     .  h5 h6         y = A' (u d) A
 * The transforms, their rounding to bf16 and what is lost by it are those of F(2x2, 3x3). Where a line is one output
 * longer than its tiles, that output is a plain sum. The gradient with respect to x is the same with the weights
 * turned. f32 takes AVX-512, bf16 AVX512-BF16 without AMX; see docs/decisions/0006-winograd.md. */
#ifndef TOWERS_KERNELS_CPU_CONV_WINOGRAD_LINE_H
#define TOWERS_KERNELS_CPU_CONV_WINOGRAD_LINE_H

#include "kernels/backend.h"

typedef struct WinogradLine WinogradLine;

/* Whether this processor has the code, and it is the faster choice. `x` is what is read and `y` what is written: x and
 * y of a convolution, or dy and dx of its gradient. */
bool winograd_line_takes(const Tensor *x, const Tensor *y, const Window *window);

/* `turned`: the gradient; then x is dy, y is dx, and `window` is still that of the convolution. */
NODISCARD Status winograd_line_create(const Tensor *x, const Tensor *y, const Window *window, bool turned, int threads,
                                      WinogradLine **made);
void winograd_line_destroy(WinogradLine *winograd);

size_t winograd_line_workspace_bytes(const WinogradLine *winograd);

/* y = x * w (+ acc, of the same shape as y, which may be y itself); weights packed OHWI in f32. */
void winograd_line_run(const WinogradLine *winograd, const Device *device, const void *x, const float *w,
                       const Tensor *acc, void *y, void *workspace);

#endif
