/* Maximum and mean over windows and their gradients, as kernels/cpu/pool.c computes them.
 *
 * A thread computes V channels of one pixel of the output. Gradients gather: each pixel of dx is computed from the
 * windows that cover it, so the order of the sum is fixed and dx is written once. Windows overlap, so neighbors read
 * the same lines from the cache; memory sees each operand about once: x, y and one byte of argmax forward, dy, argmax,
 * dx (acc, y) backward. Mean: with `adaptive`, output i of n averages the pixels that touch the i-th of n equal parts
 * of the side. */
#include "kernels/cuda/map.cuh"

/* Pixels of a window's row that are loaded before the first is used: one load at a time would leave memory idle. Those
 * beyond the row are the last one again, and are not used. */
enum { POOL_ROW = 3, POOL_COVER = 2 };

struct PoolOperands {
    Tensor in, out;             /* forward: x, y; backward: dy, dx */
    Tensor argmax, acc, relu_y; /* data NULL if absent */
    Window window;
    bool include_pad, adaptive;
    Divider width, height; /* of out */
};

/* The pixel of `out` that this thread works on; false if there is none. */
struct PoolPlace {
    uint32_t pixel, n, i, j, channel;
};

DEVICE bool pool_place(const PoolOperands &o, const Rows &rows, int lanes, PoolPlace *at)
{
    uint32_t vector = rows_vector(rows);
    at->pixel = blockIdx.x * rows.down + threadIdx.y;
    at->channel = vector * (uint32_t)lanes;
    if (vector >= rows.vectors || at->pixel >= rows.pixels) return false;
    at->n = divided(divided(at->pixel, o.width, &at->j), o.height, &at->i);
    return true;
}

DEVICE int64_t pool_pixel(Shape s, uint32_t n, int32_t i, int32_t j)
{
    return ((int64_t)n * s.h + i) * s.w + j;
}

/* Pixels j, j + 1, ... of row i of o.in, none behind `end`. */
template <typename T, int V>
DEVICE void pool_row(const PoolOperands &o, const PoolPlace &at, int32_t i, int32_t j, int32_t end, float (*x)[V])
{
    UNROLL
    for (int r = 0; r < POOL_ROW; r++) {
        int64_t pixel = pool_pixel(o.in.shape, at.n, i, min(j + r, end - 1));
        Lanes<T, V>::load(o.in, pixel * o.in.pitch + at.channel, x[r]);
    }
}

/* ---- places in 16 or fewer bytes: V bytes of argmax at once */

template <int V> struct Places {
    unsigned char place[V];
};
template <> struct __attribute__((aligned(4))) Places<4> {
    unsigned char place[4];
};
template <> struct __attribute__((aligned(8))) Places<8> {
    unsigned char place[8];
};

/* ---- maximum */

template <typename T, int V> BOUNDED max_pool_kernel(const __grid_constant__ PoolOperands o, const Rows rows)
{
    PoolPlace at;
    if (!pool_place(o, rows, V, &at)) return;
    const Window &w = o.window;
    Shape s = o.in.shape;
    int32_t top = (int32_t)at.i * w.stride_h - w.pad_h, left = (int32_t)at.j * w.stride_w - w.pad_w;
    float best[V];
    Places<V> places;
    UNROLL
    for (int k = 0; k < V; k++) best[k] = -INFINITY, places.place[k] = 0;
    bool begun = false;
    int32_t j_end = min(w.kw, s.w - left);
    for (int32_t i = max(0, -top); i < w.kh && top + i < s.h; i++)
        for (int32_t j = max(0, -left); j < j_end; j += POOL_ROW) {
            float x[POOL_ROW][V];
            pool_row<T, V>(o, at, top + i, left + j, left + j_end, x);
            UNROLL
            for (int r = 0; r < POOL_ROW; r++) {
                unsigned char place = (unsigned char)(i * w.kw + j + r);
                bool is_new = j + r < j_end;
                UNROLL
                for (int k = 0; k < V; k++)
                    if (is_new && (!begun || x[r][k] > best[k] || x[r][k] != x[r][k]))
                        best[k] = x[r][k], places.place[k] = place;
                begun = true;
            }
        }
    if (o.out.data) Lanes<T, V>::store(o.out, at.pixel * o.out.pitch + at.channel, best);
    if (o.argmax.data) *(Places<V> *)((unsigned char *)o.argmax.data + at.pixel * o.argmax.pitch + at.channel) = places;
}

/* The windows along one axis that cover `at`: first, and one past the last. */
DEVICE void pool_cover(int32_t at, int32_t k, int32_t stride, int32_t pad, int32_t out, int32_t *first, int32_t *end)
{
    int32_t reach = at + pad - k + 1;
    *first = reach > 0 ? (reach + stride - 1) / stride : 0;
    *end = min((at + pad) / stride + 1, out);
}

template <typename T, int V> BOUNDED max_pool_dx_kernel(const __grid_constant__ PoolOperands o, const Rows rows)
{
    PoolPlace at;
    if (!pool_place(o, rows, V, &at)) return;
    const Window &w = o.window;
    Shape s = o.in.shape;
    int32_t i0, i1, j0, j1, y = (int32_t)at.i, x = (int32_t)at.j;
    pool_cover(y, w.kh, w.stride_h, w.pad_h, s.h, &i0, &i1);
    pool_cover(x, w.kw, w.stride_w, w.pad_w, s.w, &j0, &j1);
    float sum[V];
    UNROLL
    for (int k = 0; k < V; k++) sum[k] = 0;
    for (int32_t i = i0; i < i1; i++)
        for (int32_t j = j0; j < j1; j += POOL_COVER) {
            float dy[POOL_COVER][V], of_relu[POOL_COVER][V];
            Places<V> places[POOL_COVER];
            UNROLL
            for (int r = 0; r < POOL_COVER; r++) {
                int64_t pixel = pool_pixel(s, at.n, i, min(j + r, j1 - 1));
                const char *argmax = (const char *)o.argmax.data + pixel * o.argmax.pitch + at.channel;
                places[r] = *(const Places<V> *)argmax;
                Lanes<T, V>::load(o.in, pixel * o.in.pitch + at.channel, dy[r]);
                if (o.relu_y.data) Lanes<T, V>::load(o.relu_y, pixel * o.relu_y.pitch + at.channel, of_relu[r]);
            }
            UNROLL
            for (int r = 0; r < POOL_COVER; r++) {
                int32_t place = (y + w.pad_h - i * w.stride_h) * w.kw + x + w.pad_w - (j + r) * w.stride_w;
                bool is_new = j + r < j1;
                UNROLL
                for (int k = 0; k < V; k++)
                    if (is_new && places[r].place[k] == place && (!o.relu_y.data || of_relu[r][k] > 0.0f))
                        sum[k] += dy[r][k];
            }
        }
    if (o.acc.data) {
        float acc[V];
        Lanes<T, V>::load(o.acc, at.pixel * o.acc.pitch + at.channel, acc);
        UNROLL
        for (int k = 0; k < V; k++) sum[k] += acc[k];
    }
    Lanes<T, V>::store(o.out, at.pixel * o.out.pitch + at.channel, sum);
}

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

static PoolOperands pool_operands(const OpCall *call)
{
    PoolOperands o = PoolOperands();
    o.in = call->in[0];
    o.out = call->out[0];
    o.window = call->attr.pool.window;
    o.include_pad = call->attr.pool.include_pad;
    o.adaptive = call->attr.pool.adaptive;
    o.width = divider(o.out.shape.w);
    o.height = divider(o.out.shape.h);
    return o;
}

static bool pool_wide(const PoolOperands &o)
{
    const Tensor *const tensors[] = {&o.in, &o.out, &o.acc, &o.relu_y};
    int lanes = lanes_of(o.in.dtype);
    bool wide = true;
    for (int i = 0; i < 4; i++)
        if (tensors[i]->data) wide = wide && wide_enough(*tensors[i], o.in.dtype, o.out.shape.c, false);
    return wide && (uintptr_t)o.argmax.data % (uintptr_t)lanes == 0 && o.argmax.pitch % lanes == 0;
}

#define POOL_LAUNCHER(name)                                                                                            \
    template <typename T, int V> static void name##_launch(const PoolOperands &o, cudaStream_t stream)                 \
    {                                                                                                                  \
        Rows rows = rows_plan(pixels_of(o.out), o.out.shape.c, V, WARP);                                               \
        dim3 grid((uint32_t)ceil_divided(rows.pixels, rows.down), rows.chunks);                                        \
        LAUNCH((name##_kernel<T, V>), grid, dim3(rows.across, rows.down), stream, o, rows);                            \
    }

POOL_LAUNCHER(max_pool)
POOL_LAUNCHER(max_pool_dx)
POOL_LAUNCHER(avg_pool)
POOL_LAUNCHER(avg_pool_dx)

cudaError_t kernel_max_pool(const OpCall *call, cudaStream_t stream)
{
    PoolOperands o = pool_operands(call);
    o.argmax = call->out[1];
    BY_FORMAT(o.in.dtype, pool_wide(o), max_pool_launch, o, stream);
    return LAUNCH_ERROR();
}

cudaError_t kernel_max_pool_dx(const OpCall *call, cudaStream_t stream)
{
    PoolOperands o = pool_operands(call);
    o.argmax = call->in[1];
    o.acc = call->in[2];
    o.relu_y = call->in[3];
    BY_FORMAT(o.in.dtype, pool_wide(o), max_pool_dx_launch, o, stream);
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
