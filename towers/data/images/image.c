/* Choice of the decoder by content, and limits; contract in image.h. */
#include "towers/data/images/image.h"

#include "kernels/base/text.h"
#include "towers/data/images/image_formats.h"

Status image_decoder_create(ImageDecoder **made)
{
    *made = calloc(1, sizeof **made);
    return *made ? OK : FAIL(ERR_MEMORY, "no memory for the image decoder");
}

void image_decoder_rest(ImageDecoder *decoder)
{
    if (decoder->whole.room > LARGE_BYTES) pixels_free(&decoder->whole);
    if (decoder->held) image_memory_give(decoder->held);
    decoder->held = 0;
}

void image_decoder_destroy(ImageDecoder *decoder)
{
    if (!decoder) return;
    image_decoder_rest(decoder);
    jpeg_decoder_destroy(decoder->jpeg);
    pixels_free(&decoder->whole);
    free(decoder);
}

int64_t image_decoder_warnings(const ImageDecoder *decoder)
{
    return decoder->warnings;
}

const char *image_format_name(ImageFormat format)
{
    static const char *const names[] = {"raw", "JPEG", "PNG", "WebP", "PNM"};
    return format < IMAGE_FORMATS ? names[format] : "?";
}

static bool begins(const uint8_t *data, size_t size, const char *magic, size_t length)
{
    return size >= length && memcmp(data, magic, length) == 0;
}

/* The name of a common format that is not supported, for the error message. */
static const char *other_format(const uint8_t *data, size_t size)
{
    if (begins(data, size, "BM", 2)) return "a BMP";
    if (begins(data, size, "II*\0", 4) || begins(data, size, "MM\0*", 4)) return "a TIFF";
    if (begins(data, size, "GIF8", 4)) return "a GIF";
    if (size >= 12 && memcmp(data + 4, "ftyp", 4) == 0) return "an AVIF or HEIC";
    return NULL;
}

static Status formats_probe(const uint8_t *data, size_t size, ImageInfo *info)
{
    if (size == 0) return FAIL(ERR_FORMAT, "the file is empty");
    if (begins(data, size, "\xff\xd8\xff", 3)) return jpeg_probe(data, size, info);
    if (begins(data, size, "\x89PNG\r\n\x1a\n", 8)) return png_probe(data, size, info);
    if (size >= 12 && memcmp(data, "RIFF", 4) == 0 && memcmp(data + 8, "WEBP", 4) == 0)
        return webp_probe(data, size, info);
    if (size >= 3 && data[0] == 'P' && data[1] >= '1' && data[1] <= '7') return pnm_probe(data, size, info);
    const char *other = other_format(data, size);
    if (other)
        return FAIL(ERR_FORMAT,
                    "expected a JPEG, PNG, WebP or PNM image, found %s: convert it, as by 'mogrify -format png FILE' "
                    "(ImageMagick)",
                    other);
    char bytes[16] = "";
    Text shown = text_start(bytes, sizeof bytes);
    for (size_t i = 0; i < size && i < 4; i++) text_add(&shown, " %02x", data[i]);
    return FAIL(ERR_FORMAT, "expected a JPEG, PNG, WebP or PNM image, found %s%s", size == 1 ? "the byte" : "bytes",
                bytes);
}

Status image_probe(const Bytes *bytes, ImageInfo *info)
{
    ImageInfo found = {.c = 3, .orientation = 1};
    if (bytes->raw_c > 0) {
        found = (ImageInfo){.h = bytes->raw_h, .w = bytes->raw_w, .c = bytes->raw_c, .orientation = 1};
    } else {
        TRY(formats_probe(bytes->data, bytes->size, &found));
    }
    if (found.h < 1 || found.w < 1 || found.h > IMAGE_SIDE_MAX || found.w > IMAGE_SIDE_MAX)
        return FAIL(ERR_FORMAT, "%s of %d x %d pixels: sides must be from 1 to %d", image_format_name(found.format),
                    found.w, found.h, IMAGE_SIDE_MAX);
    if ((int64_t)found.h * found.w > image_pixels_max())
        return FAIL(ERR_FORMAT, "%s of %d x %d pixels: expected at most %" PRId64 " pixels%s",
                    image_format_name(found.format), found.w, found.h, image_pixels_max(), image_pixels_remedy());
    *info = found;
    return OK;
}

static Status raw_decode(const Bytes *bytes, const ImageInfo *info, Rect part, Pixels *pixels)
{
    size_t wanted = (size_t)info->h * (size_t)info->w * (size_t)info->c;
    if (bytes->size < wanted) return FAIL(ERR_FORMAT, "raw pixels: expected %zu bytes, found %zu", wanted, bytes->size);
    return part_copy(bytes->data, info->w, info->c, part, pixels);
}

Status image_decode(ImageDecoder *decoder, const Bytes *bytes, const ImageInfo *info, Rect part, Pixels *pixels)
{
    if (part.y < 0 || part.x < 0 || part.h < 1 || part.w < 1 || part.y > info->h - part.h || part.x > info->w - part.w)
        return FAIL(ERR_ARG, "cannot decode %d x %d pixels at %d, %d of an image of %d x %d", part.w, part.h, part.x,
                    part.y, info->w, info->h);
    image_decoder_rest(decoder);
    switch (info->format) {
    case IMAGE_JPEG: return jpeg_decode(decoder, bytes, info, part, pixels);
    case IMAGE_PNG: return png_decode(decoder, bytes, info, part, pixels);
    case IMAGE_WEBP: return webp_decode(decoder, bytes, info, part, pixels);
    case IMAGE_PNM: return pnm_decode(decoder, bytes, info, part, pixels);
    default: return raw_decode(bytes, info, part, pixels);
    }
}
