/* Sums over axes and their opposites: gradients of biases and of broadcasting.
 *
 * CHANNEL_SUM is a column sum. SUM_TO computes each element of y in one block, from all elements of x that fold onto
 * it: the threads' f32 sums are added in f64, in a fixed order. This is correct for every shape, and fast for the small
 * ones that occur. SPREAD_TO writes each element of y once. */
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/map.cuh"

/* ---- sum over pixels */

struct ChannelSum {
    enum { STEPS = 4, PER_SM = BLOCKS_PER_SM };
    Tensor x, y;
    template <int V> struct Vectors {
        template <typename T> MEMBER void load(const ChannelSum &, uint32_t)
        {
        }
    };
    template <typename T, int V> struct Loads {
        typename Lanes<T, V>::Block block;
        MEMBER void fetch(const ChannelSum &body, uint32_t pixel, uint32_t channel)
        {
            block = Lanes<T, V>::block(body.x, pixel * body.x.pitch + channel);
        }
        MEMBER void add(const Vectors<V> &, float *first, float *) const
        {
            float x[V];
            Lanes<T, V>::widen(block, x);
            UNROLL
            for (int i = 0; i < V; i++) first[i] += x[i];
        }
    };
    MEMBER void finish(uint32_t channel, double first, double) const
    {
        float sum = (float)first;
        Lanes<Any, 1>::store(y, channel, &sum);
    }
};

size_t kernel_channel_sum_bytes(Shape x)
{
    return columns_bytes(x);
}

template <typename T, int V>
static void channel_sum_launch(const OpCall *call, const ChannelSum &body, cudaStream_t stream)
{
    Columns plan = columns_plan(pixels_of(body.x), body.x.shape.c, V, call->workspace, call->state);
    columns_launch<T, V>(plan, body, stream);
}

cudaError_t kernel_channel_sum(const OpCall *call, cudaStream_t stream)
{
    ChannelSum body;
    body.x = call->in[0];
    body.y = call->out[0];
    bool wide = wide_enough(body.x, body.x.dtype, body.x.shape.c, false);
    BY_FORMAT(body.x.dtype, wide, channel_sum_launch, call, body, stream);
    return LAUNCH_ERROR();
}

/* ---- sum to a smaller shape */

struct Fold {
    Tensor x, y;
    Shape over;     /* how many elements of x fold onto one of y, along each axis */
    uint32_t count; /* of them */
    Divider c, w, h;
};

/* The element of y number `target`, and of x the first that folds onto it. */
DEVICE int64_t fold_target(const Fold &o, uint32_t target, int64_t *first)
{
    Shape y = o.y.shape, x = o.x.shape;
    uint32_t c = target % y.c, w = target / y.c % y.w, h = target / y.c / y.w % y.h, n = target / y.c / y.w / y.h;
    *first = (((int64_t)n * x.h + h) * x.w + w) * o.x.pitch + c;
    return (((int64_t)n * y.h + h) * y.w + w) * o.y.pitch + c;
}

BOUNDED sum_to_kernel(const __grid_constant__ Fold o)
{
    SHARED_ARRAY(double, sums, WARPS);
    int64_t first, target = fold_target(o, blockIdx.x, &first);
    double sum = 0;
    for (uint32_t i = threadIdx.x; i < o.count; i += blockDim.x) {
        uint32_t c, w, h;
        uint32_t n = divided(divided(divided(i, o.c, &c), o.w, &w), o.h, &h);
        float x;
        Lanes<Any, 1>::load(o.x, first + (((int64_t)n * o.x.shape.h + h) * o.x.shape.w + w) * o.x.pitch + c, &x);
        sum += (double)x;
    }
    float total = (float)block_sum(sum, sums);
    if (threadIdx.x == 0) Lanes<Any, 1>::store(o.y, target, &total);
}

static int32_t folded(int32_t small, int32_t big)
{
    return small == 1 ? big : 1;
}

cudaError_t kernel_sum_to(const OpCall *call, cudaStream_t stream)
{
    Fold o;
    o.x = call->in[0];
    o.y = call->out[0];
    Shape x = o.x.shape, y = o.y.shape;
    o.over.n = folded(y.n, x.n), o.over.c = folded(y.c, x.c);
    o.over.h = folded(y.h, x.h), o.over.w = folded(y.w, x.w);
    o.count = (uint32_t)((int64_t)o.over.n * o.over.c * o.over.h * o.over.w);
    o.c = divider(o.over.c), o.w = divider(o.over.w), o.h = divider(o.over.h);
    LAUNCH((sum_to_kernel), (uint32_t)(pixels_of(o.y) * y.c), block_for(o.count), stream, o);
    return LAUNCH_ERROR();
}

/* ---- repeat */

struct Spread {
    Tensor x, y;
    Divider width, w, h;
    uint32_t vectors;
};

template <typename T, int V> BOUNDED spread_kernel(const __grid_constant__ Spread o)
{
    uint32_t vector = blockIdx.x * BLOCK + threadIdx.x, c, w, h;
    if (vector >= o.vectors) return;
    uint32_t pixel = divided(vector, o.width, &c), n = divided(divided(pixel, o.w, &w), o.h, &h);
    Shape x = o.x.shape;
    int64_t row = ((int64_t)(x.n == 1 ? 0 : n) * x.h + (x.h == 1 ? 0 : h)) * x.w + (x.w == 1 ? 0 : w);
    float value[V];
    if (x.c == 1) {
        Lanes<Any, 1>::load(o.x, row * o.x.pitch, &value[0]);
        UNROLL
        for (int i = 1; i < V; i++) value[i] = value[0];
    } else {
        UNROLL
        for (int i = 0; i < V; i++) Lanes<Any, 1>::load(o.x, row * o.x.pitch + (int64_t)c * V + i, &value[i]);
    }
    Lanes<T, V>::store(o.y, pixel * o.y.pitch + (int64_t)c * V, value);
}

template <typename T, int V> static void spread_launch(Spread o, cudaStream_t stream)
{
    o.width = divider(o.y.shape.c / V);
    o.w = divider(o.y.shape.w);
    o.h = divider(o.y.shape.h);
    o.vectors = (uint32_t)(pixels_of(o.y) * (o.y.shape.c / V));
    LAUNCH((spread_kernel<T, V>), (uint32_t)ceil_divided(o.vectors, BLOCK), BLOCK, stream, o);
}

cudaError_t kernel_spread_to(const OpCall *call, cudaStream_t stream)
{
    Spread o;
    o.x = call->in[0];
    o.y = call->out[0];
    bool wide = wide_enough(o.y, o.y.dtype, o.y.shape.c, false);
    BY_FORMAT(o.y.dtype, wide, spread_launch, o, stream);
    return LAUNCH_ERROR();
}
