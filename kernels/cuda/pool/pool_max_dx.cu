/* The gradient of the maximum over windows, as kernels/cpu/pool/ computes it.
 *
 * It gathers: each pixel of dx is computed from the windows that cover it, so the order of the sum is fixed and dx is
 * written once. Windows of 3x3 and 2x2 with stride 2 go block by block: the S x S pixels of a block, counted from the
 * edge of the padding, lie in the same windows (pool_blocks.cuh). So a thread reads each window once for all pixels of
 * its block, and a pixel costs one comparison and one sum; with a thread for each pixel, instructions took four times as
 * long as memory. Other windows have a thread for each pixel. Bytes moved: dy, argmax (y) once, as neighbors find theirs
 * in the cache; dx (acc) once: per element of dx with stride 2 and in 16 bits 2.75, 5.25 with both options. */
#include "kernels/cuda/pool/pool_blocks.cuh"

template <typename T, int V> BOUNDED max_pool_dx_kernel(const __grid_constant__ PoolOperands o, const Rows rows)
{
    PoolPosition at;
    if (!pool_position(o, rows, V, &at)) return;
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

/* ---- blocks: at is that of a block; o.width and o.height count blocks */

template <typename T, int V, int K, int S>
BOUNDED max_pool_dx_blocks_kernel(const __grid_constant__ PoolOperands o, const Rows rows)
{
    PoolPosition at;
    if (!pool_position(o, rows, V, &at)) return;
    PoolBlock<S> block;
    block.find(o, at.n, at.i, at.j);
    BlockWindows<T, V, K, S> windows;
    windows.fetch(o, block, at.channel);
    if (o.relu_y.data) windows.mask(o, at.channel);
    float sum[S * S][V];
    UNROLL
    for (int p = 0; p < S * S; p++) windows.gather(p, sum[p]);
    if (o.acc.data) {
        float acc[S * S][V] = {};
        UNROLL
        for (int p = 0; p < S * S; p++)
            if (block.exists(p)) Lanes<T, V>::load(o.acc, pool_index(o.acc, block.pixel[p], at.channel), acc[p]);
        UNROLL
        for (int p = 0; p < S * S; p++) {
            UNROLL
            for (int k = 0; k < V; k++) sum[p][k] += acc[p][k];
        }
    }
    UNROLL
    for (int p = 0; p < S * S; p++)
        if (block.exists(p)) Lanes<T, V>::store(o.out, pool_index(o.out, block.pixel[p], at.channel), sum[p]);
}

/* ---- launchers */

POOL_LAUNCHER(max_pool_dx)

template <typename T, int V, int K, int S> static void max_pool_dx_blocks(PoolOperands o, cudaStream_t stream)
{
    Rows rows = rows_plan(pool_blocks(&o, S), o.out.shape.c, V, WARP);
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
