/* Layer normalization over the channels of each pixel: the formulas of kernels/cpu/norm/layernorm.c.
 *
 * A warp computes one pixel, whose channels it reads again from the first-level cache. The gradient leaves mean and
 * 1 / sqrt(var + eps) of each pixel in workspace, for the pass that sums over pixels. */
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/map.cuh"

struct LayerNorm {
    Tensor x, dy, y; /* y: what is written, y or dx, data NULL: nobody reads it */
    const float *beta, *gamma;
    float *mean, *rstd; /* [pixels], of the gradient */
    float epsilon;
    uint32_t pixels;
};

DEVICE float warp_sum(float value)
{
    for (int k = WARP / 2; k > 0; k /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, k);
    return value;
}

/* The mean and 1 / sqrt(var + eps) of a pixel, for all lanes of the warp. */
template <typename T, int V>
DEVICE void pixel_moments(const LayerNorm &layer, int64_t row, uint32_t lane, float *mean, float *rstd)
{
    uint32_t c = layer.x.shape.c;
    float x[V], sum = 0, square = 0;
    for (uint32_t channel = lane * V; channel < c; channel += WARP * V) {
        Lanes<T, V>::load(layer.x, row + channel, x);
        UNROLL
        for (int i = 0; i < V; i++) sum += x[i];
    }
    *mean = warp_sum(sum) / (float)c;
    for (uint32_t channel = lane * V; channel < c; channel += WARP * V) {
        Lanes<T, V>::load(layer.x, row + channel, x);
        UNROLL
        for (int i = 0; i < V; i++) square += (x[i] - *mean) * (x[i] - *mean);
    }
    *rstd = 1.0f / sqrtf(warp_sum(square) / (float)c + layer.epsilon);
}

template <typename T, int V> BOUNDED layernorm_kernel(const __grid_constant__ LayerNorm layer)
{
    uint32_t lane = threadIdx.x % WARP, pixel = blockIdx.x * WARPS + threadIdx.x / WARP, c = layer.x.shape.c;
    if (pixel >= layer.pixels) return;
    int64_t row = pixel * layer.x.pitch;
    float mean, rstd, x[V], gamma[V], beta[V];
    pixel_moments<T, V>(layer, row, lane, &mean, &rstd);
    for (uint32_t channel = lane * V; channel < c; channel += WARP * V) {
        Lanes<T, V>::load(layer.x, row + channel, x);
        load_vector<V>(layer.gamma + channel, gamma);
        load_vector<V>(layer.beta + channel, beta);
        UNROLL
        for (int i = 0; i < V; i++) x[i] = (x[i] - mean) * rstd * gamma[i] + beta[i];
        Lanes<T, V>::store(layer.y, pixel * layer.y.pitch + channel, x);
    }
}

template <typename T, int V> BOUNDED layernorm_dx_kernel(const __grid_constant__ LayerNorm layer)
{
    uint32_t lane = threadIdx.x % WARP, pixel = blockIdx.x * WARPS + threadIdx.x / WARP, c = layer.x.shape.c;
    if (pixel >= layer.pixels) return;
    int64_t row = pixel * layer.x.pitch, dy_row = pixel * layer.dy.pitch;
    float mean, rstd, x[V], dy[V], gamma[V], sum = 0, product = 0;
    pixel_moments<T, V>(layer, row, lane, &mean, &rstd);
    if (lane == 0) {
        layer.mean[pixel] = mean;
        layer.rstd[pixel] = rstd;
    }
    if (!layer.y.data) return;
    for (uint32_t channel = lane * V; channel < c; channel += WARP * V) {
        Lanes<T, V>::load(layer.x, row + channel, x);
        Lanes<T, V>::load(layer.dy, dy_row + channel, dy);
        load_vector<V>(layer.gamma + channel, gamma);
        UNROLL
        for (int i = 0; i < V; i++) {
            sum += gamma[i] * dy[i];
            product += gamma[i] * dy[i] * (x[i] - mean);
        }
    }
    float offset = warp_sum(sum) / (float)c, slope = warp_sum(product) * rstd * rstd / (float)c;
    for (uint32_t channel = lane * V; channel < c; channel += WARP * V) {
        Lanes<T, V>::load(layer.x, row + channel, x);
        Lanes<T, V>::load(layer.dy, dy_row + channel, dy);
        load_vector<V>(layer.gamma + channel, gamma);
        UNROLL
        for (int i = 0; i < V; i++) x[i] = (gamma[i] * dy[i] - offset - (x[i] - mean) * slope) * rstd;
        Lanes<T, V>::store(layer.y, pixel * layer.y.pitch + channel, x);
    }
}

/* ---- the sums over pixels */

struct LayerSums {
    enum { STEPS = 2, PER_SM = BLOCKS_PER_SM };
    Tensor x, dy;
    const float *mean, *rstd;
    float *dbeta, *dgamma; /* NULL: nobody reads it */
    template <int V> struct Vectors {
        template <typename T> MEMBER void load(const LayerSums &, uint32_t)
        {
        }
    };
    template <typename T, int V> struct Loads {
        typename Lanes<T, V>::Block of_x, of_dy;
        float mean, rstd;
        MEMBER void fetch(const LayerSums &body, uint32_t pixel, uint32_t channel)
        {
            of_x = Lanes<T, V>::block(body.x, pixel * body.x.pitch + channel);
            of_dy = Lanes<T, V>::block(body.dy, pixel * body.dy.pitch + channel);
            mean = body.mean[pixel];
            rstd = body.rstd[pixel];
        }
        MEMBER void add(const Vectors<V> &, float *first, float *second) const
        {
            float x[V], dy[V];
            Lanes<T, V>::widen(of_x, x);
            Lanes<T, V>::widen(of_dy, dy);
            UNROLL
            for (int i = 0; i < V; i++) {
                first[i] += dy[i];
                second[i] = __fmaf_rn(dy[i], (x[i] - mean) * rstd, second[i]);
            }
        }
    };
    MEMBER void finish(uint32_t channel, double first, double second) const
    {
        if (dbeta) dbeta[channel] = (float)first;
        if (dgamma) dgamma[channel] = (float)second;
    }
};

/* ---- launches */

static LayerNorm layer_body(const OpCall *call, const Tensor &x)
{
    LayerNorm layer = {};
    layer.x = x;
    layer.y = call->out[0];
    layer.epsilon = call->attr.norm.epsilon;
    layer.pixels = (uint32_t)pixels_of(x);
    layer.gamma = (const float *)call->in[2].data;
    return layer;
}

static bool layer_wide(const LayerNorm &layer)
{
    Dtype dtype = layer.x.dtype;
    int64_t c = layer.x.shape.c;
    return wide_enough(layer.x, dtype, c, false) && (!layer.y.data || wide_enough(layer.y, dtype, c, false)) &&
           (!layer.dy.data || wide_enough(layer.dy, dtype, c, false)) && aligned_16(layer.gamma) &&
           aligned_16(layer.beta);
}

template <typename T, int V> static void layernorm_launch(const LayerNorm &layer, cudaStream_t stream)
{
    LAUNCH((layernorm_kernel<T, V>), (uint32_t)ceil_divided(layer.pixels, WARPS), BLOCK, stream, layer);
}

cudaError_t kernel_layernorm(const OpCall *call, cudaStream_t stream)
{
    LayerNorm layer = layer_body(call, call->in[0]);
    layer.beta = (const float *)call->in[1].data;
    BY_FORMAT(layer.x.dtype, layer_wide(layer), layernorm_launch, layer, stream);
    return LAUNCH_ERROR();
}

/* Of one value for each pixel, a multiple of 16 so that what lies behind is aligned. */
static size_t pixel_bytes(Shape x)
{
    return ((size_t)x.n * (size_t)x.h * (size_t)x.w * sizeof(float) + 15) / 16 * 16;
}

size_t kernel_layernorm_dx_bytes(Shape x)
{
    return 2 * pixel_bytes(x) + columns_bytes(x);
}

template <typename T, int V>
static void layernorm_dx_launch(const OpCall *call, const LayerNorm &layer, const LayerSums &sums, cudaStream_t stream)
{
    LAUNCH((layernorm_dx_kernel<T, V>), (uint32_t)ceil_divided(layer.pixels, WARPS), BLOCK, stream, layer);
    void *partial = (char *)call->workspace + 2 * pixel_bytes(layer.x.shape);
    if (sums.dbeta || sums.dgamma)
        columns_launch<T, V>(columns_plan(layer.pixels, layer.x.shape.c, V, partial, call->state), sums, stream);
}

cudaError_t kernel_layernorm_dx(const OpCall *call, cudaStream_t stream)
{
    LayerNorm layer = layer_body(call, call->in[1]);
    layer.dy = call->in[0];
    layer.mean = (float *)call->workspace;
    layer.rstd = (float *)((char *)call->workspace + pixel_bytes(layer.x.shape));
    LayerSums sums = {
        layer.x, layer.dy, layer.mean, layer.rstd, (float *)call->out[1].data, (float *)call->out[2].data};
    BY_FORMAT(layer.x.dtype, layer_wide(layer), layernorm_dx_launch, call, layer, sums, stream);
    return LAUNCH_ERROR();
}
