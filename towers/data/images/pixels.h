/* Buffers for images: encoded bytes, and decoded 8-bit pixels [h][w][c]. Both grow and are reused; each belongs to one
 * thread. */
#pragma once

#include "kernels/base/status.h"

/* Readable bytes after the last pixel, so that vector code may load whole registers. */
enum { PIXELS_SLACK = 64, IMAGE_SIDE_MAX = 65500 };

/* Buffers above this size are not kept for the next image: 64 MiB. */
enum { LARGE_BYTES = 64 << 20 };

typedef struct Rect {
    int32_t y, x, h, w;
} Rect;

/* The bounding boxes of the objects in an image, as fractions of its stored height and width: side k (ymin, xmin, ymax,
 * xmax) of box i is at[k * count + i]. A side that the source does not give is NaN. */
typedef struct Boxes {
    float *at; /* owned */
    int count; /* 0: nothing is known of the objects */
    size_t room;
} Boxes;

enum { BOX_SIDES = 4, BOXES_MAX = 1 << 16 };

/* Make room for `count` boxes, all sides NaN. */
NODISCARD Status boxes_shape(Boxes *boxes, int count);

/* One sample as stored by its source: an encoded image, or packed pixels if `raw_c` is not 0 (IDX). */
typedef struct Bytes {
    uint8_t *data; /* owned */
    size_t size, room;
    int32_t raw_h, raw_w, raw_c;
    Boxes boxes; /* of TFRecords */
} Bytes;

NODISCARD Status bytes_reserve(Bytes *bytes, size_t room); /* keeps the content; PIXELS_SLACK more bytes are readable */
void bytes_free(Bytes *bytes);
void bytes_rest(Bytes *bytes); /* after each sample: frees large ones */

typedef struct Pixels {
    uint8_t *memory; /* owned */
    size_t room;
    uint8_t *at; /* first pixel, inside memory */
    int32_t h, w, c;
    size_t pitch; /* bytes from row to row */
} Pixels;

/* Make room for h x w x c packed pixels; the content is undefined. */
NODISCARD Status pixels_shape(Pixels *pixels, int32_t h, int32_t w, int32_t c);
void pixels_free(Pixels *pixels);

/* The luma of a color, as Pillow's convert("L") has it; of three equal values, that value. */
static inline uint8_t luma_of(const uint8_t rgb[3])
{
    return (uint8_t)((19595 * rgb[0] + 38470 * rgb[1] + 7471 * rgb[2] + 32768) >> 16);
}
void pixels_to_gray(Pixels *pixels); /* of three channels; of one: nothing */
