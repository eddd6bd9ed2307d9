/* The endings of the files that are read as images: one list for folders, labels files, tars and predictions. It has those of the
 * formats that the build reads. */
#pragma once

#include "kernels/base/status.h"

#ifdef TOWERS_HAVE_GIF
#define GIF_ENDINGS " .gif"
#define GIF_LACKING ""
enum { GIF_ENDINGS_COUNT = 1 };
#else
#define GIF_ENDINGS ""
#define GIF_LACKING "; builds with giflib read .gif"
enum { GIF_ENDINGS_COUNT = 0 };
#endif
#ifdef TOWERS_HAVE_TIFF
#define TIFF_ENDINGS " .tif .tiff"
#define TIFF_LACKING ""
enum { TIFF_ENDINGS_COUNT = 2 };
#else
#define TIFF_ENDINGS ""
#define TIFF_LACKING "; builds with -DTOWERS_TIFF=ON read .tif and .tiff"
enum { TIFF_ENDINGS_COUNT = 0 };
#endif
#ifdef TOWERS_HAVE_HEIF
#define HEIF_ENDINGS " .heic .heif .avif"
#define HEIF_LACKING ""
enum { HEIF_ENDINGS_COUNT = 3 };
#else
#define HEIF_ENDINGS ""
#define HEIF_LACKING "; builds with libheif 1.19 read .heic, .heif and .avif"
enum { HEIF_ENDINGS_COUNT = 0 };
#endif

#define IMAGE_ENDINGS ".jpg .jpeg .jpe .jfif .png .webp .ppm .pgm .bmp" GIF_ENDINGS TIFF_ENDINGS HEIF_ENDINGS
#define IMAGE_ENDINGS_LACKING GIF_LACKING TIFF_LACKING HEIF_LACKING /* for messages; "" if there are none */
enum { IMAGE_ENDINGS_COUNT = 9 + GIF_ENDINGS_COUNT + TIFF_ENDINGS_COUNT + HEIF_ENDINGS_COUNT };

/* The endings of shards; a number of so many may follow, "-00000-of-00010", or stand alone. */
#define SHARD_ENDINGS ".tar .tfrecord .tfrecords .tfrec .record"

extern const char *const image_endings[IMAGE_ENDINGS_COUNT]; /* each with its dot, lower case */
bool ending_is_image(const char *name);                      /* in any case */
