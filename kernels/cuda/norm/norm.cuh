/* Shared by the kernels of batch normalization (batchnorm.cu, pool_norm.cu): its values per channel, the sums of its
 * gradient, and the pass that writes dx. */
#pragma once

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/map.cuh"

/* A thread does at most NORM_PIXELS pixels, fewer where the grid would have fewer than NORM_BLOCKS blocks. */
enum { NORM_PIXELS = 16, NORM_STEPS = 2, NORM_BLOCKS = 4 * COLUMN_BLOCKS };

/* The values that are summed over the towers, and those that a tower keeps for the computation after the sum. */
struct NormTowers {
    float *sums;    /* NULL: this tower's batch alone; [1 + c]: pixels, and mean * pixels; backward [1 + 2c]: pixels,
                             sum g, sum g (x - mean) */
    float *squares; /* [c], forward: around the mean of all towers */
    double *mean, *square; /* [c], forward: of this tower, and the squares around that */
};

struct Norm {
    enum {
        GRAD_STEPS = NORM_STEPS, /* pixels loaded before the first dx is made */
        PER_SM = BLOCKS_PER_SM,  /* blocks that a multiprocessor shall hold */
    };
    Tensor x, dy, y;                        /* y: what is written, y or dx; dy: backward only */
    const float *mean, *var, *beta, *gamma; /* gamma: NULL for 1 */
    float *mean_out, *var_out;              /* forward */
    float *dbeta, *dgamma;                  /* NULL: nobody reads it */
    float *slope, *offset;                  /* backward: dx = a g + slope (x - mean) + offset */
    NormTowers towers;
    float epsilon, floor; /* floor: 0 for ReLU, else -inf */
    float pixels;         /* count */
    uint32_t each;        /* pixels of a thread */
    double count;
    /* V channels of a pixel of dy, on their way */
    template <typename T, int V> struct Dy {
        typename Lanes<T, V>::Block block;
        MEMBER void fetch(const Norm &norm, uint32_t pixel, uint32_t channel)
        {
            block = Lanes<T, V>::block(norm.dy, pixel * norm.dy.pitch + channel);
        }
        MEMBER void spread(float *to) const
        {
            Lanes<T, V>::widen(block, to);
        }
    };
};

DEVICE float norm_rstd(const Norm &norm, float var)
{
    return rsqrtf(var + norm.epsilon);
}

/* (x - mean) a + beta: one expression for y and for the mask of its gradient, so that their signs agree. */
template <int V> struct NormVectors {
    float mean[V], scale[V], beta[V];
    template <typename T> MEMBER void load(const Norm &norm, uint32_t channel)
    {
        load_vector<V>(norm.mean + channel, mean);
        load_vector<V>(norm.var + channel, scale);
        load_vector<V>(norm.beta + channel, beta);
        UNROLL
        for (int i = 0; i < V; i++) scale[i] = norm_rstd(norm, scale[i]);
        if (!norm.gamma) return;
        float gamma[V];
        load_vector<V>(norm.gamma + channel, gamma);
        UNROLL
        for (int i = 0; i < V; i++) scale[i] *= gamma[i];
    }
    MEMBER float applied(float centered, int i) const
    {
        return __fmaf_rn(centered, scale[i], beta[i]);
    }
    /* to the sums of g and g (x - mean), where g = dy where y > floor */
    MEMBER void grad_add(float floor, const float *x, const float *dy, float *first, float *second) const
    {
        UNROLL
        for (int i = 0; i < V; i++) {
            float a = x[i] - mean[i], g = applied(a, i) > floor ? dy[i] : 0.0f;
            first[i] += g;
            second[i] = __fmaf_rn(g, a, second[i]);
        }
    }
};

/* Sets norm->each. */
static inline dim3 norm_grid(const Rows &rows, Norm *norm)
{
    int64_t each = (int64_t)rows.pixels * rows.chunks / ((int64_t)rows.down * NORM_BLOCKS);
    norm->each = (uint32_t)(clamped(each, NORM_STEPS, NORM_PIXELS) / NORM_STEPS * NORM_STEPS);
    return dim3((uint32_t)ceil_divided(rows.pixels, rows.down * norm->each), rows.chunks);
}

/* ---- gradients */

struct NormGradSums : Norm {
    enum { STEPS = 2 };
    template <int V> using Vectors = NormVectors<V>;
    template <typename T, int V, typename From = Dy<T, V>> struct Loads {
        typename Lanes<T, V>::Block of_x;
        From of_dy;
        float floor;
        template <typename Body> MEMBER void fetch(const Body &norm, uint32_t pixel, uint32_t channel)
        {
            of_x = Lanes<T, V>::block(norm.x, pixel * norm.x.pitch + channel);
            of_dy.fetch(norm, pixel, channel);
            floor = norm.floor;
        }
        MEMBER void add(const Vectors<V> &own, float *first, float *second) const
        {
            float x[V], dy[V];
            Lanes<T, V>::widen(of_x, x);
            of_dy.spread(dy);
            own.grad_add(floor, x, dy, first, second);
        }
    };
    MEMBER void finish(uint32_t channel, double first, double second) const
    {
        double rstd = (double)norm_rstd(*this, var[channel]);
        if (dbeta) dbeta[channel] = (float)first;
        if (dgamma) dgamma[channel] = (float)(rstd * second);
        if (towers.sums)
            give(channel, first, second);
        else
            coefficients_make(channel, first, second, count);
    }
    MEMBER void give(uint32_t channel, double first, double second) const
    {
        if (channel == 0) towers.sums[0] = pixels;
        towers.sums[1 + channel] = (float)first;
        towers.sums[1 + x.shape.c + channel] = (float)second;
    }
    /* slope and offset from the sums over `over` pixels */
    MEMBER void coefficients_make(uint32_t channel, double first, double second, double over) const
    {
        double rstd = (double)norm_rstd(*this, var[channel]), a = gamma ? rstd * (double)gamma[channel] : rstd;
        double product = rstd * second;
        slope[channel] = (float)(-a * rstd * product / over);
        offset[channel] = (float)(-a * first / over);
    }
};

/* What dx is made of. */
template <int V> struct NormGradVectors : NormVectors<V> {
    float slope[V], offset[V];
    template <typename T> MEMBER void load(const Norm &norm, uint32_t channel)
    {
        NormVectors<V>::template load<T>(norm, channel);
        load_vector<V>(norm.slope + channel, slope);
        load_vector<V>(norm.offset + channel, offset);
    }
    /* x becomes dx. */
    MEMBER void grad(float floor, float *x, const float *dy) const
    {
        UNROLL
        for (int i = 0; i < V; i++) {
            float a = x[i] - this->mean[i], g = this->applied(a, i) > floor ? dy[i] : 0.0f;
            x[i] = __fmaf_rn(g, this->scale[i], __fmaf_rn(a, slope[i], offset[i]));
        }
    }
};

/* The operands of some pixels, `down` apart; behind the end the last one. */
template <typename T, int V, typename Body> struct GradPixels {
    typename Lanes<T, V>::Block x[Body::GRAD_STEPS];
    typename Body::template Dy<T, V> dy[Body::GRAD_STEPS];
    MEMBER void fetch(const Body &norm, const Rows &rows, uint32_t pixel, uint32_t channel)
    {
        UNROLL
        for (int s = 0; s < Body::GRAD_STEPS; s++) {
            uint32_t at = min(pixel + s * rows.down, rows.pixels - 1);
            x[s] = Lanes<T, V>::block(norm.x, at * norm.x.pitch + channel);
            dy[s].fetch(norm, at, channel);
        }
    }
};

/* Body: a Norm, which says where dy comes from. The first pixels are on their way before the values of the channels are, as in
 * every kernel here: small tensors have so few for each thread that it would wait as long for the one as for the other. */
template <typename T, int V, typename Body>
__global__ void __launch_bounds__(BLOCK, Body::PER_SM)
    norm_grad_kernel(const __grid_constant__ Body norm, const Rows rows)
{
    uint32_t channel = rows_vector(rows) * V, block = gridDim.x - 1 - blockIdx.x;
    if (channel >= rows.vectors * V) return;
    uint32_t pixel = block * (rows.down * norm.each) + threadIdx.y;
    GradPixels<T, V, Body> p;
    p.fetch(norm, rows, pixel, channel);
    NormGradVectors<V> own;
    own.template load<T>(norm, channel);
    for (uint32_t step = 0;;) {
        UNROLL
        for (int s = 0; s < Body::GRAD_STEPS; s++, pixel += rows.down) {
            float x[V], dy[V];
            if (pixel >= rows.pixels) return;
            Lanes<T, V>::widen(p.x[s], x);
            p.dy[s].spread(dy);
            own.grad(norm.floor, x, dy);
            Lanes<T, V>::store(norm.y, pixel * norm.y.pitch + channel, x);
        }
        step += Body::GRAD_STEPS;
        if (step >= norm.each || pixel >= rows.pixels) return;
        p.fetch(norm, rows, pixel, channel);
    }
}

template <typename T, int V, typename Body> static void norm_grad(Body norm, cudaStream_t stream)
{
    Rows rows = rows_plan(pixels_of(norm.x), norm.x.shape.c, V, WARP);
    dim3 grid = norm_grid(rows, &norm);
    LAUNCH((norm_grad_kernel<T, V, Body>), grid, dim3(rows.across, rows.down), stream, norm, rows);
}

/* ---- launchers */

/* Workspace: two vectors, what meets other towers' (one vector, one behind a count, two of doubles), the
 * partial sums. */
static inline size_t norm_vector_bytes(int64_t c)
{
    return (size_t)ceil_divided(c, 64) * 64 * sizeof(float);
}

static inline size_t norm_towers_bytes(int64_t c)
{
    return norm_vector_bytes(1 + c) + norm_vector_bytes(c) + 4 * norm_vector_bytes(c);
}

template <typename Body> static Body norm_body(const OpCall *call, const Tensor &x)
{
    Body norm = Body();
    norm.x = x;
    norm.y = call->out[0];
    bool of_pool = call->kind == OP_MAX_POOL_NORM || call->kind == OP_MAX_POOL_NORM_DX;
    norm.epsilon = of_pool ? call->attr.pool.epsilon : call->attr.norm.epsilon;
    norm.floor = of_pool || call->attr.norm.relu ? 0.0f : -INFINITY;
    norm.count = (double)pixels_of(x);
    norm.pixels = (float)norm.count;
    return norm;
}

static inline bool norm_wide(const Norm &norm)
{
    const float *const vectors[] = {norm.mean, norm.var, norm.beta, norm.gamma, norm.slope, norm.offset};
    bool wide = wide_enough(norm.x, norm.x.dtype, norm.x.shape.c, false);
    for (int i = 0; i < 6; i++) wide = wide && aligned_16(vectors[i]);
    return wide;
}

static inline Columns norm_columns_plan(const OpCall *call, const Norm &norm, int lanes)
{
    int64_t c = norm.x.shape.c;
    void *partial = (char *)call->workspace + 2 * norm_vector_bytes(c) + norm_towers_bytes(c);
    return columns_plan(pixels_of(norm.x), c, lanes, partial, call->state);
}

template <typename T, int V, typename Body>
static void norm_columns(const OpCall *call, const Body &body, cudaStream_t stream)
{
    columns_launch<T, V>(norm_columns_plan(call, body, V), body, stream);
}

/* of: x, beta, mean, var, gamma */
template <typename Body> static Body norm_grad_sums(const OpCall *call, const Tensor *of)
{
    Body norm = norm_body<Body>(call, of[0]);
    norm.dy = call->in[0];
    norm.beta = (const float *)of[1].data;
    norm.mean = (const float *)of[2].data;
    norm.var = (const float *)of[3].data;
    norm.gamma = (const float *)of[4].data;
    norm.dbeta = (float *)call->out[1].data;
    norm.dgamma = (float *)call->out[2].data;
    norm.slope = (float *)call->workspace;
    norm.offset = (float *)((char *)call->workspace + norm_vector_bytes(norm.x.shape.c));
    return norm;
}
