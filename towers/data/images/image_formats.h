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

Status bmp_probe(const uint8_t *data, size_t size, ImageInfo *info);
Status bmp_decode(ImageDecoder *decoder, const Bytes *bytes, const ImageInfo *info, Rect part, Pixels *pixels);

/* These where the build has their libraries (the table of image.c). */
Status gif_probe(const uint8_t *data, size_t size, ImageInfo *info);
Status gif_decode(ImageDecoder *decoder, const Bytes *bytes, const ImageInfo *info, Rect part, Pixels *pixels);

Status tiff_probe(const uint8_t *data, size_t size, ImageInfo *info);
Status tiff_decode(ImageDecoder *decoder, const Bytes *bytes, const ImageInfo *info, Rect part, Pixels *pixels);

Status heif_probe(const uint8_t *data, size_t size, ImageInfo *info);
Status heif_decode(ImageDecoder *decoder, const Bytes *bytes, const ImageInfo *info, Rect part, Pixels *pixels);

/* One color of CMYK to RGB, as Pillow converts: white (255 minus black) minus ink, darkened by black. */
static inline uint8_t without_ink(uint8_t ink, uint8_t white)
{
    int product = ink * white + 128, value = white - ((product + (product >> 8)) >> 8);
    return (uint8_t)(value < 0 ? 0 : value);
}

/* Take `bytes` of the decoders' budget for the image that is being decoded, before its memory is allocated. */
void image_hold(ImageDecoder *decoder, int64_t bytes);

/* For libraries that call a lack of memory damage, or go on without what they had none for: ERR_MEMORY if errno says so. It was set
 * to 0 before the library was called. `format`: "TIFF". */
Status lack_report(Status st, const char *format);

/* Copy `part` of a packed image of c channels to `pixels`. */
Status part_copy(const uint8_t *whole, int32_t w, int32_t c, Rect part, Pixels *pixels);
