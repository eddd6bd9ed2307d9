/* Sums, products and powers of whole tensors: one read of each operand, one write. */
#include "kernels/cuda/map.cuh"

/* ---- add: up to eight operands; the first in f32, the others added in order */

struct AddOperands {
    Tensor in[OP_MAX_IN], out;
    Divider width;
    uint32_t vectors;
    int count;
    float floor; /* 0 for ReLU, else -inf */
};

template <typename T, int V> BOUNDED add_kernel(const __grid_constant__ AddOperands o)
{
    uint32_t vector = blockIdx.x * BLOCK + threadIdx.x, from;
    if (vector >= o.vectors) return;
    uint32_t row = divided(vector, o.width, &from);
    float sum[V], next[V];
    Lanes<T, V>::load(o.in[0], row * o.in[0].pitch + (int64_t)from * V, sum);
    UNROLL
    for (int k = 1; k < OP_MAX_IN; k++) {
        if (k >= o.count) break;
        Lanes<T, V>::load(o.in[k], row * o.in[k].pitch + (int64_t)from * V, next);
        UNROLL
        for (int i = 0; i < V; i++) sum[i] += next[i];
    }
    UNROLL
    for (int i = 0; i < V; i++) sum[i] = o.floor > sum[i] ? o.floor : sum[i];
    Lanes<T, V>::store(o.out, row * o.out.pitch + (int64_t)from * V, sum);
}

template <typename T, int V> static void add_launch(AddOperands o, int64_t rows, int64_t width, cudaStream_t stream)
{
    o.width = divider(width / V);
    o.vectors = (uint32_t)(rows * (width / V));
    LAUNCH((add_kernel<T, V>), (uint32_t)ceil_divided(o.vectors, BLOCK), BLOCK, stream, o);
}

cudaError_t kernel_add(const OpCall *call, cudaStream_t stream)
{
    AddOperands o;
    const Tensor &y = call->out[0];
    bool flat = packed(y);
    o.out = y;
    o.count = 0;
    o.floor = call->attr.add.relu ? 0.0f : -INFINITY;
    for (int k = 0; k < call->in_count; k++)
        if (call->in[k].data) {
            flat = flat && packed(call->in[k]);
            o.in[o.count++] = call->in[k];
        }
    int64_t rows = flat ? 1 : pixels_of(y), width = flat ? pixels_of(y) * y.shape.c : y.shape.c;
    bool wide = wide_enough(y, y.dtype, width, flat);
    for (int k = 0; k < o.count; k++) wide = wide && wide_enough(o.in[k], y.dtype, width, flat);
    BY_FORMAT(y.dtype, wide, add_launch, o, rows, width, stream);
    return LAUNCH_ERROR();
}

/* ---- mul, affine, power */

struct Mul {
    enum { INPUTS = 2 };
    EACH(in[0][i] * in[1][i])
};

/* By one number for each channel, of every sample or of all. */
struct MulChannels {
    enum { INPUTS = 1 };
    Tensor b;
    Divider c, pixels; /* pixels: of a sample */
    template <int V> MEMBER void apply(uint32_t first, const float (*in)[V], float *out) const
    {
        UNROLL
        for (int i = 0; i < V; i++) {
            uint32_t channel, within, pixel = divided(first + i, c, &channel), sample = divided(pixel, pixels, &within);
            float factor;
            Lanes<Any, 1>::load(b, (b.shape.n == 1 ? 0 : sample * b.pitch) + channel, &factor);
            out[i] = in[0][i] * factor;
        }
    }
};

struct Affine {
    enum { INPUTS = 1 };
    float scale, shift;
    EACH(scale *in[0][i] + shift)
};

/* The exponents that gradients of norms are made of are computed without powf. */
struct Power {
    enum { INPUTS = 1 };
    float exponent;
    MEMBER float raised(float x) const
    {
        if (exponent == 2.0f) return x * x;
        if (exponent == 0.5f) return sqrtf(x);
        if (exponent == -0.5f) return 1.0f / sqrtf(x);
        if (exponent == -1.0f) return 1.0f / x;
        return powf(x, exponent);
    }
    EACH(raised(in[0][i]))
};

cudaError_t kernel_mul(const OpCall *call, cudaStream_t stream)
{
    Shape y = call->out[0].shape;
    if (shape_equal(call->in[1].shape, y)) return map_run(Mul(), call->in, call->out[0], stream);
    MulChannels body = {call->in[1], divider(y.c), divider((int64_t)y.h * y.w)};
    return map_run(body, call->in, call->out[0], stream);
}

cudaError_t kernel_affine(const OpCall *call, cudaStream_t stream)
{
    Affine body = {call->attr.affine.scale, call->attr.affine.shift};
    return map_run(body, call->in, call->out[0], stream);
}

cudaError_t kernel_power(const OpCall *call, cudaStream_t stream)
{
    Power body = {call->attr.power.exponent};
    return map_run(body, call->in, call->out[0], stream);
}
