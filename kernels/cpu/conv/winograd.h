/* 3x3 convolutions of stride 1 by Winograd's F(2x2, 3x3): 16 products where the window has 36.
 *
 * Lavin and Gray, arXiv:1509.08308, section 4.1. Transforms are sums of a few f32 with factors 1, 1/2 and 1/4; no output
 * is made of a pixel outside its window, so that a window of zeros gives zero. In f32 the rounding is no coarser than
 * that of plain sums, which are nine times as long; in bf16, where transforms are rounded before the products, about
 * two and a half times: docs/decisions/0006-winograd.md. The gradient with respect to x is the same with the weights
 * turned; that with respect to w is in winograd_dw.c. f32 takes AVX-512, bf16 AVX512-BF16 without AMX. */
#ifndef TOWERS_KERNELS_CPU_CONV_WINOGRAD_H
#define TOWERS_KERNELS_CPU_CONV_WINOGRAD_H

#include "kernels/backend.h"

typedef struct Winograd Winograd;

/* Whether this processor has the code, and it is the faster choice. `x` is what is read and `y` what is written: x and
 * y of a convolution, or dy and dx of its gradient. */
bool winograd_takes(const Tensor *x, const Tensor *y, const Window *window);

/* `turned`: the gradient; then x is dy, y is dx, and `window` is still that of the convolution. */
NODISCARD Status winograd_create(const Tensor *x, const Tensor *y, const Window *window, bool turned, int threads,
                                 Winograd **made);
void winograd_destroy(Winograd *winograd);

size_t winograd_workspace_bytes(const Winograd *winograd);

/* y = x * w (+ acc, of the same shape as y, which may be y itself); weights packed OHWI in f32. */
void winograd_run(const Winograd *winograd, const Device *device, const void *x, const float *w, const Tensor *acc,
                  void *y, void *workspace);

#endif
