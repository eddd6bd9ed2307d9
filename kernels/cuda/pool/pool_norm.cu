/* Max pooling of a batch normalization with ReLU, and the gradient of both, neither of which stores what lies between
 * the two.
 *
 * Forward: each thread normalizes the elements of its windows while it looks for the maximum (a row that two windows of
 * 3x3 share once for both). Backward: both passes of the batch norm's gradient gather dy from the windows that cover a
 * pixel instead of reading a sum that was stored. Windows of 3x3 and 2x2 with stride 2 do so block by block
 * (pool_blocks.cuh): the 2x2 pixels of a thread lie in the same windows, each of which it reads once.
 *
 * What would be stored is rounded as the store would round it. So y is that of the separate kernels, bit for bit, and so
 * are the terms of the gradient's sums. Where a thread sums block by block their order differs, from batchnorm.cu but
 * not from run to run, and dx differs by as much as the sums do. Bytes per element of x with windows of 3x3 and stride
 * 2, in 16 bits: 2.75 forward instead of 6.75 (without the statistics), 7.5 backward instead of 12.75. */
#include "kernels/cuda/norm/norm.cuh"
#include "kernels/cuda/pool/pool_blocks.cuh"

struct Normalized : Norm {
    template <int V> struct Vectors : NormVectors<V> {
        template <typename T> MEMBER void apply(const Normalized &norm, float *x) const
        {
            UNROLL
            for (int i = 0; i < V; i++) {
                float y = this->applied(x[i] - this->mean[i], i);
                x[i] = norm.floor > y ? norm.floor : y;
            }
            Lanes<T, V>::round(norm.x.dtype, x);
        }
    };
};

/* Gathering and all that the channels need are more registers than three blocks of threads have. */
enum { POOLED_PER_SM = 2, POOLED_EACH = 8 /* at most so many blocks of pixels for a thread */ };

/* dy is that of the pooling: pool.in. */
struct PooledGradSums : NormGradSums {
    enum { STEPS = 1, GRAD_STEPS = 1, PER_SM = POOLED_PER_SM };
    PoolOperands pool;
    template <typename T, int V> MEMBER void load_dy(uint32_t pixel, uint32_t channel, float *to) const
    {
        uint32_t i, j, n = divided(divided(pixel, pool.width, &j), pool.height, &i);
        pool_gather<T, V, 1, false>(pool, n, (int32_t)i, (int32_t)j, channel, to);
        Lanes<T, V>::round(x.dtype, to);
    }
    template <typename T, int V> struct Dy {
        float dy[V];
        MEMBER void fetch(const PooledGradSums &norm, uint32_t pixel, uint32_t channel)
        {
            norm.template load_dy<T, V>(pixel, channel, dy);
        }
        MEMBER void spread(float *to) const
        {
            UNROLL
            for (int i = 0; i < V; i++) to[i] = dy[i];
        }
    };
    template <typename T, int V> using Loads = NormGradSums::Loads<T, V, Dy<T, V>>;
};

/* ---- blocks: pool.width and pool.height count them */

template <int K, int S> struct PooledBlockSums : NormGradSums {
    enum { STEPS = 1, PER_SM = POOLED_PER_SM };
    PoolOperands pool;
    /* A block of pixels, on their way. */
    template <typename T, int V> struct Loads {
        PoolBlock<S> block;
        typename Lanes<T, V>::Block x[S * S];
        BlockWindows<T, V, K, S> windows;
        Dtype dtype;
        float floor;
        MEMBER void fetch(const PooledBlockSums &norm, uint32_t at, uint32_t channel)
        {
            uint32_t i, j, n = divided(divided(at, norm.pool.width, &j), norm.pool.height, &i);
            block.find(norm.pool, n, i, j);
            UNROLL
            for (int p = 0; p < S * S; p++) {
                x[p] = typename Lanes<T, V>::Block();
                if (block.exists(p)) x[p] = Lanes<T, V>::block(norm.x, pool_index(norm.x, block.pixel[p], channel));
            }
            windows.fetch(norm.pool, block, channel);
            dtype = norm.x.dtype;
            floor = norm.floor;
        }
        /* Of pixel p. */
        MEMBER void spread(int p, float *to, float *dy) const
        {
            Lanes<T, V>::widen(x[p], to);
            windows.gather_rounded(dtype, p, dy);
        }
        /* No y is above infinity: pixels that do not exist send nothing. */
        MEMBER void add(const NormVectors<V> &own, float *first, float *second) const
        {
            UNROLL
            for (int p = 0; p < S * S; p++) {
                float wide[V], dy[V];
                spread(p, wide, dy);
                own.grad_add(block.exists(p) ? floor : INFINITY, wide, dy, first, second);
            }
        }
    };
};

/* As norm_grad_kernel; rows.pixels and norm.each count blocks. */
template <typename T, int V, int K, int S>
__global__ void __launch_bounds__(BLOCK, POOLED_PER_SM)
    pooled_grad_kernel(const __grid_constant__ PooledBlockSums<K, S> norm, const Rows rows)
{
    uint32_t channel = rows_vector(rows) * V, last = gridDim.x - 1 - blockIdx.x;
    uint32_t at = last * (rows.down * norm.each) + threadIdx.y;
    if (channel >= rows.vectors * V || at >= rows.pixels) return;
    typename PooledBlockSums<K, S>::template Loads<T, V> loads;
    loads.fetch(norm, at, channel);
    NormGradVectors<V> own;
    own.template load<T>(norm, channel);
    UNROLL_BY(1)
    for (uint32_t step = 1;; step++) {
        UNROLL
        for (int p = 0; p < S * S; p++) {
            float x[V], dy[V];
            loads.spread(p, x, dy);
            own.grad(norm.floor, x, dy);
            if (loads.block.exists(p)) Lanes<T, V>::store(norm.y, pool_index(norm.y, loads.block.pixel[p], channel), x);
        }
        at += rows.down;
        if (step >= norm.each || at >= rows.pixels) return;
        loads.fetch(norm, at, channel);
    }
}

/* ---- launchers */

template <typename T, int V, int K, int S>
static void pooled_blocks(const OpCall *call, const PooledGradSums &of, cudaStream_t stream)
{
    PooledBlockSums<K, S> norm = PooledBlockSums<K, S>();
    (NormGradSums &)norm = of;
    norm.pool = of.pool;
    int64_t blocks = pool_blocks(&norm.pool, S), c = norm.x.shape.c;
    Columns plan = norm_columns_plan(call, norm, V); /* as many parts as workspace is for */
    plan.rows.pixels = (uint32_t)blocks;
    columns_launch<T, V>(plan, norm, stream);
    if (!norm.y.data) return;
    Rows rows = rows_plan(blocks, c, V, WARP);
    int64_t each = blocks * rows.chunks / ((int64_t)rows.down * NORM_BLOCKS);
    norm.each = (uint32_t)clamped(each, 1, POOLED_EACH);
    LAUNCH((pooled_grad_kernel<T, V, K, S>), dim3((uint32_t)ceil_divided(blocks, rows.down * norm.each), rows.chunks),
           dim3(rows.across, rows.down), stream, norm, rows);
}

template <typename T, int V>
static void pooled_pixels(const OpCall *call, const PooledGradSums &norm, cudaStream_t stream)
{
    norm_columns<T, V>(call, norm, stream);
    if (norm.y.data) norm_grad<T, V>(norm, stream);
}

template <typename T, int V>
static void max_pool_norm_dx(const OpCall *call, const PooledGradSums &norm, cudaStream_t stream)
{
    if (window_is(norm.pool.window, 3, 2))
        pooled_blocks<T, V, 3, 2>(call, norm, stream);
    else if (window_is(norm.pool.window, 2, 2))
        pooled_blocks<T, V, 2, 2>(call, norm, stream);
    else
        pooled_pixels<T, V>(call, norm, stream);
}

cudaError_t kernel_max_pool_norm(const OpCall *call, cudaStream_t stream)
{
    PoolOperands o = pool_operands(call);
    Normalized norm = norm_body<Normalized>(call, call->in[0]);
    o.argmax = call->out[1];
    norm.beta = (const float *)call->in[1].data;
    norm.mean = (const float *)call->in[2].data;
    norm.var = (const float *)call->in[3].data;
    norm.gamma = (const float *)call->in[4].data;
    BY_FORMAT(o.in.dtype, pool_wide(o) && norm_wide(norm), max_pool, o, norm, stream);
    return LAUNCH_ERROR();
}

cudaError_t kernel_max_pool_norm_dx(const OpCall *call, cudaStream_t stream)
{
    PooledGradSums norm = norm_grad_sums<PooledGradSums>(call, &call->in[2]);
    norm.pool = pool_operands(call);
    norm.pool.argmax = call->in[1];
    BY_FORMAT(norm.x.dtype, pool_wide(norm.pool) && norm_wide(norm), max_pool_norm_dx, call, norm, stream);
    return LAUNCH_ERROR();
}
