/* The launchers of this project's own CUDA kernels, for C.
 *
 * Each enqueues one or two kernels on a stream and returns 0 or a cudaError_t as int (kernel_error_text names it). They
 * choose between 16-byte accesses and single elements by shape, pitch and address; nothing here allocates, waits or
 * checks: the caller has, so that a call can be captured into a graph. Tensors are those of tensor.h, NHWC with pitch,
 * f32, f16 or bf16 unless said otherwise; data == NULL where an optional operand is absent. No CUDA header is needed,
 * which lets tests run the same sources on the host. */
#ifndef TOWERS_KERNELS_CUDA_KERNELS_H
#define TOWERS_KERNELS_CUDA_KERNELS_H

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/op.h"
#include "kernels/optimizer.h"

typedef void *KernelStream; /* a cudaStream_t */

const char *kernel_error_text(int error);

/* Memory that prepare gives to the reducing kernels: counters, zero before the first launch, zero again after each. */
enum { KERNEL_COUNTERS_BYTES = 4096 };

/* Tensors must have fewer elements than this: indices are 32 bits. */
static const int64_t KERNEL_MAX_ELEMENTS = (int64_t)1 << 31;

/* ---- flat ranges */
int kernel_fill(float *to, float value, size_t count, KernelStream stream);
int kernel_cast(Dtype from_dtype, const void *from, Dtype to_dtype, void *to, size_t count, KernelStream stream);

/* ---- input */
int kernel_image(const OpCall *call, KernelStream stream);

/* ---- batch normalization */
size_t kernel_batchnorm_bytes(Shape x); /* workspace of batchnorm and batchnorm_dx */
int kernel_batchnorm(const OpCall *call, KernelStream stream);
int kernel_batchnorm_apply(const OpCall *call, KernelStream stream);
int kernel_batchnorm_dx(const OpCall *call, KernelStream stream);

/* ---- elementwise */
int kernel_relu(const OpCall *call, KernelStream stream);
int kernel_relu_dx(const OpCall *call, KernelStream stream);
int kernel_leaky_relu(const OpCall *call, KernelStream stream);
int kernel_leaky_relu_dx(const OpCall *call, KernelStream stream);
int kernel_tanh(const OpCall *call, KernelStream stream);
int kernel_dropout(const OpCall *call, KernelStream stream);
int kernel_add(const OpCall *call, KernelStream stream);
int kernel_mul(const OpCall *call, KernelStream stream);
int kernel_affine(const OpCall *call, KernelStream stream);
int kernel_power(const OpCall *call, KernelStream stream);
int kernel_random(const OpCall *call, KernelStream stream);

/* ---- pooling */
int kernel_max_pool(const OpCall *call, KernelStream stream);
int kernel_max_pool_dx(const OpCall *call, KernelStream stream);
int kernel_avg_pool(const OpCall *call, KernelStream stream);
int kernel_avg_pool_dx(const OpCall *call, KernelStream stream);

/* ---- channels: `c` channels of every pixel from channel `from_channel` of one to `to_channel` of the other */
int kernel_copy_channels(const Tensor *from, int32_t from_channel, const Tensor *to, int32_t to_channel, int32_t c,
                         KernelStream stream);

/* ---- sums and spreads */
size_t kernel_channel_sum_bytes(Shape x);
int kernel_channel_sum(const OpCall *call, KernelStream stream);
int kernel_sum_to(const OpCall *call, KernelStream stream);
int kernel_spread_to(const OpCall *call, KernelStream stream);

/* ---- loss */
size_t kernel_softmax_loss_bytes(int32_t samples);
int kernel_softmax_loss(const OpCall *call, KernelStream stream);
int kernel_softmax_loss_dx(const OpCall *call, KernelStream stream);

/* ---- optimizer. Segments travel as kernel arguments, so nothing has to stay in host memory. */
int kernel_optimizer(const OptimizerUpdate *update, KernelStream stream);
enum { KERNEL_SQUARE_SUM_BYTES = 8192 }; /* scratch of kernel_square_sum: zero before the first launch */
int kernel_square_sum(const float *x, size_t count, void *scratch, double *sum, KernelStream stream);
int kernel_average(float *running, const float *batch, const float *correct, float decay, size_t count,
                   const float *commit, KernelStream stream);

#ifdef __cplusplus
}
#endif

#endif
