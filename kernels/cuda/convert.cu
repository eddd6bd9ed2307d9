/* Dtype and layout of operands of library calls; see convert.h. Whole rows go through the flat cast or the copy of
 * channels; only paddings of the channels (an image's 3 to 8) and converted slices are done element by element. */
#include "kernels/cuda/convert.h"

#include "kernels/cuda/map.cuh"

/* ---- flat ranges, of any length: indices are 64 bits here */

enum { FLAT_LANES = 8 };

template <typename To, typename From>
DEVICE void cast_lanes(const Tensor &to, const Tensor &from, int64_t at, float *lanes)
{
    enum { TO_WIDTH = sizeof(To) == 4 ? 4 : 8, FROM_WIDTH = sizeof(From) == 4 ? 4 : 8 };
    UNROLL
    for (int i = 0; i < FLAT_LANES; i += FROM_WIDTH) Lanes<From, FROM_WIDTH>::load(from, at + i, lanes + i);
    UNROLL
    for (int i = 0; i < FLAT_LANES; i += TO_WIDTH) Lanes<To, TO_WIDTH>::store(to, at + i, lanes + i);
}

template <typename To, typename From> BOUNDED cast_kernel(Tensor to, Tensor from, int64_t count)
{
    int64_t at = ((int64_t)blockIdx.x * BLOCK + threadIdx.x) * FLAT_LANES;
    float lanes[FLAT_LANES];
    if (at + FLAT_LANES <= count) cast_lanes<To, From>(to, from, at, lanes);
    for (; at < count && at + FLAT_LANES > count; at++) {
        Lanes<Any, 1>::load(from, at, lanes);
        Lanes<Any, 1>::store(to, at, lanes);
    }
}

BOUNDED cast_any_kernel(Tensor to, Tensor from, int64_t count)
{
    int64_t at = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    float lane;
    if (at >= count) return;
    Lanes<Any, 1>::load(from, at, &lane);
    Lanes<Any, 1>::store(to, at, &lane);
}

template <typename To> static void cast_from(const Tensor &to, const Tensor &from, int64_t count, cudaStream_t stream)
{
    uint32_t blocks = (uint32_t)ceil_divided(count, BLOCK * FLAT_LANES);
    if (from.dtype == DTYPE_F32)
        LAUNCH((cast_kernel<To, float>), blocks, BLOCK, stream, to, from, count);
    else if (from.dtype == DTYPE_F16)
        LAUNCH((cast_kernel<To, F16>), blocks, BLOCK, stream, to, from, count);
    else
        LAUNCH((cast_kernel<To, BF16>), blocks, BLOCK, stream, to, from, count);
}

extern "C" cudaError_t convert_flat(void *to, Dtype to_dtype, const void *from, Dtype from_dtype, int64_t count,
                                    cudaStream_t stream)
{
    Tensor t = {to, {1, 1, 1, 1}, to_dtype, 1}, f = {(void *)from, {1, 1, 1, 1}, from_dtype, 1};
    if (count == 0) return cudaSuccess;
    if (!aligned_16(to) || !aligned_16(from))
        LAUNCH((cast_any_kernel), (uint32_t)ceil_divided(count, BLOCK), BLOCK, stream, t, f, count);
    else if (to_dtype == DTYPE_F32)
        cast_from<float>(t, f, count, stream);
    else if (to_dtype == DTYPE_F16)
        cast_from<F16>(t, f, count, stream);
    else
        cast_from<BF16>(t, f, count, stream);
    return LAUNCH_ERROR();
}

BOUNDED fill_kernel(float *to, float value, int64_t count)
{
    int64_t at = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (at < count) to[at] = value;
}

extern "C" cudaError_t convert_fill(float *to, float value, int64_t count, cudaStream_t stream)
{
    if (count == 0) return cudaSuccess;
    LAUNCH((fill_kernel), (uint32_t)ceil_divided(count, BLOCK), BLOCK, stream, to, value, count);
    return LAUNCH_ERROR();
}

/* ---- pixels */

struct PadRows {
    Tensor to, from;
    Divider width; /* channels of `to` */
    uint32_t elements;
};

BOUNDED pad_kernel(PadRows o)
{
    uint32_t i = blockIdx.x * BLOCK + threadIdx.x, c;
    float value = 0;
    if (i >= o.elements) return;
    int64_t row = divided(i, o.width, &c);
    if (c < (uint32_t)o.from.shape.c) Lanes<Any, 1>::load(o.from, row * o.from.pitch + c, &value);
    Lanes<Any, 1>::store(o.to, row * o.to.pitch + c, &value);
}

extern "C" cudaError_t convert_pixels(const Tensor *to, const Tensor *from, cudaStream_t stream)
{
    int64_t elements = pixels_of(*to) * to->shape.c;
    if (to->shape.c == from->shape.c) {
        if (to->dtype == from->dtype) return kernel_copy_channels(from, 0, to, 0, to->shape.c, stream);
        if (packed(*to) && packed(*from))
            return convert_flat(to->data, to->dtype, from->data, from->dtype, elements, stream);
    }
    PadRows o = {*to, *from, divider(to->shape.c), (uint32_t)elements};
    LAUNCH((pad_kernel), (uint32_t)ceil_divided(elements, BLOCK), BLOCK, stream, o);
    return LAUNCH_ERROR();
}

struct PlacedRows {
    Tensor to, from;
    Divider width, w, h; /* channels and sides of `to` */
    int32_t top, left;
    uint32_t elements;
};

BOUNDED placed_kernel(const __grid_constant__ PlacedRows o)
{
    uint32_t i = blockIdx.x * BLOCK + threadIdx.x, c, h, w;
    float value = 0;
    if (i >= o.elements) return;
    uint32_t pixel = divided(i, o.width, &c), n = divided(divided(pixel, o.w, &w), o.h, &h);
    int32_t row = (int32_t)h - o.top, column = (int32_t)w - o.left;
    bool inside = (uint32_t)row < (uint32_t)o.from.shape.h && (uint32_t)column < (uint32_t)o.from.shape.w;
    if (inside && c < (uint32_t)o.from.shape.c) {
        int64_t from = ((int64_t)n * o.from.shape.h + row) * o.from.shape.w + column;
        Lanes<Any, 1>::load(o.from, from * o.from.pitch + c, &value);
    }
    Lanes<Any, 1>::store(o.to, (int64_t)pixel * o.to.pitch + c, &value);
}

extern "C" cudaError_t convert_placed(const Tensor *to, const Tensor *from, int32_t top, int32_t left,
                                      cudaStream_t stream)
{
    int64_t elements = pixels_of(*to) * to->shape.c;
    PlacedRows o = {*to, *from, divider(to->shape.c), divider(to->shape.w), divider(to->shape.h),
                    top, left,  (uint32_t)elements};
    LAUNCH((placed_kernel), (uint32_t)ceil_divided(elements, BLOCK), BLOCK, stream, o);
    return LAUNCH_ERROR();
}

struct Bias {
    enum { INPUTS = 1 };
    const float *bias;
    Divider channels;
    bool relu;
    template <int V> MEMBER void apply(uint32_t first, const float (*in)[V], float *out) const
    {
        UNROLL
        for (int i = 0; i < V; i++) {
            uint32_t c;
            divided(first + i, channels, &c);
            float value = in[0][i] + (bias ? bias[c] : 0.0f);
            out[i] = relu && 0.0f > value ? 0.0f : value;
        }
    }
};

extern "C" cudaError_t convert_bias(const Tensor *y, const float *bias, bool relu, cudaStream_t stream)
{
    Bias body = {bias, divider(y->shape.c), relu};
    return map_run(body, y, *y, stream);
}
