/* Training steps planned for a GPU that is not there: with its strides, padded rows and fused ops, but nothing is
 * computed. */
#pragma once

#include "tests/support/fake_backend.h"
#include "towers/graph/program.h"

/* A device of no memory that takes strides and padded rows where the CUDA kernels do, and fuses what can be fused. */
FakeBackend *described_gpu(Device *device);
/* A training step of `model` as it is published; `rewrite`: sibling convolutions as one, pools behind convolutions. */
NODISCARD Status described_step(const Model *model, int32_t n, bool rewrite, Dtype dtype, Device *device,
                                Layout **layout, Program *program);
