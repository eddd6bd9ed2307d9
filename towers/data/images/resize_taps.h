/* Which pixels a resized image depends on: the request, and the inputs ("taps") of each output along one axis, by the
 * definitions of resize.h and resize_tf.h. */
#pragma once

#include "kernels/base/status.h"
#include "towers/data/images/pixels.h"

typedef enum ResizeFilter {
    RESIZE_BILINEAR = 0,
    RESIZE_BICUBIC,
    RESIZE_TF_BILINEAR, /* those of TensorFlow 1 (resize_tf.h), in the order of its ResizeMethod */
    RESIZE_TF_NEAREST,
    RESIZE_TF_BICUBIC,
    RESIZE_TF_AREA,
    RESIZE_TF_MIXED /* of a Transform only: one of the four, drawn for each training image */
} ResizeFilter;

/* The request: `window` of the out_h x out_w pixels that an image of in_h x in_w is resized to. Only the window is computed,
 * so out_h and out_w may be larger than any image: the longer side of a thin one. */
typedef struct Resize {
    ResizeFilter filter;
    int32_t in_h, in_w, out_h, out_w;
    Rect window;
} Resize;

/* The input pixels that the window depends on. */
Rect resize_support(const Resize *resize);
/* ERR_ARG unless sizes, window and channels are possible and `in` has the pixels given by resize_support. */
NODISCARD Status resize_check(const Resize *resize, const Pixels *in);

/* The inputs [*first, *end) that output x depends on. */
void resize_taps(ResizeFilter filter, int32_t in, int32_t out, int32_t x, int32_t *first, int32_t *end);
/* How far one of the first two filters reaches from its center, in pixels of the smaller image. */
double resize_reach(ResizeFilter filter);
/* The same as resize_taps for one of TensorFlow's filters, and into weight[0 .. *end - *first) the weight of each, unless
 * `weight` is NULL. */
void tf_taps(ResizeFilter filter, int32_t in, int32_t out, int32_t x, float *weight, int32_t *first, int32_t *end);
