/* Decoded images for scripts that compare them with Pillow's: reads commands from standard input, one per line, and
 * writes the requested pixels to standard output as "h w c\n" and bytes; "error: ...\n" if there are none.
 *   decode FILE Y X H W           a part of an image; H = 0: all of it
 *   resize FILTER Y X H W FILE    the image resized to H x W; FILTER 0 bilinear, 1 bicubic; Y and X must be 0
 *   augment KIND AMOUNT FILE      one operation of towers/data/images/augment.h */

#include "towers/data/images/augment.h"
#include "towers/data/images/image.h"
#include "towers/data/images/resize.h"

typedef struct Driver {
    ImageDecoder *decoder;
    Resizer *resizer;
    Bytes file;
    Pixels whole, part;
    ImageInfo info;
} Driver;

static Status file_load(const char *path, Bytes *bytes)
{
    FILE *from = fopen(path, "rb");
    if (!from) return FAIL(ERR_IO, "cannot open '%s'", path);
    Status st = OK;
    bytes->size = 0;
    for (size_t got = 1; st == OK && got > 0; bytes->size += got) {
        st = bytes_reserve(bytes, bytes->size + 65536);
        got = st == OK ? fread(bytes->data + bytes->size, 1, 65536, from) : 0;
    }
    fclose(from);
    return st;
}

static Status load(Driver *d, const char *path, Rect part, Pixels *pixels)
{
    TRY(file_load(path, &d->file));
    TRY(image_probe(&d->file, &d->info));
    if (part.h == 0) part = (Rect){0, 0, d->info.h, d->info.w};
    return image_decode(d->decoder, &d->file, &d->info, part, pixels);
}

static void pixels_print(const Pixels *p)
{
    printf("%d %d %d\n", p->h, p->w, p->c);
    for (int32_t y = 0; y < p->h; y++) fwrite(p->at + (size_t)y * p->pitch, 1, (size_t)p->w * (size_t)p->c, stdout);
}

static Status run_decode(Driver *d, Rect part, const char *path)
{
    TRY(load(d, path, part, &d->part));
    pixels_print(&d->part);
    return OK;
}

static Status run_resize(Driver *d, int filter, Rect out, const char *path)
{
    TRY(load(d, path, (Rect){0}, &d->whole));
    Resize to = {(ResizeFilter)filter, d->info.h, d->info.w, out.h, out.w, {0, 0, out.h, out.w}};
    TRY(pixels_shape(&d->part, out.h, out.w, d->whole.c));
    TRY(resizer_run(d->resizer, &to, &d->whole, d->part.at, d->part.pitch));
    pixels_print(&d->part);
    return OK;
}

static Status run_augment(Driver *d, int kind, float amount, const char *path)
{
    TRY(load(d, path, (Rect){0}, &d->whole));
    TRY(augment_apply((AugmentOp){(AugmentKind)kind, amount}, &d->whole, &d->part));
    pixels_print(&d->whole);
    return OK;
}

static Status command_run(Driver *d, const char *line)
{
    char path[4096];
    Rect r;
    int number;
    float amount;
    if (sscanf(line, "decode %4095s %d %d %d %d", path, &r.y, &r.x, &r.h, &r.w) == 5) return run_decode(d, r, path);
    if (sscanf(line, "resize %d %d %d %d %d %4095s", &number, &r.y, &r.x, &r.h, &r.w, path) == 6)
        return run_resize(d, number, r, path);
    if (sscanf(line, "augment %d %f %4095s", &number, &amount, path) == 3) return run_augment(d, number, amount, path);
    return FAIL(ERR_ARG, "no such command: %s", line);
}

int main(void)
{
    Driver d = {0};
    char line[8192];
    if (image_decoder_create(&d.decoder) != OK || resizer_create(&d.resizer) != OK) return 1;
    while (fgets(line, sizeof line, stdin)) {
        if (command_run(&d, line) != OK) printf("error: %s\n", status_message());
        fflush(stdout);
    }
    image_decoder_destroy(d.decoder);
    resizer_destroy(d.resizer);
    bytes_free(&d.file);
    pixels_free(&d.whole);
    pixels_free(&d.part);
    return 0;
}
