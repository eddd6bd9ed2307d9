/* Shared by all .cu files: numbers in three formats, 16-byte accesses, division by a constant of the launch, positions.
 *
 * A kernel is a template over an element format T and a width V: <float, 4>, <F16, 8>, <BF16, 8> move 16 bytes at once;
 * <Any, 1> moves single elements whose format is a field of the tensor, for odd channel counts, odd addresses and
 * mixtures. All arithmetic is f32. Tests compile these files with the host's compiler (TOWERS_EMULATE_CUDA), so what
 * only nvcc has is behind the names LAUNCH, SHARED_ARRAY and UNROLL. */
#pragma once

#ifndef TOWERS_EMULATE_CUDA
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define LAUNCH(kernel, grid, block, stream, ...) kernel<<<(grid), (block), 0, (stream)>>>(__VA_ARGS__)
#define LAUNCH_ROOM(kernel, grid, block, bytes, stream, ...) kernel<<<(grid), (block), (bytes), (stream)>>>(__VA_ARGS__)
#define ROOM_ALLOWED(kernel, bytes)                                                                                    \
    cudaFuncSetAttribute((const void *)(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(bytes))
#define LAUNCH_ERROR() cudaGetLastError()
#define SHARED_ARRAY(type, name, count) __shared__ type name[count]
#define SHARED_ROOM(type, name) extern __shared__ __align__(128) type name[] /* the bytes of LAUNCH_ROOM */
#define UNROLL _Pragma("unroll")
#define UNROLL_TEXT(text) _Pragma(#text)
#define UNROLL_BY(count) UNROLL_TEXT(unroll count)
#endif

#include "kernels/cuda/kernels.h"

#define DEVICE __device__ static __forceinline__
#define MEMBER __device__ __forceinline__

/* Threads of a block. What needs no more than 85 registers is BOUNDED, so that three blocks fit a multiprocessor. */
enum { BLOCK = 256, WARP = 32, BLOCKS_PER_SM = 3 };
#define BOUNDED __global__ void __launch_bounds__(BLOCK, BLOCKS_PER_SM)

/* ---- formats */

struct F16 {
    unsigned short bits;
};
struct BF16 {
    unsigned short bits;
};
struct Any {
    unsigned char byte;
};

DEVICE float widened(F16 x)
{
    return __half2float(__ushort_as_half(x.bits));
}

DEVICE float widened(BF16 x)
{
    return __uint_as_float((unsigned)x.bits << 16);
}

DEVICE unsigned short f16_bits(float x)
{
    return __half_as_ushort(__float2half_rn(x));
}

DEVICE unsigned short bf16_bits(float x)
{
    return __bfloat16_as_ushort(__float2bfloat16_rn(x));
}

/* Both in one instruction: if they are widened again, as `round` does, the compiler makes two of single conversions, which
 * go through a unit a quarter as wide. */
DEVICE unsigned pair_bits(F16, float low, float high)
{
    __half2 pair = __floats2half2_rn(low, high);
    unsigned word;
    memcpy(&word, &pair, sizeof word);
    return word;
}

DEVICE unsigned pair_bits(BF16, float low, float high)
{
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    unsigned word;
    memcpy(&word, &pair, sizeof word);
    return word;
}

/* ---- loads and stores of V neighbors; `index` counts elements from the tensor's first
 *
 * Who loads far ahead keeps Blocks, as they lie in memory, and widens them when they are used: that halves the registers
 * of 16-bit formats. `nothing`: -0, which changes no sum, not even one that is -0. `round`: to what a store would keep. */

template <typename T, int V> struct Lanes;

template <> struct Lanes<float, 4> {
    typedef float4 Block;
    static MEMBER Block nothing()
    {
        return make_float4(-0.0f, -0.0f, -0.0f, -0.0f);
    }
    static MEMBER Block block(const Tensor &t, int64_t index)
    {
        return *(const float4 *)((const float *)t.data + index);
    }
    static MEMBER void widen(const Block &block, float *to)
    {
        to[0] = block.x, to[1] = block.y, to[2] = block.z, to[3] = block.w;
    }
    static MEMBER void load(const Tensor &t, int64_t index, float *to)
    {
        widen(block(t, index), to);
    }
    static MEMBER void store(const Tensor &t, int64_t index, const float *from)
    {
        *(float4 *)((float *)t.data + index) = make_float4(from[0], from[1], from[2], from[3]);
    }
    static MEMBER void round(Dtype, float *)
    {
    }
};

template <typename Half> struct HalfLanes {
    typedef uint4 Block;
    static MEMBER Block nothing()
    {
        uint4 block = {0x80008000u, 0x80008000u, 0x80008000u, 0x80008000u};
        return block;
    }
    static MEMBER Block block(const Tensor &t, int64_t index)
    {
        return *(const uint4 *)((const Half *)t.data + index);
    }
    static MEMBER void load(const Tensor &t, int64_t index, float *to)
    {
        widen(block(t, index), to);
    }
    static MEMBER void widen(const Block &block, float *to)
    {
        unsigned words[4] = {block.x, block.y, block.z, block.w};
        UNROLL
        for (int i = 0; i < 4; i++) {
            Half low = {(unsigned short)words[i]}, high = {(unsigned short)(words[i] >> 16)};
            to[2 * i] = widened(low);
            to[2 * i + 1] = widened(high);
        }
    }
    static MEMBER void store(const Tensor &t, int64_t index, const float *from)
    {
        uint4 block;
        block.x = pair_bits(Half(), from[0], from[1]);
        block.y = pair_bits(Half(), from[2], from[3]);
        block.z = pair_bits(Half(), from[4], from[5]);
        block.w = pair_bits(Half(), from[6], from[7]);
        *(uint4 *)((Half *)t.data + index) = block;
    }
    static MEMBER void round(Dtype, float *x)
    {
        UNROLL
        for (int i = 0; i < 8; i += 2) {
            unsigned word = pair_bits(Half(), x[i], x[i + 1]);
            Half low = {(unsigned short)word}, high = {(unsigned short)(word >> 16)};
            x[i] = widened(low);
            x[i + 1] = widened(high);
        }
    }
};

template <> struct Lanes<F16, 8> : HalfLanes<F16> {
};
template <> struct Lanes<BF16, 8> : HalfLanes<BF16> {
};

template <> struct Lanes<Any, 1> {
    typedef float Block;
    static MEMBER Block nothing()
    {
        return -0.0f;
    }
    static MEMBER Block block(const Tensor &t, int64_t index)
    {
        float x;
        load(t, index, &x);
        return x;
    }
    static MEMBER void widen(Block block, float *to)
    {
        to[0] = block;
    }
    static MEMBER void load(const Tensor &t, int64_t index, float *to)
    {
        if (t.dtype == DTYPE_F32)
            to[0] = ((const float *)t.data)[index];
        else if (t.dtype == DTYPE_F16)
            to[0] = widened(((const F16 *)t.data)[index]);
        else
            to[0] = widened(((const BF16 *)t.data)[index]);
    }
    static MEMBER void store(const Tensor &t, int64_t index, const float *from)
    {
        if (t.dtype == DTYPE_F32)
            ((float *)t.data)[index] = from[0];
        else if (t.dtype == DTYPE_F16)
            ((unsigned short *)t.data)[index] = f16_bits(from[0]);
        else
            ((unsigned short *)t.data)[index] = bf16_bits(from[0]);
    }
    static MEMBER void round(Dtype dtype, float *x)
    {
        F16 f16 = {f16_bits(x[0])};
        BF16 bf16 = {bf16_bits(x[0])};
        x[0] = dtype == DTYPE_F32 ? x[0] : dtype == DTYPE_F16 ? widened(f16) : widened(bf16);
    }
};

/* V elements of an f32 vector that is aligned to 16 bytes if V > 1. */
template <int V> DEVICE void load_vector(const float *from, float *to)
{
    UNROLL
    for (int i = 0; i < V; i++) to[i] = from[i];
}

template <> MEMBER void load_vector<4>(const float *from, float *to)
{
    float4 block = *(const float4 *)from;
    to[0] = block.x, to[1] = block.y, to[2] = block.z, to[3] = block.w;
}

template <> MEMBER void load_vector<8>(const float *from, float *to)
{
    load_vector<4>(from, to);
    load_vector<4>(from + 4, to + 4);
}

/* launch<T, V>(...) for tensors of one format that may be moved in blocks of 16 bytes, else launch<Any, 1>(...). */
#define BY_FORMAT(dtype, wide, launch, ...)                                                                            \
    do {                                                                                                               \
        if (!(wide))                                                                                                   \
            launch<Any, 1>(__VA_ARGS__);                                                                               \
        else if ((dtype) == DTYPE_F32)                                                                                 \
            launch<float, 4>(__VA_ARGS__);                                                                             \
        else if ((dtype) == DTYPE_F16)                                                                                 \
            launch<F16, 8>(__VA_ARGS__);                                                                               \
        else                                                                                                           \
            launch<BF16, 8>(__VA_ARGS__);                                                                              \
    } while (0)

static inline int lanes_of(Dtype dtype)
{
    return dtype == DTYPE_F32 ? 4 : 8;
}

static inline bool aligned_16(const void *address)
{
    return ((uintptr_t)address & 15) == 0;
}

/* ---- n / by and n % by for n < 2^31: Granlund and Montgomery 1994, "Division by Invariant Integers" */

struct Divider {
    uint32_t by, magic, shift;
};

static inline Divider divider(int64_t by)
{
    Divider made = {(uint32_t)by, 0, 0};
    while (((uint64_t)1 << made.shift) < made.by) made.shift++;
    made.magic = (uint32_t)((((uint64_t)1 << 32) * (((uint64_t)1 << made.shift) - made.by)) / made.by + 1);
    return made;
}

DEVICE uint32_t divided(uint32_t n, Divider d, uint32_t *rest)
{
    uint32_t quotient = (__umulhi(n, d.magic) + n) >> d.shift;
    *rest = n - quotient * d.by;
    return quotient;
}

static inline int64_t ceil_divided(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline int64_t clamped(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* Whole warps for `count` elements, at most a block. */
static inline uint32_t block_for(int64_t count)
{
    return (uint32_t)(clamped(ceil_divided(count, WARP), 1, BLOCK / WARP) * WARP);
}

/* ---- rows: a thread keeps its V channels and walks over pixels, so per-channel values are loaded once */

/* Blocks of across x down threads; grid (pixel blocks, channel chunks). At most `most_across` vectors side by side:
 * eight are 128 bytes, a whole line of the cache. */
struct Rows {
    uint32_t pixels, vectors; /* vectors: of V channels in a pixel */
    uint32_t across, down, chunks;
};

static inline Rows rows_plan(int64_t pixels, int64_t c, int lanes, int most_across)
{
    Rows rows;
    rows.pixels = (uint32_t)pixels;
    rows.vectors = (uint32_t)ceil_divided(c, lanes);
    rows.chunks = (uint32_t)ceil_divided(rows.vectors, most_across);
    rows.across = (uint32_t)ceil_divided(rows.vectors, rows.chunks);
    rows.down = BLOCK / rows.across;
    return rows;
}

/* The vector of channels of this thread; >= rows.vectors if it has none. */
DEVICE uint32_t rows_vector(const Rows &rows)
{
    return blockIdx.y * rows.across + threadIdx.x;
}
