/* Maximum and mean over windows, and their gradients.
 *
 * Maximum: the first largest element of the window wins, NaN beats everything; its place (row * kw + column) is kept as
 * u8. Every gradient gathers: an element of dx is written once, from the windows that cover it, so there is no order to
 * lose. Mean: separable; a row of sums over the window's rows first, then sums along it. The gradient of the mean is
 * the same double sum with the divisors on the other side. Divisors as PyTorch: windows are clipped to the image, or to
 * the padded image when padding counts. */
#include "kernels/cpu/pool_rows.h"

#include <math.h>
#include <stdlib.h>

/* ---- maximum */

/* Where a pixel of an optional operand lies, or NULL. */
static void *optional_row(const Tensor *t, int64_t pixel)
{
    return t->data ? element_at(t, pixel * t->pitch) : NULL;
}

typedef struct MaxPool {
    const Tensor *x, *y, *argmax;
    Window window;
} MaxPool;

enum { TAP_GROUP = 3 };

/* Compare `taps` rows of x, numbered first, first + 1, ..., with best[n] and place[n]. */
VECTOR_INLINE void max_rows(Dtype dtype, int taps, const void *x, int64_t stride, int32_t first, bool begin,
                            float *best, int32_t *place, int64_t n)
{
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) {
        float top = begin ? -INFINITY : best[i];
        int32_t at = begin ? first : place[i];
        for (int k = 0; k < taps; k++) {
            float value = load(dtype, x, k * stride + i);
            bool wins = (value > top) | (value != value);
            top = wins ? value : top;
            at = wins ? first + k : at;
        }
        best[i] = top;
        place[i] = at;
    }
}

/* The same with the number of rows, and whether they are the first, as constants of the loop. */
VECTOR_INLINE void max_group(Dtype dtype, int taps, const void *x, int64_t stride, int32_t first, bool begin,
                             float *best, int32_t *place, int64_t n)
{
    if (taps == 3 && begin)
        max_rows(dtype, 3, x, stride, first, true, best, place, n);
    else if (taps == 3)
        max_rows(dtype, 3, x, stride, first, false, best, place, n);
    else if (taps == 2 && begin)
        max_rows(dtype, 2, x, stride, first, true, best, place, n);
    else if (taps == 2)
        max_rows(dtype, 2, x, stride, first, false, best, place, n);
    else if (begin)
        max_rows(dtype, 1, x, stride, first, true, best, place, n);
    else
        max_rows(dtype, 1, x, stride, first, false, best, place, n);
}

/* One window, one block of channels. rows/columns: the part of the window inside the image. */
VECTOR_INLINE void max_window(Dtype dtype, const void *x, int64_t row_stride, int64_t stride, int rows, int columns,
                              int32_t first, int32_t kw, float *best, int32_t *place, int64_t n)
{
    int64_t bytes = dtype == DTYPE_F32 ? 4 : 2;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j += TAP_GROUP)
            max_group(dtype, (int)smaller(TAP_GROUP, columns - j),
                      (const char *)x + (i * row_stride + j * stride) * bytes, stride, first + i * kw + j,
                      i == 0 && j == 0, best, place, n);
}

VECTOR_INLINE void max_store(Dtype dtype, const float *best, const int32_t *place, void *y, uint8_t *argmax, int64_t n)
{
    if (y) {
        VECTOR_LOOP
        for (int64_t i = 0; i < n; i++) store(dtype, y, i, best[i]);
    }
    if (argmax) {
        VECTOR_LOOP
        for (int64_t i = 0; i < n; i++) argmax[i] = (uint8_t)place[i];
    }
}

/* One pixel of y. */
VECTOR_INLINE void max_pixel(Dtype dtype, const void *x, int64_t row_stride, int64_t stride, int rows, int columns,
                             int32_t first, int32_t kw, void *y, uint8_t *argmax, int64_t c)
{
    float best[BLOCK_ELEMENTS];
    int32_t place[BLOCK_ELEMENTS];
    int64_t bytes = dtype == DTYPE_F32 ? 4 : 2;
    for (int64_t i = 0; i < c; i += BLOCK_ELEMENTS) {
        int64_t n = smaller(BLOCK_ELEMENTS, c - i);
        max_window(dtype, (const char *)x + i * bytes, row_stride, stride, rows, columns, first, kw, best, place, n);
        max_store(dtype, best, place, y ? (char *)y + i * bytes : NULL, argmax ? argmax + i : NULL, n);
    }
}

CPU_CLONES static void pool_max_pixel(Dtype dtype, const void *x, int64_t row_stride, int64_t stride, int rows,
                                      int columns, int32_t first, int32_t kw, void *y, uint8_t *argmax, int64_t c)
{
    BY_DTYPE(dtype, max_pixel, x, row_stride, stride, rows, columns, first, kw, y, argmax, c);
}

/* The part of a window inside [0, side): first element and count. */
static int window_clip(int64_t out, int32_t stride, int32_t pad, int32_t k, int32_t side, int64_t *first)
{
    int64_t begin = out * stride - pad;
    int64_t end = smaller(begin + k, side);
    *first = larger(begin, 0);
    return (int)larger(0, end - *first);
}

/* Output rows [first, end) of all images. */
static void max_chunk(void *context, int64_t first, int64_t end, int thread)
{
    (void)thread;
    const MaxPool *pool = context;
    const Window *w = &pool->window;
    Shape xs = pool->x->shape, ys = pool->y->shape;
    bool nine = w->kh == 3 && w->kw == 3 && pool_has_avx512();
    for (int64_t row = first; row < end; row++) {
        int64_t image = row / ys.h, y0, x0;
        int rows = window_clip(row % ys.h, w->stride_h, w->pad_h, w->kh, xs.h, &y0);
        for (int64_t ox = 0; ox < ys.w; ox++) {
            int columns = window_clip(ox, w->stride_w, w->pad_w, w->kw, xs.w, &x0);
            int64_t skipped_h = y0 - (row % ys.h * w->stride_h - w->pad_h),
                    skipped_w = x0 - (ox * w->stride_w - w->pad_w);
            int64_t pixel = row * ys.w + ox, row_stride = xs.w * pool->x->pitch;
            const void *x = element_at(pool->x, ((image * xs.h + y0) * xs.w + x0) * pool->x->pitch);
            void *y = optional_row(pool->y, pixel), *argmax = optional_row(pool->argmax, pixel);
            if (nine && rows == 3 && columns == 3 &&
                pool_max_of_9(pool->x->dtype, x, row_stride, pool->x->pitch, y, argmax, ys.c))
                continue;
            pool_max_pixel(pool->x->dtype, x, row_stride, pool->x->pitch, rows, columns,
                           (int32_t)(skipped_h * w->kw + skipped_w), w->kw, y, argmax, ys.c);
        }
    }
}

static Status max_pool_prepare(Device *device, OpCall *call)
{
    (void)device;
    TRY(operands_window(call, true));
    TRY(check_activation(call, &call->in[0]));
    return check_same_dtype(call, 1);
}

static Status max_pool_launch(Device *device, OpCall *call)
{
    MaxPool pool = {&call->in[0], &call->out[0], &call->out[1], call->attr.pool.window};
    Shape ys = pool.y->shape;
    int64_t width = (int64_t)ys.w * ys.c * pool.window.kh * pool.window.kw;
    chunks_run(device, (int64_t)ys.n * ys.h, chunk_pixels(width), max_chunk, &pool);
    return OK;
}

const OpKernel cpu_max_pool = {
    .prepare = max_pool_prepare, .launch = max_pool_launch, .strided_in = 1, .strided_out = 3};

/* ---- gradient of the maximum */

enum { COVER_GROUP = 4 }; /* windows over one pixel that are gathered in one pass */

/* A window over a pixel of dx: its dy, argmax and (or NULL) y, and the place that this pixel has in it. */
typedef struct Cover {
    const void *dy, *y;
    const uint8_t *argmax;
    int32_t place;
} Cover;

typedef struct MaxPoolGrad {
    const Tensor *dy, *argmax, *acc, *relu_y, *dx;
    Window window;
    int64_t most;  /* windows over one pixel, rounded up to whole groups */
    Cover *covers; /* [threads][most] */
} MaxPoolGrad;

/* What windows number 0 .. count - 1 send to element i; with `relu` only those whose maximum is positive. */
VECTOR_INLINE float gathered(Dtype dtype, int count, bool relu, const Cover *cover, int64_t i)
{
    float sum = 0;
    for (int k = 0; k < count; k++) {
        float sent = cover[k].argmax[i] == cover[k].place ? load(dtype, cover[k].dy, i) : 0.0f;
        if (relu) sent = load(dtype, cover[k].y, i) > 0.0f ? sent : 0.0f;
        sum += sent;
    }
    return sum;
}

/* dx = what `count` windows send (+ acc). */
VECTOR_INLINE void gather_rows(Dtype dtype, int count, bool relu, const Cover *from, const void *acc, void *dx,
                               int64_t n)
{
    Cover cover[COVER_GROUP]; /* a copy that no store can change */
    for (int k = 0; k < count; k++) cover[k] = from[k];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++)
        store(dtype, dx, i, gathered(dtype, count, relu, cover, i) + (acc ? load(dtype, acc, i) : 0.0f));
}

/* The optional operands, too, become constants of the loops. */
VECTOR_INLINE void gather_options(Dtype dtype, int count, const Cover *cover, const void *acc, void *dx, int64_t n)
{
    bool relu = cover[0].y != NULL;
    if (acc && relu)
        gather_rows(dtype, count, true, cover, acc, dx, n);
    else if (acc)
        gather_rows(dtype, count, false, cover, acc, dx, n);
    else if (relu)
        gather_rows(dtype, count, true, cover, NULL, dx, n);
    else
        gather_rows(dtype, count, false, cover, NULL, dx, n);
}

/* Some more windows, into sum[n]; element 0 of sum is element `first` of the rows. */
VECTOR_INLINE void gather_some(Dtype dtype, int count, bool relu, const Cover *from, float *sum, int64_t first,
                               int64_t n)
{
    Cover cover[COVER_GROUP];
    for (int k = 0; k < count; k++) cover[k] = from[k];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) sum[i] += gathered(dtype, count, relu, cover, first + i);
}

/* Any number of windows: summed in f32 on the way, so that bf16 is rounded once. */
VECTOR_INLINE void gather_many(Dtype dtype, int64_t count, bool relu, const Cover *cover, const void *acc, void *dx,
                               int64_t first, int64_t n)
{
    float sum[BLOCK_ELEMENTS];
    int64_t k = 0;
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) sum[i] = acc ? load(dtype, acc, first + i) : 0.0f;
    for (; k + COVER_GROUP <= count; k += COVER_GROUP) gather_some(dtype, COVER_GROUP, relu, cover + k, sum, first, n);
    for (; k < count; k++) gather_some(dtype, 1, relu, cover + k, sum, first, n);
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) store(dtype, dx, first + i, sum[i]);
}

/* `covers` is padded with windows that send nothing up to 1, 2 or 4. */
VECTOR_INLINE void gather_pixel(Dtype dtype, int64_t count, const Cover *cover, const void *acc, void *dx, int64_t n)
{
    if (count <= 1)
        gather_options(dtype, 1, cover, acc, dx, n);
    else if (count == 2)
        gather_options(dtype, 2, cover, acc, dx, n);
    else if (count <= COVER_GROUP)
        gather_options(dtype, COVER_GROUP, cover, acc, dx, n);
    else
        for (int64_t i = 0; i < n; i += BLOCK_ELEMENTS) {
            if (cover[0].y)
                gather_many(dtype, count, true, cover, acc, dx, i, smaller(BLOCK_ELEMENTS, n - i));
            else
                gather_many(dtype, count, false, cover, acc, dx, i, smaller(BLOCK_ELEMENTS, n - i));
        }
}

CPU_CLONES static void pool_gather_pixel(Dtype dtype, int64_t count, const Cover *cover, const void *acc, void *dx,
                                         int64_t n)
{
    BY_DTYPE(dtype, gather_pixel, count, cover, acc, dx, n);
}

/* The windows along one axis that cover `at`: first, and one past the last. */
static void axis_cover(int64_t at, int32_t k, int32_t stride, int32_t pad, int32_t out, int64_t *first, int64_t *end)
{
    int64_t reach = at + pad - k + 1;
    *first = reach > 0 ? (reach + stride - 1) / stride : 0;
    *end = smaller((at + pad) / stride + 1, out);
}

/* All windows over pixel (y, x) of an image; returns their number. */
static int64_t cover_list(const MaxPoolGrad *pool, int64_t image, int64_t y, int64_t x, Cover *covers)
{
    const Window *w = &pool->window;
    Shape ys = pool->dy->shape;
    int64_t y0, y1, x0, x1, count = 0;
    axis_cover(y, w->kh, w->stride_h, w->pad_h, ys.h, &y0, &y1);
    axis_cover(x, w->kw, w->stride_w, w->pad_w, ys.w, &x0, &x1);
    for (int64_t oy = y0; oy < y1; oy++)
        for (int64_t ox = x0; ox < x1; ox++) {
            int64_t pixel = (image * ys.h + oy) * ys.w + ox;
            int64_t row = y + w->pad_h - oy * w->stride_h, column = x + w->pad_w - ox * w->stride_w;
            covers[count++] =
                (Cover){element_at(pool->dy, pixel * pool->dy->pitch), optional_row(pool->relu_y, pixel),
                        element_at(pool->argmax, pixel * pool->argmax->pitch), (int32_t)(row * w->kw + column)};
        }
    for (int64_t k = count; k < rounded_up(larger(count, 1), COVER_GROUP); k++)
        covers[k] = (Cover){pool->dy->data, pool->relu_y->data, pool->argmax->data, -1};
    return count;
}

/* Rows [first, end) of dx of all images. */
static void max_grad_chunk(void *context, int64_t first, int64_t end, int thread)
{
    const MaxPoolGrad *pool = context;
    Cover *covers = pool->covers + thread * pool->most;
    Shape s = pool->dx->shape;
    for (int64_t row = first; row < end; row++)
        for (int64_t x = 0; x < s.w; x++) {
            int64_t pixel = row * s.w + x;
            int64_t count = cover_list(pool, row / s.h, row % s.h, x, covers);
            pool_gather_pixel(pool->dx->dtype, count, covers, optional_row(pool->acc, pixel),
                              element_at(pool->dx, pixel * pool->dx->pitch), s.c);
        }
}

/* ---- the same for windows of 2x2 that lie side by side: each of them is read once and writes its four pixels */

typedef struct Square {
    const void *dy, *y;
    const uint8_t *argmax;
    void *dx[4];
} Square;

VECTOR_INLINE void square_rows(Dtype dtype, bool relu, Square s, int64_t n)
{
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) {
        float sent = load(dtype, s.dy, i);
        if (relu) sent = load(dtype, s.y, i) > 0.0f ? sent : 0.0f;
        int32_t place = s.argmax[i];
        store(dtype, s.dx[0], i, place == 0 ? sent : 0.0f);
        store(dtype, s.dx[1], i, place == 1 ? sent : 0.0f);
        store(dtype, s.dx[2], i, place == 2 ? sent : 0.0f);
        store(dtype, s.dx[3], i, place == 3 ? sent : 0.0f);
    }
}

/* One row of dy, whose first window is `s`; pitches in bytes. */
typedef struct SquareRow {
    Square first;
    int64_t dy_pitch, y_pitch, argmax_pitch, dx_pitch, windows, c;
} SquareRow;

VECTOR_INLINE void square_row(Dtype dtype, const SquareRow *row)
{
    Square s = row->first;
    for (int64_t k = 0; k < row->windows; k++) {
        if (s.y)
            square_rows(dtype, true, s, row->c);
        else
            square_rows(dtype, false, s, row->c);
        s.dy = (const char *)s.dy + row->dy_pitch;
        s.y = s.y ? (const char *)s.y + row->y_pitch : NULL;
        s.argmax += row->argmax_pitch;
        for (int q = 0; q < 4; q++) s.dx[q] = (char *)s.dx[q] + 2 * row->dx_pitch;
    }
}

CPU_CLONES static void pool_square_row(Dtype dtype, const SquareRow *row)
{
    BY_DTYPE(dtype, square_row, row);
}

static bool squares_fit(const MaxPoolGrad *pool)
{
    const Window *w = &pool->window;
    Shape s = pool->dx->shape, ys = pool->dy->shape;
    return w->kh == 2 && w->kw == 2 && w->stride_h == 2 && w->stride_w == 2 && !w->pad_h && !w->pad_w &&
           2 * ys.h <= s.h && 2 * ys.w <= s.w && !pool->acc->data;
}

/* Pixels that no window covers. */
static void pixels_zero(const Tensor *dx, int64_t pixel, int64_t count)
{
    for (int64_t k = 0; k < count; k++)
        memset(element_at(dx, (pixel + k) * dx->pitch), 0, (size_t)dx->shape.c * dtype_bytes(dx->dtype));
}

static void squares_of_row(const MaxPoolGrad *pool, int64_t dy_pixel, int64_t dx_pixel)
{
    const Tensor *dx = pool->dx, *dy = pool->dy, *y = pool->relu_y;
    int64_t bytes = (int64_t)dtype_bytes(dx->dtype);
    SquareRow row = {.first = {.dy = element_at(dy, dy_pixel * dy->pitch),
                               .y = optional_row(y, dy_pixel),
                               .argmax = element_at(pool->argmax, dy_pixel * pool->argmax->pitch)},
                     .dy_pitch = dy->pitch * bytes,
                     .y_pitch = y->pitch * bytes,
                     .argmax_pitch = pool->argmax->pitch,
                     .dx_pitch = dx->pitch * bytes,
                     .windows = dy->shape.w,
                     .c = dx->shape.c};
    for (int q = 0; q < 4; q++) row.first.dx[q] = element_at(dx, (dx_pixel + q / 2 * dx->shape.w + q % 2) * dx->pitch);
    pool_square_row(dx->dtype, &row);
}

/* Bands [first, end) of dx of all images: two rows each, or the odd one at the bottom. */
static void squares_chunk(void *context, int64_t first, int64_t end, int thread)
{
    (void)thread;
    const MaxPoolGrad *pool = context;
    Shape s = pool->dx->shape, ys = pool->dy->shape;
    int64_t bands = (s.h + 1) / 2, rest = s.w - 2 * (int64_t)ys.w;
    for (int64_t k = first; k < end; k++) {
        int64_t image = k / bands, band = k % bands, pixel = (image * s.h + 2 * band) * s.w;
        int64_t rows = smaller(2, s.h - 2 * band);
        if (band >= ys.h) {
            pixels_zero(pool->dx, pixel, rows * s.w);
            continue;
        }
        squares_of_row(pool, (image * ys.h + band) * ys.w, pixel);
        for (int64_t row = 0; row < rows; row++) pixels_zero(pool->dx, pixel + (row + 1) * s.w - rest, rest);
    }
}

/* ---- the same for windows of 3x3 that overlap by one row and column: four of them meet in 2x2 pixels */

static bool bands_fit(const MaxPoolGrad *pool)
{
    const Window *w = &pool->window;
    return w->kh == 3 && w->kw == 3 && w->stride_h == 2 && w->stride_w == 2 && !w->pad_h && !w->pad_w &&
           !pool->relu_y->data && pool_has_avx512();
}

/* Bands [first, end) of dx of all images: two rows each, or the odd one at the bottom. */
static void bands_chunk(void *context, int64_t first, int64_t end, int thread)
{
    (void)thread;
    const MaxPoolGrad *pool = context;
    const Tensor *dx = pool->dx, *dy = pool->dy, *argmax = pool->argmax;
    int64_t bands = (dx->shape.h + 1) / 2, windows = dy->shape.h;
    for (int64_t k = first; k < end; k++) {
        int64_t image = k / bands, at = k % bands;
        PoolBand band = {.dtype = dx->dtype,
                         .c = dx->shape.c,
                         .windows = dy->shape.w,
                         .columns = dx->shape.w,
                         .dy_pitch = dy->pitch,
                         .argmax_pitch = argmax->pitch,
                         .acc_pitch = pool->acc->pitch,
                         .dx_pitch = dx->pitch};
        for (int q = 0; q < 2; q++) {
            int64_t window = at - 1 + q, row = 2 * at + q;
            band.exists[q] = window >= 0 && window < windows;
            int64_t source = (image * windows + (band.exists[q] ? window : 0)) * dy->shape.w;
            int64_t target = (image * dx->shape.h + row) * dx->shape.w;
            band.dy[q] = element_at(dy, source * dy->pitch);
            band.argmax[q] = element_at(argmax, source * argmax->pitch);
            band.dx[q] = row < dx->shape.h ? element_at(dx, target * dx->pitch) : NULL;
            band.acc[q] = row < dx->shape.h ? optional_row(pool->acc, target) : NULL;
        }
        pool_band_dx(&band);
    }
}

static MaxPoolGrad max_grad_bind(const OpCall *call)
{
    const Window *w = &call->attr.pool.window;
    int64_t over = (int64_t)((w->kh + w->stride_h - 1) / w->stride_h) * ((w->kw + w->stride_w - 1) / w->stride_w);
    return (MaxPoolGrad){.dy = &call->in[0],
                         .argmax = &call->in[1],
                         .acc = &call->in[2],
                         .relu_y = &call->in[3],
                         .dx = &call->out[0],
                         .window = *w,
                         .most = rounded_up(over, COVER_GROUP),
                         .covers = call->workspace};
}

static Status max_pool_dx_prepare(Device *device, OpCall *call)
{
    TRY(operands_window(call, true));
    TRY(check_activation(call, &call->out[0]));
    TRY(operands_same_dtype(call, 0, 1)); /* the second one are places */
    TRY(operands_same_dtype(call, 2, 4));
    call->workspace_bytes = (size_t)(cpu_threads(device) * max_grad_bind(call).most) * sizeof(Cover);
    return OK;
}

static Status max_pool_dx_launch(Device *device, OpCall *call)
{
    MaxPoolGrad pool = max_grad_bind(call);
    Shape s = pool.dx->shape;
    int64_t width = (int64_t)s.w * s.c;
    if (squares_fit(&pool))
        chunks_run(device, (int64_t)s.n * ((s.h + 1) / 2), chunk_pixels(2 * width), squares_chunk, &pool);
    else if (bands_fit(&pool))
        chunks_run(device, (int64_t)s.n * ((s.h + 1) / 2), chunk_pixels(2 * width), bands_chunk, &pool);
    else
        chunks_run(device, (int64_t)s.n * s.h, chunk_pixels(width), max_grad_chunk, &pool);
    return OK;
}

const OpKernel cpu_max_pool_dx = {.prepare = max_pool_dx_prepare,
                                  .launch = max_pool_dx_launch,
                                  .strided_in = 15,
                                  .strided_out = 1,
                                  .in_place = 1u << 2};

/* ---- mean, and its gradient: out[i, j] = p[i] q[j] sum of u[a] v[b] in[a, b], a and b in the range of i and of j */

/* One axis of the double sum. */
typedef struct Taps {
    int64_t *first;
    int64_t *count;
    float *of_source; /* u: weight of an input element */
    float *of_target; /* p: weight of an output element */
} Taps;

/* Made by prepare, in one block. */
typedef struct MeanPlan {
    Taps rows, columns;
} MeanPlan;

typedef struct MeanPool {
    const MeanPlan *plan;
    const Tensor *in, *acc, *out;
    float *line; /* [threads][in.w * c] */
} MeanPool;

/* line[n] (=, or += if not `begin`) weighted sum of up to three rows. */
VECTOR_INLINE void line_rows(Dtype dtype, int rows, const void *const *row, const float *weight, bool begin,
                             float *line, int64_t n)
{
    const void *r[3] = {row[0], row[rows > 1 ? 1 : 0], row[rows > 2 ? 2 : 0]};
    float u[3] = {weight[0], weight[rows > 1 ? 1 : 0], weight[rows > 2 ? 2 : 0]};
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) {
        float sum = begin ? 0.0f : line[i];
        for (int k = 0; k < rows; k++) sum += u[k] * load(dtype, r[k], i);
        line[i] = sum;
    }
}

CPU_CLONES static void pool_line(Dtype dtype, int rows, const void *const *row, const float *weight, bool begin,
                                 float *line, int64_t n)
{
    if (rows == 3)
        BY_DTYPE(dtype, line_rows, 3, row, weight, begin, line, n);
    else if (rows == 2)
        BY_DTYPE(dtype, line_rows, 2, row, weight, begin, line, n);
    else
        BY_DTYPE(dtype, line_rows, 1, row, weight, begin, line, n);
}

/* One output pixel: p sum of v[k] line[k * c + i], k < count (+ acc). */
VECTOR_INLINE void mean_pixel(Dtype dtype, const float *line, int64_t count, int64_t c, const float *v, float p,
                              const void *acc, void *out)
{
    if (count == 3 && !acc) {
        float a = v[0] * p, b = v[1] * p, d = v[2] * p;
        VECTOR_LOOP
        for (int64_t i = 0; i < c; i++) store(dtype, out, i, a * line[i] + b * line[c + i] + d * line[2 * c + i]);
        return;
    }
    if (count == 1 && !acc) {
        float a = v[0] * p;
        VECTOR_LOOP
        for (int64_t i = 0; i < c; i++) store(dtype, out, i, a * line[i]);
        return;
    }
    for (int64_t first = 0; first < c; first += BLOCK_ELEMENTS) {
        float sum[BLOCK_ELEMENTS];
        int64_t n = smaller(BLOCK_ELEMENTS, c - first);
        for (int64_t i = 0; i < n; i++) sum[i] = 0;
        for (int64_t k = 0; k < count; k++) {
            VECTOR_LOOP
            for (int64_t i = 0; i < n; i++) sum[i] += v[k] * line[k * c + first + i];
        }
        VECTOR_LOOP
        for (int64_t i = 0; i < n; i++)
            store(dtype, out, first + i, p * sum[i] + (acc ? load(dtype, acc, first + i) : 0.0f));
    }
}

/* The pixels of one output row. */
VECTOR_INLINE void mean_row(Dtype dtype, const Taps *taps, float row_weight, const float *line, int64_t pixels,
                            int64_t c, const void *acc, int64_t acc_pitch, void *out, int64_t pitch)
{
    int64_t bytes = dtype == DTYPE_F32 ? 4 : 2;
    for (int64_t j = 0; j < pixels; j++)
        mean_pixel(dtype, line + taps->first[j] * c, taps->count[j], c, taps->of_source + taps->first[j],
                   row_weight * taps->of_target[j], acc ? (const char *)acc + j * acc_pitch * bytes : NULL,
                   (char *)out + j * pitch * bytes);
}

CPU_CLONES static void pool_mean_row(Dtype dtype, const Taps *taps, float row_weight, const float *line, int64_t pixels,
                                     int64_t c, const void *acc, int64_t acc_pitch, void *out, int64_t pitch)
{
    BY_DTYPE(dtype, mean_row, taps, row_weight, line, pixels, c, acc, acc_pitch, out, pitch);
}

/* Sum the input rows of output row i of an image into line[in.w * c]. */
static void mean_line(const MeanPool *pool, int64_t image, int64_t i, float *line)
{
    const Taps *taps = &pool->plan->rows;
    const Tensor *in = pool->in;
    bool packed = tensor_is_packed(in);
    int64_t pieces = packed ? 1 : in->shape.w, n = packed ? (int64_t)in->shape.w * in->shape.c : in->shape.c;
    if (taps->count[i] == 0) memset(line, 0, (size_t)in->shape.w * (size_t)in->shape.c * sizeof *line);
    for (int64_t k = 0; k < taps->count[i]; k += 3) {
        int rows = (int)smaller(3, taps->count[i] - k);
        for (int64_t piece = 0; piece < pieces; piece++) {
            const void *row[3];
            for (int r = 0; r < rows; r++)
                row[r] = element_at(in, (((image * in->shape.h) + taps->first[i] + k + r) * in->shape.w + piece) *
                                            in->pitch);
            pool_line(in->dtype, rows, row, taps->of_source + taps->first[i] + k, k == 0, line + piece * n, n);
        }
    }
}

/* Output rows [first, end) of all images. */
static void mean_chunk(void *context, int64_t first, int64_t end, int thread)
{
    const MeanPool *pool = context;
    const Tensor *out = pool->out, *acc = pool->acc;
    float *line = pool->line + thread * (int64_t)pool->in->shape.w * pool->in->shape.c;
    for (int64_t row = first; row < end; row++) {
        int64_t i = row % out->shape.h, pixel = row * out->shape.w;
        mean_line(pool, row / out->shape.h, i, line);
        pool_mean_row(out->dtype, &pool->plan->columns, pool->plan->rows.of_target[i], line, out->shape.w, out->shape.c,
                      acc ? optional_row(acc, pixel) : NULL, acc ? acc->pitch : 0, element_at(out, pixel * out->pitch),
                      out->pitch);
    }
}

/* Divisor of window `out` along one axis. */
static float axis_divisor(int64_t out, int32_t k, int32_t stride, int32_t pad, int32_t side, bool include_pad)
{
    int64_t begin = out * stride - pad;
    int64_t end = smaller(begin + k, include_pad ? (int64_t)side + pad : side);
    return (float)larger(1, end - (include_pad ? begin : larger(begin, 0)));
}

/* Arrays for an axis of `in` inputs and `out` outputs, cut from *at. */
static Taps taps_place(char **at, int64_t in, int64_t out)
{
    Taps taps;
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
    if (!plan) return FAIL(ERR_MEMORY, "tables of an average pooling from %s to %s", shape_text(in), shape_text(out));
    char *at = (char *)(plan + 1);
    plan->rows = taps_place(&at, in.h, out.h);
    plan->columns = taps_place(&at, in.w, out.w);
    *made = plan;
    return OK;
}

static void taps_forward(Taps *taps, int32_t in, int32_t out, int32_t k, int32_t stride, int32_t pad, bool include_pad)
{
    for (int32_t i = 0; i < in; i++) taps->of_source[i] = 1;
    for (int32_t i = 0; i < out; i++) {
        taps->count[i] = window_clip(i, stride, pad, k, in, &taps->first[i]);
        taps->of_target[i] = 1 / axis_divisor(i, k, stride, pad, in, include_pad);
    }
}

/* `in` is dy's side, `out` is dx's. */
static void taps_backward(Taps *taps, int32_t in, int32_t out, int32_t k, int32_t stride, int32_t pad, bool include_pad)
{
    for (int32_t i = 0; i < in; i++) taps->of_source[i] = 1 / axis_divisor(i, k, stride, pad, out, include_pad);
    for (int32_t i = 0; i < out; i++) {
        int64_t end;
        axis_cover(i, k, stride, pad, in, &taps->first[i], &end);
        taps->count[i] = larger(0, end - taps->first[i]);
        taps->of_target[i] = 1;
    }
}

/* Part i of a side cut into `parts` equal parts touches pixels first .. first + count of the side. */
static int64_t part_touches(int64_t i, int64_t parts, int64_t side, int64_t *first)
{
    *first = i * side / parts;
    return ((i + 1) * side + parts - 1) / parts - *first;
}

/* Pixel a touches part i exactly if part i touches pixel a: one rule for both directions. */
static void taps_adaptive(Taps *taps, int32_t in, int32_t out, bool backward)
{
    int64_t first;
    for (int32_t i = 0; i < in; i++) taps->of_source[i] = backward ? 1 / (float)part_touches(i, in, out, &first) : 1;
    for (int32_t i = 0; i < out; i++) {
        taps->count[i] = part_touches(i, out, in, &taps->first[i]);
        taps->of_target[i] = backward ? 1 : 1 / (float)taps->count[i];
    }
}

static void taps_fill(MeanPlan *plan, const OpCall *call)
{
    bool backward = call->kind == OP_AVG_POOL_DX, include_pad = call->attr.pool.include_pad;
    const Window *w = &call->attr.pool.window;
    Shape in = call->in[0].shape, out = call->out[0].shape;
    if (call->attr.pool.adaptive) {
        taps_adaptive(&plan->rows, in.h, out.h, backward);
        taps_adaptive(&plan->columns, in.w, out.w, backward);
        return;
    }
    (backward ? taps_backward : taps_forward)(&plan->rows, in.h, out.h, w->kh, w->stride_h, w->pad_h, include_pad);
    (backward ? taps_backward : taps_forward)(&plan->columns, in.w, out.w, w->kw, w->stride_w, w->pad_w, include_pad);
}

static Status mean_prepare(Device *device, OpCall *call)
{
    Shape in = call->in[0].shape;
    MeanPlan *plan = NULL;
    if (!call->attr.pool.adaptive) TRY(operands_window(call, false));
    TRY(check_same_dtype(call, 2));
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

static void mean_discard(Device *device, OpCall *call)
{
    (void)device;
    free(call->state);
    call->state = NULL;
}

const OpKernel cpu_avg_pool = {
    .prepare = mean_prepare, .launch = mean_launch, .discard = mean_discard, .strided_in = 1, .strided_out = 1};

const OpKernel cpu_avg_pool_dx = {.prepare = mean_prepare,
                                  .launch = mean_launch,
                                  .discard = mean_discard,
                                  .strided_in = 3,
                                  .strided_out = 1,
                                  .in_place = 1u << 1};
