/* Mean over windows, and its gradient: out[i, j] = p[i] q[j] sum of u[a] v[b] in[a, b], a and b in the range of i and
 * of j.
 *
 * Separable: a row of sums over the window's rows first, then sums along it; the gradient is the same double sum with the
 * divisors on the other side. */
#include "kernels/cpu/vector.h"
#include "kernels/pool_axis.h"

/* One axis of the double sum. */
typedef struct MeanTaps {
    int64_t *first;
    int64_t *count;
    float *of_source; /* u: weight of an input element */
    float *of_target; /* p: weight of an output element */
} MeanTaps;

/* Made by prepare, in one block. */
typedef struct MeanPlan {
    MeanTaps rows, columns;
} MeanPlan;

typedef struct MeanPool {
    const MeanPlan *plan;
    const Tensor *in, *acc, *out;
    float *sums; /* [threads][in.w * c] */
} MeanPool;

/* sums[n] (=, or += if not `begin`) weighted sum of up to three rows. */
VECTOR_INLINE void sum_rows(Dtype dtype, int rows, const void *const *row, const float *weight, bool begin, float *sums,
                            int64_t n)
{
    const void *r[3] = {row[0], row[rows > 1 ? 1 : 0], row[rows > 2 ? 2 : 0]};
    float u[3] = {weight[0], weight[rows > 1 ? 1 : 0], weight[rows > 2 ? 2 : 0]};
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) {
        float sum = begin ? 0.0f : sums[i];
        for (int k = 0; k < rows; k++) sum += u[k] * load(dtype, r[k], i);
        sums[i] = sum;
    }
}

CPU_CLONES static void pool_sum_rows(Dtype dtype, int rows, const void *const *row, const float *weight, bool begin,
                                     float *sums, int64_t n)
{
    if (rows == 3)
        BY_DTYPE(dtype, sum_rows, 3, row, weight, begin, sums, n);
    else if (rows == 2)
        BY_DTYPE(dtype, sum_rows, 2, row, weight, begin, sums, n);
    else
        BY_DTYPE(dtype, sum_rows, 1, row, weight, begin, sums, n);
}

/* One output pixel: p sum of v[k] sums[k * c + i], k < count (+ acc). */
VECTOR_INLINE void mean_pixel(Dtype dtype, const float *sums, int64_t count, int64_t c, const float *v, float p,
                              const void *acc, void *out)
{
    if (count == 3 && !acc) {
        float a = v[0] * p, b = v[1] * p, d = v[2] * p;
        VECTOR_LOOP
        for (int64_t i = 0; i < c; i++) store(dtype, out, i, a * sums[i] + b * sums[c + i] + d * sums[2 * c + i]);
        return;
    }
    if (count == 1 && !acc) {
        float a = v[0] * p;
        VECTOR_LOOP
        for (int64_t i = 0; i < c; i++) store(dtype, out, i, a * sums[i]);
        return;
    }
    for (int64_t first = 0; first < c; first += BLOCK_ELEMENTS) {
        float sum[BLOCK_ELEMENTS];
        int64_t n = smaller(BLOCK_ELEMENTS, c - first);
        for (int64_t i = 0; i < n; i++) sum[i] = 0;
        for (int64_t k = 0; k < count; k++) {
            VECTOR_LOOP
            for (int64_t i = 0; i < n; i++) sum[i] += v[k] * sums[k * c + first + i];
        }
        VECTOR_LOOP
        for (int64_t i = 0; i < n; i++)
            store(dtype, out, first + i, p * sum[i] + (acc ? load(dtype, acc, first + i) : 0.0f));
    }
}

/* The pixels of one output row. */
VECTOR_INLINE void mean_row(Dtype dtype, const MeanTaps *taps, float row_weight, const float *sums, int64_t pixels,
                            int64_t c, const void *acc, int64_t acc_pitch, void *out, int64_t pitch)
{
    int64_t bytes = dtype == DTYPE_F32 ? 4 : 2;
    for (int64_t j = 0; j < pixels; j++)
        mean_pixel(dtype, sums + taps->first[j] * c, taps->count[j], c, taps->of_source + taps->first[j],
                   row_weight * taps->of_target[j], acc ? (const char *)acc + j * acc_pitch * bytes : NULL,
                   (char *)out + j * pitch * bytes);
}

CPU_CLONES static void pool_mean_row(Dtype dtype, const MeanTaps *taps, float row_weight, const float *sums,
                                     int64_t pixels, int64_t c, const void *acc, int64_t acc_pitch, void *out,
                                     int64_t pitch)
{
    BY_DTYPE(dtype, mean_row, taps, row_weight, sums, pixels, c, acc, acc_pitch, out, pitch);
}

/* Sum the input rows of output row i of an image into sums[in.w * c]. */
static void mean_sum_rows(const MeanPool *pool, int64_t image, int64_t i, float *sums)
{
    const MeanTaps *taps = &pool->plan->rows;
    const Tensor *in = pool->in;
    bool packed = tensor_is_packed(in);
    int64_t pieces = packed ? 1 : in->shape.w, n = packed ? (int64_t)in->shape.w * in->shape.c : in->shape.c;
    if (taps->count[i] == 0) memset(sums, 0, (size_t)in->shape.w * (size_t)in->shape.c * sizeof *sums);
    for (int64_t k = 0; k < taps->count[i]; k += 3) {
        int rows = (int)smaller(3, taps->count[i] - k);
        for (int64_t piece = 0; piece < pieces; piece++) {
            const void *row[3];
            for (int r = 0; r < rows; r++)
                row[r] = element_at(in, (((image * in->shape.h) + taps->first[i] + k + r) * in->shape.w + piece) *
                                            in->pitch);
            pool_sum_rows(in->dtype, rows, row, taps->of_source + taps->first[i] + k, k == 0, sums + piece * n, n);
        }
    }
}

/* Output rows [first, end) of all images. */
static void mean_chunk(void *context, int64_t first, int64_t end)
{
    const MeanPool *pool = context;
    const Tensor *out = pool->out, *acc = pool->acc;
    float *sums = pool->sums + team_member() * (int64_t)pool->in->shape.w * pool->in->shape.c;
    for (int64_t row = first; row < end; row++) {
        int64_t i = row % out->shape.h, pixel = row * out->shape.w;
        mean_sum_rows(pool, row / out->shape.h, i, sums);
        pool_mean_row(out->dtype, &pool->plan->columns, pool->plan->rows.of_target[i], sums, out->shape.w, out->shape.c,
                      acc ? optional_row(acc, pixel) : NULL, acc ? acc->pitch : 0, element_at(out, pixel * out->pitch),
                      out->pitch);
    }
}

/* Arrays for an axis of `in` inputs and `out` outputs, cut from *at. */
static MeanTaps taps_place(char **at, int64_t in, int64_t out)
{
    MeanTaps taps;
    taps.first = (int64_t *)*at;
    taps.count = taps.first + out;
    taps.of_source = (float *)(taps.count + out);
    taps.of_target = taps.of_source + rounded_up(in, 2);
    *at = (char *)(taps.of_target + rounded_up(out, 2));
    return taps;
}

static size_t taps_bytes(int64_t in, int64_t out)
{
    return (size_t)out * 2 * sizeof(int64_t) + (size_t)(rounded_up(in, 2) + rounded_up(out, 2)) * sizeof(float);
}

static Status mean_plan_create(Shape in, Shape out, MeanPlan **made)
{
    MeanPlan *plan = malloc(sizeof *plan + taps_bytes(in.h, out.h) + taps_bytes(in.w, out.w));
    if (!plan)
        return FAIL(ERR_MEMORY, "no memory for tables of an average pooling from %s to %s", shape_text(in),
                    shape_text(out));
    char *at = (char *)(plan + 1);
    plan->rows = taps_place(&at, in.h, out.h);
    plan->columns = taps_place(&at, in.w, out.w);
    *made = plan;
    return OK;
}

static void taps_forward(MeanTaps *taps, const PoolAxis *axis)
{
    for (int32_t i = 0; i < axis->x; i++) taps->of_source[i] = 1;
    for (int32_t i = 0; i < axis->y; i++) {
        int32_t first, end;
        taps->of_target[i] = 1 / (float)axis_window(axis, i, &first, &end);
        taps->first[i] = first;
        taps->count[i] = larger(0, end - first);
    }
}

static void taps_backward(MeanTaps *taps, const PoolAxis *axis)
{
    int32_t first, end;
    for (int32_t i = 0; i < axis->y; i++) taps->of_source[i] = 1 / (float)axis_window(axis, i, &first, &end);
    for (int32_t i = 0; i < axis->x; i++) {
        axis_cover(axis, i, &first, &end);
        taps->first[i] = first;
        taps->count[i] = larger(0, end - first);
        taps->of_target[i] = 1;
    }
}

static void taps_fill(MeanPlan *plan, const OpCall *call)
{
    bool backward = call->kind == OP_AVG_POOL_DX, include_pad = call->attr.pool.include_pad,
         adaptive = call->attr.pool.adaptive;
    Shape x = (backward ? call->out : call->in)[0].shape, y = (backward ? call->in : call->out)[0].shape;
    PoolAxis down = pool_axis(&call->attr.pool.window, x, y, true, include_pad, adaptive),
             across = pool_axis(&call->attr.pool.window, x, y, false, include_pad, adaptive);
    (backward ? taps_backward : taps_forward)(&plan->rows, &down);
    (backward ? taps_backward : taps_forward)(&plan->columns, &across);
}

static Status mean_prepare(Device *device, OpCall *call)
{
    Shape in = call->in[0].shape;
    MeanPlan *plan = NULL;
    TRY(cpu_check(device, call));
    TRY(mean_plan_create(in, call->out[0].shape, &plan));
    taps_fill(plan, call);
    call->state = plan;
    call->workspace_bytes = (size_t)cpu_threads(device) * (size_t)in.w * (size_t)in.c * sizeof(float);
    return OK;
}

static Status mean_launch(Device *device, OpCall *call)
{
    const Tensor *in = &call->in[0], *out = &call->out[0];
    bool add = call->kind == OP_AVG_POOL_DX && call->in[1].data;
    MeanPool pool = {call->state, in, add ? &call->in[1] : NULL, out, call->workspace};
    int64_t width = larger(shape_count(in->shape), shape_count(out->shape)) / ((int64_t)out->shape.n * out->shape.h);
    chunks_run(device, (int64_t)out->shape.n * out->shape.h, chunk_pixels(width), mean_chunk, &pool);
    return OK;
}

const OpKernel cpu_avg_pool = {.prepare = mean_prepare, .launch = mean_launch, .discard = cpu_discard};

const OpKernel cpu_avg_pool_dx = {.prepare = mean_prepare, .launch = mean_launch, .discard = cpu_discard};
