/* CUDA on the host: enough of the language to run this project's own .cu files, one thread at a time.
 *
 * Force-included before each .cu by the host's C++ compiler. The threads of a block are fibers of the calling thread: a
 * fiber runs until it waits at a barrier or a shuffle (so a thread that never waits costs a function call). Blocks run
 * one after another, and every other launch takes threads and blocks in the opposite order, so that code that works in
 * one order by luck fails in the other. Shared memory is allocated per block and filled with NaN; a barrier that some
 * threads do not reach stops the program with a message. So does what is undefined on a GPU, though it would work here: a
 * shuffle with lanes that have ended or are not there, results of other blocks without the two fences that make them
 * visible, and products of a warpgroup without theirs; and rows that ldmatrix would read from the same banks. There is
 * one stream, and it is synchronous.
 * Not covered: speed, coalescing, registers, and races between threads that run at the same time between two barriers
 * and give the same result in both orders. */
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tuple>

#include <cuda_runtime_api.h> /* the stand-in beside this file */

#define __global__ static
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define __grid_constant__

/* ---- vector types */

struct uint2 {
    unsigned x, y;
} __attribute__((aligned(8)));
struct uint4 {
    unsigned x, y, z, w;
} __attribute__((aligned(16)));
struct float2 {
    float x, y;
} __attribute__((aligned(8)));
struct float4 {
    float x, y, z, w;
} __attribute__((aligned(16)));
struct double2 {
    double x, y;
} __attribute__((aligned(16)));

static inline float4 make_float4(float x, float y, float z, float w)
{
    float4 made = {x, y, z, w};
    return made;
}

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c)
    {
    }
};

/* ---- where a thread is */

struct EmulatedPlace {
    dim3 thread, block, block_size, grid;
};
extern EmulatedPlace emulated_place; /* of the thread that runs now */

#define threadIdx (emulated_place.thread)
#define blockIdx (emulated_place.block)
#define blockDim (emulated_place.block_size)
#define gridDim (emulated_place.grid)

/* ---- launch, shared memory, barriers */

typedef void EmulatedBody(void *context);
int emulated_launch(const char *name, dim3 grid, dim3 block, size_t room, EmulatedBody *body, void *context);

template <typename Body> static int emulated_run(const char *name, dim3 grid, dim3 block, size_t room, Body body)
{
    return emulated_launch(
        name, grid, block, room, [](void *context) { (*(Body *)context)(); }, &body);
}

/* Who sets `emulated_queue` gets the launches instead, to run them later, or several times, until it drops them; what
 * it returns is the error of the launch. Arguments are taken when the launch is made, as the language has it. */
struct EmulatedJob {
    const char *name;
    void (*run)(void *context);
    void (*drop)(void *context);
    void *context;
};
extern "C" int (*emulated_queue)(const EmulatedJob *job, void *stream);
int emulated_take_error(void); /* the last error of a launch that nobody has asked for yet */
extern int emulated_error;

template <typename Body> struct EmulatedLaunch {
    const char *name;
    dim3 grid, block;
    size_t room;
    Body body;
};

template <typename Body>
static void emulated_submit(const char *name, dim3 grid, dim3 block, size_t room, void *stream, const Body &body)
{
    static_assert(sizeof(Body) <= 4096, "CUDA 12.0 takes no more arguments");
    if (!emulated_queue) {
        (void)emulated_run(name, grid, block, room, body);
        return;
    }
    typedef EmulatedLaunch<Body> Launch;
    EmulatedJob job = {name,
                       [](void *context) {
                           const Launch *launch = (const Launch *)context;
                           (void)emulated_run(launch->name, launch->grid, launch->block, launch->room, launch->body);
                       },
                       [](void *context) { delete (Launch *)context; }, new Launch{name, grid, block, room, body}};
    int error = emulated_queue(&job, stream);
    if (error) emulated_error = error;
}

#define LAUNCH_ROOM(kernel, grid, block, room, stream, ...)                                                            \
    emulated_submit(#kernel, (grid), (block), (room), (void *)(stream), [arguments = std::make_tuple(__VA_ARGS__)]() { \
        std::apply([](const auto &...argument) { (kernel)(argument...); }, arguments);                                 \
    })
#define LAUNCH(kernel, grid, block, stream, ...) LAUNCH_ROOM(kernel, grid, block, 0, stream, __VA_ARGS__)
#define ROOM_ALLOWED(kernel, bytes) ((bytes) <= 227 << 10 ? cudaSuccess : cudaErrorUnknown) /* what 9.0 gives a block */
#define LAUNCH_ERROR() ((cudaError_t)emulated_take_error())
#define UNROLL
#define UNROLL_BY(count)

/* Memory of the running block; `site` tells one array from another. */
void *emulated_shared(const void *site, size_t bytes);
#define SHARED_ARRAY(type, name, count)                                                                                \
    static const char name##_site = 0;                                                                                 \
    type *name = (type *)emulated_shared(&name##_site, sizeof(type) * (count))

void *emulated_room(void); /* of the launch */
#define SHARED_ROOM(type, name) type *name = (type *)emulated_room()

void emulated_barrier(void);
int emulated_barrier_or(int predicate);
#define __syncthreads() emulated_barrier()
#define __syncthreads_or(predicate) emulated_barrier_or(predicate)
void emulated_fence(void);
#define __threadfence() emulated_fence()

/* ---- warps */

enum { warpSize = 32 };

/* All lanes of the warp meet, which the mask must name; each gets the word of lane (own lane ^ or + something, as the caller
 * computes). */
uint64_t emulated_exchange(unsigned mask, uint64_t mine, int from_lane);
int emulated_lane(void);
unsigned emulated_ballot(unsigned mask, int predicate);

template <typename T> static inline T emulated_shuffle(unsigned mask, T value, int from)
{
    uint64_t word = 0;
    memcpy(&word, &value, sizeof value);
    word = emulated_exchange(mask, word, from);
    memcpy(&value, &word, sizeof value);
    return value;
}

template <typename T> static inline T __shfl_down_sync(unsigned mask, T value, int delta)
{
    int from = emulated_lane() + delta;
    return emulated_shuffle(mask, value, from < warpSize ? from : emulated_lane());
}

template <typename T> static inline T __shfl_xor_sync(unsigned mask, T value, int bits)
{
    return emulated_shuffle(mask, value, emulated_lane() ^ bits);
}

template <typename T> static inline T __shfl_sync(unsigned mask, T value, int from)
{
    return emulated_shuffle(mask, value, from & (warpSize - 1));
}

static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    return emulated_ballot(mask, predicate);
}

/* ---- copies that do not wait, tensor cores: the functions of kernels/cuda/tensor_cores.cuh */

/* 16 bytes, zeros from NULL, which arrive at a wait and no earlier: what lies there before that is not the copy's. */
void emulated_copy(void *to, const void *from);
void emulated_copy_commit(void);
void emulated_copy_wait(int groups);

static inline void copy_async(void *to, const void *from, bool inside)
{
    emulated_copy(to, inside ? from : NULL);
}

static inline void copy_commit()
{
    emulated_copy_commit();
}

template <int GROUPS> static inline void copy_wait()
{
    emulated_copy_wait(GROUPS);
}

void emulated_transpose(const void *row, unsigned *words); /* ldmatrix .x4 .trans */

/* The operands of this lane's four sums, rows and columns of 16 elements: mma .m16n8k16. */
struct EmulatedOperands {
    unsigned short a[2][16], b[2][16];
};
EmulatedOperands emulated_operands(const unsigned *a, const unsigned *b);

static inline void load_transposed(const void *row, unsigned *words)
{
    emulated_transpose(row, words);
}

template <typename Half> static inline void multiply_add(Half, const unsigned *a, const unsigned *b, float *sum)
{
    EmulatedOperands of = emulated_operands(a, b);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 16; k++) {
            Half x = {of.a[i / 2][k]}, y = {of.b[i % 2][k]};
            sum[i] = fmaf(widened(x), widened(y), sum[i]);
        }
}

/* ---- products of a warpgroup: the functions of kernels/cuda/warpgroup.cuh, which says what they do */

/* Eight rows of eight columns are 128 bytes; `below`, `beside`: bytes to the next ones. */
struct SharedMatrix {
    const unsigned char *start;
    unsigned below, beside;
};

static inline SharedMatrix shared_matrix(const void *start, unsigned below, unsigned beside)
{
    SharedMatrix made = {(const unsigned char *)start, below, beside};
    return made;
}

static inline SharedMatrix rows_further(SharedMatrix m, unsigned rows)
{
    m.start += rows * 16;
    return m;
}

/* A product that has not happened: what this lane has of a, and how its sums grow when it does. */
struct EmulatedProduct {
    unsigned short a[2][16];
    SharedMatrix b;
    int columns;
    float *sum;
    void (*add)(const EmulatedProduct &product);
};
void emulated_group_copies(void);
void emulated_group_begin(void);
void emulated_group_product(EmulatedProduct *product, const unsigned *a);
void emulated_group_commit(void);
void emulated_group_wait(const float *sum, int count);
unsigned short emulated_element(const SharedMatrix &b, int row, int column);

static inline void group_sees_copies()
{
    emulated_group_copies();
}

static inline void group_begin()
{
    emulated_group_begin();
}

static inline void group_commit()
{
    emulated_group_commit();
}

template <int COUNT> static inline void group_wait(float *sum)
{
    emulated_group_wait(sum, COUNT);
}

template <typename Half> static inline void emulated_add(const EmulatedProduct &product)
{
    int column = emulated_lane() % 4 * 2;
    for (int i = 0; i < product.columns / 2; i++)
        for (int k = 0; k < 16; k++) {
            Half x = {product.a[i / 2 % 2][k]}, y = {emulated_element(product.b, k, i / 4 * 8 + column + i % 2)};
            product.sum[i] = fmaf(widened(x), widened(y), product.sum[i]);
        }
}

template <int N, typename Half>
static inline void group_multiply_add(Half, const unsigned *a, SharedMatrix b, float *sum)
{
    EmulatedProduct product;
    product.b = b, product.columns = N, product.sum = sum, product.add = emulated_add<Half>;
    emulated_group_product(&product, a);
}

/* ---- atomics and arithmetic */

template <typename T> static inline T atomicAdd(T *at, T value)
{
    T old = *at;
    *at = old + value;
    return old;
}

/* Blocks count themselves by it when they have written their results; the last one reads those of all. */
void emulated_arrive(bool last);

static inline unsigned atomicInc(unsigned *at, unsigned most)
{
    unsigned old = *at;
    *at = old >= most ? 0 : old + 1;
    emulated_arrive(old >= most);
    return old;
}

template <typename T> static inline T __ldcg(const T *at)
{
    return *at;
}

static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)(((uint64_t)a * b) >> 32);
}

static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}

static inline float __frcp_rn(float x)
{
    return 1 / x;
}

/* A GPU's may be off by two units in the last place; this one always is by one. */
static inline float rsqrtf(float x)
{
    float exact = 1 / sqrtf(x);
    return fmaf(exact, 1.1920929e-07f, exact);
}

/* From glibc 2.41 on, math.h declares these two for the host, so ours have other names behind the device's. */
static inline float emulated_cospif(float x)
{
    return (float)cos((double)x * 3.14159265358979323846);
}

static inline float emulated_sinpif(float x)
{
    return (float)sin((double)x * 3.14159265358979323846);
}
#define cospif emulated_cospif
#define sinpif emulated_sinpif

static inline float __uint_as_float(unsigned word)
{
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

static inline unsigned __float_as_uint(float value)
{
    unsigned word;
    memcpy(&word, &value, sizeof word);
    return word;
}

template <typename T> static inline T min(T a, T b)
{
    return b < a ? b : a;
}

template <typename T> static inline T max(T a, T b)
{
    return a < b ? b : a;
}

/* ---- 16-bit numbers */

struct __half {
    unsigned short bits;
};
struct __nv_bfloat16 {
    unsigned short bits;
};

unsigned short emulated_half_bits(float value);
float emulated_half_value(unsigned short bits);

static inline __half __float2half_rn(float value)
{
    __half made = {emulated_half_bits(value)};
    return made;
}

static inline float __half2float(__half value)
{
    return emulated_half_value(value.bits);
}

static inline unsigned short __half_as_ushort(__half value)
{
    return value.bits;
}

static inline __half __ushort_as_half(unsigned short bits)
{
    __half made = {bits};
    return made;
}

/* Rounded to nearest even; every NaN becomes 0x7fff, as on the device. */
static inline __nv_bfloat16 __float2bfloat16_rn(float value)
{
    unsigned word = __float_as_uint(value);
    unsigned rounded = (word + 0x7FFFu + ((word >> 16) & 1u)) >> 16;
    __nv_bfloat16 made = {(unsigned short)(value != value ? 0x7FFFu : rounded)};
    return made;
}

static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value)
{
    return value.bits;
}

struct __half2 {
    __half x, y;
};
struct __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

static inline __half2 __floats2half2_rn(float x, float y)
{
    __half2 made = {__float2half_rn(x), __float2half_rn(y)};
    return made;
}

static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    __nv_bfloat162 made = {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
    return made;
}
