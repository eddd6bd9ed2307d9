/* Maximum and mean over windows and the gradient of the mean, as kernels/cpu/pool/ computes them.
 *
 * A thread computes V channels of one pixel of the output. The gradient gathers: each pixel of dx is computed from the
 * windows that cover it, so the order of the sum is fixed and dx is written once. Windows overlap, so neighbors read
 * the same lines from the cache; memory sees each operand about once: x, y and one byte of argmax for the maximum, x
 * and y for the mean, dy and dx (acc) for its gradient. Mean: with `adaptive`, output i of n averages the pixels that touch the i-th of n equal parts
 * of the side. */
#include "kernels/cuda/pool.cuh"

/* ---- mean: out[i, j] = p[i] q[j] sum of u[a] v[b] in[a, b] over the a and b that belong to i and j */

/* One axis of a pooling: `x` pixels, `y` outputs. */
struct PoolAxis {
    int32_t x, y, k, stride, pad;
    bool include_pad, adaptive;
};

DEVICE PoolAxis pool_axis(const PoolOperands &o, bool rows, bool backward)
{
    Shape x = backward ? o.out.shape : o.in.shape, y = backward ? o.in.shape : o.out.shape;
    const Window &w = o.window;
    PoolAxis down = {x.h, y.h, w.kh, w.stride_h, w.pad_h, o.include_pad, o.adaptive};
    PoolAxis across = {x.w, y.w, w.kw, w.stride_w, w.pad_w, o.include_pad, o.adaptive};
    return rows ? down : across;
}

/* Part i of a side cut into `parts`: the elements of the side that it touches. Which part touches which pixel is a
 * symmetric relation, so this serves both directions. */
DEVICE void part_touches(int32_t i, int32_t parts, int32_t side, int32_t *first, int32_t *end)
{
    *first = (int32_t)((int64_t)i * side / parts);
    *end = (int32_t)(((int64_t)(i + 1) * side + parts - 1) / parts);
}

/* The pixels of output i, and its divisor. */
DEVICE float axis_window(const PoolAxis &a, int32_t i, int32_t *first, int32_t *end)
{
    if (a.adaptive) {
        part_touches(i, a.y, a.x, first, end);
        return (float)(*end - *first);
    }
    int32_t begin = i * a.stride - a.pad;
    *first = max(begin, 0);
    *end = min(begin + a.k, a.x);
    return (float)max(1, a.include_pad ? min(begin + a.k, a.x + a.pad) - begin : *end - *first);
}

/* The outputs that pixel i is part of. */
DEVICE void axis_cover(const PoolAxis &a, int32_t i, int32_t *first, int32_t *end)
{
    if (a.adaptive)
        part_touches(i, a.x, a.y, first, end);
    else
        pool_cover(i, a.k, a.stride, a.pad, a.y, first, end);
}

template <typename T, int V> BOUNDED avg_pool_kernel(const __grid_constant__ PoolOperands o, const Rows rows)
{
    PoolPlace at;
    if (!pool_place(o, rows, V, &at)) return;
    int32_t i0, i1, j0, j1;
    float share = axis_window(pool_axis(o, true, false), (int32_t)at.i, &i0, &i1) *
                  axis_window(pool_axis(o, false, false), (int32_t)at.j, &j0, &j1);
    share = 1.0f / share;
    float sum[V], x[POOL_ROW][V];
    UNROLL
    for (int k = 0; k < V; k++) sum[k] = 0;
    for (int32_t i = i0; i < i1; i++)
        for (int32_t j = j0; j < j1; j += POOL_ROW) {
            pool_row<T, V>(o, at, i, j, j1, x);
            UNROLL
            for (int r = 0; r < POOL_ROW; r++) {
                bool is_new = j + r < j1;
                UNROLL
                for (int k = 0; k < V; k++) sum[k] += is_new ? x[r][k] : 0.0f;
            }
        }
    UNROLL
    for (int k = 0; k < V; k++) sum[k] *= share;
    Lanes<T, V>::store(o.out, at.pixel * o.out.pitch + at.channel, sum);
}

template <typename T, int V> BOUNDED avg_pool_dx_kernel(const __grid_constant__ PoolOperands o, const Rows rows)
{
    PoolPlace at;
    if (!pool_place(o, rows, V, &at)) return;
    PoolAxis down = pool_axis(o, true, true), across = pool_axis(o, false, true);
    int32_t i0, i1, j0, j1, first, end;
    axis_cover(down, (int32_t)at.i, &i0, &i1);
    axis_cover(across, (int32_t)at.j, &j0, &j1);
    float sum[V], dy[POOL_ROW][V];
    UNROLL
    for (int k = 0; k < V; k++) sum[k] = 0;
    for (int32_t i = i0; i < i1; i++) {
        float of_row = axis_window(down, i, &first, &end);
        for (int32_t j = j0; j < j1; j += POOL_ROW) {
            pool_row<T, V>(o, at, i, j, j1, dy);
            UNROLL
            for (int r = 0; r < POOL_ROW; r++) {
                float share = __frcp_rn(of_row * axis_window(across, min(j + r, j1 - 1), &first, &end));
                bool is_new = j + r < j1;
                UNROLL
                for (int k = 0; k < V; k++) sum[k] = is_new ? __fmaf_rn(share, dy[r][k], sum[k]) : sum[k];
            }
        }
    }
    if (o.acc.data) {
        Lanes<T, V>::load(o.acc, at.pixel * o.acc.pitch + at.channel, dy[0]);
        UNROLL
        for (int k = 0; k < V; k++) sum[k] += dy[0][k];
    }
    Lanes<T, V>::store(o.out, at.pixel * o.out.pitch + at.channel, sum);
}

/* ---- launchers */

POOL_LAUNCHER(avg_pool)
POOL_LAUNCHER(avg_pool_dx)

cudaError_t kernel_max_pool(const OpCall *call, cudaStream_t stream)
{
    PoolOperands o = pool_operands(call);
    o.argmax = call->out[1];
    BY_FORMAT(o.in.dtype, pool_wide(o), max_pool, o, AsIs(), stream);
    return LAUNCH_ERROR();
}

cudaError_t kernel_avg_pool(const OpCall *call, cudaStream_t stream)
{
    PoolOperands o = pool_operands(call);
    BY_FORMAT(o.in.dtype, pool_wide(o), avg_pool_launch, o, stream);
    return LAUNCH_ERROR();
}

cudaError_t kernel_avg_pool_dx(const OpCall *call, cudaStream_t stream)
{
    PoolOperands o = pool_operands(call);
    o.acc = call->in[1];
    BY_FORMAT(o.in.dtype, pool_wide(o), avg_pool_dx_launch, o, stream);
    return LAUNCH_ERROR();
}
