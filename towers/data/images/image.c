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

static bool begins(const uint8_t *data, size_t size, const char *magic, size_t length)
{
    return size >= length && memcmp(data, magic, length) == 0;
}

static bool is_webp(const uint8_t *data, size_t size)
{
    return size >= 12 && memcmp(data, "RIFF", 4) == 0 && memcmp(data + 8, "WEBP", 4) == 0;
}

static bool is_pnm(const uint8_t *data, size_t size)
{
    return size >= 3 && data[0] == 'P' && data[1] >= '1' && data[1] <= '7';
}

static bool is_tiff(const uint8_t *data, size_t size)
{
    return begins(data, size, "II*\0", 4) || begins(data, size, "MM\0*", 4) || begins(data, size, "II+\0", 4) ||
           begins(data, size, "MM\0+", 4);
}

/* Any file of the family: libheif names those that are no image. */
static bool is_heif(const uint8_t *data, size_t size)
{
    return size >= 12 && memcmp(data + 4, "ftyp", 4) == 0;
}

static bool is_jpeg(const uint8_t *data, size_t size)
{
    return begins(data, size, "\xff\xd8\xff", 3);
}

static bool is_png(const uint8_t *data, size_t size)
{
    return begins(data, size, "\x89PNG\r\n\x1a\n", 8);
}

static bool is_bmp(const uint8_t *data, size_t size)
{
    return begins(data, size, "BM", 2);
}

static bool is_gif(const uint8_t *data, size_t size)
{
    return begins(data, size, "GIF8", 4);
}

#ifndef TOWERS_HAVE_GIF
#define gif_probe NULL
#define gif_decode NULL
#endif
#ifndef TOWERS_HAVE_TIFF
#define tiff_probe NULL
#define tiff_decode NULL
#endif
#ifndef TOWERS_HAVE_HEIF
#define heif_probe NULL
#define heif_decode NULL
#endif

static Status raw_decode(ImageDecoder *decoder, const Bytes *bytes, const ImageInfo *info, Rect part, Pixels *pixels)
{
    size_t wanted = (size_t)info->h * (size_t)info->w * (size_t)info->c;
    (void)decoder;
    if (bytes->size < wanted) return FAIL(ERR_FORMAT, "raw pixels: expected %zu bytes, found %zu", wanted, bytes->size);
    return part_copy(bytes->data, info->w, info->c, part, pixels);
}

static const struct {
    const char *name;
    bool (*is)(const uint8_t *data, size_t size);
    Status (*probe)(const uint8_t *data, size_t size, ImageInfo *info); /* NULL: the build lacks `library` */
    Status (*decode)(ImageDecoder *decoder, const Bytes *bytes, const ImageInfo *info, Rect part, Pixels *pixels);
    const char *library;
} formats[IMAGE_FORMATS] = {
    [IMAGE_RAW] = {"raw", NULL, NULL, raw_decode, NULL},
    [IMAGE_JPEG] = {"JPEG", is_jpeg, jpeg_probe, jpeg_decode, NULL},
    [IMAGE_PNG] = {"PNG", is_png, png_probe, png_decode, NULL},
    [IMAGE_WEBP] = {"WebP", is_webp, webp_probe, webp_decode, NULL},
    [IMAGE_PNM] = {"PNM", is_pnm, pnm_probe, pnm_decode, NULL},
    [IMAGE_BMP] = {"BMP", is_bmp, bmp_probe, bmp_decode, NULL},
    [IMAGE_GIF] = {"GIF", is_gif, gif_probe, gif_decode, "libgif (libgif-dev)"},
    [IMAGE_TIFF] = {"TIFF", is_tiff, tiff_probe, tiff_decode, "libtiff 4.5 (libtiff-dev, -DTOWERS_TIFF=ON)"},
    [IMAGE_HEIF] = {"HEIC or AVIF", is_heif, heif_probe, heif_decode, "libheif 1.19 (libheif-dev)"},
};

const char *image_format_name(ImageFormat format)
{
    return format < IMAGE_FORMATS ? formats[format].name : "?";
}

bool image_format_read(ImageFormat format)
{
    return format == IMAGE_RAW || formats[format].probe;
}

static Status formats_probe(const uint8_t *data, size_t size, ImageInfo *info)
{
    if (size == 0) return FAIL(ERR_FORMAT, "the file is empty");
    for (ImageFormat f = IMAGE_RAW + 1; f < IMAGE_FORMATS; f++) {
        if (!formats[f].is(data, size)) continue;
        if (formats[f].probe) return formats[f].probe(data, size, info);
        return FAIL(ERR_FORMAT,
                    "a %s, which this build does not read: build it with %s, or convert the file, as by 'mogrify "
                    "-format png FILE' (ImageMagick)",
                    formats[f].name, formats[f].library);
    }
    char bytes[16] = "", names[128] = "";
    Text shown = text_start(bytes, sizeof bytes), list = text_start(names, sizeof names);
    for (size_t i = 0; i < size && i < 4; i++) text_add(&shown, " %02x", data[i]);
    for (ImageFormat f = IMAGE_RAW + 1; f < IMAGE_FORMATS; f++)
        if (formats[f].probe) text_add(&list, "%s%s", f == IMAGE_RAW + 1 ? "" : ", ", formats[f].name);
    return FAIL(ERR_FORMAT, "expected an image (%s), found %s%s", names, size == 1 ? "the byte" : "bytes", bytes);
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

Status image_decode(ImageDecoder *decoder, const Bytes *bytes, const ImageInfo *info, Rect part, Pixels *pixels)
{
    if (part.y < 0 || part.x < 0 || part.h < 1 || part.w < 1 || part.y > info->h - part.h || part.x > info->w - part.w)
        return FAIL(ERR_ARG, "cannot decode %d x %d pixels at %d, %d of an image of %d x %d", part.w, part.h, part.x,
                    part.y, info->w, info->h);
    image_decoder_rest(decoder);
    return formats[info->format].decode(decoder, bytes, info, part, pixels);
}
