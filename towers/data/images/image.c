/* Choice of the decoder by content, limits, and EXIF orientation; contract in image.h. */
#include "towers/data/images/image_formats.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

Status image_decoder_create(ImageDecoder **made)
{
    *made = calloc(1, sizeof **made);
    return *made ? OK : FAIL(ERR_MEMORY, "no memory for the image decoder");
}

void image_hold(ImageDecoder *decoder, int64_t bytes)
{
    if (bytes > LARGE_BYTES) decoder->held = image_memory_take(bytes);
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
    return FAIL(ERR_FORMAT, "expected a JPEG, PNG, WebP or PNM image, found bytes %02x %02x %02x %02x", data[0],
                size > 1 ? data[1] : 0, size > 2 ? data[2] : 0, size > 3 ? data[3] : 0);
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
        return FAIL(ERR_FORMAT, "%s of %d x %d pixels: expected at most %" PRId64 " pixels: see --max-pixels",
                    image_format_name(found.format), found.w, found.h, image_pixels_max());
    *info = found;
    return OK;
}

Status part_copy(const uint8_t *whole, int32_t w, int32_t c, Rect part, Pixels *pixels)
{
    TRY(pixels_shape(pixels, part.h, part.w, c));
    for (int32_t y = 0; y < part.h; y++)
        memcpy(pixels->at + (size_t)y * pixels->pitch,
               whole + ((size_t)(part.y + y) * (size_t)w + (size_t)part.x) * (size_t)c, pixels->pitch);
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

/* ---- EXIF: TIFF 6.0 header, then IFD0: u16 entries of {u16 tag, u16 type, u32 count, u32 value} */

static uint32_t number(const uint8_t *at, int bytes, bool little)
{
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint32_t)at[i] << 8 * (little ? i : bytes - 1 - i);
    return value;
}

int exif_orientation(const uint8_t *tiff, size_t size)
{
    enum { TAG = 0x0112, SHORT = 3, ENTRY = 12 };
    if (size < 8 || (memcmp(tiff, "II*\0", 4) != 0 && memcmp(tiff, "MM\0*", 4) != 0)) return 1;
    bool little = tiff[0] == 'I';
    size_t first = number(tiff + 4, 4, little);
    if (first > size - 2) return 1;
    size_t entries = number(tiff + first, 2, little);
    for (size_t i = 0; i < entries; i++) {
        size_t at = first + 2 + i * ENTRY;
        if (at + ENTRY > size) return 1;
        if (number(tiff + at, 2, little) != TAG) continue;
        uint32_t value = number(tiff + at + 8, 2, little);
        return number(tiff + at + 2, 2, little) == SHORT && value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}

/* How the pixel of an upright image is found in the stored image, by the tag's definition: first the axes are swapped
 * (5 to 8), then the stored row or column counts from the other end. */
typedef struct Turn {
    bool swap, from_bottom, from_right;
} Turn;

static Turn turn_of(int orientation)
{
    static const Turn turns[9] = {
        [2] = {false, false, true}, [3] = {false, true, true}, [4] = {false, true, false}, [5] = {true, false, false},
        [6] = {true, true, false},  [7] = {true, true, true},  [8] = {true, false, true},
    };
    return turns[orientation >= 1 && orientation <= 8 ? orientation : 1];
}

void orientation_size(int orientation, int32_t stored_h, int32_t stored_w, int32_t *h, int32_t *w)
{
    bool swap = turn_of(orientation).swap;
    *h = swap ? stored_w : stored_h;
    *w = swap ? stored_h : stored_w;
}

Rect orientation_stored(int orientation, int32_t stored_h, int32_t stored_w, Rect upright)
{
    Turn t = turn_of(orientation);
    Rect r = upright;
    if (t.swap) r = (Rect){upright.x, upright.y, upright.w, upright.h};
    if (t.from_bottom) r.y = stored_h - r.y - r.h;
    if (t.from_right) r.x = stored_w - r.x - r.w;
    return r;
}

Status orientation_apply(int orientation, const Pixels *from, Pixels *to)
{
    Turn t = turn_of(orientation);
    int32_t h, w;
    size_t c = (size_t)from->c;
    orientation_size(orientation, from->h, from->w, &h, &w);
    TRY(pixels_shape(to, h, w, from->c));
    for (int32_t y = 0; y < h; y++)
        for (int32_t x = 0; x < w; x++) {
            int32_t row = t.swap ? x : y, column = t.swap ? y : x;
            if (t.from_bottom) row = from->h - 1 - row;
            if (t.from_right) column = from->w - 1 - column;
            memcpy(to->at + (size_t)y * to->pitch + (size_t)x * c,
                   from->at + (size_t)row * from->pitch + (size_t)column * c, c);
        }
    return OK;
}
