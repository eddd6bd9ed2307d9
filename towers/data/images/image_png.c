/* PNG (ISO/IEC 15948) by libspng. Rows above a part are decoded and discarded, rows below are not decoded; an
 * interlaced image is decoded as a whole. All formats are read as 8-bit RGB, for which libspng keeps the high byte of 16
 * bits. The checksums of all chunks are compared, which libspng does not do for the pixels. */
#include "towers/data/images/image_formats.h"

#include <errno.h>
#include <spng.h>
#include <zlib.h>

#include "kernels/base/progress.h"

static uint32_t big32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* IHDR is the first chunk and starts with the size, the bits of a sample, and the kind of colors. An eXIf chunk is looked for
 * before the pixels. */
Status png_probe(const uint8_t *data, size_t size, ImageInfo *info)
{
    info->format = IMAGE_PNG;
    if (size < 33 || memcmp(data + 12, "IHDR", 4) != 0) return FAIL(ERR_FORMAT, "PNG without an IHDR chunk");
    uint32_t w = big32(data + 16), h = big32(data + 20);
    info->w = w > INT32_MAX ? 0 : (int32_t)w;
    info->h = h > INT32_MAX ? 0 : (int32_t)h;
    info->deep_gray =
        data[24] == 16 && (data[25] == SPNG_COLOR_TYPE_GRAYSCALE || data[25] == SPNG_COLOR_TYPE_GRAYSCALE_ALPHA);
    for (size_t at = 33; size - at >= 12;) {
        size_t length = big32(data + at);
        if (length > size - at - 12 || memcmp(data + at + 4, "IDAT", 4) == 0) break;
        if (memcmp(data + at + 4, "eXIf", 4) == 0) info->orientation = exif_orientation(data + at + 8, length);
        at += length + 12;
    }
    return OK;
}

/* A chunk: u32 length, type, content, u32 CRC-32 of type and content. One that the file cuts off is left to the decoder,
 * which may not need it. */
static Status checksums_compare(const uint8_t *data, size_t size)
{
    for (size_t at = 8; size - at >= 12;) {
        size_t length = big32(data + at);
        if (length > size - at - 12) break;
        uint32_t found = big32(data + at + 8 + length);
        uint32_t wanted = (uint32_t)crc32(0, data + at + 4, (uInt)(length + 4));
        if (found != wanted)
            return FAIL(ERR_FORMAT,
                        "PNG: the chunk of %zu bytes at offset %zu has the checksum %08" PRIx32 ", expected %08" PRIx32
                        ": the file is damaged",
                        length, at, found, wanted);
        if (memcmp(data + at + 4, "IEND", 4) == 0) break;
        at += length + 12;
    }
    return OK;
}

/* libspng calls it damage of the pixels when zlib has no memory, so errno is asked, which was 0 before. */
static Status png_failure(int code)
{
    if (code == SPNG_EMEM || errno == ENOMEM) return FAIL(ERR_MEMORY, "no memory to decode a PNG");
    return FAIL(ERR_FORMAT, "PNG: %s: the file is cut off or damaged", spng_strerror(code));
}

/* SPNG_EOI: this was the last row. */
static int row_decode(spng_ctx *png, uint8_t *to, size_t bytes)
{
    progress_made("rows of a PNG");
    return spng_decode_row(png, to, bytes);
}

/* The rows of an interlaced image come in seven passes, each in its place. */
static int passes_decode(spng_ctx *png, const Pixels *whole)
{
    struct spng_row_info row;
    int code = 0;
    while (code == 0 && (code = spng_get_row_info(png, &row)) == 0)
        code = row_decode(png, whole->at + row.row_num * whole->pitch, whole->pitch);
    return code == SPNG_EOI ? 0 : code;
}

static Status rows_decode(ImageDecoder *decoder, spng_ctx *png, const struct spng_ihdr *header, Rect part,
                          Pixels *pixels)
{
    size_t bytes = 0;
    bool interlaced = header->interlace_method != SPNG_INTERLACE_NONE;
    int32_t rows = interlaced ? (int32_t)header->height : 1;
    int code = spng_decoded_image_size(png, SPNG_FMT_RGB8, &bytes);
    if (code) return png_failure(code);
    image_hold(decoder, 3 * ((int64_t)rows * header->width + (int64_t)part.h * part.w));
    TRY(pixels_shape(&decoder->whole, rows, (int32_t)header->width, 3));
    TRY(pixels_shape(pixels, part.h, part.w, 3));
    Pixels *whole = &decoder->whole;
    if (bytes != whole->pitch * header->height)
        return FAIL(ERR_INTERNAL, "PNG: expected rows of %zu bytes, found an image of %zu", whole->pitch, bytes);
    code = spng_decode_image(png, NULL, 0, SPNG_FMT_RGB8, SPNG_DECODE_PROGRESSIVE);
    if (interlaced && code == 0) code = passes_decode(png, whole);
    for (int32_t y = 0; code == 0 && y < part.y + part.h; y++) {
        const uint8_t *row = whole->at + (interlaced ? (size_t)y * whole->pitch : 0);
        if (!interlaced) code = row_decode(png, whole->at, whole->pitch);
        if (code == SPNG_EOI) code = 0;
        if (code || y < part.y) continue;
        memcpy(pixels->at + (size_t)(y - part.y) * pixels->pitch, row + 3 * (size_t)part.x, pixels->pitch);
    }
    return code ? png_failure(code) : OK;
}

Status png_decode(ImageDecoder *decoder, const Bytes *bytes, const ImageInfo *info, Rect part, Pixels *pixels)
{
    enum { CHUNK_MAX = 64 << 20 };
    TRY(checksums_compare(bytes->data, bytes->size));
    errno = 0;
    spng_ctx *png = spng_ctx_new(0);
    if (!png) return FAIL(ERR_MEMORY, "no memory for PNG decoder");
    struct spng_ihdr header;
    Status st = OK;
    int code = spng_set_image_limits(png, (uint32_t)info->w, (uint32_t)info->h);
    if (!code) code = spng_set_chunk_limits(png, CHUNK_MAX, CHUNK_MAX);
    if (!code) code = spng_set_png_buffer(png, bytes->data, bytes->size);
    if (!code) code = spng_get_ihdr(png, &header);
    st = code ? png_failure(code) : rows_decode(decoder, png, &header, part, pixels);
    spng_ctx_free(png);
    return st;
}
