/* Shared by tests of the CPU's own weight gradients: tensors, plain loops in double, a run in guarded memory.
 *
 * Values are small integers, so every sum is exact and comparisons are for equality; tests of thread independence use
 * values that round. */
#pragma once

#include "kernels/cpu/conv/conv_impl.h"

typedef struct GradientCase {
    const char *name;
    int n, ic, oc, h, w, kh, kw, stride_h, stride_w, pad_h, pad_w;
    int x_gap, y_gap; /* channels between the pixels of x and of dy */
} GradientCase;

/* One of the implementations, on tensors of one type; it must take the cases. */
typedef struct GradientKernel {
    const char *name;
    Dtype dtype;
    int threads; /* of gradient_check */
    const ConvImpl *impl;
} GradientKernel;

/* The problem of a weight gradient; the tensors are borrowed. */
ConvProblem gradient_problem(const Tensor *x, const Tensor *dy, const Window *window);

Window gradient_window(const GradientCase *c);

/* Equal to plain loops. */
void gradient_check(const GradientKernel *kernel, const GradientCase *c);

/* Two to five threads make the bits of one. */
void gradient_check_threads(const GradientKernel *kernel, const GradientCase *c);

/* How far dw is from plain loops in double, of values that round: |dw - wanted| / |wanted|. */
double gradient_error(const GradientKernel *kernel, const GradientCase *c);
