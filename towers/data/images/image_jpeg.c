/* JPEG (ITU-T T.81) by libjpeg-turbo's libjpeg interface, which can decode selected rows and columns.
 *
 * So that a crop equals the full decode, one additional MCU is decoded on each side: chroma upsampling reads a
 * neighbor, which at the edge of a crop would be a copy. Rows above are skipped, rows below are never read. Uses the
 * accurate integer DCT and smooth upsampling, like Pillow and torchvision. */
#include "towers/data/images/image_formats.h"

#include <setjmp.h>

#include <jpeglib.h> /* needs stdio.h and stddef.h before it */

#include <jerror.h>

#include "kernels/base/progress.h"

struct JpegDecoder {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf out;
    ImageDecoder *owner; /* borrowed */
    bool premature;      /* the data ended before the image did */
    int scans_max;
    char why[JMSG_LENGTH_MAX];
};

/* ---- the header, without the library: SOFn for the size, APP1 for the orientation */

static uint32_t big16(const uint8_t *at)
{
    return (uint32_t)at[0] << 8 | at[1];
}

static bool is_frame(uint8_t marker)
{
    return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

Status jpeg_probe(const uint8_t *data, size_t size, ImageInfo *info)
{
    info->format = IMAGE_JPEG;
    size_t at = 2;
    bool has_exif = false; /* a second Exif segment goes on with the first */
    for (;;) {
        while (at < size && data[at] != 0xff) at++; /* skip unexpected bytes, as the library does */
        while (at < size && data[at] == 0xff) at++;
        if (at >= size) return FAIL(ERR_FORMAT, "JPEG without a frame header: the file ends after %zu bytes", size);
        uint8_t marker = data[at++];
        if (marker == 0 || marker == 1 || (marker >= 0xd0 && marker <= 0xd8)) continue;
        if (marker == 0xd9 || marker == 0xda)
            return FAIL(ERR_FORMAT, "JPEG without a frame header before its data (offset %zu)", at - 2);
        if (size - at < 2) return FAIL(ERR_FORMAT, "JPEG: the file ends inside a header (offset %zu)", at);
        size_t length = big16(data + at);
        if (length < 2 || length > size - at)
            return FAIL(ERR_FORMAT, "JPEG: a segment of %zu bytes at offset %zu of %zu: the file is cut off or damaged",
                        length, at, size);
        if (is_frame(marker)) {
            if (length < 8) return FAIL(ERR_FORMAT, "JPEG: a frame header of %zu bytes", length);
            info->h = (int32_t)big16(data + at + 3);
            info->w = (int32_t)big16(data + at + 5);
            return OK;
        }
        if (marker == 0xe1 && !has_exif && length >= 16 && memcmp(data + at + 2, "Exif\0\0", 6) == 0) {
            info->orientation = exif_orientation(data + at + 8, length - 8);
            has_exif = true;
        }
        at += length;
    }
}

/* ---- the library's callbacks */

static void on_error(j_common_ptr info)
{
    JpegDecoder *j = info->client_data;
    info->err->format_message(info, j->why);
    longjmp(j->out, 1);
}

/* Warnings are counted. The end of the data before the last row is an error, at once; the library would fill the rest
 * with gray, for minutes in a large image. */
static void on_message(j_common_ptr info, int level)
{
    JpegDecoder *j = info->client_data;
    if (level >= 0) return;
    j->owner->warnings++;
    if (info->err->msg_code != JWRN_JPEG_EOF) return;
    j->premature = true;
    on_error(info);
}

static void on_text(j_common_ptr info)
{
    (void)info;
}

/* Limit the number of scans: a progressive file may have many, each of which covers the whole image again. */
static void on_progress(j_common_ptr info)
{
    JpegDecoder *j = info->client_data;
    progress_made("rows of a JPEG");
    if (!info->is_decompressor || ((j_decompress_ptr)info)->input_scan_number <= j->scans_max) return;
    info->err->msg_code = 0;
    snprintf(j->why, sizeof j->why, "more than %d scans", j->scans_max);
    longjmp(j->out, 1);
}

static Status decoder_for(ImageDecoder *decoder, JpegDecoder **made)
{
    *made = decoder->jpeg;
    if (*made) return OK;
    JpegDecoder *j = calloc(1, sizeof *j);
    if (!j) return FAIL(ERR_MEMORY, "no memory for JPEG decoder");
    j->owner = decoder;
    j->info.err = jpeg_std_error(&j->errors);
    j->errors.error_exit = on_error;
    j->errors.emit_message = on_message;
    j->errors.output_message = on_text;
    j->progress.progress_monitor = on_progress;
    j->info.client_data = j;
    if (setjmp(j->out)) {
        free(j);
        return FAIL(ERR_MEMORY, "no memory for JPEG decoder");
    }
    jpeg_create_decompress(&j->info); /* keeps err and client_data */
    j->info.progress = &j->progress;
    decoder->jpeg = *made = j;
    return OK;
}

void jpeg_decoder_destroy(JpegDecoder *jpeg)
{
    if (!jpeg) return;
    jpeg_destroy_decompress(&jpeg->info);
    free(jpeg);
}

/* ---- pixels */

/* Pixels of Adobe's inverted CMYK to RGB. */
static void cmyk_row(const uint8_t *cmyk, uint8_t *rgb, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint8_t white = cmyk[4 * i + 3]; /* inverted: 255 minus black */
        for (size_t k = 0; k < 3; k++) rgb[3 * i + k] = without_ink((uint8_t)(255 - cmyk[4 * i + k]), white);
    }
}

static int64_t blocks_count(const struct jpeg_decompress_struct *info)
{
    int64_t blocks = 0;
    for (int i = 0; i < info->num_components; i++)
        blocks += (int64_t)info->comp_info[i].width_in_blocks * info->comp_info[i].height_in_blocks;
    return blocks;
}

/* From the header: limits, and the memory that decoding will take. Several scans make the library keep all
 * coefficients, in sequential files too. */
static Status budget_take(JpegDecoder *j, size_t size, Rect part)
{
    enum { SCANS_MAX = 100, SCANS_OF_LARGEST = 10 };
    const struct jpeg_decompress_struct *info = &j->info;
    int64_t blocks = blocks_count(info), pixels = (int64_t)info->image_width * info->image_height,
            scans = SCANS_OF_LARGEST * image_pixels_max() / pixels,
            coefficients = jpeg_has_multiple_scans(&j->info) ? blocks * DCTSIZE2 * (int64_t)sizeof(JCOEF) : 0;
    /* A Huffman code has at least one bit, and each block has one for its first coefficient. */
    if (!info->arith_code && blocks > 8 * (int64_t)size)
        return FAIL(ERR_FORMAT, "JPEG of %u x %u pixels in %zu bytes: the file is cut off or damaged",
                    info->image_width, info->image_height, size);
    j->scans_max = scans > SCANS_MAX ? SCANS_MAX : (int)scans;
    image_hold(j->owner, coefficients + 6 * (int64_t)part.h * part.w);
    return OK;
}

/* Preparations that can fail, before the library's setjmp. `wide` is the row as decoded: the part with its
 * additions. */
static Status output_prepare(JpegDecoder *j, Rect part, JDIMENSION *left, Pixels *pixels)
{
    struct jpeg_decompress_struct *info = &j->info;
    JDIMENSION mcu = (JDIMENSION)info->max_h_samp_factor * DCTSIZE, x = (JDIMENSION)part.x, w = (JDIMENSION)part.w;
    JDIMENSION from = x > mcu ? x - mcu : 0, end = info->output_width - x - w > mcu ? x + w + mcu : info->output_width;
    JDIMENSION width = end - from;
    if (from > 0 || width < info->output_width) jpeg_crop_scanline(info, &from, &width);
    *left = x - from;
    TRY(pixels_shape(pixels, part.h, (int32_t)width, 3));
    if (info->out_color_space == JCS_CMYK) TRY(pixels_shape(&j->owner->whole, 1, (int32_t)width, 4));
    return OK;
}

static void rows_read(JpegDecoder *j, Rect part, Pixels *pixels)
{
    struct jpeg_decompress_struct *info = &j->info;
    bool cmyk = info->out_color_space == JCS_CMYK;
    if (part.y > 0) (void)jpeg_skip_scanlines(info, (JDIMENSION)part.y);
    for (int32_t y = 0; y < part.h;) {
        JSAMPROW rows[16];
        JDIMENSION count = 0;
        if (cmyk)
            rows[count++] = j->owner->whole.at;
        else
            for (; count < 16 && y + (int32_t)count < part.h; count++)
                rows[count] = pixels->at + (size_t)(y + (int32_t)count) * pixels->pitch;
        JDIMENSION got = jpeg_read_scanlines(info, rows, count);
        if (cmyk && got) cmyk_row(rows[0], pixels->at + (size_t)y * pixels->pitch, info->output_width);
        y += (int32_t)got;
    }
}

/* How far the decoder has read; the end of the file, once libjpeg makes up an end marker behind it. */
static size_t offset_of(const JpegDecoder *j, const Bytes *bytes)
{
    const struct jpeg_source_mgr *from = j->info.src;
    bool inside = from && from->next_input_byte >= bytes->data && from->next_input_byte <= bytes->data + bytes->size;
    return inside && !j->premature ? (size_t)(from->next_input_byte - bytes->data) : bytes->size;
}

static Status decode_under_jump(JpegDecoder *j, const Bytes *bytes, const ImageInfo *want, Rect part, Pixels *pixels)
{
    struct jpeg_decompress_struct *info = &j->info;
    JDIMENSION left = 0;
    jpeg_mem_src(info, bytes->data, bytes->size);
    (void)jpeg_read_header(info, TRUE);
    if ((int32_t)info->image_width != want->w || (int32_t)info->image_height != want->h)
        return FAIL(ERR_FORMAT, "JPEG: two frame headers, of %d x %d and %u x %u pixels", want->w, want->h,
                    info->image_width, info->image_height);
    TRY(budget_take(j, bytes->size, part));
    bool inks = info->jpeg_color_space == JCS_CMYK || info->jpeg_color_space == JCS_YCCK;
    info->out_color_space = inks ? JCS_CMYK : JCS_RGB;
    info->dct_method = JDCT_ISLOW;
    (void)jpeg_start_decompress(info);
    TRY(output_prepare(j, part, &left, pixels));
    rows_read(j, part, pixels);
    pixels->at += (size_t)left * 3;
    pixels->w = part.w;
    return OK;
}

Status jpeg_decode(ImageDecoder *decoder, const Bytes *bytes, const ImageInfo *info, Rect part, Pixels *pixels)
{
    JpegDecoder *j;
    TRY(decoder_for(decoder, &j));
    j->premature = false;
    j->scans_max = 1;
    Status st = OK;
    if (!setjmp(j->out))
        st = decode_under_jump(j, bytes, info, part, pixels);
    else if (j->errors.msg_code == JERR_OUT_OF_MEMORY)
        st = FAIL(ERR_MEMORY, "no memory to decode a JPEG of %d x %d pixels", info->w, info->h);
    else
        st = FAIL(ERR_FORMAT, "JPEG: %s (offset %zu of %zu): the file is cut off%s damaged%s", j->why,
                  offset_of(j, bytes), bytes->size, j->premature ? " or" : ",",
                  j->premature ? "" : " or of an unsupported kind");
    jpeg_abort_decompress(&j->info);
    return st;
}
