/* Antialiased resizing of 8-bit images, [h][w][c] to [h][w][c], as defined by Pillow and torchvision (antialias=True):
 * a triangle (bilinear) or Catmull-Rom (bicubic, a = -1/2) filter, stretched by the ratio when shrinking, first along
 * the rows, then along the columns, rounded to 8 bits after each. Weights have Pillow's 22 fractional bits, so the
 * pixels equal Pillow's; all sums are integer, so every processor gives the same result. */
#pragma once

#include "towers/data/images/resize_taps.h"

typedef struct Resizer Resizer; /* scratch memory and weights, kept between images; one per thread */
NODISCARD Status resizer_create(Resizer **made);
void resizer_destroy(Resizer *resizer); /* NULL is fine */

/* For the first two filters. `in` has the pixels given by resize_support, 1 to 4 channels, with PIXELS_SLACK readable
 * bytes after the last. Writes rows of window.w * c bytes, out_pitch bytes apart. */
NODISCARD Status resizer_run(Resizer *resizer, const Resize *resize, const Pixels *in, uint8_t *out, size_t out_pitch);
