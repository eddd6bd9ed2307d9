/* Column sums: for every channel one or two sums over all pixels, in one launch, with the same bits every time.
 *
 * The grid depends on shape and format alone. A block sums pixels part, part + parts, ... (rows of `down` pixels) in
 * f32 registers, then in f64 in shared memory, and writes one partial sum per channel; the block of a channel chunk
 * that finishes last adds the partial sums in order in f64 and finishes the channels. That block also resets the
 * counter by which it knows that it is the last. A chunk is at most eight vectors, 128 bytes, wide, which keeps the
 * work of the last block small: it reads no more than 132 KiB. Bytes moved: those of the operands once, and 8 bytes per
 * channel and part. */
#pragma once

#include "kernels/cuda/block.cuh"

enum {
    COLUMN_BLOCKS = 396, /* three for each multiprocessor of the largest GPUs */
    COLUMN_PIXELS = 8,   /* at least so many for a thread, before there are more parts */
    COLUMN_PARTS = 264,  /* at most: what the last block adds */
    COLUMN_PAD = 4,      /* between the sums of a lane in shared memory, against bank conflicts */
    COLUMN_LOADS = 12,   /* parts of a channel that the last block loads before it adds the first: nobody else is left
                            to hide how long a load takes */
};

struct Columns {
    Rows rows;
    uint32_t parts, c;
    float *partial;    /* [parts][2][c] */
    unsigned *counter; /* [chunks] */
};

static inline Columns columns_plan(int64_t pixels, int64_t c, int lanes, void *workspace, void *counters)
{
    Columns plan;
    plan.rows = rows_plan(pixels, c, lanes, lanes == 1 ? WARP : 8);
    int64_t most = clamped(COLUMN_BLOCKS / plan.rows.chunks, 1, COLUMN_PARTS);
    plan.parts = (uint32_t)clamped(pixels / (plan.rows.down * COLUMN_PIXELS), 1, most);
    plan.c = (uint32_t)c;
    plan.partial = (float *)workspace;
    plan.counter = (unsigned *)counters;
    return plan;
}

/* A chunk of any width has at least a warp's number of channels. */
static_assert(KERNEL_MAX_CHANNELS / WARP * (int)sizeof(unsigned) <= KERNEL_COUNTERS_BYTES, "a counter for each chunk");

/* Workspace for whatever width a launch will find. */
static inline size_t columns_bytes(Shape s)
{
    int64_t parts = 0;
    for (int lanes = 1; lanes <= 8; lanes *= 2) {
        Columns plan = columns_plan((int64_t)s.n * s.h * s.w, s.c, lanes, NULL, NULL);
        parts = plan.parts > parts ? plan.parts : parts;
    }
    return (size_t)(parts * 2 * s.c) * sizeof(float);
}

/* Add this block's threads together and write its partial sums. */
template <int V> DEVICE void columns_block(const Columns &plan, const float *first, const float *second)
{
    SHARED_ARRAY(float, sums, 2 * V * (BLOCK + COLUMN_PAD));
    uint32_t across = plan.rows.across, down = plan.rows.down, width = across * V;
    uint32_t thread = threadIdx.y * across + threadIdx.x;
    UNROLL
    for (int i = 0; i < V; i++) {
        sums[i * (BLOCK + COLUMN_PAD) + thread] = first[i];
        sums[(V + i) * (BLOCK + COLUMN_PAD) + thread] = second[i];
    }
#ifndef TOWERS_BREAK_KERNEL
    __syncthreads();
#endif
    for (uint32_t r = thread; r < 2 * width; r += across * down) {
        uint32_t half = r / width, lane = half * V + r % width % V, x = r % width / V;
        uint32_t channel = blockIdx.y * width + r % width;
        double sum = 0;
        for (uint32_t y = 0; y < down; y++) sum += (double)sums[lane * (BLOCK + COLUMN_PAD) + y * across + x];
        if (channel < plan.c) plan.partial[((int64_t)blockIdx.x * 2 + half) * plan.c + channel] = (float)sum;
    }
}

/* Parts `part`, `part` + step, ... of one channel; those behind the last count nothing. */
DEVICE void columns_add(const Columns &plan, uint32_t part, uint32_t step, uint32_t channel, double *first,
                        double *second)
{
    float a[COLUMN_LOADS], b[COLUMN_LOADS];
    UNROLL
    for (int k = 0; k < COLUMN_LOADS; k++) {
        uint32_t at = min(part + k * step, plan.parts - 1);
        const float *partial = plan.partial + (int64_t)at * 2 * plan.c + channel;
        a[k] = __ldcg(partial);
        b[k] = __ldcg(partial + plan.c);
    }
    UNROLL
    for (int k = 0; k < COLUMN_LOADS; k++) {
        bool counts = part + k * step < plan.parts;
        *first += counts ? (double)a[k] : 0.0;
        *second += counts ? (double)b[k] : 0.0;
    }
}

/* The last block: add the parts and finish each channel. */
template <int V, typename Body> DEVICE void columns_finish(const Columns &plan, const Body &body)
{
    SHARED_ARRAY(double, totals, 2 * BLOCK);
    uint32_t width = plan.rows.across * V, groups = plan.rows.across * plan.rows.down / width;
    uint32_t thread = threadIdx.y * plan.rows.across + threadIdx.x, group = thread / width, at = thread % width;
    uint32_t channel = blockIdx.y * width + at;
    double first = 0, second = 0;
    if (channel < plan.c && group < groups)
        for (uint32_t part = group; part < plan.parts; part += COLUMN_LOADS * groups)
            columns_add(plan, part, groups, channel, &first, &second);
    totals[thread] = first;
    totals[BLOCK + thread] = second;
    __syncthreads();
    if (thread >= width || channel >= plan.c) return;
    first = second = 0;
    for (uint32_t k = 0; k < groups; k++) {
        first += totals[k * width + at];
        second += totals[BLOCK + k * width + at];
    }
    body.finish(channel, first, second);
}

/* Pixels pixel, pixel + stride, ... at once; behind the end the last one, which is not added. */
template <typename Loads, typename Body>
DEVICE void columns_fetch(const Columns &plan, const Body &body, uint32_t pixel, uint32_t stride, uint32_t channel,
                          Loads *loads)
{
    UNROLL
    for (int s = 0; s < Body::STEPS; s++) loads[s].fetch(body, min(pixel + s * stride, plan.rows.pixels - 1), channel);
}

/* A body has STEPS (pixels loaded before the first is added), Vectors<V> (per-channel values: load<T>(body, channel)),
 * Loads<T, V> (operands of a pixel: fetch(body, pixel, channel), add(vectors, first, second)) and
 * finish(channel, first, second), and PER_SM (blocks that a multiprocessor shall hold). */
template <typename T, int V, typename Body>
__global__ void __launch_bounds__(BLOCK, Body::PER_SM)
    columns_kernel(const __grid_constant__ Columns plan, const __grid_constant__ Body body)
{
    uint32_t vector = rows_vector(plan.rows);
    float first[V], second[V];
    UNROLL
    for (int i = 0; i < V; i++) first[i] = second[i] = 0;
    if (vector < plan.rows.vectors) {
        enum { STEPS = Body::STEPS };
        uint32_t channel = vector * V, stride = gridDim.x * plan.rows.down;
        uint32_t pixel = blockIdx.x * plan.rows.down + threadIdx.y;
        typename Body::template Vectors<V> own;
        typename Body::template Loads<T, V> loads[STEPS];
        columns_fetch(plan, body, pixel, stride, channel, loads);
        own.template load<T>(body, channel); /* while the pixels are on their way */
        while (pixel + (STEPS - 1) * stride < plan.rows.pixels) {
            UNROLL
            for (int s = 0; s < STEPS; s++) loads[s].add(own, first, second);
            pixel += STEPS * stride;
            if (pixel < plan.rows.pixels) columns_fetch(plan, body, pixel, stride, channel, loads);
        }
        UNROLL
        for (int s = 0; s < STEPS; s++)
            if (pixel + s * stride < plan.rows.pixels) loads[s].add(own, first, second);
    }
    columns_block<V>(plan, first, second);
    if (block_is_last(&plan.counter[blockIdx.y], gridDim.x)) columns_finish<V>(plan, body);
}

template <typename T, int V, typename Body>
static void columns_launch(Columns plan, const Body &body, cudaStream_t stream)
{
    int64_t resident = COLUMN_BLOCKS / BLOCKS_PER_SM * Body::PER_SM;
    plan.parts = (uint32_t)clamped(resident / plan.rows.chunks, 1, plan.parts); /* none waits for a second turn */
    LAUNCH((columns_kernel<T, V, Body>), dim3(plan.parts, plan.rows.chunks), dim3(plan.rows.across, plan.rows.down),
           stream, plan, body);
}
