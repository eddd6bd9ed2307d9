/* 3x3 convolutions of stride 1 in bf16 by Winograd's F(2x2, 3x3): 16 products where the window has 36.
 *
 * Lavin and Gray, arXiv:1509.08308, section 4.1. Transforms are sums of a few f32 with factors 1, 1/2 and 1/4, rounded
 * to bf16 before the products, whose sums are f32: about twice the rounding of a convolution in bf16, see
 * docs/decisions/0006-winograd.md. The gradient with respect to x is the same with the weights turned; that with
 * respect to w is in winograd_dw.c. For AVX512-BF16: with AMX plain products are faster. */
#ifndef TOWERS_KERNELS_CPU_WINOGRAD_H
#define TOWERS_KERNELS_CPU_WINOGRAD_H

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
void winograd_run(const Winograd *winograd, const Device *device, const uint16_t *x, const float *w, const Tensor *acc,
                  uint16_t *y, void *workspace);

#endif
