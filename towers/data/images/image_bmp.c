/* BMP, by Microsoft's documents on its headers (BITMAPCOREHEADER to BITMAPV5HEADER): palettes of 1, 4 and 8 bits, also run-length
 * encoded, and colors of 16, 24 and 32 bits. The header is "BM", at offset 10 where the pixels begin, at 14 the size of what describes
 * them; rows are padded to 4 bytes and stored from below, unless the height is negative. Alpha is dropped. */
#include "towers/data/images/image_formats.h"

enum { CORE_HEADER = 12, USUAL_HEADER = 40, FILE_HEADER = 14 };
enum { RGB = 0, RLE8 = 1, RLE4 = 2, BITFIELDS = 3, ALPHA_BITFIELDS = 6 };

typedef struct Bmp {
    const uint8_t *data;
    size_t size, pixels; /* pixels: their offset */
    int32_t w, h;
    bool from_above;
    int bits, compression;
    const uint8_t *palette; /* blue, green, red, and from `entry` 4 on a byte that is not used */
    uint32_t colors;
    int entry;
    uint32_t mask[3]; /* of red, green and blue, for 16 and 32 bits */
} Bmp;

static uint32_t little(const uint8_t *at, int bytes)
{
    uint32_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) value = value << 8 | at[i];
    return value;
}

/* Where masks are not given they are those of 5 bits, or 8. They may stand behind the usual header or be a part of a longer one,
 * which is the same place. */
static Status masks_read(Bmp *b)
{
    static const uint32_t usual[2][3] = {{0x7c00, 0x3e0, 0x1f}, {0xff0000, 0xff00, 0xff}};
    memcpy(b->mask, usual[b->bits == 32], sizeof b->mask);
    if (b->compression != BITFIELDS && b->compression != ALPHA_BITFIELDS) return OK;
    size_t at = FILE_HEADER + USUAL_HEADER;
    if (b->size < at + 12) return FAIL(ERR_FORMAT, "BMP: the file ends in its header");
    for (int i = 0; i < 3; i++) {
        b->mask[i] = little(b->data + at + 4 * (size_t)i, 4);
        uint32_t ones = b->mask[i] ? b->mask[i] >> __builtin_ctz(b->mask[i]) : 0;
        if (!ones || (ones & (ones + 1)) || ones > 0xffff)
            return FAIL(ERR_FORMAT, "BMP: %08" PRIx32 " is no mask of a color", b->mask[i]);
    }
    return OK;
}

static Status palette_find(Bmp *b, uint32_t header, uint32_t used)
{
    uint32_t most = 1u << b->bits;
    size_t at = FILE_HEADER + (size_t)header;
    b->colors = used && used < most ? used : most;
    if (b->pixels < at + (size_t)b->colors * (size_t)b->entry) /* a shorter one is followed by the pixels */
        b->colors = b->pixels > at ? (uint32_t)((b->pixels - at) / (size_t)b->entry) : 0;
    if (b->colors == 0) return FAIL(ERR_FORMAT, "BMP: there is no palette");
    b->palette = b->data + at;
    return OK;
}

static bool is_read(const Bmp *b)
{
    switch (b->bits) {
    case 1:
    case 24: return b->compression == RGB;
    case 4: return b->compression == RGB || b->compression == RLE4;
    case 8: return b->compression == RGB || b->compression == RLE8;
    case 16:
    case 32: return b->compression == RGB || b->compression == BITFIELDS || b->compression == ALPHA_BITFIELDS;
    default: return false;
    }
}

static Status header_read(const uint8_t *data, size_t size, Bmp *b)
{
    *b = (Bmp){.data = data, .size = size, .entry = 4};
    if (size < FILE_HEADER + CORE_HEADER) return FAIL(ERR_FORMAT, "BMP: the file ends in its header");
    uint32_t header = little(data + 14, 4), used = 0;
    const uint8_t *from = data + FILE_HEADER;
    b->pixels = little(data + 10, 4);
    if (header != CORE_HEADER && (header < USUAL_HEADER || size < FILE_HEADER + USUAL_HEADER))
        return FAIL(ERR_FORMAT, "BMP: the header has %" PRIu32 " bytes, expected 12, 40 or more", header);
    if (header == CORE_HEADER) {
        b->w = (int32_t)little(from + 4, 2);
        b->h = (int32_t)little(from + 6, 2);
        b->bits = (int)little(from + 10, 2);
        b->entry = 3;
    } else {
        b->w = (int32_t)little(from + 4, 4);
        b->h = (int32_t)little(from + 8, 4);
        b->bits = (int)little(from + 14, 2);
        b->compression = (int)little(from + 16, 4);
        used = little(from + 32, 4);
    }
    b->from_above = b->h < 0;
    if (b->h < 0) b->h = b->h == INT32_MIN ? 0 : -b->h;
    if (!is_read(b))
        return FAIL(ERR_FORMAT, "BMP of %d bits a pixel, kind %d: expected 1, 4, 8, 16, 24 or 32 bits of kind 0 to 3",
                    b->bits, b->compression);
    if (b->pixels < FILE_HEADER + CORE_HEADER || b->pixels > size)
        return FAIL(ERR_FORMAT, "BMP: the pixels begin at offset %zu of %zu", b->pixels, size);
    return b->bits <= 8 ? palette_find(b, header, used) : masks_read(b);
}

Status bmp_probe(const uint8_t *data, size_t size, ImageInfo *info)
{
    Bmp b;
    info->format = IMAGE_BMP;
    TRY(header_read(data, size, &b));
    info->h = b.h;
    info->w = b.w;
    return OK;
}

/* ---- pixels */

static void color_of(const Bmp *b, uint32_t index, uint8_t rgb[3])
{
    for (int k = 0; k < 3; k++)
        rgb[k] = index < b->colors ? b->palette[(size_t)index * (size_t)b->entry + (size_t)(2 - k)] : 0;
}

static uint8_t masked(uint32_t value, uint32_t mask)
{
    int shift = __builtin_ctz(mask);
    return (uint8_t)(((value & mask) >> shift) * 255 / (mask >> shift)); /* masks have at most 16 bits */
}

static void pixel_read(const Bmp *b, const uint8_t *row, size_t x, uint8_t rgb[3])
{
    if (b->bits == 24) {
        for (size_t k = 0; k < 3; k++) rgb[k] = row[3 * x + 2 - k];
    } else if (b->bits > 8) {
        size_t bytes = (size_t)b->bits / 8;
        uint32_t value = little(row + bytes * x, (int)bytes);
        for (int k = 0; k < 3; k++) rgb[k] = masked(value, b->mask[k]);
    } else {
        size_t first = x * (size_t)b->bits;
        color_of(b, (uint32_t)(row[first / 8] >> (8 - (size_t)b->bits - first % 8)) & ((1u << b->bits) - 1), rgb);
    }
}

static Status rows_copy(const Bmp *b, Rect part, Pixels *pixels)
{
    size_t stride = ((size_t)b->w * (size_t)b->bits + 31) / 32 * 4, wanted = stride * (size_t)b->h;
    if (b->size - b->pixels < wanted)
        return FAIL(ERR_FORMAT, "BMP: expected %zu bytes of pixels, found %zu: the file is cut off", wanted,
                    b->size - b->pixels);
    for (int32_t y = 0; y < part.h; y++) {
        size_t stored = (size_t)(b->from_above ? part.y + y : b->h - 1 - part.y - y);
        for (int32_t x = 0; x < part.w; x++)
            pixel_read(b, b->data + b->pixels + stored * stride, (size_t)(part.x + x),
                       pixels->at + (size_t)y * pixels->pitch + 3 * (size_t)x);
    }
    return OK;
}

/* ---- run-length encoding: pairs of a count and a value, where count 0 makes the value an order: 0 the row ends, 1 the image ends, 2
 * go right and on by the next two bytes, else so many single values, padded to 2 bytes. Of 4 bits, a value is two pixels in turn. */

typedef struct Runs {
    const Bmp *b;
    size_t at;
    uint8_t *index; /* [h][w], in the order of the file */
    int32_t x, y;
} Runs;

static void index_put(Runs *r, uint8_t pair, int turn)
{
    if (r->x >= r->b->w || r->y >= r->b->h) return;
    uint8_t value = r->b->bits == 8 ? pair : turn % 2 ? pair & 15 : pair >> 4;
    r->index[(size_t)r->y * (size_t)r->b->w + (size_t)r->x++] = value;
}

static Status runs_read(Runs *r)
{
    const Bmp *b = r->b;
    for (;;) {
        if (b->size - r->at < 2) return FAIL(ERR_FORMAT, "BMP: the file ends in its pixels");
        int count = b->data[r->at], value = b->data[r->at + 1];
        r->at += 2;
        if (count > 0) {
            for (int i = 0; i < count; i++) index_put(r, (uint8_t)value, i);
        } else if (value == 0) {
            r->x = 0;
            r->y++;
        } else if (value == 1) {
            return OK;
        } else if (value == 2) {
            if (b->size - r->at < 2) return FAIL(ERR_FORMAT, "BMP: the file ends in its pixels");
            r->x = r->x + b->data[r->at] < b->w ? r->x + b->data[r->at] : b->w;
            r->y = r->y + b->data[r->at + 1] < b->h ? r->y + b->data[r->at + 1] : b->h;
            r->at += 2;
        } else {
            size_t bytes = b->bits == 8 ? (size_t)value : ((size_t)value + 1) / 2;
            if (b->size - r->at < bytes) return FAIL(ERR_FORMAT, "BMP: the file ends in its pixels");
            for (int i = 0; i < value; i++) index_put(r, b->data[r->at + (size_t)(b->bits == 8 ? i : i / 2)], i);
            r->at += bytes + bytes % 2;
            if (r->at > b->size) r->at = b->size;
        }
    }
}

static Status runs_decode(ImageDecoder *decoder, const Bmp *b, Rect part, Pixels *pixels)
{
    TRY(pixels_shape(&decoder->whole, b->h, b->w, 1));
    Pixels *whole = &decoder->whole;
    for (int32_t y = 0; y < b->h; y++) memset(whole->at + (size_t)y * whole->pitch, 0, (size_t)b->w);
    Runs runs = {.b = b, .at = b->pixels, .index = whole->at};
    TRY(runs_read(&runs));
    for (int32_t y = 0; y < part.h; y++) {
        int32_t stored = b->from_above ? part.y + y : b->h - 1 - part.y - y;
        for (int32_t x = 0; x < part.w; x++)
            color_of(b, runs.index[(size_t)stored * (size_t)b->w + (size_t)(part.x + x)],
                     pixels->at + (size_t)y * pixels->pitch + 3 * (size_t)x);
    }
    return OK;
}

Status bmp_decode(ImageDecoder *decoder, const Bytes *bytes, const ImageInfo *info, Rect part, Pixels *pixels)
{
    Bmp b;
    TRY(header_read(bytes->data, bytes->size, &b));
    bool runs = b.compression == RLE8 || b.compression == RLE4;
    image_hold(decoder, (runs ? (int64_t)info->h * info->w : 0) + 3 * (int64_t)part.h * part.w);
    TRY(pixels_shape(pixels, part.h, part.w, 3));
    return runs ? runs_decode(decoder, &b, part, pixels) : rows_copy(&b, part, pixels);
}
