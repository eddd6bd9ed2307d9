/* Antialiased resizing of 8-bit images, [h][w][c] to [h][w][c], as Pillow and torchvision (antialias=True) define it: a
 * triangle (bilinear) or Catmull-Rom (bicubic, a = -1/2) filter that is stretched by the ratio when shrinking, first
 * along the rows, then along the columns, rounded to 8 bits after each. Weights have Pillow's 22 fractional bits, so the
 * pixels are Pillow's; and sums are of integers, so every processor gets the same. */
#ifndef TOWERS_DATA_RESIZE_H
#define TOWERS_DATA_RESIZE_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/status.h"
#include "towers/data/pixels.h"

typedef enum ResizeFilter { RESIZE_BILINEAR = 0, RESIZE_BICUBIC } ResizeFilter;

/* What is wanted: `window` of the out_h x out_w pixels that a picture of in_h x in_w becomes. */
typedef struct Resize {
    ResizeFilter filter;
    int32_t in_h, in_w, out_h, out_w;
    Rect window;
} Resize;

/* The pixels of the input that the window depends on. */
Rect resize_support(const Resize *resize);

typedef struct Resizer Resizer; /* scratch memory and weights, kept from image to image; one a thread */
NODISCARD Status resizer_create(Resizer **made);
void resizer_destroy(Resizer *resizer); /* NULL is fine */

/* `in` holds the pixels resize_support names, 1 to 4 channels, with PIXELS_SLACK readable bytes behind the last. Writes
 * rows of window.w * c bytes, out_pitch bytes apart. */
NODISCARD Status resizer_run(Resizer *resizer, const Resize *resize, const Pixels *in, uint8_t *out, size_t out_pitch);

#endif
