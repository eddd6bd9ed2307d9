/* GIF by giflib: the first image, on a canvas as large as the screen that the file announces, or as the image where that is larger.
 * What the image leaves free has the transparent color, as in Pillow, or that of index 0. Transparency itself is dropped. */
#include "towers/data/images/image_formats.h"

#include <errno.h>
#include <gif_lib.h>

typedef struct Gif {
    const uint8_t *data;
    size_t size, at;
    GifFileType *file;
    const ColorMapObject *colors; /* NULL: an index is a gray */
    int transparent;              /* -1: none */
    int32_t h, w;                 /* of the canvas */
} Gif;

static int bytes_take(GifFileType *file, GifByteType *to, int count)
{
    Gif *g = file->UserData;
    size_t some = g->size - g->at < (size_t)count ? g->size - g->at : (size_t)count;
    memcpy(to, g->data + g->at, some);
    g->at += some;
    return (int)some;
}

static Status gif_failure(int code)
{
    if (code == D_GIF_ERR_NOT_ENOUGH_MEM) return FAIL(ERR_MEMORY, "no memory to decode a GIF");
    const char *why = GifErrorString(code);
    return FAIL(ERR_FORMAT, "GIF: %s: the file is cut off or damaged", why ? why : "it has no image");
}

/* Of the extensions before an image only the one with its transparent color matters. */
static bool extension_pass(Gif *g)
{
    int code;
    GifByteType *block;
    GraphicsControlBlock control;
    if (DGifGetExtension(g->file, &code, &block) == GIF_ERROR) return false;
    while (block) {
        if (code == GRAPHICS_EXT_FUNC_CODE && DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK)
            g->transparent = control.TransparentColor;
        if (DGifGetExtensionNext(g->file, &block) == GIF_ERROR) return false;
    }
    return true;
}

/* Up to the pixels of the first image. */
static Status image_find(Gif *g)
{
    GifRecordType type;
    do {
        if (DGifGetRecordType(g->file, &type) == GIF_ERROR) return gif_failure(g->file->Error);
        if (type == TERMINATE_RECORD_TYPE) return FAIL(ERR_FORMAT, "GIF: there is no image in the file");
        if (type == EXTENSION_RECORD_TYPE && !extension_pass(g)) return gif_failure(g->file->Error);
    } while (type != IMAGE_DESC_RECORD_TYPE);
    if (DGifGetImageDesc(g->file) == GIF_ERROR) return gif_failure(g->file->Error);
    const GifImageDesc *image = &g->file->Image;
    if (image->Width < 1 || image->Height < 1) return FAIL(ERR_FORMAT, "GIF: the first image has no pixels");
    g->colors = image->ColorMap ? image->ColorMap : g->file->SColorMap;
    g->w = image->Left + image->Width > g->file->SWidth ? image->Left + image->Width : g->file->SWidth;
    g->h = image->Top + image->Height > g->file->SHeight ? image->Top + image->Height : g->file->SHeight;
    return OK;
}

static Status gif_open(Gif *g, const uint8_t *data, size_t size)
{
    int code = 0;
    *g = (Gif){.data = data, .size = size, .transparent = NO_TRANSPARENT_COLOR};
    g->file = DGifOpen(g, bytes_take, &code);
    return g->file ? OK : gif_failure(code);
}

static void gif_close(Gif *g)
{
    if (g->file) (void)DGifCloseFile(g->file, NULL);
}

Status gif_probe(const uint8_t *data, size_t size, ImageInfo *info)
{
    Gif g;
    info->format = IMAGE_GIF;
    errno = 0;
    Status st = gif_open(&g, data, size);
    if (st == OK) st = image_find(&g);
    info->h = g.h;
    info->w = g.w;
    st = lack_report(st, "GIF");
    gif_close(&g);
    return st;
}

/* The rows of an interlaced image come in four passes. */
static Status indices_read(Gif *g, Pixels *canvas)
{
    static const int first[] = {0, 4, 2, 1}, every[] = {8, 8, 4, 2};
    const GifImageDesc *image = &g->file->Image;
    for (int pass = 0; pass < (image->Interlace ? 4 : 1); pass++)
        for (int y = image->Interlace ? first[pass] : 0; y < image->Height; y += image->Interlace ? every[pass] : 1) {
            uint8_t *to = canvas->at + (size_t)(image->Top + y) * canvas->pitch + (size_t)image->Left;
            if (DGifGetLine(g->file, to, image->Width) == GIF_ERROR) return gif_failure(g->file->Error);
        }
    return OK;
}

static void color_of(const ColorMapObject *colors, uint8_t index, uint8_t rgb[3])
{
    memset(rgb, index, 3);
    if (!colors || index >= colors->ColorCount) return;
    const GifColorType *color = &colors->Colors[index];
    rgb[0] = color->Red, rgb[1] = color->Green, rgb[2] = color->Blue;
}

Status gif_decode(ImageDecoder *decoder, const Bytes *bytes, const ImageInfo *info, Rect part, Pixels *pixels)
{
    Gif g;
    Status st = OK;
    Pixels *canvas = &decoder->whole;
    image_hold(decoder, (int64_t)info->h * info->w + 3 * (int64_t)part.h * part.w);
    errno = 0;
    TRY_OUT(gif_open(&g, bytes->data, bytes->size));
    TRY_OUT(image_find(&g));
    TRY_OUT(pixels_shape(canvas, g.h, g.w, 1));
    memset(canvas->at, g.transparent >= 0 ? g.transparent : 0, (size_t)g.h * canvas->pitch);
    TRY_OUT(indices_read(&g, canvas));
    TRY_OUT(pixels_shape(pixels, part.h, part.w, 3));
    for (int32_t y = 0; y < part.h; y++)
        for (int32_t x = 0; x < part.w; x++)
            color_of(g.colors, canvas->at[(size_t)(part.y + y) * canvas->pitch + (size_t)(part.x + x)],
                     pixels->at + (size_t)y * pixels->pitch + 3 * (size_t)x);
out:
    st = lack_report(st, "GIF");
    gif_close(&g);
    return st;
}
