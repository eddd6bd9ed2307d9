/* Shared by the kernels of pooling (pool.cu, pool_max_dx.cu, pool_mean.cu, pool_norm.cu): where a thread is, the maximum over a window, and the
 * gradient that windows send to a pixel. */
#pragma once

#include "kernels/cuda/map.cuh"
#include "kernels/pool_axis.h"

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
struct PoolPosition {
    uint32_t pixel, n, i, j, channel;
};

DEVICE bool pool_position(const PoolOperands &o, const Rows &rows, int lanes, PoolPosition *at)
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

/* Positions of V channels as words of four: bytes of a register are dear. */
template <int V> struct __attribute__((aligned(V == 8 ? 8 : 4))) PositionWords {
    uint32_t word[(V + 3) / 4];
    MEMBER void load(const unsigned char *from)
    {
        if constexpr (V == 1)
            word[0] = *from;
        else
            *this = *(const PositionWords *)from;
    }
    MEMBER void store(unsigned char *to) const
    {
        if constexpr (V == 1)
            *to = (unsigned char)word[0];
        else
            *(PositionWords *)to = *this;
    }
    MEMBER void fill(uint32_t position)
    {
        UNROLL
        for (int k = 0; k < V; k += 4) word[k / 4] = position * 0x01010101u;
    }
    /* No sum exceeds a byte. */
    MEMBER void add(uint32_t position)
    {
        UNROLL
        for (int k = 0; k < V; k += 4) word[k / 4] += position * 0x01010101u;
    }
    MEMBER void take(int k, const PositionWords &from)
    {
        uint32_t mask = 0xFFu << k % 4 * 8;
        word[k / 4] = (word[k / 4] & ~mask) | (from.word[k / 4] & mask);
    }
    MEMBER void close(int k)
    {
        word[k / 4] |= 0xFFu << k % 4 * 8;
    }
    /* Zeros where it is `position`: to find one in a word takes one instruction, to find `position` two. */
    MEMBER PositionWords other_than(uint32_t position) const
    {
        PositionWords other;
        UNROLL
        for (int k = 0; k < V; k += 4) other.word[k / 4] = word[k / 4] ^ position * 0x01010101u;
        return other;
    }
    MEMBER bool none(int k) const
    {
        return !(word[k / 4] & 0xFFu << k % 4 * 8);
    }
};

/* 32 bits are multiplied, as far as they suffice: pixels are fewer than 2^31, and so are the channels of a buffer. */
DEVICE int64_t pool_index(const Tensor &t, uint32_t pixel, uint32_t channel)
{
    return (int64_t)((uint64_t)pixel * (uint32_t)t.pitch + channel);
}

/* Pixels j, j + 1, ... of row i of o.in, none behind `end`. */
template <typename T, int V>
DEVICE void pool_row(const PoolOperands &o, const PoolPosition &at, int32_t i, int32_t j, int32_t end, float (*x)[V])
{
    UNROLL
    for (int r = 0; r < POOL_ROW; r++) {
        int64_t pixel = pool_pixel(o.in.shape, at.n, i, min(j + r, end - 1));
        Lanes<T, V>::load(o.in, pixel * o.in.pitch + at.channel, x[r]);
    }
}

/* ---- positions in 16 or fewer bytes: V bytes of argmax at once */

template <int V> struct Positions {
    unsigned char position[V];
};
template <> struct __attribute__((aligned(4))) Positions<4> {
    unsigned char position[4];
};
template <> struct __attribute__((aligned(8))) Positions<8> {
    unsigned char position[8];
};

/* ---- maximum */

/* What a pooling looks at: x as it is. Another body makes something else of it. */
struct AsIs {
    template <int V> struct Vectors {
        template <typename T> MEMBER void load(const AsIs &, uint32_t)
        {
        }
        template <typename T> MEMBER void apply(const AsIs &, float *) const
        {
        }
    };
};

template <typename T, int V, typename Body>
BOUNDED max_pool_kernel(const __grid_constant__ PoolOperands o, const __grid_constant__ Body body, const Rows rows)
{
    PoolPosition at;
    if (!pool_position(o, rows, V, &at)) return;
    typename Body::template Vectors<V> own;
    own.template load<T>(body, at.channel);
    const Window &w = o.window;
    Shape s = o.in.shape;
    int32_t top = (int32_t)at.i * w.stride_h - w.pad_h, left = (int32_t)at.j * w.stride_w - w.pad_w;
    float best[V];
    Positions<V> positions;
    UNROLL
    for (int k = 0; k < V; k++) best[k] = -INFINITY, positions.position[k] = 0;
    bool begun = false;
    int32_t j_end = min(w.kw, s.w - left);
    for (int32_t i = max(0, -top); i < w.kh && top + i < s.h; i++)
        for (int32_t j = max(0, -left); j < j_end; j += POOL_ROW) {
            float x[POOL_ROW][V];
            pool_row<T, V>(o, at, top + i, left + j, left + j_end, x);
            UNROLL
            for (int r = 0; r < POOL_ROW; r++) {
                own.template apply<T>(body, x[r]);
                unsigned char position = (unsigned char)(i * w.kw + j + r);
                bool is_new = j + r < j_end;
                UNROLL
                for (int k = 0; k < V; k++)
                    if (is_new && (!begun || x[r][k] > best[k] || x[r][k] != x[r][k]))
                        best[k] = x[r][k], positions.position[k] = position;
                begun = true;
            }
        }
    if (o.out.data) Lanes<T, V>::store(o.out, at.pixel * o.out.pitch + at.channel, best);
    if (o.argmax.data)
        *(Positions<V> *)((unsigned char *)o.argmax.data + at.pixel * o.argmax.pitch + at.channel) = positions;
}

/* ---- maximum over windows of 3x3 with stride 2, in strips
 *
 * A thread makes MAX_STRIP outputs, one below another. The maximum of a row that two of them share is computed once, so
 * that a thread looks at 27 pixels for four outputs instead of 36. Instead of a pixel outside, the nearest one that is
 * in the window is looked at, under its own position: that changes nothing. */
enum { MAX_SIDE = 3, MAX_STRIDE = 2, MAX_STRIP = 4 };

/* The first of the largest, or the last NaN: it is the same whether elements are taken one by one or row by row. */
template <int V> struct Maximum {
    float best[V];
    PositionWords<V> positions;
    MEMBER void take(const float *x, const PositionWords<V> &at)
    {
        UNROLL
        for (int k = 0; k < V; k++)
            if (x[k] > best[k] || x[k] != x[k]) best[k] = x[k], positions.take(k, at);
    }
};

template <typename T, int V, typename Body> struct MaxStrip {
    typename Body::template Vectors<V> own;
    uint32_t n, channel;
    int32_t column[MAX_SIDE], left;
    MEMBER void find(const PoolOperands &o, const PoolPosition &at)
    {
        n = at.n, channel = at.channel;
        left = (int32_t)at.j * MAX_STRIDE - o.window.pad_w;
        UNROLL
        for (int c = 0; c < MAX_SIDE; c++) column[c] = min(max(left + c, 0), o.in.shape.w - 1);
    }
    /* The maximum of `row`; positions are those of a window's first row. */
    MEMBER void row_maximum(const PoolOperands &o, const Body &body, int32_t row, Maximum<V> *made) const
    {
        float x[MAX_SIDE][V];
        PositionWords<V> at;
        UNROLL
        for (int c = 0; c < MAX_SIDE; c++) {
            uint32_t pixel = (n * o.in.shape.h + row) * o.in.shape.w + column[c];
            Lanes<T, V>::load(o.in, pool_index(o.in, pixel, channel), x[c]);
        }
        UNROLL
        for (int c = 0; c < MAX_SIDE; c++) {
            own.template apply<T>(body, x[c]);
            at.fill((uint32_t)(column[c] - left));
            if (c > 0) {
                made->take(x[c], at);
                continue;
            }
            UNROLL
            for (int k = 0; k < V; k++) made->best[k] = x[c][k];
            made->positions = at;
        }
    }
};

/* at: of a strip; o.height counts strips. */
template <typename T, int V, typename Body>
BOUNDED max_pool_strip_kernel(const __grid_constant__ PoolOperands o, const __grid_constant__ Body body,
                              const Rows rows)
{
    PoolPosition at;
    if (!pool_position(o, rows, V, &at)) return;
    MaxStrip<T, V, Body> strip;
    strip.own.template load<T>(body, at.channel);
    strip.find(o, at);
    int32_t i = (int32_t)at.i * MAX_STRIP, end = min(i + MAX_STRIP, o.out.shape.h), bottom = o.in.shape.h - 1;
    int32_t top = i * MAX_STRIDE - o.window.pad_h, row = min(max(top, 0), bottom);
    Maximum<V> window, line;
    strip.row_maximum(o, body, row, &line);
    UNROLL_BY(1)
    for (; i < end; i++, top += MAX_STRIDE) {
        window = line;
        window.positions.add((uint32_t)(row - top) * MAX_SIDE);
        UNROLL_BY(1)
        for (int r = 1; r < MAX_SIDE; r++) {
            row = min(max(top + r, 0), bottom);
            strip.row_maximum(o, body, row, &line);
            PositionWords<V> positions = line.positions;
            positions.add((uint32_t)(row - top) * MAX_SIDE);
            window.take(line.best, positions);
        }
        uint32_t pixel = (at.n * o.out.shape.h + i) * o.out.shape.w + at.j;
        if (o.out.data) Lanes<T, V>::store(o.out, pool_index(o.out, pixel, at.channel), window.best);
        if (o.argmax.data)
            window.positions.store((unsigned char *)o.argmax.data + pool_index(o.argmax, pixel, at.channel));
    }
}

/* The sum of dy over the windows whose maximum is pixel (y, x), of V channels. COVER windows of a row are loaded at
 * once. With RELU, only of those whose y is positive, if there is a relu_y. */
template <typename T, int V, int COVER, bool RELU>
DEVICE void pool_gather(const PoolOperands &o, uint32_t n, int32_t y, int32_t x, uint32_t channel, float *sum)
{
    const Window &w = o.window;
    Shape s = o.in.shape;
    PoolAxis down = pool_axis(&w, o.out.shape, s, true, false, false),
             across = pool_axis(&w, o.out.shape, s, false, false, false);
    int32_t i0, i1, j0, j1;
    axis_cover(&down, y, &i0, &i1);
    axis_cover(&across, x, &j0, &j1);
    UNROLL
    for (int k = 0; k < V; k++) sum[k] = 0;
    UNROLL_BY(1)
    for (int32_t i = i0; i < i1; i++) {
        UNROLL_BY(1)
        for (int32_t j = j0; j < j1; j += COVER) {
            float dy[COVER][V], of_relu[COVER][V];
            Positions<V> positions[COVER];
            UNROLL
            for (int r = 0; r < COVER; r++) {
                int64_t pixel = pool_pixel(s, n, i, min(j + r, j1 - 1));
                const char *argmax = (const char *)o.argmax.data + pixel * o.argmax.pitch + channel;
                positions[r] = *(const Positions<V> *)argmax;
                Lanes<T, V>::load(o.in, pixel * o.in.pitch + channel, dy[r]);
                if (RELU && o.relu_y.data) Lanes<T, V>::load(o.relu_y, pixel * o.relu_y.pitch + channel, of_relu[r]);
            }
            UNROLL
            for (int r = 0; r < COVER; r++) {
                int32_t position = (y + w.pad_h - i * w.stride_h) * w.kw + x + w.pad_w - (j + r) * w.stride_w;
                bool is_new = j + r < j1;
                UNROLL
                for (int k = 0; k < V; k++)
                    if (is_new && positions[r].position[k] == position &&
                        (!RELU || !o.relu_y.data || of_relu[r][k] > 0.0f))
                        sum[k] += dy[r][k];
            }
        }
    }
}

/* ---- launchers */

static inline PoolOperands pool_operands(const OpCall *call)
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

static inline bool window_is(const Window &w, int32_t k, int32_t stride)
{
    return w.kh == k && w.kw == k && w.stride_h == stride && w.stride_w == stride;
}

static inline bool pool_wide(const PoolOperands &o)
{
    const Tensor *const tensors[] = {&o.in, &o.out, &o.acc, &o.relu_y};
    int lanes = lanes_of(o.in.dtype);
    bool wide = true;
    for (int i = 0; i < 4; i++)
        if (tensors[i]->data) wide = wide && wide_enough(*tensors[i], o.in.dtype, o.out.shape.c, false);
    return wide && (uintptr_t)o.argmax.data % (uintptr_t)lanes == 0 && o.argmax.pitch % lanes == 0;
}

template <typename T, int V, typename Body>
static void max_pool_strips(PoolOperands o, const Body &body, cudaStream_t stream)
{
    int64_t down = ceil_divided(o.out.shape.h, MAX_STRIP);
    o.height = divider(down);
    Rows rows = rows_plan(o.out.shape.n * down * o.out.shape.w, o.out.shape.c, V, WARP);
    dim3 grid((uint32_t)ceil_divided(rows.pixels, rows.down), rows.chunks);
    LAUNCH((max_pool_strip_kernel<T, V, Body>), grid, dim3(rows.across, rows.down), stream, o, body, rows);
}

template <typename T, int V, typename Body>
static void max_pool(const PoolOperands &o, const Body &body, cudaStream_t stream)
{
    if (window_is(o.window, MAX_SIDE, MAX_STRIDE)) {
        max_pool_strips<T, V, Body>(o, body, stream);
        return;
    }
    Rows rows = rows_plan(pixels_of(o.out), o.out.shape.c, V, WARP);
    dim3 grid((uint32_t)ceil_divided(rows.pixels, rows.down), rows.chunks);
    LAUNCH((max_pool_kernel<T, V, Body>), grid, dim3(rows.across, rows.down), stream, o, body, rows);
}

/* name_launch<T, V>(o, stream) of a name_kernel<T, V> that makes pixels of `out`. */
#define POOL_LAUNCHER(name)                                                                                            \
    template <typename T, int V> static void name##_launch(const PoolOperands &o, cudaStream_t stream)                 \
    {                                                                                                                  \
        Rows rows = rows_plan(pixels_of(o.out), o.out.shape.c, V, WARP);                                               \
        dim3 grid((uint32_t)ceil_divided(rows.pixels, rows.down), rows.chunks);                                        \
        LAUNCH((name##_kernel<T, V>), grid, dim3(rows.across, rows.down), stream, o, rows);                            \
    }
