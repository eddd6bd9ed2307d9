/* Shared by tests of the CPU's own weight gradients: tensors, plain loops in double, a run in guarded memory.
 *
 * Values are small integers, so every sum is exact and comparisons are for equality; tests of thread independence use
 * values that round. */
#ifndef TOWERS_TESTS_WEIGHT_GRADIENT_H
#define TOWERS_TESTS_WEIGHT_GRADIENT_H

#include "kernels/backend.h"

typedef struct GradientCase {
    const char *name;
    int n, ic, oc, h, w, kh, kw, stride_h, stride_w, pad_h, pad_w;
    int x_gap, y_gap; /* channels between the pixels of x and of dy */
} GradientCase;

/* One of the kernels. `make` fails the test if it cannot; *workspace_bytes: what `run` may use. */
typedef struct GradientKernel {
    const char *name;
    Dtype dtype;
    int threads; /* of gradient_check */
    void *(*make)(const Tensor *x, const Tensor *dy, const Window *window, int threads, size_t *workspace_bytes);
    void (*run)(void *made, const Device *device, const Tensor *x, const Tensor *dy, float *dw, void *workspace);
    void (*destroy)(void *made);
} GradientKernel;

Window gradient_window(const GradientCase *c);

/* Equal to plain loops. */
void gradient_check(const GradientKernel *kernel, const GradientCase *c);

/* Two to five threads make the bits of one. */
void gradient_check_threads(const GradientKernel *kernel, const GradientCase *c);

/* How far dw is from plain loops in double, of values that round: |dw - wanted| / |wanted|. */
double gradient_error(const GradientKernel *kernel, const GradientCase *c);

#endif
