/* Sums over axes, and their opposites: the gradients of biases and of broadcasting.
 *
 * SUM_TO and SPREAD_TO work between a shape and the same shape with some sizes 1; neighboring axes that are both
 * summed, or both not, are one axis. Sums are f64 across rows and have the same order for every number of threads. */
#include "kernels/cpu/columns.h"
#include "kernels/cpu/span.h"

/* ---- sum over pixels */

VECTOR_INLINE void sum_rows(Dtype dtype, const void *x, int64_t stride, int64_t rows, int64_t width, float *sum)
{
    for (int64_t row = 0; row < rows; row++) {
        VECTOR_LOOP
        for (int64_t i = 0; i < width; i++) sum[i] += load(dtype, x, row * stride + i);
    }
}

CPU_CLONES static void reduce_sum_rows(Dtype dtype, const void *x, int64_t stride, int64_t rows, int64_t width,
                                       float *sum)
{
    BY_DTYPE(dtype, sum_rows, x, stride, rows, width, sum);
}

static void channel_rows(void *context, int64_t pixel, int64_t rows, int64_t width, float *sum, float *square)
{
    (void)square;
    const Tensor *x = context;
    reduce_sum_rows(x->dtype, element_at(x, pixel * x->pitch), x->pitch * (width / x->shape.c), rows, width, sum);
}

static Columns channel_columns(const Tensor *x)
{
    Columns columns;
    columns_init(&columns, shape_pixels(x->shape), x->shape.c, tensor_is_packed(x));
    return columns;
}

static size_t channel_bytes(const Tensor *x)
{
    Columns columns = channel_columns(x);
    return columns_bytes(&columns) + 2 * (size_t)x->shape.c * sizeof(double);
}

/* The f64 sums of every channel, [c], in `workspace`. */
static const double *channel_totals(const Device *device, const Tensor *x, void *workspace)
{
    Columns columns = channel_columns(x);
    double *total = workspace;
    columns_run(device, &columns, channel_rows, (void *)(uintptr_t)x, total + 2 * x->shape.c, total);
    return total;
}

static Status channel_sum_prepare(Device *device, OpCall *call)
{
    TRY(cpu_check(device, call));
    call->workspace_bytes = channel_bytes(&call->in[0]);
    return OK;
}

static Status channel_sum_launch(Device *device, OpCall *call)
{
    const Tensor *y = &call->out[0];
    const double *total = channel_totals(device, &call->in[0], call->workspace);
    for (int32_t i = 0; i < y->shape.c; i++) store(y->dtype, y->data, i, (float)total[i]);
    return OK;
}

const OpKernel cpu_channel_sum = {.prepare = channel_sum_prepare, .launch = channel_sum_launch};

/* ---- axes */

/* A shape with some sizes 1, and the shape that it is folded from, with as few pixels as possible: rows and columns of
 * packed tensors join the channels if all of these are folded, or none. */
typedef struct Folding {
    Tensor small, big;
} Folding;

static bool axes_join(int32_t small, int32_t big, int32_t small_c, int32_t big_c)
{
    return big == 1 || big_c == 1 || (small == 1) == (small_c == 1);
}

static void axis_join(int32_t *size, int32_t *c)
{
    *c *= *size;
    *size = 1;
}

static Folding folding_of(const Tensor *small, const Tensor *big)
{
    Folding f = {*small, *big};
    Shape *s = &f.small.shape, *b = &f.big.shape;
    if (!tensor_is_packed(small) || !tensor_is_packed(big)) return f;
    if (axes_join(s->w, b->w, s->c, b->c)) axis_join(&s->w, &s->c), axis_join(&b->w, &b->c);
    if (b->w == 1 && axes_join(s->h, b->h, s->c, b->c)) axis_join(&s->h, &s->c), axis_join(&b->h, &b->c);
    f.small.pitch = s->c;
    f.big.pitch = b->c;
    return f;
}

/* ---- repeat */

/* The input index for index `at` of an output axis; the input axis has size 1 or the same size. */
static int64_t folded(int64_t at, int32_t size)
{
    return size == 1 ? 0 : at;
}

/* The pixel of `t` that belongs to pixel number `pixel` of shape `s`, where some sizes of t are 1. */
static int64_t folded_pixel(const Tensor *t, Shape s, int64_t pixel)
{
    int64_t w = pixel % s.w, h = pixel / s.w % s.h, n = pixel / s.w / s.h;
    return (folded(n, t->shape.n) * t->shape.h + folded(h, t->shape.h)) * t->shape.w + folded(w, t->shape.w);
}

VECTOR_INLINE void fill_row(Dtype dtype, void *to, float value, int64_t n)
{
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) store(dtype, to, i, value);
}

CPU_CLONES static void reduce_fill(Dtype dtype, void *to, float value, int64_t n)
{
    BY_DTYPE(dtype, fill_row, to, value, n);
}

static void spread_row(const Tensor *x, const void *from, const Tensor *y, void *to)
{
    float row[BLOCK_ELEMENTS];
    if (x->shape.c != y->shape.c) {
        reduce_fill(y->dtype, to, load(x->dtype, from, 0), y->shape.c);
        return;
    }
    if (x->dtype == y->dtype) {
        memcpy(to, from, (size_t)y->shape.c * dtype_bytes(y->dtype));
        return;
    }
    for (int64_t i = 0; i < y->shape.c; i += BLOCK_ELEMENTS) {
        int64_t n = smaller(BLOCK_ELEMENTS, y->shape.c - i), bytes = (int64_t)dtype_bytes(y->dtype);
        row_load(x->dtype, (const char *)from + i * (int64_t)dtype_bytes(x->dtype), row, n);
        row_store(y->dtype, row, (char *)to + i * bytes, n);
    }
}

static void spread_chunk(void *context, int64_t first, int64_t end)
{
    const Folding *op = context;
    const Tensor *x = &op->small, *y = &op->big;
    for (int64_t pixel = first; pixel < end; pixel++)
        spread_row(x, element_at(x, folded_pixel(x, y->shape, pixel) * x->pitch), y, element_at(y, pixel * y->pitch));
}

static Status spread_launch(Device *device, OpCall *call)
{
    Folding op = folding_of(&call->in[0], &call->out[0]);
    chunks_run(device, shape_pixels(op.big.shape), chunk_pixels(op.big.shape.c), spread_chunk, &op);
    return OK;
}

const OpKernel cpu_channel_spread = {.prepare = cpu_check, .launch = spread_launch};
const OpKernel cpu_spread_to = {.prepare = cpu_check, .launch = spread_launch};

/* ---- sum to a smaller shape */

CPU_CLONES static double reduce_row_total(const float *x, int64_t n)
{
    double sum = 0;
#ifdef _OPENMP
#pragma omp simd reduction(+ : sum)
#endif
    for (int64_t i = 0; i < n; i++) sum += (double)x[i];
    return sum;
}

CPU_CLONES static void reduce_row_add(double *sum, const float *x, int64_t n)
{
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) sum[i] += (double)x[i];
}

/* sum += channels [from, from + n) of one pixel of x, each on its own or (fold) all into sum[0]. */
static void sum_pixel(const Tensor *x, int64_t pixel, int64_t from, int64_t n, bool fold, double *sum)
{
    float buffer[BLOCK_ELEMENTS];
    const void *row = element_at(x, pixel * x->pitch + from);
    const float *wide = row;
    if (x->dtype != DTYPE_F32) {
        row_load(x->dtype, row, buffer, n);
        wide = buffer;
    }
    if (fold)
        sum[0] += reduce_row_total(wide, n);
    else
        reduce_row_add(sum, wide, n);
}

/* All pixels of x that fold onto pixel `target` of y, for channels [from, from + n). */
static void sum_target(const Folding *op, int64_t target, int64_t from, int64_t n, bool fold, double *sum)
{
    Shape x = op->big.shape, y = op->small.shape;
    int64_t w = target % y.w, h = target / y.w % y.h, image = target / y.w / y.h;
    for (int64_t a = y.n == 1 ? 0 : image; a < (y.n == 1 ? x.n : image + 1); a++)
        for (int64_t b = y.h == 1 ? 0 : h; b < (y.h == 1 ? x.h : h + 1); b++)
            for (int64_t d = y.w == 1 ? 0 : w; d < (y.w == 1 ? x.w : w + 1); d++)
                sum_pixel(&op->big, (a * x.h + b) * x.w + d, from, n, fold, sum);
}

static void sum_chunk(void *context, int64_t first, int64_t end)
{
    const Folding *op = context;
    const Tensor *x = &op->big, *y = &op->small;
    bool fold = y->shape.c == 1;
    for (int64_t target = first; target < end; target++) {
        double sum[BLOCK_ELEMENTS] = {0};
        for (int64_t i = 0; i < x->shape.c; i += BLOCK_ELEMENTS) {
            int64_t n = smaller(BLOCK_ELEMENTS, x->shape.c - i);
            if (!fold) memset(sum, 0, sizeof sum);
            sum_target(op, target, i, n, fold, sum);
            for (int64_t k = 0; k < n && !fold; k++)
                store(y->dtype, element_at(y, target * y->pitch + i), k, (float)sum[k]);
        }
        if (fold) store(y->dtype, element_at(y, target * y->pitch), 0, (float)sum[0]);
    }
}

static Status sum_to_prepare(Device *device, OpCall *call)
{
    TRY(cpu_check(device, call));
    Folding op = folding_of(&call->out[0], &call->in[0]);
    if (shape_pixels(op.small.shape) == 1) call->workspace_bytes = channel_bytes(&op.big);
    return OK;
}

/* One pixel of output: all pixels of x, so the team shares them. */
static void sum_to_one_pixel(const Device *device, const Folding *op, void *workspace)
{
    const Tensor *x = &op->big, *y = &op->small;
    const double *total = channel_totals(device, x, workspace);
    double sum = 0;
    for (int32_t i = 0; i < x->shape.c; i++) {
        sum += total[i];
        if (y->shape.c == x->shape.c) store(y->dtype, y->data, i, (float)total[i]);
    }
    if (y->shape.c == 1) store(y->dtype, y->data, 0, (float)sum);
}

static Status sum_to_launch(Device *device, OpCall *call)
{
    Folding op = folding_of(&call->out[0], &call->in[0]);
    int64_t targets = shape_pixels(op.small.shape);
    if (targets == 1)
        sum_to_one_pixel(device, &op, call->workspace);
    else
        chunks_run(device, targets, chunk_pixels(shape_count(op.big.shape) / targets), sum_chunk, &op);
    return OK;
}

const OpKernel cpu_sum_to = {.prepare = sum_to_prepare, .launch = sum_to_launch};
