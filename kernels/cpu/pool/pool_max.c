/* Maximum over windows.
 *
 * The first largest element of the window wins, NaN beats everything; its position (row * kw + column) is kept as u8. Whole
 * windows of 3x3 are computed by vectors (pool_code.h) if the processor has the instructions. */
#include "kernels/cpu/pool/pool_rows.h"
#include "kernels/pool_axis.h"

const PoolCode *pool_code(Dtype dtype)
{
    switch (cpu_vectors(dtype)) {
#if defined(__x86_64__)
    case CPU_AVX512: return &pool_avx512;
    case CPU_AVX2: return &pool_avx2;
#elif defined(__aarch64__)
    case CPU_NEON: return &pool_neon;
#endif
    default: return NULL;
    }
}

typedef struct MaxPool {
    const Tensor *x, *y, *argmax;
    Window window;
} MaxPool;

enum { TAP_GROUP = 3 };

/* Compare `taps` rows of x, numbered first, first + 1, ..., with best[n] and position[n]. */
VECTOR_INLINE void max_rows(Dtype dtype, int taps, const void *x, int64_t stride, int32_t first, bool begin,
                            float *best, int32_t *position, int64_t n)
{
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) {
        float top = begin ? -INFINITY : best[i];
        int32_t at = begin ? first : position[i];
        for (int k = 0; k < taps; k++) {
            float value = load(dtype, x, k * stride + i);
            bool wins = (value > top) | (value != value);
            top = wins ? value : top;
            at = wins ? first + k : at;
        }
        best[i] = top;
        position[i] = at;
    }
}

/* max_rows with the number of rows, and whether they are the first, as constants of the loop. */
VECTOR_INLINE void max_group(Dtype dtype, int taps, const void *x, int64_t stride, int32_t first, bool begin,
                             float *best, int32_t *position, int64_t n)
{
    if (taps == 3 && begin)
        max_rows(dtype, 3, x, stride, first, true, best, position, n);
    else if (taps == 3)
        max_rows(dtype, 3, x, stride, first, false, best, position, n);
    else if (taps == 2 && begin)
        max_rows(dtype, 2, x, stride, first, true, best, position, n);
    else if (taps == 2)
        max_rows(dtype, 2, x, stride, first, false, best, position, n);
    else if (begin)
        max_rows(dtype, 1, x, stride, first, true, best, position, n);
    else
        max_rows(dtype, 1, x, stride, first, false, best, position, n);
}

/* One window, one block of channels. rows/columns: the part of the window inside the image. */
VECTOR_INLINE void max_window(Dtype dtype, const void *x, int64_t row_stride, int64_t stride, int rows, int columns,
                              int32_t first, int32_t kw, float *best, int32_t *position, int64_t n)
{
    int64_t bytes = dtype == DTYPE_F32 ? 4 : 2;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j += TAP_GROUP)
            max_group(dtype, (int)smaller(TAP_GROUP, columns - j),
                      (const char *)x + (i * row_stride + j * stride) * bytes, stride, first + i * kw + j,
                      i == 0 && j == 0, best, position, n);
}

VECTOR_INLINE void max_store(Dtype dtype, const float *best, const int32_t *position, void *y, uint8_t *argmax,
                             int64_t n)
{
    if (y) {
        VECTOR_LOOP
        for (int64_t i = 0; i < n; i++) store(dtype, y, i, best[i]);
    }
    if (argmax) {
        VECTOR_LOOP
        for (int64_t i = 0; i < n; i++) argmax[i] = (uint8_t)position[i];
    }
}

/* One pixel of y. */
VECTOR_INLINE void max_pixel(Dtype dtype, const void *x, int64_t row_stride, int64_t stride, int rows, int columns,
                             int32_t first, int32_t kw, void *y, uint8_t *argmax, int64_t c)
{
    float best[BLOCK_ELEMENTS];
    int32_t position[BLOCK_ELEMENTS];
    int64_t bytes = dtype == DTYPE_F32 ? 4 : 2;
    for (int64_t i = 0; i < c; i += BLOCK_ELEMENTS) {
        int64_t n = smaller(BLOCK_ELEMENTS, c - i);
        max_window(dtype, (const char *)x + i * bytes, row_stride, stride, rows, columns, first, kw, best, position, n);
        max_store(dtype, best, position, y ? (char *)y + i * bytes : NULL, argmax ? argmax + i : NULL, n);
    }
}

CPU_CLONES static void pool_max_pixel(Dtype dtype, const void *x, int64_t row_stride, int64_t stride, int rows,
                                      int columns, int32_t first, int32_t kw, void *y, uint8_t *argmax, int64_t c)
{
    BY_DTYPE(dtype, max_pixel, x, row_stride, stride, rows, columns, first, kw, y, argmax, c);
}

/* Output rows [first, end) of all images. */
static void max_rows_of(const MaxPool *pool, int64_t first, int64_t end)
{
    const Window *w = &pool->window;
    Shape xs = pool->x->shape, ys = pool->y->shape;
    PoolAxis down = pool_axis(w, xs, ys, true, false, false), across = pool_axis(w, xs, ys, false, false, false);
    const PoolCode *code = w->kh == 3 && w->kw == 3 ? pool_code(pool->x->dtype) : NULL;
    for (int64_t row = first; row < end; row++) {
        int64_t image = row / ys.h;
        int32_t y0, y1, x0, x1;
        axis_window(&down, (int32_t)(row % ys.h), &y0, &y1);
        for (int64_t ox = 0; ox < ys.w; ox++) {
            axis_window(&across, (int32_t)ox, &x0, &x1);
            int rows = (int)larger(0, y1 - y0), columns = (int)larger(0, x1 - x0);
            int64_t skipped_h = y0 - (row % ys.h * w->stride_h - w->pad_h),
                    skipped_w = x0 - (ox * w->stride_w - w->pad_w);
            int64_t pixel = row * ys.w + ox, row_stride = xs.w * pool->x->pitch;
            const void *x = element_at(pool->x, ((image * xs.h + y0) * xs.w + x0) * pool->x->pitch);
            void *y = optional_row(pool->y, pixel), *argmax = optional_row(pool->argmax, pixel);
            if (code && rows == 3 && columns == 3 &&
                code->max_of_9(pool->x->dtype, x, row_stride, pool->x->pitch, y, argmax, ys.c))
                continue;
            pool_max_pixel(pool->x->dtype, x, row_stride, pool->x->pitch, rows, columns,
                           (int32_t)(skipped_h * w->kw + skipped_w), w->kw, y, argmax, ys.c);
        }
    }
}

/* Comparing denormals costs nothing, so a maximum keeps them. */
static void max_chunk(void *context, int64_t first, int64_t end)
{
    unsigned modes = denormals_keep();
    max_rows_of(context, first, end);
    denormals_restore(modes);
}

static Status max_pool_launch(Device *device, OpCall *call)
{
    MaxPool pool = {&call->in[0], &call->out[0], &call->out[1], call->attr.pool.window};
    Shape ys = pool.y->shape;
    int64_t width = (int64_t)ys.w * ys.c * pool.window.kh * pool.window.kw;
    chunks_run(device, (int64_t)ys.n * ys.h, chunk_pixels(width), max_chunk, &pool);
    return OK;
}

const OpKernel cpu_max_pool = {.prepare = cpu_check, .launch = max_pool_launch};
