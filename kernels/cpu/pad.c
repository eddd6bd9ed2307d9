/* Pad and crop: rows of the input between zeros. One copy, in whole rows if both tensors are packed. */
#include "kernels/cpu/vector.h"

/* Some pixels of a row, `count` of `bytes` each. */
typedef struct PixelBytes {
    size_t bytes, pitch_bytes;
} PixelBytes;

static PixelBytes pixels_of(const Tensor *t)
{
    size_t size = dtype_bytes(t->dtype);
    return (PixelBytes){(size_t)t->shape.c * size, (size_t)t->pitch * size};
}

static void pixels_zero(const Tensor *y, int64_t first, int64_t count)
{
    PixelBytes to = pixels_of(y);
    char *at = element_at(y, first * y->pitch);
    if (to.bytes == to.pitch_bytes) {
        memset(at, 0, (size_t)count * to.bytes);
        return;
    }
    for (int64_t i = 0; i < count; i++) memset(at + (size_t)i * to.pitch_bytes, 0, to.bytes);
}

static void pixels_copy(const Tensor *x, int64_t from_pixel, const Tensor *y, int64_t to_pixel, int64_t count)
{
    PixelBytes from = pixels_of(x), to = pixels_of(y);
    const char *source = element_at(x, from_pixel * x->pitch);
    char *target = element_at(y, to_pixel * y->pitch);
    if (from.bytes == from.pitch_bytes && to.bytes == to.pitch_bytes) {
        memcpy(target, source, (size_t)count * to.bytes);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        memcpy(target + (size_t)i * to.pitch_bytes, source + (size_t)i * from.pitch_bytes, to.bytes);
}

/* Rows of y: those outside of x are zeros, in the others the columns that x has lie between zeros. */
static void pad_rows(void *context, int64_t first, int64_t end)
{
    const OpCall *call = context;
    const Tensor *x = &call->in[0], *y = &call->out[0];
    Shape s = x->shape, r = y->shape;
    int32_t left = call->attr.pad.left, begin = left > 0 ? left : 0, stop = left + s.w < r.w ? left + s.w : r.w;
    for (int64_t row = first; row < end; row++) {
        int64_t image = row / r.h, h = row % r.h - call->attr.pad.top, at = row * r.w;
        if (h < 0 || h >= s.h || stop <= begin) {
            pixels_zero(y, at, r.w);
            continue;
        }
        pixels_zero(y, at, begin);
        pixels_copy(x, (image * s.h + h) * s.w + begin - left, y, at + begin, stop - begin);
        pixels_zero(y, at + stop, r.w - stop);
    }
}

static Status pad_launch(Device *device, OpCall *call)
{
    Shape y = call->out[0].shape;
    chunks_run(device, (int64_t)y.n * y.h, chunk_pixels((int64_t)y.w * y.c), pad_rows, call);
    return OK;
}

const OpKernel cpu_pad = {.prepare = cpu_check, .launch = pad_launch};
