/* The decoders behind image.h, one file each. `probe` gets an upright image of 3 channels and fills in format, h, w
 * and the orientation, if the file has one. `decode` gets a part that lies inside the image. */
#pragma once

#include "towers/data/images/image_info.h"
#include "towers/data/images/image_memory.h"

typedef struct JpegDecoder JpegDecoder;
typedef struct ImageDecoder ImageDecoder;

struct ImageDecoder {
    JpegDecoder *jpeg;      /* owned; created with the first JPEG */
    Pixels whole;           /* owned: an image that can only be decoded as a whole, or a row */
    int64_t warnings, held; /* held: bytes of the budget */
};

Status jpeg_probe(const uint8_t *data, size_t size, ImageInfo *info);
Status jpeg_decode(ImageDecoder *decoder, const Bytes *bytes, const ImageInfo *info, Rect part, Pixels *pixels);
void jpeg_decoder_destroy(JpegDecoder *jpeg);

Status png_probe(const uint8_t *data, size_t size, ImageInfo *info);
Status png_decode(ImageDecoder *decoder, const Bytes *bytes, const ImageInfo *info, Rect part, Pixels *pixels);

Status webp_probe(const uint8_t *data, size_t size, ImageInfo *info);
Status webp_decode(ImageDecoder *decoder, const Bytes *bytes, const ImageInfo *info, Rect part, Pixels *pixels);

Status pnm_probe(const uint8_t *data, size_t size, ImageInfo *info);
Status pnm_decode(ImageDecoder *decoder, const Bytes *bytes, const ImageInfo *info, Rect part, Pixels *pixels);

/* Take `bytes` of the decoders' budget for the image that is being decoded, before its memory is allocated. */
void image_hold(ImageDecoder *decoder, int64_t bytes);

/* Copy `part` of a packed image of c channels to `pixels`. */
Status part_copy(const uint8_t *whole, int32_t w, int32_t c, Rect part, Pixels *pixels);
