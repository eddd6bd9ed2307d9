/* The CUDA backend without CUDA: the op kernels of kernels/cuda on the emulation, in host memory. Ops that are library
 * calls (convolution, dense layers) have no kernel here. */
#pragma once

#include "kernels/backend.h"

extern const Backend emulated_backend;

/* Whether this kind has a kernel of our own. */
bool emulated_has(OpKind kind);
