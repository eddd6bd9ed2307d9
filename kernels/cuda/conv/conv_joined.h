/* Joined convolutions: CONV_STATISTICS, CONV_DX_SUMS, CONV_DW_APPLY, each by one cuDNN kernel (Fused, conv_fused.c) or
 * by the ops it joins (Separate, conv_separate.c); conv_joined.c chooses.
 *
 * conv_joined_shape and conv_joined_exists are used by the kernels, by Backend.joins and by the test that looks for
 * missing plans, so that all three mean the same cuDNN graph. */
#pragma once

#include "kernels/cuda/conv/conv_graph.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/cudnn_plan.h"
#include "kernels/cuda/kernels.h"

/* False if cuDNN is not even asked: another dtype than f16, channels that would have to be padded, odd strides. */
bool conv_joined_shape(const OpCall *call, ConvPattern *pattern, ConvShape *shape);
/* Whether `library` has a plan for it, among the engines that come compiled. */
bool conv_joined_exists(CudnnLibrary *library, const OpCall *call);

/* ---- one kernel: the operands of its graph, and where those that are converted lie in the workspace */

typedef struct Fused {
    ConvPattern pattern;
    ConvShape shape;
    ConvTensors tensor;
    bool x_converts, y_converts;
    size_t x_offset, w_offset, y_offset, vector_offset, task_offset;
    void *ones; /* borrowed, device: gamma of a batch norm without one; NULL where there is no such */
} Fused;

/* Fills all but `tensor` and `ones`. */
void fused_layout(const OpCall *call, Fused *f);
NODISCARD Status fused_run(Device *device, const Fused *f, CudnnPlan *plan, const OpCall *call, char *workspace);

/* ---- several kernels */

typedef struct Separate {
    OpCall conv, norm; /* inner calls; `norm` of CONV_DX_SUMS. They own their states */
    void *counters;    /* owned: of sums */
    size_t inner_offset, workspace_bytes;
} Separate;

NODISCARD Status separate_prepare(Device *device, const OpCall *call, Separate *s);
NODISCARD Status separate_run(Device *device, Separate *s, const OpCall *call, char *workspace);
void separate_free(Device *device, Separate *s); /* a zeroed one is fine */
