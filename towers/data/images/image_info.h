/* What the header of an encoded image says, and the eight orientations of EXIF. */
#pragma once

#include "kernels/base/status.h"
#include "towers/data/images/pixels.h"

typedef enum ImageFormat {
    IMAGE_RAW = 0, /* packed pixels (Bytes.raw_c) */
    IMAGE_JPEG,
    IMAGE_PNG,
    IMAGE_WEBP,
    IMAGE_PNM,
    IMAGE_BMP,
    IMAGE_GIF, /* these three where the build has their libraries */
    IMAGE_TIFF,
    IMAGE_HEIF,
    IMAGE_FORMATS
} ImageFormat;

typedef struct ImageInfo {
    ImageFormat format;
    int32_t h, w;    /* as stored, before any rotation */
    int32_t c;       /* channels of the decoded image: 1 (only for raw gray) or 3 */
    int orientation; /* EXIF, 1 to 8; 1 if there is none */
    bool deep_gray;  /* stored as gray of more than 8 bits, which is scaled to 8 */
} ImageInfo;

/* The orientation in a TIFF block (the bytes after "Exif\0\0" in a JPEG): 1 to 8, or 1 if there is none. */
int exif_orientation(const uint8_t *tiff, size_t size);
/* Size of the upright image; and the stored rectangle that corresponds to a rectangle of the upright image. */
void orientation_size(int orientation, int32_t stored_h, int32_t stored_w, int32_t *h, int32_t *w);
Rect orientation_stored(int orientation, int32_t stored_h, int32_t stored_w, Rect upright);
/* Turn the decoded pixels of a stored rectangle upright, into `to`. */
NODISCARD Status orientation_apply(int orientation, const Pixels *from, Pixels *to);
