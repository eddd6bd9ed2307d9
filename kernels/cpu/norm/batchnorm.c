/* Batch normalization (Ioffe & Szegedy 2015) with ReLU in the same pass.
 *
 * Forward: mean and biased variance of each channel in one pass over x, as sums of (x - shift) and its square with the
 * mean of a few pixels as shift, which keeps a deviation of 1 around 1000 exact enough; then
 * y = relu?((x - mean) a + beta), a = gamma / sqrt(var + eps). Backward: g = dy where y > 0; dbeta = sum g,
 * dgamma = sum g (x - mean) / sqrt(var + eps), dx = a (g - dbeta / N) - (x - mean) a dgamma / (N sqrt(var + eps)).
 * With Device.allreduce the batch is that of all towers: their means are joined weighted by pixels, then the squares
 * around the joint mean (no difference of large numbers), and in the backward pass the two sums.
 * The running averages are not kept here; that is the backend's `average`. */
#include "kernels/cpu/columns.h"
#include "kernels/cpu/norm/norm_rows.h"

enum {
    SHIFT_PIXELS = 32,
    AWAY_BYTES = 8 << 20, /* larger results are evicted from the caches before they are read */
    CHUNKS = 4            /* a pass takes this many usual chunks at a time, for longer runs of adjacent rows */
};

/* One launch. The vectors are tiled to columns.width. */
typedef struct Norm {
    Columns columns;
    NormPass pass; /* the one that runs */
    Dtype dtype;
    bool relu;
    bool away;            /* y is larger than the caches and not yet in them */
    const Tensor *x, *dy; /* dy: backward only */
    const Tensor *y;      /* the output: y or dx */
    float *mean, *scale, *beta;
    float *rstd, *slope, *offset; /* backward only: dx = scale g + slope (x - mean) + offset */
    double *total;                /* [2 * c] */
    void *partial;
} Norm;

enum { NORM_VECTORS = 6 };

static size_t norm_bytes(const Columns *columns)
{
    return (size_t)columns->c * 2 * sizeof(double) + columns_bytes(columns) +
           (size_t)columns->width * NORM_VECTORS * sizeof(float);
}

/* Collects the operands of a call; `x` and `dy` are the same tensor in the forward ops. */
static Norm norm_bind(const OpCall *call, const Tensor *x, const Tensor *dy)
{
    Norm norm = {.dtype = x->dtype, .relu = call->attr.norm.relu, .x = x, .dy = dy, .y = &call->out[0]};
    const Tensor *y = norm.y;
    norm.away = y->data != x->data && y->data != dy->data &&
                shape_count(y->shape) * (int64_t)dtype_bytes(y->dtype) > AWAY_BYTES;
    bool packed = tensor_is_packed(x) && tensor_is_packed(dy) && tensor_is_packed(&call->out[0]);
    columns_init(&norm.columns, shape_pixels(x->shape), x->shape.c, packed);
    if (call->workspace) {
        int64_t width = norm.columns.width;
        norm.total = call->workspace;
        norm.partial = norm.total + 2 * norm.columns.c;
        norm.mean = (float *)((char *)norm.partial + columns_bytes(&norm.columns));
        norm.scale = norm.mean + width;
        norm.beta = norm.scale + width;
        norm.rstd = norm.beta + width;
        norm.slope = norm.rstd + width;
        norm.offset = norm.slope + width;
    }
    return norm;
}

static void norm_tile(const Norm *norm, float *vector)
{
    for (int64_t k = 1; k < norm->columns.repeat; k++)
        memcpy(vector + k * norm->columns.c, vector, (size_t)norm->columns.c * sizeof *vector);
}

/* mean, scale and beta (and rstd) of every channel from given statistics. */
static void norm_coefficients(const Norm *norm, const OpCall *call, const float *mean, const float *var,
                              const float *beta, const float *gamma)
{
    for (int64_t i = 0; i < norm->columns.c; i++) {
        norm->rstd[i] = (float)(1.0 / sqrt((double)var[i] + (double)call->attr.norm.epsilon));
        norm->mean[i] = mean[i];
        norm->scale[i] = (gamma ? gamma[i] : 1.0f) * norm->rstd[i];
        norm->beta[i] = beta[i];
    }
    norm_tile(norm, norm->mean);
    norm_tile(norm, norm->scale);
    norm_tile(norm, norm->beta);
    norm_tile(norm, norm->rstd);
}

/* `rows` rows of `width` elements from `pixel` on: of one pixel, or of columns.repeat pixels. */
static NormRows norm_rows(const Norm *norm, int64_t pixel, int64_t rows, int64_t width)
{
    const Tensor *x = norm->x, *dy = norm->dy, *y = norm->y;
    int64_t step = width / norm->columns.c;
    return (NormRows){.dtype = norm->dtype,
                      .rows = rows,
                      .width = width,
                      .x = element_at(x, pixel * x->pitch),
                      .dy = element_at(dy, pixel * dy->pitch),
                      .y = y->data ? element_at(y, pixel * y->pitch) : NULL,
                      .x_stride = x->pitch * step,
                      .dy_stride = dy->pitch * step,
                      .y_stride = y->pitch * step,
                      .mean = norm->mean,
                      .scale = norm->scale,
                      .beta = norm->beta,
                      .slope = norm->slope,
                      .offset = norm->offset,
                      .floor = norm->relu ? 0.0f : -INFINITY,
                      .away = norm->away};
}

/* ---- statistics */

static void norm_sum(void *context, int64_t pixel, int64_t rows, int64_t width, float *sum, float *second)
{
    const Norm *norm = context;
    NormRows r = norm_rows(norm, pixel, rows, width);
    norm_rows_run(norm->pass, &r, sum, second);
}

/* The sums of a pass over all pixels, into norm->total. */
static void norm_sums(const Device *device, Norm *norm, NormPass pass)
{
    norm->pass = pass;
    columns_run(device, &norm->columns, norm_sum, norm, norm->partial, norm->total);
}

VECTOR_INLINE void mean_add(Dtype dtype, const void *x, float weight, float *mean, int64_t c)
{
    VECTOR_LOOP
    for (int64_t i = 0; i < c; i++) mean[i] += weight * load(dtype, x, i);
}

CPU_CLONES static void batchnorm_mean_add(Dtype dtype, const void *x, float weight, float *mean, int64_t c)
{
    BY_DTYPE(dtype, mean_add, x, weight, mean, c);
}

/* The shift: the mean of a few pixels spread over the batch. */
static void norm_shift(const Norm *norm)
{
    int64_t pixels = norm->columns.pixels, taken = smaller(SHIFT_PIXELS, pixels);
    for (int64_t i = 0; i < norm->columns.c; i++) norm->mean[i] = 0;
    for (int64_t k = 0; k < taken; k++)
        batchnorm_mean_add(norm->dtype, element_at(norm->x, k * pixels / taken * norm->x->pitch), 1 / (float)taken,
                           norm->mean, norm->columns.c);
    norm_tile(norm, norm->mean);
}

/* The statistics of the batches of all towers from this tower's sums around the shift. */
static Status statistics_join(const Device *device, const Norm *norm, float *mean, float *var)
{
    int c = (int)norm->columns.c;
    double pixels = (double)norm->columns.pixels, *first = norm->total, *second = norm->total + c;
    float *sums = norm->scale; /* and on into beta: both are free until the coefficients */
    sums[0] = (float)pixels;
    for (int i = 0; i < c; i++) {
        second[i] -= first[i] * first[i] / pixels;
        first[i] = (double)norm->mean[i] + first[i] / pixels;
        sums[1 + i] = (float)(pixels * first[i]);
    }
    TRY(device->allreduce(device->allreduce_context, sums, 1 + c));
    double all = (double)sums[0];
    for (int i = 0; i < c; i++) {
        double joint = (double)sums[1 + i] / all;
        mean[i] = (float)joint;
        sums[1 + i] = (float)(second[i] + pixels * (first[i] - joint) * (first[i] - joint));
    }
    TRY(device->allreduce(device->allreduce_context, sums + 1, c));
    for (int i = 0; i < c; i++) var[i] = sums[1 + i] < 0 ? 0.0f : (float)((double)sums[1 + i] / all);
    return OK;
}

/* Batch mean and biased variance into mean[c], var[c]. */
static Status norm_statistics(const Device *device, Norm *norm, float *mean, float *var)
{
    norm_shift(norm);
    norm_sums(device, norm, NORM_STAT);
    if (device->allreduce) return statistics_join(device, norm, mean, var);
    for (int64_t i = 0; i < norm->columns.c; i++) {
        double first = norm->total[i] / (double)norm->columns.pixels;
        double second = norm->total[norm->columns.c + i] / (double)norm->columns.pixels - first * first;
        mean[i] = (float)((double)norm->mean[i] + first);
        var[i] = second < 0 ? 0.0f : (float)second; /* NaN stays NaN */
    }
    return OK;
}

/* ---- y */

static void norm_chunk(void *context, int64_t first, int64_t end)
{
    const Norm *norm = context;
    int64_t step = norm->columns.repeat, whole = (end - first) / step, rest = (end - first) % step;
    NormRows wide = norm_rows(norm, first, whole, norm->columns.width),
             narrow = norm_rows(norm, end - rest, rest, norm->columns.c);
    norm_rows_run(norm->pass, &wide, NULL, NULL);
    norm_rows_run(norm->pass, &narrow, NULL, NULL);
}

/* A pass that writes y; `back`: behind one that has read all of x. */
static void norm_write(const Device *device, Norm *norm, NormPass pass, bool back)
{
    int64_t pixels = rounded_up(CHUNKS * chunk_pixels(norm->columns.c), norm->columns.repeat);
    norm->pass = pass;
    (back ? chunks_run_back : chunks_run)(device, norm->columns.pixels, pixels, norm_chunk, norm);
}

static Status norm_prepare(Device *device, OpCall *call)
{
    TRY(cpu_check(device, call));
    Norm norm = norm_bind(call, &call->in[0], &call->in[0]);
    call->workspace_bytes = norm_bytes(&norm.columns) + 2 * (size_t)norm.columns.c * sizeof(float);
    return OK;
}

static Status batchnorm_launch(Device *device, OpCall *call)
{
    Norm norm = norm_bind(call, &call->in[0], &call->in[0]);
    float *mean = norm.offset + norm.columns.width, *var = mean + norm.columns.c;
    TRY(norm_statistics(device, &norm, mean, var));
    size_t bytes = (size_t)norm.columns.c * sizeof(float);
    if (call->out[1].data) memcpy(call->out[1].data, mean, bytes);
    if (call->out[2].data) memcpy(call->out[2].data, var, bytes);
    if (!call->out[0].data) return OK;
    norm_coefficients(&norm, call, mean, var, call->in[1].data, call->in[2].data);
    norm_write(device, &norm, NORM_APPLY, true);
    return OK;
}

const OpKernel cpu_batchnorm = {.prepare = norm_prepare, .launch = batchnorm_launch};

static Status batchnorm_apply_launch(Device *device, OpCall *call)
{
    Norm norm = norm_bind(call, &call->in[0], &call->in[0]);
    norm_coefficients(&norm, call, call->in[2].data, call->in[3].data, call->in[1].data, call->in[4].data);
    norm_write(device, &norm, NORM_APPLY, false);
    return OK;
}

const OpKernel cpu_batchnorm_apply = {.prepare = norm_prepare, .launch = batchnorm_apply_launch};

/* ---- gradients */

/* dbeta and dgamma for whoever reads them: of this tower's batch, as all gradients. */
static void norm_grad_params(const Norm *norm, float *dbeta, float *dgamma)
{
    int64_t c = norm->columns.c;
    for (int64_t i = 0; i < c; i++) {
        if (dbeta) dbeta[i] = (float)norm->total[i];
        if (dgamma) dgamma[i] = (float)((double)norm->rstd[i] * norm->total[c + i]);
    }
}

/* The two sums, and the pixels they are over, of all towers. */
static Status grad_sums_join(const Device *device, const Norm *norm, double *count)
{
    int64_t c = norm->columns.c;
    float *sums = norm->slope; /* and on into offset and one vector more */
    sums[0] = (float)*count;
    for (int64_t i = 0; i < 2 * c; i++) sums[1 + i] = (float)norm->total[i];
    TRY(device->allreduce(device->allreduce_context, sums, (int)(1 + 2 * c)));
    *count = (double)sums[0];
    for (int64_t i = 0; i < 2 * c; i++) norm->total[i] = (double)sums[1 + i];
    return OK;
}

static Status batchnorm_dx_prepare(Device *device, OpCall *call)
{
    TRY(cpu_check(device, call));
    Norm norm = norm_bind(call, &call->in[1], &call->in[0]);
    call->workspace_bytes = norm_bytes(&norm.columns) + (size_t)norm.columns.width * sizeof(float);
    return OK;
}

static Status batchnorm_dx_launch(Device *device, OpCall *call)
{
    Norm norm = norm_bind(call, &call->in[1], &call->in[0]);
    norm_coefficients(&norm, call, call->in[3].data, call->in[4].data, call->in[2].data, call->in[5].data);
    norm_sums(device, &norm, NORM_GRAD_SUM);
    double count = (double)norm.columns.pixels;
    norm_grad_params(&norm, call->out[1].data, call->out[2].data);
    if (device->allreduce) TRY(grad_sums_join(device, &norm, &count));
    /* slope and offset of dx from the sums. */
    int64_t c = norm.columns.c;
    for (int64_t i = 0; i < c; i++) {
        double scale = (double)norm.scale[i], rstd = (double)norm.rstd[i];
        double product = rstd * norm.total[c + i];
        norm.slope[i] = (float)(-scale * rstd * product / count);
        norm.offset[i] = (float)(-scale * norm.total[i] / count);
    }
    norm_tile(&norm, norm.slope);
    norm_tile(&norm, norm.offset);
    if (call->out[0].data) norm_write(device, &norm, NORM_GRAD, true);
    return OK;
}

const OpKernel cpu_batchnorm_dx = {.prepare = batchnorm_dx_prepare, .launch = batchnorm_dx_launch};
