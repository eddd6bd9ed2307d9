/* Mean over windows and its gradient, as kernels/cpu/pool/ computes them.
 *
 * A thread computes V channels of one pixel of the output, of three where windows are 3x3 with stride 1. The gradient
 * gathers: each pixel of dx is computed from the windows that cover it, so the order of the sum is fixed and dx is written
 * once. Windows overlap, so neighbors read the same lines from the cache; memory sees each operand about once: x and y
 * forward, dy and dx (acc) backward. */
#include "kernels/cuda/pool/pool.cuh"

/* ---- mean: out[i, j] = p[i] q[j] sum of u[a] v[b] in[a, b] over the a and b that belong to i and j */

DEVICE PoolAxis mean_axis(const PoolOperands &o, bool down, bool backward)
{
    Shape x = backward ? o.out.shape : o.in.shape, y = backward ? o.in.shape : o.out.shape;
    return pool_axis(&o.window, x, y, down, o.include_pad, o.adaptive);
}

template <typename T, int V> BOUNDED avg_pool_kernel(const __grid_constant__ PoolOperands o, const Rows rows)
{
    PoolPosition at;
    if (!pool_position(o, rows, V, &at)) return;
    int32_t i0, i1, j0, j1;
    PoolAxis down = mean_axis(o, true, false), across = mean_axis(o, false, false);
    float share = (float)axis_window(&down, (int32_t)at.i, &i0, &i1);
    share *= (float)axis_window(&across, (int32_t)at.j, &j0, &j1);
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
    PoolPosition at;
    if (!pool_position(o, rows, V, &at)) return;
    PoolAxis down = mean_axis(o, true, true), across = mean_axis(o, false, true);
    int32_t i0, i1, j0, j1, first, end;
    axis_cover(&down, (int32_t)at.i, &i0, &i1);
    axis_cover(&across, (int32_t)at.j, &j0, &j1);
    float sum[V], dy[POOL_ROW][V];
    UNROLL
    for (int k = 0; k < V; k++) sum[k] = 0;
    for (int32_t i = i0; i < i1; i++) {
        float of_row = (float)axis_window(&down, i, &first, &end);
        for (int32_t j = j0; j < j1; j += POOL_ROW) {
            pool_row<T, V>(o, at, i, j, j1, dy);
            UNROLL
            for (int r = 0; r < POOL_ROW; r++) {
                float share = __frcp_rn(of_row * (float)axis_window(&across, min(j + r, j1 - 1), &first, &end));
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

/* ---- strips: windows of 3x3 with stride 1
 *
 * Both directions read 3x3 pixels for each output. A thread makes three outputs, one below another, from the 5x3 pixels
 * that it loads before it adds the first. Only at the border does it ask which of them are there, and only where padding
 * does not count is there a divisor other than nine. */
enum { MEAN_SIDE = 3, MEAN_STRIP = 3, MEAN_ROWS = MEAN_STRIP + MEAN_SIDE - 1, MEAN_PIXELS = MEAN_SIDE * MEAN_SIDE };

struct MeanOperands : PoolOperands {
    float share[MEAN_PIXELS + 1]; /* 1 / n */
};

template <typename T, int V> struct MeanStrip {
    typename Lanes<T, V>::Block x[MEAN_ROWS][MEAN_SIDE];
    int32_t top, left;
    /* What is outside is the nearest pixel. */
    MEMBER void load(const PoolOperands &o, uint32_t n, uint32_t channel)
    {
        Shape s = o.in.shape;
        UNROLL
        for (int r = 0; r < MEAN_ROWS; r++) {
            uint32_t row = (n * s.h + min(max(top + r, 0), s.h - 1)) * s.w;
            UNROLL
            for (int c = 0; c < MEAN_SIDE; c++) {
                uint32_t pixel = row + min(max(left + c, 0), s.w - 1);
                x[r][c] = Lanes<T, V>::block(o.in, pool_index(o.in, pixel, channel));
            }
        }
    }
    MEMBER bool inside(Shape s) const
    {
        return top >= 0 && left >= 0 && top + MEAN_ROWS <= s.h && left + MEAN_SIDE <= s.w;
    }
    MEMBER void clip(Shape s)
    {
        UNROLL
        for (int r = 0; r < MEAN_ROWS; r++) {
            UNROLL
            for (int c = 0; c < MEAN_SIDE; c++)
                if ((uint32_t)(top + r) >= (uint32_t)s.h || (uint32_t)(left + c) >= (uint32_t)s.w)
                    x[r][c] = Lanes<T, V>::nothing();
        }
    }
    /* Adds pixels, times `share` if WEIGHTED, in the order of the kernels above. */
    template <bool WEIGHTED> MEMBER void add(const float (*share)[MEAN_SIDE], float (*sum)[V]) const
    {
        UNROLL
        for (int q = 0; q < MEAN_STRIP; q++) {
            UNROLL
            for (int p = 0; p < MEAN_PIXELS; p++) {
                int r = q + p / MEAN_SIDE, c = p % MEAN_SIDE;
                float one[V];
                Lanes<T, V>::widen(x[r][c], one);
                UNROLL
                for (int k = 0; k < V; k++)
                    sum[q][k] = WEIGHTED ? __fmaf_rn(share[r][c], one[k], sum[q][k]) : sum[q][k] + one[k];
            }
        }
    }
};

/* The pixels of window i that are no padding. */
DEVICE int32_t axis_pixels(const PoolAxis &a, int32_t i)
{
    return max(1, min(i - a.pad + MEAN_SIDE, a.x) - max(i - a.pad, 0));
}

/* Whether windows first .. last have MEAN_SIDE pixels each. Those that count the padding do: with stride 1 none reaches
 * beyond it. */
DEVICE bool axis_whole(const PoolAxis &a, int32_t first, int32_t last)
{
    return a.include_pad || (first >= a.pad && last - a.pad + MEAN_SIDE <= a.x);
}

/* Outputs (i, j), (i + 1, j), ... */
template <typename T, int V>
DEVICE void strip_mean(const MeanOperands &o, const MeanStrip<T, V> &strip, int32_t i, int32_t j, float (*sum)[V])
{
    PoolAxis down = mean_axis(o, true, false), across = mean_axis(o, false, false);
    bool whole = axis_whole(down, i, i + MEAN_STRIP - 1) && axis_whole(across, j, j);
    strip.template add<false>(NULL, sum);
    UNROLL
    for (int q = 0; q < MEAN_STRIP; q++) {
        float share = whole ? 1.0f / MEAN_PIXELS : o.share[axis_pixels(down, i + q) * axis_pixels(across, j)];
        UNROLL
        for (int k = 0; k < V; k++) sum[q][k] *= share;
    }
}

/* Each window that the strip reads has a share of its own. */
template <typename T, int V>
DEVICE void strip_gradient(const MeanOperands &o, const MeanStrip<T, V> &strip, float (*sum)[V])
{
    PoolAxis down = mean_axis(o, true, true), across = mean_axis(o, false, true);
    int32_t i = strip.top, j = strip.left;
    float share[MEAN_ROWS][MEAN_SIDE];
    UNROLL
    for (int p = 0; p < MEAN_ROWS * MEAN_SIDE; p++) share[p / MEAN_SIDE][p % MEAN_SIDE] = 1.0f / MEAN_PIXELS;
    if (axis_whole(down, i, i + MEAN_ROWS - 1) && axis_whole(across, j, j + MEAN_SIDE - 1)) {
        strip.template add<true>(share, sum);
        return;
    }
    UNROLL
    for (int p = 0; p < MEAN_ROWS * MEAN_SIDE; p++)
        share[p / MEAN_SIDE][p % MEAN_SIDE] =
            o.share[axis_pixels(down, i + p / MEAN_SIDE) * axis_pixels(across, j + p % MEAN_SIDE)];
    strip.template add<true>(share, sum);
}

/* at: of a strip; o.height counts strips. */
template <typename T, int V, bool BACKWARD>
BOUNDED mean_strip_kernel(const __grid_constant__ MeanOperands o, const Rows rows)
{
    PoolPosition at;
    if (!pool_position(o, rows, V, &at)) return;
    const Window &w = o.window;
    int32_t i = (int32_t)at.i * MEAN_STRIP, j = (int32_t)at.j;
    MeanStrip<T, V> strip;
    strip.top = BACKWARD ? i + w.pad_h - (MEAN_SIDE - 1) : i - w.pad_h;
    strip.left = BACKWARD ? j + w.pad_w - (MEAN_SIDE - 1) : j - w.pad_w;
    strip.load(o, at.n, at.channel);
    if (!strip.inside(o.in.shape)) strip.clip(o.in.shape);
    float sum[MEAN_STRIP][V] = {};
    /* said again, as no register is left to keep them */
    i = BACKWARD ? strip.top - w.pad_h + (MEAN_SIDE - 1) : strip.top + w.pad_h;
    j = BACKWARD ? strip.left - w.pad_w + (MEAN_SIDE - 1) : strip.left + w.pad_w;
    if (BACKWARD)
        strip_gradient(o, strip, sum);
    else
        strip_mean(o, strip, i, j, sum);
    UNROLL
    for (int q = 0; q < MEAN_STRIP; q++) {
        if (i + q >= o.out.shape.h) break;
        uint32_t pixel = (at.n * o.out.shape.h + i + q) * o.out.shape.w + j;
        if (BACKWARD && o.acc.data) {
            float acc[V];
            Lanes<T, V>::load(o.acc, pool_index(o.acc, pixel, at.channel), acc);
            UNROLL
            for (int k = 0; k < V; k++) sum[q][k] += acc[k];
        }
        Lanes<T, V>::store(o.out, pool_index(o.out, pixel, at.channel), sum[q]);
    }
}

/* ---- launchers */

POOL_LAUNCHER(avg_pool)
POOL_LAUNCHER(avg_pool_dx)

template <typename T, int V, bool BACKWARD> static void mean_strips(const PoolOperands &operands, cudaStream_t stream)
{
    MeanOperands o;
    (PoolOperands &)o = operands;
    int64_t down = ceil_divided(o.out.shape.h, MEAN_STRIP);
    o.height = divider(down);
    o.share[0] = 0;
    for (int n = 1; n <= MEAN_PIXELS; n++) o.share[n] = 1.0f / (float)n;
    Rows rows = rows_plan(o.out.shape.n * down * o.out.shape.w, o.out.shape.c, V, WARP);
    dim3 grid((uint32_t)ceil_divided(rows.pixels, rows.down), rows.chunks);
    LAUNCH((mean_strip_kernel<T, V, BACKWARD>), grid, dim3(rows.across, rows.down), stream, o, rows);
}

template <typename T, int V> static void avg_pool(const PoolOperands &o, cudaStream_t stream)
{
    if (!o.adaptive && window_is(o.window, MEAN_SIDE, 1))
        mean_strips<T, V, false>(o, stream);
    else
        avg_pool_launch<T, V>(o, stream);
}

template <typename T, int V> static void avg_pool_dx(const PoolOperands &o, cudaStream_t stream)
{
    if (!o.adaptive && window_is(o.window, MEAN_SIDE, 1))
        mean_strips<T, V, true>(o, stream);
    else
        avg_pool_dx_launch<T, V>(o, stream);
}

cudaError_t kernel_avg_pool(const OpCall *call, cudaStream_t stream)
{
    PoolOperands o = pool_operands(call);
    BY_FORMAT(o.in.dtype, pool_wide(o), avg_pool, o, stream);
    return LAUNCH_ERROR();
}

cudaError_t kernel_avg_pool_dx(const OpCall *call, cudaStream_t stream)
{
    PoolOperands o = pool_operands(call);
    o.acc = call->in[1];
    BY_FORMAT(o.in.dtype, pool_wide(o), avg_pool_dx, o, stream);
    return LAUNCH_ERROR();
}
