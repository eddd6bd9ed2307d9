/* Changes of dtype and layout around library calls: what must happen to an operand before cuDNN or cuBLASLt can take
 * it, and to a result after.
 *
 * All are bandwidth-bound, enqueue on `stream`, and read and write each element once. */
#pragma once

#include "kernels/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* to[i] = from[i] for i < count, between f32, f16 and bf16. */
cudaError_t convert_flat(void *to, Dtype to_dtype, const void *from, Dtype from_dtype, int64_t count,
                         cudaStream_t stream);
/* to[i] = value, f32. */
cudaError_t convert_fill(float *to, float value, int64_t count, cudaStream_t stream);
/* Pixel by pixel: channels c < min(to, from) are copied and converted, further channels of `to` become 0. Same n, h, w;
 * any pitches; f32, f16 or bf16. */
cudaError_t convert_pixels(const Tensor *to, const Tensor *from, cudaStream_t stream);
/* The same for images of other sides: pixel (h, w) of `to` is pixel (h - top, w - left) of `from`, or 0 if there is none. */
cudaError_t convert_placed(const Tensor *to, const Tensor *from, int32_t top, int32_t left, cudaStream_t stream);
/* y = relu?(y + bias[c]) in place; bias may be NULL. */
cudaError_t convert_bias(const Tensor *y, const float *bias, bool relu, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
