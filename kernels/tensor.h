/* Shape, Dtype, Tensor: what an op reads and writes.
 *
 * Shapes are logical NCHW. The physical layout is NHWC everywhere, on both backends: element (n, c, h, w) lies at
 *     data[((n * H + h) * W + w) * pitch + c],    pitch >= shape.c,
 * so a range of channels of a wider buffer is a Tensor too (a *slice*: pitch > shape.c), which is what makes concat
 * free. Weights follow the same rule with n = output and c = input channels (OHWI; cuDNN calls it KRSC), vectors of C
 * values are {1, C, 1, 1}, scalars {1, 1, 1, 1}. docs/decisions/0004-layouts.md has the measurements behind this. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Shape {
    int32_t n, c, h, w; /* each >= 1 */
} Shape;

typedef enum Dtype { DTYPE_F32 = 0, DTYPE_BF16, DTYPE_F16, DTYPE_U8, DTYPE_I32, DTYPE_COUNT } Dtype;

typedef struct Tensor {
    void *data;  /* borrowed: an arena of a Plan; NULL for an optional operand that is absent */
    Shape shape; /* logical */
    Dtype dtype;
    int64_t pitch; /* elements from one pixel to the next */
} Tensor;

/* Rounded up to a multiple of `alignment`. */
static inline size_t align_up(size_t bytes, size_t alignment)
{
    return (bytes + alignment - 1) / alignment * alignment;
}

size_t dtype_bytes(Dtype dtype);
const char *dtype_name(Dtype dtype);

/* Element `at` of f32, f16 or bf16 in host memory, which need not be aligned. */
float element_read(Dtype dtype, const void *host, int64_t at);

int64_t shape_count(Shape s);  /* elements, without pitch */
int64_t shape_pixels(Shape s); /* n * h * w */
bool shape_equal(Shape a, Shape b);

/* "64x192x35x35" into a buffer of the calling thread (a ring of 8, for several in one message). */
const char *shape_text(Shape s);

/* True if no element lies between the pixels (pitch == c). */
bool tensor_is_packed(const Tensor *t);
