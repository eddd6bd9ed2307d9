/* The launchers of this project's own CUDA kernels, for C.
 *
 * Each enqueues one or two kernels on a stream. They choose between 16-byte accesses and single elements by shape,
 * pitch and address; nothing here allocates, waits or checks (the caller has), so that a call can be captured into a
 * graph. Tensors are those of tensor.h, NHWC with pitch, f32, f16 or bf16 unless said otherwise; data == NULL where an
 * optional operand is absent. */
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/base/status.h" /* C++ wants math.h outside of the braces below */

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/gate.h"
#include "kernels/op.h"
#include "kernels/optimizer.h"

/* Memory that prepare gives to the reducing kernels: counters, zero before the first launch, zero again after each. */
enum { KERNEL_COUNTERS_BYTES = 4096 };

/* Sums over pixels have at most so many channels: a counter for every 32. */
enum { KERNEL_MAX_CHANNELS = 32768 };

/* Tensors must have fewer elements than this: indices are 32 bits. */
static const int64_t KERNEL_MAX_ELEMENTS = (int64_t)1 << 31;

/* ---- ops, as far as these are kernels of this project */
#define OP(KIND, name, ...) cudaError_t kernel_##name(const OpCall *call, cudaStream_t stream);
#include "kernels/ops.def"

/* ---- batch normalization */
size_t kernel_batchnorm_bytes(Shape x); /* workspace of batchnorm, batchnorm_dx and max_pool_norm_dx */

/* Batch norm over the batches of all towers, in parts: between them the caller sums over the towers what lies in
 * workspace, f32. Forward: give, sums[1 + c], mean, squares[c], apply; backward: give, sums[1 + 2c], apply. */
float *kernel_batchnorm_sync_sums(const OpCall *call);
float *kernel_batchnorm_sync_squares(const OpCall *call);
cudaError_t kernel_batchnorm_sync_give(const OpCall *call, cudaStream_t stream);
cudaError_t kernel_batchnorm_sync_mean(const OpCall *call, cudaStream_t stream);
cudaError_t kernel_batchnorm_sync_apply(const OpCall *call, cudaStream_t stream);
cudaError_t kernel_batchnorm_dx_sync_give(const OpCall *call, cudaStream_t stream);
cudaError_t kernel_batchnorm_dx_sync_apply(const OpCall *call, cudaStream_t stream);

/* ---- layer normalization */
size_t kernel_layernorm_dx_bytes(Shape x);

/* ---- convolutions with few channels (conv_direct.cu), gradients of their weights (conv_direct_dw.cu) */
/* Operands have one 16-bit dtype, but a gradient w is f32. Rows of x and w begin at multiples of 8 bytes; y is packed. */
typedef struct DirectConv {
    Tensor x, w, y;
    Window window;
    int32_t channels; /* of x and w; behind them are zeros, up to the fourth */
} DirectConv;
bool kernel_conv_direct_takes(const DirectConv *conv); /* whatever its operands' data */
cudaError_t kernel_conv_direct(const DirectConv *conv, cudaStream_t stream);
/* x has all channels of w here, and rows of 16 bytes. For GPUs with DIRECT_DW_SM or newer, and that much workspace. */
enum { DIRECT_DW_SM = 80 };
bool kernel_conv_direct_dw_takes(const DirectConv *conv);
size_t kernel_conv_direct_dw_bytes(const DirectConv *conv);
cudaError_t kernel_conv_direct_dw(const DirectConv *conv, void *workspace, cudaStream_t stream);
/* The same by warpgroups (conv_wgmma_dw.cu), for GPUs with WGMMA_DW_SM and no other. */
enum { WGMMA_DW_SM = 90 };
bool kernel_conv_wgmma_dw_takes(const DirectConv *conv);
size_t kernel_conv_wgmma_dw_bytes(const DirectConv *conv);
cudaError_t kernel_conv_wgmma_dw(const DirectConv *conv, void *workspace, cudaStream_t stream);
/* Both end with this: the packed f32 gradient `w` is the sum of `count` parts, in their order. */
cudaError_t kernel_conv_dw_add(const float *parts, uint32_t count, const Tensor *w, cudaStream_t stream);

/* ---- channels: `c` channels of every pixel from channel `from_channel` of one to `to_channel` of the other */
cudaError_t kernel_copy_channels(const Tensor *from, int32_t from_channel, const Tensor *to, int32_t to_channel,
                                 int32_t c, cudaStream_t stream);

/* ---- sums and spreads */
size_t kernel_channel_sum_bytes(Shape x);

/* ---- loss */
size_t kernel_loss_bytes(int32_t samples);

/* ---- optimizer. Segments travel as kernel arguments, so nothing has to stay in host memory. */
cudaError_t kernel_optimizer(const OptimizerUpdate *update, cudaStream_t stream);
enum { KERNEL_SQUARE_SUM_BYTES = 8192 }; /* scratch of the next two: zero before the first launch */
cudaError_t kernel_square_sum(const float *x, size_t count, void *scratch, double *sum, cudaStream_t stream);
cudaError_t kernel_l2_term(const float *param, const OptimizerSegment *segments, int count, void *scratch, double *term,
                           cudaStream_t stream);
cudaError_t kernel_hash(const float *x, size_t count, uint64_t first, uint64_t *sum, cudaStream_t stream);
cudaError_t kernel_average(float *running, const float *batch, const float *correct, const float *decay, size_t count,
                           const float *commit, cudaStream_t stream);

/* ---- the gate: one thread each */
cudaError_t kernel_gate_extras(const GateExtrasCall *call, cudaStream_t stream);
cudaError_t kernel_gate_decide(const GateDecideCall *call, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
