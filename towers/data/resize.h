/* Antialiased bilinear resizing of 8-bit images, [h][w][c] to [h][w][c], as Pillow (BILINEAR) and torchvision
 * (antialias=True) define it: a triangle filter, as wide as two output pixels when shrinking, first along the rows,
 * then along the columns, rounded to 8 bits after each. Weights have 22 fractional bits. */
#ifndef TOWERS_DATA_RESIZE_H
#define TOWERS_DATA_RESIZE_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/status.h"

typedef struct Resizer Resizer;

/* For images of in_h x in_w x c; sides from 1 to 65500. Immutable afterwards: any number of threads may use it. */
NODISCARD Status resizer_create(int32_t in_h, int32_t in_w, int32_t out_h, int32_t out_w, int32_t c, Resizer **made);
void resizer_destroy(Resizer *resizer); /* NULL is fine */

/* Bytes of `scratch` that resizer_run needs; each thread brings its own. */
size_t resizer_scratch_bytes(const Resizer *resizer);
/* out[row * out_pitch], out_pitch >= out_w * c bytes. */
void resizer_run(const Resizer *resizer, const uint8_t *in, uint8_t *scratch, uint8_t *out, size_t out_pitch);

#endif
