/* Antialiased resizing of 8-bit images, [h][w][c] to [h][w][c], as defined by Pillow and torchvision (antialias=True):
 * a triangle (bilinear) or Catmull-Rom (bicubic, a = -1/2) filter, stretched by the ratio when shrinking, first along
 * the rows, then along the columns, rounded to 8 bits after each. Weights have Pillow's 22 fractional bits, so the
 * pixels equal Pillow's; all sums are integer, so every processor gives the same result. */
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

typedef struct Resizer Resizer; /* scratch memory and weights, kept between images; one per thread */
NODISCARD Status resizer_create(Resizer **made);
void resizer_destroy(Resizer *resizer); /* NULL is fine */

/* For the first two filters. `in` has the pixels given by resize_support, 1 to 4 channels, with PIXELS_SLACK readable
 * bytes after the last. Writes rows of window.w * c bytes, out_pitch bytes apart. */
NODISCARD Status resizer_run(Resizer *resizer, const Resize *resize, const Pixels *in, uint8_t *out, size_t out_pitch);
