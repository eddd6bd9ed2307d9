/* The CUDA backend without CUDA: the op kernels of kernels/cuda on the emulation, in host memory. Ops that are library
 * calls (convolution, dense layers) have no kernel here. */
#pragma once

#include "kernels/backend.h"

extern const Backend emulated_backend;

extern uint64_t emulated_blocks; /* of the last launch */

/* Whether this kind has a kernel of our own. */
bool emulated_has(OpKind kind);
