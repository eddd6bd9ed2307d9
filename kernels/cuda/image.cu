/* Pixels to activations: crop, mirror, normalize, mix, and zeros up to the width that a convolution needs.
 *
 * Reads each byte of the crop once and writes y once. A thread computes one pixel; y = byte * scale[c] + shift[c], with
 * scale = 1 / (255 std) and shift = -mean / std. A gray image is repeated over the channels of y. Another image, with
 * its own record, may be mixed in after that. */
#include "kernels/cuda/map.cuh"
#include "kernels/image_record.h"

enum { IMAGE_CHANNELS = 4 };

struct ImageOperands {
    const uint8_t *pixels;
    const int32_t *augment; /* IMAGE_RECORD words per image, or NULL: the center */
    Tensor y;
    int64_t pitch; /* of the pixels */
    Divider width, height;
    uint32_t count;         /* pixels of y */
    int32_t images;         /* of the pixels: those of y, or one more */
    int32_t in_h, in_w;     /* canvas */
    int32_t room_h, room_w; /* by which the canvas is larger */
    int32_t step;           /* from one channel of a pixel to the next; 0 for gray */
    int32_t channels, all;  /* of y: with an image, and with the zeros behind, if it is padded */
    float scale[IMAGE_CHANNELS], shift[IMAGE_CHANNELS];
};

DEVICE const int32_t *image_record(const ImageOperands &o, uint32_t n)
{
    return o.augment ? o.augment + n * IMAGE_RECORD : NULL;
}

/* The first byte of the canvas's pixel for pixel (n, i, j) of y. */
DEVICE const uint8_t *image_pixel(const ImageOperands &o, uint32_t n, uint32_t i, uint32_t j)
{
    ImageCrop crop = image_crop(image_record(o, n), o.room_h, o.room_w);
    int32_t column = crop.flip ? o.in_w - o.room_w - 1 - (int32_t)j : (int32_t)j;
    return o.pixels + (((int64_t)n * o.in_h + crop.y + i) * o.in_w + crop.x + column) * o.pitch;
}

/* The channels of pixel (i, j) of image n alone. */
DEVICE void image_values(const ImageOperands &o, uint32_t n, uint32_t i, uint32_t j, float *value)
{
    const uint8_t *pixel = image_pixel(o, n, i, j);
    ImageRectangle rectangle = image_erased(image_record(o, n));
    bool erased = rectangle_has(&rectangle, (int32_t)i, (int32_t)j);
    UNROLL
    for (int c = 0; c < IMAGE_CHANNELS; c++)
        if (c < o.channels) value[c] = erased ? 0 : __fmaf_rn((float)pixel[c * o.step], o.scale[c], o.shift[c]);
}

/* Mix the partner of image n into the values of its pixel (i, j). */
DEVICE void image_mix(const ImageOperands &o, uint32_t n, uint32_t i, uint32_t j, float *value)
{
    const int32_t *record = image_record(o, n);
    int32_t partner = image_partner(record, o.images);
    if (partner < 0) return;
    ImageRectangle cut = image_cut(record);
    float share = rectangle_has(&cut, (int32_t)i, (int32_t)j) ? 1.0f : image_share(record), other[IMAGE_CHANNELS];
    image_values(o, (uint32_t)partner, i, j, other);
    UNROLL
    for (int c = 0; c < IMAGE_CHANNELS; c++)
        if (c < o.channels) value[c] = image_mixed(value[c], other[c], share);
}

/* V >= 4: all channels of a pixel in one piece of V elements. V == 1: one after another. */
template <typename T, int V> BOUNDED image_kernel(const __grid_constant__ ImageOperands o)
{
    uint32_t at = blockIdx.x * BLOCK + threadIdx.x, i, j;
    if (at >= o.count) return;
    uint32_t n = divided(divided(at, o.width, &j), o.height, &i);
    float value[V >= IMAGE_CHANNELS ? V : IMAGE_CHANNELS];
    UNROLL
    for (int c = 0; c < (V >= IMAGE_CHANNELS ? V : IMAGE_CHANNELS); c++) value[c] = 0;
    image_values(o, n, i, j, value);
    image_mix(o, n, i, j, value);
    if (V > 1) {
        for (int c = 0; c < o.all; c += V) {
            Lanes<T, V>::store(o.y, at * o.y.pitch + c, value);
            UNROLL
            for (int k = 0; k < V; k++) value[k] = 0;
        }
    } else {
        float zero = 0;
        UNROLL
        for (int c = 0; c < IMAGE_CHANNELS; c++)
            if (c < o.all) Lanes<Any, 1>::store(o.y, at * o.y.pitch + c, &value[c]);
        for (int c = IMAGE_CHANNELS; c < o.all; c++) Lanes<Any, 1>::store(o.y, at * o.y.pitch + c, &zero);
    }
}

template <typename T, int V> static void image_launch(const ImageOperands &o, cudaStream_t stream)
{
    LAUNCH((image_kernel<T, V>), (uint32_t)ceil_divided(o.count, BLOCK), BLOCK, stream, o);
}

cudaError_t kernel_image(const OpCall *call, cudaStream_t stream)
{
    const Tensor &x = call->in[0], &y = call->out[0];
    ImageOperands o;
    o.pixels = (const uint8_t *)x.data;
    o.augment = (const int32_t *)call->in[1].data;
    o.y = y;
    o.pitch = x.pitch;
    o.width = divider(y.shape.w);
    o.height = divider(y.shape.h);
    o.count = (uint32_t)pixels_of(y);
    o.images = x.shape.n;
    o.in_h = x.shape.h, o.in_w = x.shape.w;
    o.room_h = x.shape.h - y.shape.h, o.room_w = x.shape.w - y.shape.w;
    o.step = x.shape.c == 1 ? 0 : 1;
    o.channels = y.shape.c;
    o.all = call->padded_out & 1 ? (int32_t)y.pitch : y.shape.c;
    for (int c = 0; c < IMAGE_CHANNELS; c++) {
        double std = c < o.channels ? (double)call->attr.image.std[c] : 1;
        o.scale[c] = (float)(1 / (255 * std));
        o.shift[c] = c < o.channels ? (float)(-(double)call->attr.image.mean[c] / std) : 0;
    }
    bool wide = wide_enough(y, y.dtype, o.all, false);
    BY_FORMAT(y.dtype, wide, image_launch, o, stream);
    return LAUNCH_ERROR();
}
