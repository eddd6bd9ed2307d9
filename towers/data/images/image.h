/* Encoded images: their properties (image_probe) and their pixels (image_decode). JPEG by libjpeg-turbo, PNG by libspng,
 * WebP by libwebp, PNM (P2, P3, P5, P6) and BMP here; where the build has the libraries, GIF (its first image) by giflib, TIFF (its
 * first image) by libtiff, HEIC and AVIF by libheif; recognized by their first bytes, never by name.
 *
 * Colors are those of torchvision's loader (Pillow, convert("RGB")): gray is replicated, palettes are applied, alpha is
 * dropped, samples of 16 bits keep their high byte, CMYK (which Adobe stores inverted) becomes RGB. Gray of 16 bits is
 * the exception: Pillow clips it at 255, so that every X-ray is white. A crop equals the same pixels of a full decode bit for bit.
 *
 * A JPEG may have 100 scans, and an image near the largest size 10, because each scan covers the whole image again.
 *
 * Errors: ERR_FORMAT for bytes that are not a complete image within the limits, also for unsupported formats, because
 * users handle both alike; ERR_MEMORY. */
#pragma once

#include "towers/data/images/image_info.h"

typedef struct ImageDecoder ImageDecoder; /* one per thread */
NODISCARD Status image_decoder_create(ImageDecoder **made);
void image_decoder_destroy(ImageDecoder *decoder); /* NULL is fine */
/* After the pixels of a decoded image were used: gives its share of the decoders' budget (image_memory.h) back, and
 * frees the decoder's buffers if they are large. Other threads may wait for it. */
void image_decoder_rest(ImageDecoder *decoder);
/* Number of warnings of the JPEG library so far: files with minor damage that it decoded nevertheless. */
int64_t image_decoder_warnings(const ImageDecoder *decoder);

/* Reads headers only. */
NODISCARD Status image_probe(const Bytes *bytes, ImageInfo *info);
/* Decode the part `part` (of the stored image) of an image that was probed into `info`; pixels->c becomes info->c. */
NODISCARD Status image_decode(ImageDecoder *decoder, const Bytes *bytes, const ImageInfo *info, Rect part,
                              Pixels *pixels);

const char *image_format_name(ImageFormat format); /* "JPEG" */
bool image_format_read(ImageFormat format);        /* whether this build has its library */
