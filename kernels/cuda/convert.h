/* Changes of dtype and layout around library calls: what must happen to an operand before cuDNN or cuBLASLt can take
 * it, and to a result after.
 *
 * All are bandwidth-bound, enqueue on `stream`, and read and write each element once. Counts may be 0. */
#ifndef TOWERS_KERNELS_CUDA_CONVERT_H
#define TOWERS_KERNELS_CUDA_CONVERT_H

#include "kernels/tensor.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* to[i] = from[i], i < count, between f32, bf16 and f16. */
cudaError_t convert_flat(void *to, Dtype to_dtype, const void *from, Dtype from_dtype, int64_t count,
                         cudaStream_t stream);
/* Pixel by pixel: channels c < min(to, from) are copied (and converted), further channels of `to` become 0. Same n, h,
 * w; any pitches. */
cudaError_t convert_pixels(Tensor to, Tensor from, cudaStream_t stream);
/* to = a + b, shapes and dtypes equal, any pitches; `to` may be `a` or `b`. Rounded once. */
cudaError_t convert_add(Tensor to, Tensor a, Tensor b, cudaStream_t stream);
/* y = relu?(y + bias[c]) in place; bias f32 {1,c,1,1} or NULL data. */
cudaError_t convert_bias(Tensor y, const float *bias, bool relu, cudaStream_t stream);
/* to[i] = value, f32. */
cudaError_t convert_fill(float *to, float value, int64_t count, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
