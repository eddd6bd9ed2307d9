/* Training steps planned for a GPU that is not there: with its strides, padded rows and joined ops, but nothing is
 * computed. */
#pragma once

#include "tests/support/fake_backend.h"
#include "towers/graph/program.h"

/* A device of no memory that takes strides and padded rows where the CUDA kernels do, and joins nothing. */
FakeBackend *described_gpu(Device *device);
/* Backend.joins of an H200 without cuDNN: what docs/results/cudnn-plans.md says that the library has
 * (tests/cli/check_roofline.sh compares). */
bool described_joins(Device *device, const OpCall *call);
/* A training step of `model` as it is published; `rewrite`: sibling convolutions as one, pools behind convolutions. */
NODISCARD Status described_step(const Model *model, int32_t n, bool rewrite, Dtype dtype, FuseLevel fuse,
                                Device *device, Layout **layout, Program *program);
