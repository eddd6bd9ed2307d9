/* TIFF by libtiff: the first image, gray, palette, RGB and CMYK of 1 to 16 bits, in strips or tiles, in any compression but the old
 * JPEG, whose files nobody writes any more. It is upright, as for Pillow: the orientation is a part of the format. Only the strips or
 * tiles of a part are decoded. Associated alpha is divided out, other alpha dropped; floating point and Lab are refused. */
#include "towers/data/images/image_formats.h"

#include <errno.h>
#include <tiffio.h>

#include "kernels/base/progress.h"

typedef struct Tiff {
    const uint8_t *data;
    size_t size, at;
    TIFF *file;
    int32_t w, h; /* as stored */
    uint16_t bits, samples, photometric, orientation;
    int inks;    /* samples that are colors */
    bool planes; /* each sample by itself */
    bool tiled, premultiplied, cut_off;
    int32_t block_w, block_h;     /* of a tile, or of a strip */
    uint16_t *red, *green, *blue; /* the palette; borrowed */
    char why[160];                /* the first error of the library */
} Tiff;

/* ---- the bytes, and what the library says of them */

static tmsize_t bytes_take(thandle_t handle, void *to, tmsize_t count)
{
    Tiff *t = handle;
    size_t left = t->at < t->size ? t->size - t->at : 0, some = (size_t)count < left ? (size_t)count : left;
    memcpy(to, t->data + t->at, some);
    t->at += some;
    return (tmsize_t)some;
}

static tmsize_t bytes_refuse(thandle_t handle, void *from, tmsize_t count)
{
    (void)handle, (void)from, (void)count;
    return -1;
}

static toff_t place_seek(thandle_t handle, toff_t offset, int whence)
{
    Tiff *t = handle;
    uint64_t base = whence == SEEK_CUR ? t->at : whence == SEEK_END ? t->size : 0;
    t->at = (size_t)(base + offset);
    return t->at;
}

static int nothing_close(thandle_t handle)
{
    (void)handle;
    return 0;
}

static toff_t size_get(thandle_t handle)
{
    return ((Tiff *)handle)->size;
}

static int map_whole(thandle_t handle, void **base, toff_t *size)
{
    Tiff *t = handle;
    *base = (void *)t->data; /* opened for reading, which the library does not write to */
    *size = t->size;
    return 1;
}

static void map_end(thandle_t handle, void *base, toff_t size)
{
    (void)handle, (void)base, (void)size;
}

__attribute__((format(printf, 4, 0))) static int error_keep(TIFF *file, void *context, const char *module,
                                                            const char *format, va_list args)
{
    Tiff *t = context;
    (void)file, (void)module;
    if (!*t->why) vsnprintf(t->why, sizeof t->why, format, args);
    return 1;
}

/* A tag that the file cuts off is only a warning: a palette image would become a gray one. */
__attribute__((format(printf, 4, 0))) static int warning_read(TIFF *file, void *context, const char *module,
                                                              const char *format, va_list args)
{
    Tiff *t = context;
    if (!strstr(format, "IO error")) return 1;
    t->cut_off = true;
    return error_keep(file, context, module, format, args);
}

static Status tiff_failure(const Tiff *t)
{
    return FAIL(ERR_FORMAT, "TIFF: %s: the file is cut off or damaged", *t->why ? t->why : "it cannot be read");
}

/* ---- the header */

static Status inks_check(Tiff *t)
{
    uint16_t compression = 0, format = SAMPLEFORMAT_UINT, count = 0, *extra = NULL;
    TIFFGetFieldDefaulted(t->file, TIFFTAG_COMPRESSION, &compression);
    TIFFGetFieldDefaulted(t->file, TIFFTAG_SAMPLEFORMAT, &format);
    TIFFGetFieldDefaulted(t->file, TIFFTAG_EXTRASAMPLES, &count, &extra);
    if (t->photometric == PHOTOMETRIC_YCBCR && compression == COMPRESSION_JPEG) {
        TIFFSetField(t->file, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
        t->photometric = PHOTOMETRIC_RGB;
    }
    bool gray = t->photometric == PHOTOMETRIC_MINISBLACK || t->photometric == PHOTOMETRIC_MINISWHITE,
         palette = t->photometric == PHOTOMETRIC_PALETTE, rgb = t->photometric == PHOTOMETRIC_RGB,
         cmyk = t->photometric == PHOTOMETRIC_SEPARATED, whole = t->bits == 8 || t->bits == 16,
         part = t->bits == 1 || t->bits == 2 || t->bits == 4;
    t->inks = gray || palette ? 1 : rgb ? 3 : cmyk ? 4 : 0;
    t->premultiplied = rgb && t->samples == 4 && t->bits == 8 && count == 1 && extra[0] == EXTRASAMPLE_ASSOCALPHA;
    if (palette &&
        !(TIFFGetField(t->file, TIFFTAG_COLORMAP, &t->red, &t->green, &t->blue) && t->red && t->green && t->blue))
        return FAIL(ERR_FORMAT, "TIFF: there is no palette");
    bool bits = palette ? t->bits == 8 || part : gray ? whole || (part && t->samples == 1) : whole;
    if (t->inks && bits && t->samples >= t->inks && t->samples <= 8 && format == SAMPLEFORMAT_UINT &&
        compression != COMPRESSION_OJPEG)
        return OK;
    return FAIL(
        ERR_FORMAT,
        "TIFF of %d samples of %d bits, sample format %d, photometric %d, compression %d: expected gray, palette, "
        "RGB or CMYK of 8 or 16 bits, as 'mogrify -format png FILE' makes (ImageMagick)",
        t->samples, t->bits, format, t->photometric, compression);
}

/* Strips may announce more rows than the image has. */
static Status blocks_check(Tiff *t)
{
    uint32_t w = (uint32_t)t->w, h = 0;
    t->tiled = TIFFIsTiled(t->file);
    if (t->tiled && !(TIFFGetField(t->file, TIFFTAG_TILEWIDTH, &w) && TIFFGetField(t->file, TIFFTAG_TILELENGTH, &h)))
        return tiff_failure(t);
    if (!t->tiled) TIFFGetFieldDefaulted(t->file, TIFFTAG_ROWSPERSTRIP, &h);
    if (!t->tiled && (h == 0 || h > (uint32_t)t->h)) h = (uint32_t)t->h;
    if (w < 1 || h < 1 || w > INT32_MAX || h > INT32_MAX || (int64_t)w * h > image_pixels_max())
        return FAIL(ERR_FORMAT, "TIFF: parts of %" PRIu32 " x %" PRIu32 " pixels: expected at most %" PRId64 "%s", w, h,
                    image_pixels_max(), image_pixels_remedy());
    t->block_w = (int32_t)w;
    t->block_h = (int32_t)h;
    return OK;
}

static Status header_read(Tiff *t)
{
    uint32_t w = 0, h = 0;
    uint16_t planar = PLANARCONFIG_CONTIG;
    TIFFGetField(t->file, TIFFTAG_IMAGEWIDTH, &w);
    TIFFGetField(t->file, TIFFTAG_IMAGELENGTH, &h);
    if (w < 1 || h < 1 || w > IMAGE_SIDE_MAX || h > IMAGE_SIDE_MAX)
        return FAIL(ERR_FORMAT, "TIFF of %" PRIu32 " x %" PRIu32 " pixels: sides must be from 1 to %d", w, h,
                    IMAGE_SIDE_MAX);
    t->w = (int32_t)w;
    t->h = (int32_t)h;
    TIFFGetFieldDefaulted(t->file, TIFFTAG_BITSPERSAMPLE, &t->bits);
    TIFFGetFieldDefaulted(t->file, TIFFTAG_SAMPLESPERPIXEL, &t->samples);
    TIFFGetFieldDefaulted(t->file, TIFFTAG_ORIENTATION, &t->orientation);
    TIFFGetFieldDefaulted(t->file, TIFFTAG_PLANARCONFIG, &planar);
    if (!TIFFGetField(t->file, TIFFTAG_PHOTOMETRIC, &t->photometric))
        return FAIL(ERR_FORMAT, "TIFF: no kind of colors");
    t->planes = planar == PLANARCONFIG_SEPARATE && t->samples > 1;
    TRY(inks_check(t));
    return blocks_check(t);
}

/* `most`: bytes that the library may allocate at once. */
static Status tiff_open(Tiff *t, const uint8_t *data, size_t size, int64_t most)
{
    *t = (Tiff){.data = data, .size = size};
    errno = 0;
    TIFFOpenOptions *options = TIFFOpenOptionsAlloc();
    if (!options) return FAIL(ERR_MEMORY, "no memory to decode a TIFF");
    TIFFOpenOptionsSetMaxSingleMemAlloc(options, most);
    TIFFOpenOptionsSetErrorHandlerExtR(options, error_keep, t);
    TIFFOpenOptionsSetWarningHandlerExtR(options, warning_read, t);
    t->file = TIFFClientOpenExt("TIFF", "r", t, bytes_take, bytes_refuse, place_seek, nothing_close, size_get,
                                map_whole, map_end, options);
    TIFFOpenOptionsFree(options);
    return lack_report(t->file && !t->cut_off ? header_read(t) : tiff_failure(t), "TIFF");
}

static void tiff_close(Tiff *t)
{
    if (t->file) TIFFClose(t->file);
}

Status tiff_probe(const uint8_t *data, size_t size, ImageInfo *info)
{
    Tiff t;
    info->format = IMAGE_TIFF;
    Status st = tiff_open(&t, data, size, LARGE_BYTES);
    if (st == OK) {
        orientation_size(t.orientation, t.h, t.w, &info->h, &info->w);
        info->deep_gray = t.inks == 1 && t.bits == 16;
    }
    tiff_close(&t);
    return st;
}

/* ---- pixels */

/* A sample as 8 bits: of 16 the high byte; of a palette its number. */
static uint8_t sample_of(const Tiff *t, const uint8_t *row, size_t index)
{
    if (t->bits == 8) return row[index];
    if (t->bits == 16) return (uint8_t)(((const uint16_t *)(const void *)row)[index] >> 8);
    size_t first = index * t->bits;
    unsigned most = (1u << t->bits) - 1, value = (unsigned)row[first / 8] >> (8 - t->bits - first % 8) & most;
    return (uint8_t)(t->photometric == PHOTOMETRIC_PALETTE ? value : value * 255 / most);
}

/* Samples that are colors, and the one behind them, to RGB. */
static void color_make(const Tiff *t, const uint8_t sample[5], uint8_t rgb[3])
{
    switch (t->photometric) {
    case PHOTOMETRIC_MINISBLACK: memset(rgb, sample[0], 3); break;
    case PHOTOMETRIC_MINISWHITE: memset(rgb, 255 - sample[0], 3); break;
    case PHOTOMETRIC_PALETTE:
        rgb[0] = (uint8_t)(t->red[sample[0]] >> 8);
        rgb[1] = (uint8_t)(t->green[sample[0]] >> 8);
        rgb[2] = (uint8_t)(t->blue[sample[0]] >> 8);
        break;
    case PHOTOMETRIC_SEPARATED:
        for (int k = 0; k < 3; k++) rgb[k] = without_ink(sample[k], (uint8_t)(255 - sample[3]));
        break;
    default:
        for (int k = 0; k < 3; k++) {
            int straight = t->premultiplied && sample[3] ? sample[k] * 255 / sample[3] : sample[k];
            rgb[k] = (uint8_t)(straight > 255 ? 255 : straight);
        }
    }
}

/* One strip or tile: of all samples, or of one plane. What lies behind the last row of the image is not stored in a strip. */
static Status block_read(Tiff *t, int32_t y, int32_t x, uint16_t plane, uint8_t *to, tmsize_t bytes)
{
    progress_made("parts of a TIFF");
    tmsize_t got =
        t->tiled ? TIFFReadEncodedTile(t->file, TIFFComputeTile(t->file, (uint32_t)x, (uint32_t)y, 0, plane), to, bytes)
                 : TIFFReadEncodedStrip(t->file, TIFFComputeStrip(t->file, (uint32_t)y, plane), to, bytes);
    return got < 0 ? tiff_failure(t) : OK;
}

/* The pixels of one block that lie in the part. `memory`: of each plane one after the other. */
static void block_copy(const Tiff *t, Rect block, Rect part, const uint8_t *memory, size_t plane_bytes, size_t pitch,
                       Pixels *pixels)
{
    int32_t y0 = block.y > part.y ? block.y : part.y, x0 = block.x > part.x ? block.x : part.x,
            y1 = block.y + block.h < part.y + part.h ? block.y + block.h : part.y + part.h,
            x1 = block.x + block.w < part.x + part.w ? block.x + block.w : part.x + part.w;
    int wanted = t->inks + t->premultiplied;
    for (int32_t y = y0; y < y1; y++)
        for (int32_t x = x0; x < x1; x++) {
            const uint8_t *row = memory + (size_t)(y - block.y) * pitch;
            size_t at = (size_t)(x - block.x);
            uint8_t sample[5] = {0};
            for (int k = 0; k < wanted; k++)
                sample[k] = t->planes ? sample_of(t, row + (size_t)k * plane_bytes, at)
                                      : sample_of(t, row, at * t->samples + (size_t)k);
            color_make(t, sample, pixels->at + (size_t)(y - part.y) * pixels->pitch + 3 * (size_t)(x - part.x));
        }
}

static Status blocks_decode(Tiff *t, Rect part, Pixels *pixels)
{
    Status st = OK;
    tmsize_t bytes = t->tiled ? TIFFTileSize(t->file) : TIFFVStripSize(t->file, (uint32_t)t->block_h);
    tmsize_t pitch = t->tiled ? TIFFTileRowSize(t->file) : TIFFScanlineSize(t->file);
    int planes = t->planes ? t->inks + t->premultiplied : 1;
    size_t least = ((size_t)t->block_w * t->bits * (t->planes ? 1 : t->samples) + 7) / 8;
    if (bytes < 1 || pitch < (tmsize_t)least || bytes < pitch * t->block_h) return tiff_failure(t);
    uint8_t *memory = calloc((size_t)planes, (size_t)bytes);
    if (!memory) return FAIL(ERR_MEMORY, "no memory to decode a TIFF");
    for (int32_t y = part.y / t->block_h * t->block_h; y < part.y + part.h; y += t->block_h)
        for (int32_t x = part.x / t->block_w * t->block_w; x < part.x + part.w; x += t->block_w) {
            for (int p = 0; p < planes; p++)
                TRY_OUT(block_read(t, y, x, (uint16_t)p, memory + (size_t)p * (size_t)bytes, bytes));
            block_copy(t, (Rect){y, x, t->block_h, t->block_w}, part, memory, (size_t)bytes, (size_t)pitch, pixels);
        }
out:
    free(memory);
    return st;
}

/* Of a strip or tile, a copy that its codec may make of it, the bytes of the file in the other order of bits, and the pixels. */
static int64_t memory_of(const Tiff *t, Rect part, bool turned)
{
    return 2 * (int64_t)t->block_h * t->block_w * t->samples * (t->bits > 8 ? 2 : 1) + (int64_t)t->size +
           (turned ? 6 : 3) * (int64_t)part.h * part.w;
}

Status tiff_decode(ImageDecoder *decoder, const Bytes *bytes, const ImageInfo *info, Rect part, Pixels *pixels)
{
    Tiff t;
    Status st = OK;
    TRY_OUT(tiff_open(&t, bytes->data, bytes->size, LARGE_BYTES));
    bool turned = t.orientation > 1 && t.orientation <= 8;
    Rect stored = orientation_stored(t.orientation, t.h, t.w, part);
    Pixels *to = turned ? &decoder->whole : pixels;
    int64_t memory = memory_of(&t, part, turned);
    (void)info;
    image_hold(decoder, memory);
    if (memory > LARGE_BYTES) { /* the library may have what is held now */
        tiff_close(&t);
        TRY_OUT(tiff_open(&t, bytes->data, bytes->size, memory));
    }
    TRY_OUT(pixels_shape(to, stored.h, stored.w, 3));
    TRY_OUT(blocks_decode(&t, stored, to));
    if (turned) TRY_OUT(orientation_apply(t.orientation, to, pixels));
out:
    st = lack_report(st, "TIFF");
    tiff_close(&t);
    return st;
}
