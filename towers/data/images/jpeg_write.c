/* Encoding by libjpeg-turbo; see jpeg_write.h. */
#include "towers/data/images/jpeg_write.h"

#include <setjmp.h>

#include <jpeglib.h>

typedef struct Encoder {
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr errors;
    jmp_buf out;
    unsigned char *bytes;
    unsigned long count;
    char why[JMSG_LENGTH_MAX];
} Encoder;

static void on_error(j_common_ptr info)
{
    Encoder *e = info->client_data;
    info->err->format_message(info, e->why);
    longjmp(e->out, 1);
}

static void pixels_encode(Encoder *e, const Pixels *pixels, int quality)
{
    struct jpeg_compress_struct *info = &e->info;
    jpeg_mem_dest(info, &e->bytes, &e->count);
    info->image_width = (JDIMENSION)pixels->w;
    info->image_height = (JDIMENSION)pixels->h;
    info->input_components = pixels->c;
    info->in_color_space = pixels->c == 3 ? JCS_RGB : JCS_GRAYSCALE;
    jpeg_set_defaults(info);
    jpeg_set_quality(info, quality, TRUE);
    info->optimize_coding = TRUE;
    jpeg_start_compress(info, TRUE);
    while (info->next_scanline < info->image_height) {
        JSAMPROW row = pixels->at + (size_t)info->next_scanline * pixels->pitch;
        (void)jpeg_write_scanlines(info, &row, 1);
    }
    jpeg_finish_compress(info);
}

static Status encode_under_jump(Encoder *e, const Pixels *pixels, int quality)
{
    if (setjmp(e->out))
        return FAIL(ERR_MEMORY, "cannot encode a JPEG of %d x %d pixels: %s", pixels->w, pixels->h, e->why);
    jpeg_create_compress(&e->info);
    pixels_encode(e, pixels, quality);
    return OK;
}

Status jpeg_encode(const Pixels *pixels, int quality, uint8_t **bytes, size_t *count)
{
    Encoder *e = calloc(1, sizeof *e);
    if (!e) return FAIL(ERR_MEMORY, "no memory for a JPEG encoder");
    e->info.err = jpeg_std_error(&e->errors);
    e->errors.error_exit = on_error;
    e->info.client_data = e;
    Status st = encode_under_jump(e, pixels, quality);
    jpeg_destroy_compress(&e->info);
    if (st == OK) {
        *bytes = e->bytes;
        *count = e->count;
    } else {
        free(e->bytes);
    }
    free(e);
    return st;
}
