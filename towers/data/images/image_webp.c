/* WebP by libwebp. Always decoded as a whole: the library's cropping changes chroma at the edges of a crop. */
#include "towers/data/images/image_formats.h"

#include <errno.h>
#include <webp/decode.h>

static uint32_t little32(const uint8_t *at)
{
    return (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
}

/* RIFF chunks from offset 12: id, u32 size, bytes, padded to even size. An EXIF chunk may start with "Exif\0\0" as in a
 * JPEG. */
static int riff_orientation(const uint8_t *data, size_t size)
{
    for (size_t at = 12; size - at >= 8;) {
        size_t length = little32(data + at + 4);
        if (length > size - at - 8) break;
        if (memcmp(data + at, "EXIF", 4) == 0) {
            size_t skip = length >= 6 && memcmp(data + at + 8, "Exif\0\0", 6) == 0 ? 6 : 0;
            return exif_orientation(data + at + 8 + skip, length - skip);
        }
        length += 8 + (length & 1);
        if (length > size - at) break;
        at += length;
    }
    return 1;
}

Status webp_probe(const uint8_t *data, size_t size, ImageInfo *info)
{
    WebPBitstreamFeatures features;
    info->format = IMAGE_WEBP;
    if (WebPGetFeatures(data, size, &features) != VP8_STATUS_OK)
        return FAIL(ERR_FORMAT, "WebP: the header is cut off or damaged");
    if (features.has_animation) return FAIL(ERR_FORMAT, "WebP: an animation: save one frame as a still image");
    info->h = features.height;
    info->w = features.width;
    info->orientation = riff_orientation(data, size);
    return OK;
}

Status webp_decode(ImageDecoder *decoder, const Bytes *bytes, const ImageInfo *info, Rect part, Pixels *pixels)
{
    image_hold(decoder, (3 + 4) * (int64_t)info->h * info->w + 3 * (int64_t)part.h * part.w); /* 4: the library's */
    TRY(pixels_shape(&decoder->whole, info->h, info->w, 3));
    Pixels *whole = &decoder->whole;
    WebPDecoderConfig config;
    if (!WebPInitDecoderConfig(&config)) return FAIL(ERR_INTERNAL, "WebP: the library has another version");
    config.output = (WebPDecBuffer){.colorspace = MODE_RGB, .is_external_memory = 1};
    config.output.u.RGBA = (WebPRGBABuffer){whole->at, (int)whole->pitch, whole->pitch * (size_t)whole->h};
    errno = 0; /* some failed allocations have a status of damage */
    VP8StatusCode code = WebPDecode(bytes->data, bytes->size, &config);
    if (code != VP8_STATUS_OK && errno == ENOMEM) return FAIL(ERR_MEMORY, "no memory to decode a WebP");
    if (code != VP8_STATUS_OK) return FAIL(ERR_FORMAT, "WebP: the file is cut off or damaged");
    return part_copy(whole->at, info->w, 3, part, pixels);
}
