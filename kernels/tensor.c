/* Shapes and dtypes; see tensor.h. */
#include "kernels/tensor.h"

#include <stdio.h>

static const struct {
    const char *name;
    size_t bytes;
} dtypes[DTYPE_COUNT] = {
    [DTYPE_F32] = {"f32", 4}, [DTYPE_BF16] = {"bf16", 2}, [DTYPE_F16] = {"f16", 2},
    [DTYPE_U8] = {"u8", 1},   [DTYPE_I32] = {"i32", 4},
};

size_t dtype_bytes(Dtype dtype)
{
    return dtypes[dtype].bytes;
}

const char *dtype_name(Dtype dtype)
{
    return dtypes[dtype].name;
}

int64_t shape_count(Shape s)
{
    return shape_pixels(s) * s.c;
}

int64_t shape_pixels(Shape s)
{
    return (int64_t)s.n * s.h * s.w;
}

bool shape_equal(Shape a, Shape b)
{
    return a.n == b.n && a.c == b.c && a.h == b.h && a.w == b.w;
}

const char *shape_text(Shape s)
{
    static _Thread_local char ring[8][64];
    static _Thread_local unsigned next;
    char *text = ring[next++ % 8];
    snprintf(text, sizeof ring[0], "%dx%dx%dx%d", s.n, s.c, s.h, s.w);
    return text;
}

bool tensor_is_packed(const Tensor *t)
{
    return t->pitch == t->shape.c;
}
