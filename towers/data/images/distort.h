/* The distortions of TensorFlow's Inception trainer (research/inception, image_processing.py) that have no counterpart
 * elsewhere, as pure functions of random words.
 *
 * Crop: sample_distorted_bounding_box (core/kernels/image/sample_distorted_bounding_box_op.cc). An attempt draws an
 * aspect ratio w / h, then a height between those that give the smallest and the largest area, so that the height is
 * uniform and not the area, then a place; it counts if it covers enough of some object. All in float, with TensorFlow's
 * rounding.
 *
 * Colors, of values in [0, 1], not clipped in between:
 *     brightness  x + d
 *     saturation  S * f, clipped to [0, 1], in HSV
 *     hue         H + d, modulo 1, in HSV
 *     contrast    m + f (x - m), m: the mean of each channel
 * in this order, or as brightness, contrast, saturation, hue; then clipped. */
#pragma once

#include "kernels/base/status.h"
#include "towers/data/images/pixels.h"

/* One attempt at a crop of an image of h x w: fractions of its area, ratios w / h; false if it does not fit. */
bool crop_attempt(const float area[2], const float ratio[2], int32_t h, int32_t w, const uint32_t words[4], Rect *crop);

/* True if the crop has at least the fraction `least` of the area of one of the boxes, in whole pixels; without boxes, of the
 * image. Boxes that are not in the image are passed over. */
bool crop_covers(const Rect *crop, float least, const Boxes *boxes, int32_t h, int32_t w);

/* ERR_FORMAT unless all sides of the boxes are from 0 to 1. */
NODISCARD Status boxes_check(const Boxes *boxes);

typedef struct ColorDistortion {
    bool contrast_first;                         /* right after the brightness */
    float brightness, saturation, hue, contrast; /* d, f, d, f above */
} ColorDistortion;

/* Distort `count` pixels of c channels (1 or 3; gray has no hue and saturation), 0 to 255, in place. */
void colors_distort(const ColorDistortion *distortion, float *pixels, size_t count, int32_t c);
