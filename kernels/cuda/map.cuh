/* Elementwise kernels: out[i] = f(in_0[i], in_1[i], ...), over tensors that may be slices and may share storage.
 *
 * A functor has INPUTS and `apply<V>(first, in, out)` for the V elements from packed NHWC index `first`. Each thread
 * processes STEPS vectors, all loads before the first store, so that enough bytes are in flight; a block's vectors
 * follow each other. If every operand is packed, the tensor is one row; else rows are pixels. Rows that are no multiple
 * of V, addresses that are not aligned, and mixtures of formats go element by element. Bytes moved: those of the
 * operands, once. */
#pragma once

#include "kernels/cuda/device.cuh"

enum { MAP_STEPS = 2 };

template <int INPUTS> struct MapOperands {
    Tensor in[INPUTS > 0 ? INPUTS : 1];
    Tensor out;
    Divider width; /* vectors of a row */
    uint32_t vectors;
};

template <typename T, int V, typename Body> BOUNDED map_kernel(MapOperands<Body::INPUTS> o, Body body)
{
    enum { INPUTS = Body::INPUTS };
    float in[MAP_STEPS][INPUTS > 0 ? INPUTS : 1][V];
    uint32_t start = blockIdx.x * (BLOCK * MAP_STEPS) + threadIdx.x, from[MAP_STEPS], row[MAP_STEPS];
    UNROLL
    for (int s = 0; s < MAP_STEPS; s++) {
        if (start + s * BLOCK >= o.vectors) break;
        row[s] = divided(start + s * BLOCK, o.width, &from[s]);
        UNROLL
        for (int k = 0; k < INPUTS; k++)
            Lanes<T, V>::load(o.in[k], row[s] * o.in[k].pitch + (int64_t)from[s] * V, in[s][k]);
    }
    UNROLL
    for (int s = 0; s < MAP_STEPS; s++) {
        float out[V];
        uint32_t vector = start + s * BLOCK;
        if (vector >= o.vectors) break;
        body.template apply<V>(vector * V, in[s], out);
        Lanes<T, V>::store(o.out, row[s] * o.out.pitch + (int64_t)from[s] * V, out);
    }
}

/* The `apply` of a functor whose element i is `value`, of in[k][i] alone. */
#define EACH(value)                                                                                                    \
    template <int V> MEMBER void apply(uint32_t, const float(*in)[V], float *out) const                                \
    {                                                                                                                  \
        UNROLL                                                                                                         \
        for (int i = 0; i < V; i++) out[i] = value;                                                                    \
    }

static inline bool packed(const Tensor &t)
{
    return t.pitch == t.shape.c;
}

static inline int64_t pixels_of(const Tensor &t)
{
    return (int64_t)t.shape.n * t.shape.h * t.shape.w;
}

/* Whether operand `t` can be moved in blocks of 16 bytes when rows have `width` elements. */
static inline bool wide_enough(const Tensor &t, Dtype dtype, int64_t width, bool flat)
{
    int lanes = lanes_of(dtype);
    return t.dtype == dtype && aligned_16(t.data) && width % lanes == 0 && (flat || t.pitch % lanes == 0);
}

template <typename T, int V, typename Body>
static void map_launch(MapOperands<Body::INPUTS> o, const Body &body, int64_t rows, int64_t width, cudaStream_t stream)
{
    o.width = divider(width / V);
    o.vectors = (uint32_t)(rows * (width / V));
    uint32_t blocks = (uint32_t)ceil_divided(o.vectors, BLOCK * MAP_STEPS);
    LAUNCH((map_kernel<T, V, Body>), blocks, BLOCK, stream, o, body);
}

/* Run `body` over `out`, whose shape all of in[0 .. INPUTS) share. */
template <typename Body>
static cudaError_t map_run(const Body &body, const Tensor *in, const Tensor &out, cudaStream_t stream)
{
    MapOperands<Body::INPUTS> o = {};
    bool flat = packed(out);
    o.out = out;
    for (int k = 0; k < Body::INPUTS; k++) {
        o.in[k] = in[k];
        flat = flat && packed(in[k]);
    }
    int64_t rows = flat ? 1 : pixels_of(out), width = flat ? pixels_of(out) * out.shape.c : out.shape.c;
    bool wide = wide_enough(out, out.dtype, width, flat);
    for (int k = 0; k < Body::INPUTS; k++) wide = wide && wide_enough(in[k], out.dtype, width, flat);
    BY_FORMAT(out.dtype, wide, map_launch, o, body, rows, width, stream);
    return LAUNCH_ERROR();
}

/* ---- copies, for which the elements' type does not matter: in the largest pieces that lengths, pitches and addresses allow */

/* launch<Piece>(...) with pieces of 16, 8, 4, 2 or 1 bytes. `all`: the bits of all of these, by `|`. */
#define BY_PIECE(all, launch, ...)                                                                                     \
    do {                                                                                                               \
        if ((all) % 16 == 0)                                                                                           \
            launch<uint4>(__VA_ARGS__);                                                                                \
        else if ((all) % 8 == 0)                                                                                       \
            launch<uint2>(__VA_ARGS__);                                                                                \
        else if ((all) % 4 == 0)                                                                                       \
            launch<uint32_t>(__VA_ARGS__);                                                                             \
        else if ((all) % 2 == 0)                                                                                       \
            launch<uint16_t>(__VA_ARGS__);                                                                             \
        else                                                                                                           \
            launch<uint8_t>(__VA_ARGS__);                                                                              \
    } while (0)

static inline uint64_t address_bits(const void *address)
{
    return (uint64_t)(uintptr_t)address;
}

static inline int64_t dtype_size(Dtype dtype)
{
    return dtype == DTYPE_F32 || dtype == DTYPE_I32 ? 4 : dtype == DTYPE_U8 ? 1 : 2;
}
