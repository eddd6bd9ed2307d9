/* Resizing as TensorFlow 1 computes it (core/kernels/resize_{bilinear,nearest_neighbor,bicubic,area}_op.cc, align_corners =
 * False): output x is at x * in / out of the input, without half a pixel, in float; no filter widens when shrinking, except
 * `area`, the mean of what an output pixel covers.
 *     bilinear  between floor and ceil of the position
 *     nearest   floor of the position
 *     bicubic   four pixels, a = -3/4, fractions of the position rounded to 1/1024
 *     area      all pixels that [x in / out, (x + 1) in / out) touches, by the part that it covers
 * Pixels beyond the border repeat the last one. */
#pragma once

#include "towers/data/images/resize.h"

typedef struct ResizerTf ResizerTf; /* scratch memory, kept between images; one per thread */
NODISCARD Status resizer_tf_create(ResizerTf **made);
void resizer_tf_destroy(ResizerTf *resizer); /* NULL is fine */

/* One of the four filters. `in` as for resizer_run; writes values [h][w][c] of the window of 0 to 255, which bicubic
 * exceeds. */
NODISCARD Status resizer_tf_run(ResizerTf *resizer, const Resize *resize, const Pixels *in, float *out);
