/* Batch normalization with ReLU, the formulas of kernels/cpu/norm/batchnorm.c.
 *
 * Forward: one pass for the statistics (sums of x - shift and its square, where shift is the first pixel), whose last
 * block writes mean and variance; one pass y = relu?((x - mean) a + beta), which may go into a slice of a concat.
 * Backward: one pass for sum g and sum g (x - mean), where g = dy where y > 0, recomputed from x; one pass for dx. The
 * second pass of each runs from the end of the tensor, where the first has just left it in the cache. Bytes per element
 * of x, in 16 bits: 2 + 4 forward, 4 + 6 backward, less what the cache keeps.
 *
 * Over the batches of all towers the last block leaves this tower's part in workspace instead, the caller sums it over
 * the towers, and kernels with one thread per channel continue from there. */
#include "kernels/cuda/norm/norm.cuh"

/* ---- y = relu?((x - mean) a + beta) */

/* Behind the end the last pixel. */
template <typename T, int V>
DEVICE void norm_fetch(const Norm &norm, const Rows &rows, uint32_t pixel, uint32_t channel,
                       typename Lanes<T, V>::Block *x)
{
    UNROLL
    for (int s = 0; s < NORM_STEPS; s++)
        x[s] = Lanes<T, V>::block(norm.x, min(pixel + s * rows.down, rows.pixels - 1) * norm.x.pitch + channel);
}

template <typename T, int V> BOUNDED norm_apply_kernel(const __grid_constant__ Norm norm, const Rows rows)
{
    uint32_t channel = rows_vector(rows) * V, block = gridDim.x - 1 - blockIdx.x;
    if (channel >= rows.vectors * V) return;
    uint32_t pixel = block * (rows.down * norm.each) + threadIdx.y;
    typename Lanes<T, V>::Block fetched[NORM_STEPS];
    norm_fetch<T, V>(norm, rows, pixel, channel, fetched);
    NormVectors<V> own;
    own.template load<T>(norm, channel);
    for (uint32_t step = 0;;) {
        UNROLL
        for (int s = 0; s < NORM_STEPS; s++, pixel += rows.down) {
            float x[V];
            if (pixel >= rows.pixels) return;
            Lanes<T, V>::widen(fetched[s], x);
            UNROLL
            for (int i = 0; i < V; i++) {
                float y = own.applied(x[i] - own.mean[i], i);
                x[i] = norm.floor > y ? norm.floor : y;
            }
            Lanes<T, V>::store(norm.y, pixel * norm.y.pitch + channel, x);
        }
        step += NORM_STEPS;
        if (step >= norm.each || pixel >= rows.pixels) return;
        norm_fetch<T, V>(norm, rows, pixel, channel, fetched);
    }
}

template <typename T, int V> static void norm_apply(Norm norm, cudaStream_t stream)
{
    Rows rows = rows_plan(pixels_of(norm.x), norm.x.shape.c, V, WARP);
    dim3 grid = norm_grid(rows, &norm);
    LAUNCH((norm_apply_kernel<T, V>), grid, dim3(rows.across, rows.down), stream, norm, rows);
}

static cudaError_t norm_forward(const Norm &norm, cudaStream_t stream)
{
    bool wide = norm_wide(norm) && wide_enough(norm.y, norm.x.dtype, norm.x.shape.c, false);
    if (norm.y.data) BY_FORMAT(norm.x.dtype, wide, norm_apply, norm, stream);
    return LAUNCH_ERROR();
}

cudaError_t kernel_batchnorm_apply(const OpCall *call, cudaStream_t stream)
{
    Norm norm = norm_body<Norm>(call, call->in[0]);
    norm.beta = (const float *)call->in[1].data;
    norm.mean = (const float *)call->in[2].data;
    norm.var = (const float *)call->in[3].data;
    norm.gamma = (const float *)call->in[4].data;
    return norm_forward(norm, stream);
}

/* ---- forward */

struct NormStatistics : Norm {
    enum { STEPS = 4 };
    template <int V> struct Vectors {
        float shift[V];
        template <typename T> MEMBER void load(const NormStatistics &norm, uint32_t channel)
        {
            Lanes<T, V>::load(norm.x, channel, shift);
        }
    };
    template <typename T, int V> struct Loads {
        typename Lanes<T, V>::Block block;
        MEMBER void fetch(const NormStatistics &norm, uint32_t pixel, uint32_t channel)
        {
            block = Lanes<T, V>::block(norm.x, pixel * norm.x.pitch + channel);
        }
        MEMBER void add(const Vectors<V> &own, float *first, float *second) const
        {
            float x[V];
            Lanes<T, V>::widen(block, x);
            UNROLL
            for (int i = 0; i < V; i++) {
                float a = x[i] - own.shift[i];
                first[i] += a;
                second[i] = __fmaf_rn(a, a, second[i]);
            }
        }
    };
    MEMBER void finish(uint32_t channel, double first, double second) const
    {
        float shift;
        Lanes<Any, 1>::load(x, channel, &shift);
        first /= count;
        second = second / count - first * first;
        first += (double)shift;
        if (towers.sums) return give(channel, first, second * count);
        mean_out[channel] = (float)first;
        var_out[channel] = second < 0 ? 0.0f : (float)second; /* NaN stays NaN */
    }
    MEMBER void give(uint32_t channel, double own_mean, double square) const
    {
        if (channel == 0) towers.sums[0] = pixels;
        towers.sums[1 + channel] = (float)(count * own_mean);
        towers.mean[channel] = own_mean;
        towers.square[channel] = square;
    }
};

size_t kernel_batchnorm_bytes(Shape x)
{
    return 2 * norm_vector_bytes(x.c) + norm_towers_bytes(x.c) + columns_bytes(x);
}

static NormStatistics norm_statistics(const OpCall *call)
{
    NormStatistics norm = norm_body<NormStatistics>(call, call->in[0]);
    size_t bytes = norm_vector_bytes(norm.x.shape.c);
    norm.mean_out = call->out[1].data ? (float *)call->out[1].data : (float *)call->workspace;
    norm.var_out = call->out[2].data ? (float *)call->out[2].data : (float *)((char *)call->workspace + bytes);
    norm.mean = norm.mean_out;
    norm.var = norm.var_out;
    norm.beta = (const float *)call->in[1].data;
    norm.gamma = (const float *)call->in[2].data;
    return norm;
}

static void norm_statistics_run(const OpCall *call, const NormStatistics &norm, cudaStream_t stream)
{
    bool wide = wide_enough(norm.x, norm.x.dtype, norm.x.shape.c, false);
    BY_FORMAT(norm.x.dtype, wide, norm_columns, call, norm, stream);
}

cudaError_t kernel_batchnorm(const OpCall *call, cudaStream_t stream)
{
    NormStatistics norm = norm_statistics(call);
    norm_statistics_run(call, norm, stream);
    return norm_forward(norm, stream);
}

/* ---- the gradient */

static bool norm_grad_wide(const Norm &norm)
{
    return norm_wide(norm) && wide_enough(norm.dy, norm.x.dtype, norm.x.shape.c, false);
}

static void norm_grad_sums_run(const OpCall *call, const NormGradSums &norm, cudaStream_t stream)
{
    BY_FORMAT(norm.x.dtype, norm_grad_wide(norm), norm_columns, call, norm, stream);
}

static cudaError_t norm_grad_run(const Norm &norm, cudaStream_t stream)
{
    bool wide = norm_grad_wide(norm) && wide_enough(norm.y, norm.x.dtype, norm.x.shape.c, false);
    if (norm.y.data) BY_FORMAT(norm.x.dtype, wide, norm_grad, norm, stream);
    return LAUNCH_ERROR();
}

cudaError_t kernel_batchnorm_dx(const OpCall *call, cudaStream_t stream)
{
    NormGradSums norm = norm_grad_sums<NormGradSums>(call, &call->in[1]);
    norm_grad_sums_run(call, norm, stream);
    return norm_grad_run(norm, stream);
}

/* ---- over the batches of all towers: what a tower gives to the sums over them, and what it makes of the sums */

enum { VECTOR_BLOCK = 128 };

static uint32_t vector_blocks(int64_t channels)
{
    return (uint32_t)ceil_divided(channels, VECTOR_BLOCK);
}

/* The mean of all towers, and this tower's squares around it. */
BOUNDED norm_towers_mean_kernel(const __grid_constant__ Norm norm)
{
    uint32_t channel = blockIdx.x * VECTOR_BLOCK + threadIdx.x;
    if (channel >= (uint32_t)norm.x.shape.c) return;
    const NormTowers &t = norm.towers;
    double joint = (double)t.sums[1 + channel] / (double)t.sums[0], away = t.mean[channel] - joint;
    norm.mean_out[channel] = (float)joint;
    t.squares[channel] = (float)(t.square[channel] + norm.count * away * away);
}

BOUNDED norm_towers_var_kernel(const __grid_constant__ Norm norm)
{
    uint32_t channel = blockIdx.x * VECTOR_BLOCK + threadIdx.x;
    if (channel >= (uint32_t)norm.x.shape.c) return;
    float square = norm.towers.squares[channel];
    norm.var_out[channel] = square < 0 ? 0.0f : (float)((double)square / (double)norm.towers.sums[0]);
}

BOUNDED norm_towers_grad_kernel(const __grid_constant__ NormGradSums norm)
{
    uint32_t channel = blockIdx.x * VECTOR_BLOCK + threadIdx.x;
    if (channel >= (uint32_t)norm.x.shape.c) return;
    const float *sums = norm.towers.sums;
    norm.coefficients_make(channel, (double)sums[1 + channel], (double)sums[1 + norm.x.shape.c + channel],
                           (double)sums[0]);
}

static NormTowers norm_towers(const OpCall *call)
{
    int64_t c = call->in[0].shape.c;
    char *at = (char *)call->workspace + 2 * norm_vector_bytes(c);
    NormTowers towers;
    towers.sums = (float *)at;
    towers.squares = (float *)(at + norm_vector_bytes(1 + c));
    towers.mean = (double *)(at + norm_vector_bytes(1 + c) + norm_vector_bytes(c));
    towers.square = towers.mean + c;
    return towers;
}

float *kernel_batchnorm_sync_sums(const OpCall *call)
{
    return norm_towers(call).sums;
}

float *kernel_batchnorm_sync_squares(const OpCall *call)
{
    return norm_towers(call).squares;
}

cudaError_t kernel_batchnorm_sync_give(const OpCall *call, cudaStream_t stream)
{
    NormStatistics norm = norm_statistics(call);
    norm.towers = norm_towers(call);
    norm_statistics_run(call, norm, stream);
    return LAUNCH_ERROR();
}

cudaError_t kernel_batchnorm_sync_mean(const OpCall *call, cudaStream_t stream)
{
    Norm norm = norm_statistics(call);
    norm.towers = norm_towers(call);
    LAUNCH(norm_towers_mean_kernel, vector_blocks(norm.x.shape.c), VECTOR_BLOCK, stream, norm);
    return LAUNCH_ERROR();
}

cudaError_t kernel_batchnorm_sync_apply(const OpCall *call, cudaStream_t stream)
{
    NormStatistics norm = norm_statistics(call);
    norm.towers = norm_towers(call);
    LAUNCH(norm_towers_var_kernel, vector_blocks(norm.x.shape.c), VECTOR_BLOCK, stream, norm);
    return norm_forward(norm, stream);
}

cudaError_t kernel_batchnorm_dx_sync_give(const OpCall *call, cudaStream_t stream)
{
    NormGradSums norm = norm_grad_sums<NormGradSums>(call, &call->in[1]);
    norm.towers = norm_towers(call);
    norm_grad_sums_run(call, norm, stream);
    return LAUNCH_ERROR();
}

cudaError_t kernel_batchnorm_dx_sync_apply(const OpCall *call, cudaStream_t stream)
{
    NormGradSums norm = norm_grad_sums<NormGradSums>(call, &call->in[1]);
    norm.towers = norm_towers(call);
    LAUNCH(norm_towers_grad_kernel, vector_blocks(norm.x.shape.c), VECTOR_BLOCK, stream, norm);
    return norm_grad_run(norm, stream);
}

/* ---- batch norms that are folded into convolutions */

/* One thread per weight, in double precision; the first of a channel makes its bias. */
struct NormFold {
    const float *w, *beta, *mean, *var, *gamma;
    float *y, *bias;
    uint32_t row, count;
    double epsilon;
};

BOUNDED norm_fold_kernel(NormFold fold)
{
    uint32_t i = blockIdx.x * BLOCK + threadIdx.x, channel = i / fold.row;
    if (i >= fold.count) return;
    double scale = 1 / sqrt((double)fold.var[channel] + fold.epsilon);
    if (fold.gamma) scale *= (double)fold.gamma[channel];
    if (fold.y) fold.y[i] = (float)(scale * (double)fold.w[i]);
    if (fold.bias && i % fold.row == 0)
        fold.bias[channel] = (float)((double)fold.beta[channel] - scale * (double)fold.mean[channel]);
}

cudaError_t kernel_norm_fold(const OpCall *call, cudaStream_t stream)
{
    NormFold fold = {};
    fold.w = (const float *)call->in[0].data;
    fold.beta = (const float *)call->in[1].data;
    fold.mean = (const float *)call->in[2].data;
    fold.var = (const float *)call->in[3].data;
    fold.gamma = (const float *)call->in[4].data;
    fold.y = (float *)call->out[0].data;
    fold.bias = (float *)call->out[1].data;
    fold.count = (uint32_t)shape_count(call->in[0].shape);
    fold.row = fold.count / (uint32_t)call->in[0].shape.n;
    fold.epsilon = (double)call->attr.norm.epsilon;
    LAUNCH(norm_fold_kernel, (uint32_t)ceil_divided(fold.count, BLOCK), BLOCK, stream, fold);
    return LAUNCH_ERROR();
}
