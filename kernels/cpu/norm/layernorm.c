/* Layer normalization over the channels of each pixel (Ba et al. 2016, arXiv:1607.06450):
 *
 *   y = gamma a + beta, a = (x - mean) / sqrt(var + eps)
 *   dx = (g - mean(g) - a mean(g a)) / sqrt(var + eps), g = gamma dy;  dbeta = sum of dy, dgamma = sum of dy a
 *
 * A pixel stays in the first-level cache from its mean to its result, so x is read once from memory, and its mean and
 * variance are computed again for the gradient instead of being kept. The sums over pixels have a fixed order (columns.h). */
#include "kernels/cpu/columns.h"

#ifdef _OPENMP
#define PRAGMA(text) _Pragma(#text)
#define SUM_LOOP(...) PRAGMA(omp simd reduction(+ : __VA_ARGS__))
#else
#define SUM_LOOP(...)
#endif

typedef struct LayerNorm {
    const Tensor *x, *dy, *y; /* y: what is written, y or dx */
    const float *beta, *gamma;
    float epsilon;
} LayerNorm;

typedef struct PixelMoments {
    float mean, rstd;
} PixelMoments;

VECTOR_INLINE PixelMoments pixel_moments(Dtype dtype, const void *x, int64_t c, float epsilon)
{
    float sum = 0, square = 0;
    SUM_LOOP(sum)
    for (int64_t i = 0; i < c; i++) sum += load(dtype, x, i);
    float mean = sum / (float)c;
    SUM_LOOP(square)
    for (int64_t i = 0; i < c; i++) {
        float a = load(dtype, x, i) - mean;
        square += a * a;
    }
    return (PixelMoments){mean, 1.0f / sqrtf(square / (float)c + epsilon)};
}

/* ---- y */

VECTOR_INLINE void apply_pixels(Dtype dtype, const LayerNorm *l, int64_t first, int64_t end)
{
    const float *beta = l->beta, *gamma = l->gamma;
    int64_t c = l->x->shape.c;
    for (int64_t pixel = first; pixel < end; pixel++) {
        const void *x = element_at(l->x, pixel * l->x->pitch);
        void *y = element_at(l->y, pixel * l->y->pitch);
        PixelMoments m = pixel_moments(dtype, x, c, l->epsilon);
        VECTOR_LOOP
        for (int64_t i = 0; i < c; i++) store(dtype, y, i, (load(dtype, x, i) - m.mean) * m.rstd * gamma[i] + beta[i]);
    }
}

CPU_CLONES static void layernorm_apply(Dtype dtype, const LayerNorm *l, int64_t first, int64_t end)
{
    BY_DTYPE(dtype, apply_pixels, l, first, end);
}

static void apply_chunk(void *context, int64_t first, int64_t end)
{
    const LayerNorm *l = context;
    layernorm_apply(l->x->dtype, l, first, end);
}

static Status layernorm_launch(Device *device, OpCall *call)
{
    LayerNorm l = {.x = &call->in[0],
                   .y = &call->out[0],
                   .beta = call->in[1].data,
                   .gamma = call->in[2].data,
                   .epsilon = call->attr.norm.epsilon};
    chunks_run(device, shape_pixels(l.x->shape), chunk_pixels(l.x->shape.c), apply_chunk, &l);
    return OK;
}

const OpKernel cpu_layernorm = {.prepare = cpu_check, .launch = layernorm_launch};

/* ---- gradients */

/* dx of one pixel. dx may be NULL. */
VECTOR_INLINE void grad_pixel(Dtype dtype, const LayerNorm *l, const void *x, const void *dy, PixelMoments m, void *dx)
{
    const float *gamma = l->gamma;
    int64_t c = l->x->shape.c;
    float sum = 0, product = 0;
    SUM_LOOP(sum, product)
    for (int64_t i = 0; i < c; i++) {
        float g = gamma[i] * load(dtype, dy, i);
        sum += g;
        product += g * (load(dtype, x, i) - m.mean);
    }
    float offset = sum / (float)c, slope = product * m.rstd * m.rstd / (float)c;
    VECTOR_LOOP
    for (int64_t i = 0; i < c; i++) {
        float a = load(dtype, x, i) - m.mean;
        store(dtype, dx, i, (gamma[i] * load(dtype, dy, i) - offset - a * slope) * m.rstd);
    }
}

VECTOR_INLINE void grad_pixels(Dtype dtype, const LayerNorm *l, int64_t first, int64_t rows, float *dbeta,
                               float *dgamma)
{
    int64_t c = l->x->shape.c;
    for (int64_t pixel = first; pixel < first + rows; pixel++) {
        const void *x = element_at(l->x, pixel * l->x->pitch), *dy = element_at(l->dy, pixel * l->dy->pitch);
        PixelMoments m = pixel_moments(dtype, x, c, l->epsilon);
        VECTOR_LOOP
        for (int64_t i = 0; i < c; i++) {
            float g = load(dtype, dy, i);
            dbeta[i] += g;
            dgamma[i] += g * ((load(dtype, x, i) - m.mean) * m.rstd);
        }
        if (l->y->data) grad_pixel(dtype, l, x, dy, m, element_at(l->y, pixel * l->y->pitch));
    }
}

CPU_CLONES static void layernorm_grad(Dtype dtype, const LayerNorm *l, int64_t first, int64_t rows, float *dbeta,
                                      float *dgamma)
{
    BY_DTYPE(dtype, grad_pixels, l, first, rows, dbeta, dgamma);
}

static void grad_rows(void *context, int64_t pixel, int64_t rows, int64_t width, float *sum, float *second)
{
    const LayerNorm *l = context;
    (void)width; /* one pixel */
    layernorm_grad(l->x->dtype, l, pixel, rows, sum, second);
}

static Columns grad_columns(const Tensor *x)
{
    Columns columns;
    columns_init(&columns, shape_pixels(x->shape), x->shape.c, false);
    return columns;
}

static Status layernorm_dx_prepare(Device *device, OpCall *call)
{
    TRY(cpu_check(device, call));
    Columns columns = grad_columns(&call->in[1]);
    call->workspace_bytes = columns_bytes(&columns) + 2 * (size_t)columns.c * sizeof(double);
    return OK;
}

static Status layernorm_dx_launch(Device *device, OpCall *call)
{
    LayerNorm l = {.dy = &call->in[0],
                   .x = &call->in[1],
                   .y = &call->out[0],
                   .gamma = call->in[2].data,
                   .epsilon = call->attr.norm.epsilon};
    Columns columns = grad_columns(l.x);
    double *total = call->workspace;
    float *dbeta = call->out[1].data, *dgamma = call->out[2].data;
    columns_run(device, &columns, grad_rows, &l, total + 2 * columns.c, total);
    for (int64_t i = 0; i < columns.c; i++) {
        if (dbeta) dbeta[i] = (float)total[i];
        if (dgamma) dgamma[i] = (float)total[columns.c + i];
    }
    return OK;
}

const OpKernel cpu_layernorm_dx = {.prepare = layernorm_dx_prepare, .launch = layernorm_dx_launch};
