/* Geometry of pooling windows along one axis. */
#pragma once

#include "kernels/cpu/vector.h"

/* Address of a pixel of an optional operand, or NULL. */
static inline void *optional_row(const Tensor *t, int64_t pixel)
{
    return t->data ? element_at(t, pixel * t->pitch) : NULL;
}

/* The part of a window inside [0, side): first element and count. */
static inline int window_clip(int64_t out, int32_t stride, int32_t pad, int32_t k, int32_t side, int64_t *first)
{
    int64_t begin = out * stride - pad;
    int64_t end = smaller(begin + k, side);
    *first = larger(begin, 0);
    return (int)larger(0, end - *first);
}

/* The windows along one axis that cover `at`: first, and one past the last. */
static inline void axis_cover(int64_t at, int32_t k, int32_t stride, int32_t pad, int32_t out, int64_t *first,
                              int64_t *end)
{
    int64_t reach = at + pad - k + 1;
    *first = reach > 0 ? (reach + stride - 1) / stride : 0;
    *end = smaller((at + pad) / stride + 1, out);
}
