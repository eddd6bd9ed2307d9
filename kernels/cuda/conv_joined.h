/* Joined convolutions: which cuDNN graph a joined op is, asked by its kernel, by Backend.joins, and by the test that
 * looks for lost plans, so that all three mean the same graph. */
#ifndef TOWERS_KERNELS_CUDA_CONV_JOINED_H
#define TOWERS_KERNELS_CUDA_CONV_JOINED_H

#include "kernels/backend.h"
#include "kernels/cuda/conv_graph.h"

/* False if cuDNN is not even asked: another dtype than f16, or channels that would have to be padded. */
bool conv_joined_shape(const OpCall *call, ConvPattern *pattern, ConvShape *shape);
/* Whether `library` has a plan for it, among the engines that come compiled. */
bool conv_joined_exists(CudnnLibrary *library, const OpCall *call, bool deterministic);
/* Backend.joins */
bool conv_joins(Device *device, const OpCall *call);

#endif
