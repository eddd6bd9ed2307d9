/* Which pixels and windows of a pooling belong together along one axis, and by what a mean divides. Also compiled as CUDA device
 * code.
 *
 * Divisors as PyTorch: windows are clipped to the image, or to the padded image when padding counts. An adaptive pooling cuts
 * the side into as many equal parts as it has windows; a part has the pixels that it touches. */
#pragma once

#include "kernels/op.h"

#ifdef __CUDACC__
#define POOL_CALL __host__ __device__ static inline
#else
#define POOL_CALL static inline
#endif

typedef struct PoolAxis {
    int32_t x, y;                 /* pixels, windows */
    int32_t k, stride, pad, more; /* padding: before the side, and how much more behind it */
    bool include_pad, adaptive;
} PoolAxis;

/* Down the rows of x and y, or across their columns. */
POOL_CALL PoolAxis pool_axis(const Window *w, Shape x, Shape y, bool down, bool include_pad, bool adaptive)
{
    PoolAxis axis = {down ? x.h : x.w,
                     down ? y.h : y.w,
                     down ? w->kh : w->kw,
                     down ? w->stride_h : w->stride_w,
                     down ? w->pad_h : w->pad_w,
                     down ? w->more_h : w->more_w,
                     include_pad,
                     adaptive};
    return axis;
}

/* Part i of a side cut into `parts`: the elements of the side that it touches. Which part touches which pixel is a
 * symmetric relation, so this serves both directions. */
POOL_CALL void part_touches(int32_t i, int32_t parts, int32_t side, int32_t *first, int32_t *end)
{
    *first = (int32_t)((int64_t)i * side / parts);
    *end = (int32_t)(((int64_t)(i + 1) * side + parts - 1) / parts);
}

/* The pixels of window i, first and one past the last, and its divisor. */
POOL_CALL int32_t axis_window(const PoolAxis *a, int32_t i, int32_t *first, int32_t *end)
{
    if (a->adaptive) {
        part_touches(i, a->y, a->x, first, end);
        return *end - *first;
    }
    int32_t begin = i * a->stride - a->pad, reach = begin + a->k, padded = a->x + a->pad + a->more;
    *first = begin > 0 ? begin : 0;
    *end = reach < a->x ? reach : a->x;
    int32_t count = a->include_pad ? (reach < padded ? reach : padded) - begin : *end - *first;
    return count > 1 ? count : 1;
}

/* The windows that pixel i is part of. */
POOL_CALL void axis_cover(const PoolAxis *a, int32_t i, int32_t *first, int32_t *end)
{
    if (a->adaptive) {
        part_touches(i, a->x, a->y, first, end);
        return;
    }
    int32_t reach = i + a->pad - a->k + 1, last = (i + a->pad) / a->stride + 1;
    *first = reach > 0 ? (reach + a->stride - 1) / a->stride : 0;
    *end = last < a->y ? last : a->y;
}
