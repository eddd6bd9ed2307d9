/* The gradient of the maximum over windows, as kernels/cpu/pool/ computes it.
 *
 * It gathers: each pixel of dx is computed from the windows that cover it, so the order of the sum is fixed and dx is
 * written once. Windows of 3x3 and 2x2 with stride 2 go block by block: the S x S pixels of a block, counted from the
 * edge of the padding, lie in the same windows, and which place of a window is which pixel is a constant. So a thread
 * reads each window once for all pixels of its block, and a pixel costs one comparison and one sum; with a thread for
 * each pixel, instructions took four times as long as memory. Other windows have a thread for each pixel. Bytes moved:
 * dy, argmax (y) once, as neighbors find theirs in the cache; dx (acc) once: per element of dx with stride 2 and in 16
 * bits 2.75, 5.25 with both options. */
#include "kernels/cuda/pool.cuh"

template <typename T, int V> BOUNDED max_pool_dx_kernel(const __grid_constant__ PoolOperands o, const Rows rows)
{
    PoolPlace at;
    if (!pool_place(o, rows, V, &at)) return;
    float sum[V];
    pool_gather<T, V, POOL_COVER, true>(o, at.n, (int32_t)at.i, (int32_t)at.j, at.channel, sum);
    if (o.acc.data) {
        float acc[V];
        Lanes<T, V>::load(o.acc, at.pixel * o.acc.pitch + at.channel, acc);
        UNROLL
        for (int k = 0; k < V; k++) sum[k] += acc[k];
    }
    Lanes<T, V>::store(o.out, at.pixel * o.out.pitch + at.channel, sum);
}

/* ---- blocks: square windows whose side and stride are known here */

/* What a window sends. A window that is not there, and an element whose ReLU is closed, has a place that no window of
 * K x K has. */
template <typename T, int V> struct PoolSent {
    float dy[V];
    PlaceWords<V> places;
    uint32_t pixel; /* the window's */
    MEMBER void load(const PoolOperands &o, uint32_t n, int32_t i, int32_t j, uint32_t channel)
    {
        Shape s = o.in.shape;
        bool exists = (uint32_t)i < (uint32_t)s.h && (uint32_t)j < (uint32_t)s.w;
        pixel = (n * s.h + min(max(i, 0), s.h - 1)) * s.w + min(max(j, 0), s.w - 1);
        Lanes<T, V>::load(o.in, pool_index(o.in, pixel, channel), dy);
        places.load((const unsigned char *)o.argmax.data + pool_index(o.argmax, pixel, channel));
        UNROLL
        for (int k = 0; k < V; k += 4)
            if (!exists) places.word[k / 4] = 0xFFFFFFFFu;
    }
    MEMBER void mask(const PoolOperands &o, uint32_t channel)
    {
        float y[V];
        Lanes<T, V>::load(o.relu_y, pool_index(o.relu_y, pixel, channel), y);
        UNROLL
        for (int k = 0; k < V; k++)
            if (!(y[k] > 0.0f)) places.close(k);
    }
    MEMBER void add(uint32_t place, float *sum) const
    {
        UNROLL
        for (int k = 0; k < V; k++)
            if (places.is(k, place)) sum[k] += dy[k];
    }
};

/* Block (i, j) of all, the first of which begins at the edge of the padding: OVER windows along a side lie over it, the
 * last of them at its own place. */
template <typename T, int V, int K, int S>
DEVICE void block_gather(const PoolOperands &o, const PoolPlace &at, int32_t i, int32_t j, float (*sum)[V])
{
    enum { OVER = (K - 1) / S + 1 };
    PoolSent<T, V> sent[OVER * OVER];
    UNROLL
    for (int q = 0; q < OVER * OVER; q++)
        sent[q].load(o, at.n, i - OVER + 1 + q / OVER, j - OVER + 1 + q % OVER, at.channel);
    if (o.relu_y.data) {
        UNROLL
        for (int q = 0; q < OVER * OVER; q++) sent[q].mask(o, at.channel);
    }
    UNROLL
    for (int q = 0; q < OVER * OVER; q++) {
        UNROLL
        for (int p = 0; p < S * S; p++) {
            int row = p / S + (OVER - 1 - q / OVER) * S, column = p % S + (OVER - 1 - q % OVER) * S;
            if (row < K && column < K) sent[q].add((uint32_t)(row * K + column), sum[p]);
        }
    }
}

/* at: of a block; o.width and o.height count blocks. */
template <typename T, int V, int K, int S>
BOUNDED max_pool_dx_blocks_kernel(const __grid_constant__ PoolOperands o, const Rows rows)
{
    PoolPlace at;
    if (!pool_place(o, rows, V, &at)) return;
    Shape s = o.out.shape;
    int32_t i = (int32_t)at.i + o.window.pad_h / S, j = (int32_t)at.j + o.window.pad_w / S;
    int32_t y = i * S - o.window.pad_h, x = j * S - o.window.pad_w;
    float sum[S * S][V] = {};
    block_gather<T, V, K, S>(o, at, i, j, sum);
    bool exists[S * S];
    uint32_t pixel[S * S];
    UNROLL
    for (int p = 0; p < S * S; p++) {
        exists[p] = (uint32_t)(y + p / S) < (uint32_t)s.h && (uint32_t)(x + p % S) < (uint32_t)s.w;
        pixel[p] = (at.n * s.h + y + p / S) * s.w + x + p % S;
    }
    if (o.acc.data) {
        float acc[S * S][V] = {};
        UNROLL
        for (int p = 0; p < S * S; p++)
            if (exists[p]) Lanes<T, V>::load(o.acc, pool_index(o.acc, pixel[p], at.channel), acc[p]);
        UNROLL
        for (int p = 0; p < S * S; p++) {
            UNROLL
            for (int k = 0; k < V; k++) sum[p][k] += acc[p][k];
        }
    }
    UNROLL
    for (int p = 0; p < S * S; p++)
        if (exists[p]) Lanes<T, V>::store(o.out, pool_index(o.out, pixel[p], at.channel), sum[p]);
}

/* ---- launchers */

POOL_LAUNCHER(max_pool_dx)

/* Blocks of `size` pixels along a side of which the first `pad` are padding; none of them is only that. */
static int64_t blocks_along(int64_t side, int64_t pad, int64_t size)
{
    return (pad + side - 1) / size - pad / size + 1;
}

template <typename T, int V, int K, int S> static void max_pool_dx_blocks(PoolOperands o, cudaStream_t stream)
{
    Shape s = o.out.shape;
    int64_t down = blocks_along(s.h, o.window.pad_h, S), across = blocks_along(s.w, o.window.pad_w, S);
    o.height = divider(down);
    o.width = divider(across);
    Rows rows = rows_plan(s.n * down * across, s.c, V, WARP);
    dim3 grid((uint32_t)ceil_divided(rows.pixels, rows.down), rows.chunks);
    LAUNCH((max_pool_dx_blocks_kernel<T, V, K, S>), grid, dim3(rows.across, rows.down), stream, o, rows);
}

template <typename T, int V> static void max_pool_dx(const PoolOperands &o, cudaStream_t stream)
{
    if (window_is(o.window, 3, 2))
        max_pool_dx_blocks<T, V, 3, 2>(o, stream);
    else if (window_is(o.window, 2, 2))
        max_pool_dx_blocks<T, V, 2, 2>(o, stream);
    else
        max_pool_dx_launch<T, V>(o, stream);
}

cudaError_t kernel_max_pool_dx(const OpCall *call, cudaStream_t stream)
{
    PoolOperands o = pool_operands(call);
    o.argmax = call->in[1];
    o.acc = call->in[2];
    o.relu_y = call->in[3];
    BY_FORMAT(o.in.dtype, pool_wide(o), max_pool_dx, o, stream);
    return LAUNCH_ERROR();
}
