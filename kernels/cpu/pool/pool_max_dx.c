/* The gradient of the maximum over windows.
 *
 * It gathers: each element of dx is computed once from the windows that cover it, in a fixed order. Windows of 2x2 that
 * lie side by side, and of 3x3 that overlap by one row and column, are read once for several pixels. */
#include "kernels/cpu/pool/pool_rows.h"
#include "kernels/pool_axis.h"

enum { COVER_GROUP = 4 }; /* windows over one pixel that are gathered in one pass */

/* A window over a pixel of dx: its dy, argmax and (or NULL) y, and the position that this pixel has in it. */
typedef struct Cover {
    const void *dy, *y;
    const uint8_t *argmax;
    int32_t position;
} Cover;

typedef struct MaxPoolGrad {
    const Tensor *dy, *argmax, *acc, *relu_y, *dx;
    Window window;
    PoolAxis down, across;
    int64_t most;  /* windows over one pixel, rounded up to whole groups */
    Cover *covers; /* [threads][most] */
} MaxPoolGrad;

/* x or 0, by its bits: for a choice gcc makes masked stores, which take AMD's processors ten cycles each. */
VECTOR_INLINE float kept(bool keep, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= -(uint32_t)keep;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

/* The sum of dy over windows 0 .. count - 1 whose maximum is element i; with `relu` only of positive maxima. */
VECTOR_INLINE float gathered(Dtype dtype, int count, bool relu, const Cover *cover, int64_t i)
{
    float sum = 0;
    for (int k = 0; k < count; k++) {
        float sent = kept(cover[k].argmax[i] == cover[k].position, load(dtype, cover[k].dy, i));
        if (relu) sent = kept(load(dtype, cover[k].y, i) > 0.0f, sent);
        sum += sent;
    }
    return sum;
}

/* dx = the sum over `count` windows (+ acc). */
VECTOR_INLINE void gather_rows(Dtype dtype, int count, bool relu, const Cover *from, const void *acc, void *dx,
                               int64_t n)
{
    Cover cover[COVER_GROUP]; /* a copy, which stores cannot alias */
    for (int k = 0; k < count; k++) cover[k] = from[k];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++)
        store(dtype, dx, i, gathered(dtype, count, relu, cover, i) + (acc ? load(dtype, acc, i) : 0.0f));
}

/* Makes the presence of the optional operands a constant of the loops. */
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

/* Adds more windows to sum[n]; element 0 of sum is element `first` of the rows. */
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

/* `covers` is padded to 1, 2 or 4 windows with ones that contribute nothing. */
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

/* All windows over pixel (y, x) of an image; returns their number. */
static int64_t cover_list(const MaxPoolGrad *pool, int64_t image, int64_t y, int64_t x, Cover *covers)
{
    const Window *w = &pool->window;
    Shape ys = pool->dy->shape;
    int32_t y0, y1, x0, x1;
    int64_t count = 0;
    axis_cover(&pool->down, (int32_t)y, &y0, &y1);
    axis_cover(&pool->across, (int32_t)x, &x0, &x1);
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
static void max_grad_chunk(void *context, int64_t first, int64_t end)
{
    const MaxPoolGrad *pool = context;
    Cover *covers = pool->covers + team_member() * pool->most;
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
        if (relu) sent = kept(load(dtype, s.y, i) > 0.0f, sent);
        int32_t position = s.argmax[i];
        for (int q = 0; q < 4; q++) store(dtype, s.dx[q], i, kept(position == q, sent));
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
static void squares_chunk(void *context, int64_t first, int64_t end)
{
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
           !pool->relu_y->data && pool_code(pool->dx->dtype);
}

/* Bands [first, end) of dx of all images: two rows each, or the odd one at the bottom. */
static void bands_chunk(void *context, int64_t first, int64_t end)
{
    const MaxPoolGrad *pool = context;
    const Tensor *dx = pool->dx, *dy = pool->dy, *argmax = pool->argmax;
    const PoolCode *code = pool_code(dx->dtype);
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
        code->band_dx(&band);
    }
}

static MaxPoolGrad max_grad_bind(const OpCall *call)
{
    const Window *w = &call->attr.pool.window;
    Shape x = call->out[0].shape, y = call->in[0].shape;
    int64_t over = (int64_t)((w->kh + w->stride_h - 1) / w->stride_h) * ((w->kw + w->stride_w - 1) / w->stride_w);
    return (MaxPoolGrad){.dy = &call->in[0],
                         .argmax = &call->in[1],
                         .acc = &call->in[2],
                         .relu_y = &call->in[3],
                         .dx = &call->out[0],
                         .window = *w,
                         .down = pool_axis(w, x, y, true, false, false),
                         .across = pool_axis(w, x, y, false, false, false),
                         .most = rounded_up(over, COVER_GROUP),
                         .covers = call->workspace};
}

static Status max_pool_dx_prepare(Device *device, OpCall *call)
{
    TRY(cpu_check(device, call));
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

const OpKernel cpu_max_pool_dx = {.prepare = max_pool_dx_prepare, .launch = max_pool_dx_launch};
