/* Max pooling of a batch normalization with ReLU, and the gradient of both, neither of which stores what lies between
 * the two.
 *
 * Forward: each thread normalizes the elements of its windows while it looks for the maximum (a row that two windows of
 * 3x3 share once for both). Backward: both passes of the batch norm's gradient gather dy from the windows that cover a
 * pixel instead of reading a sum that was stored. What would be stored is rounded as the store would round it, and the
 * sums have the order of batchnorm.cu, so that the results are those of the separate kernels, bit for bit. Bytes per element of x with windows of 3x3 and stride 2,
 * in 16 bits: 2.75 forward instead of 6.75 (without the statistics), 7.5 backward instead of 12.75. */
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/pool.cuh"

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

/* dy is that of the pooling: pool.in. */
struct PooledGradSums : NormGradSums {
    enum { STEPS = 1, GRAD_STEPS = 1 }; /* as many registers as there are */
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
    bool wide = pool_wide(norm.pool) && norm_wide(norm);
    BY_FORMAT(norm.x.dtype, wide, norm_columns, call, norm, stream);
    if (norm.y.data) BY_FORMAT(norm.x.dtype, wide, norm_grad, norm, stream);
    return LAUNCH_ERROR();
}
