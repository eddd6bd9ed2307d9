/* Shapes and dtypes; see tensor.h. */
#include "kernels/tensor.h"

#include <stdio.h>
#include <string.h>

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

/* IEEE binary16, from its bits. */
static float half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, mantissa = h & 1023, bits;
    if (exponent == 31) {
        bits = sign | 0x7F800000u | mantissa << 13;
    } else if (exponent) {
        bits = sign | (exponent + 112) << 23 | mantissa << 13;
    } else {
        float tiny = (float)mantissa * (1.0f / 16777216.0f);
        memcpy(&bits, &tiny, sizeof bits);
        bits |= sign;
    }
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

float element_read(Dtype dtype, const void *host, int64_t at)
{
    const char *from = (const char *)host + at * (int64_t)dtype_bytes(dtype);
    uint16_t half;
    uint32_t bits;
    float value;
    if (dtype == DTYPE_F32) {
        memcpy(&value, from, sizeof value);
        return value;
    }
    memcpy(&half, from, sizeof half);
    if (dtype == DTYPE_F16) return half_to_float(half);
    bits = (uint32_t)half << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}
