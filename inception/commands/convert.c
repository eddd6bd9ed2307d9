/* The small JPEG that an image becomes, and images that cannot be decoded; see convert.h. */
#include "inception/commands/convert.h"

#include "towers/data/images/jpeg_write.h"
#include "towers/files/files.h"

Resize convert_size(const Convert *c, int32_t h, int32_t w)
{
    int64_t longer = h > w ? h : w;
    Resize r = {.filter = RESIZE_BICUBIC, .in_h = h, .in_w = w, .out_h = h, .out_w = w};
    if (longer > c->side) {
        r.out_h = (int32_t)((h * (int64_t)c->side + longer / 2) / longer);
        r.out_w = (int32_t)((w * (int64_t)c->side + longer / 2) / longer);
    }
    if (r.out_h < 1) r.out_h = 1;
    if (r.out_w < 1) r.out_w = 1;
    r.window = (Rect){0, 0, r.out_h, r.out_w};
    return r;
}

Status convert_encode(Convert *c, TransformWorker *t, const Bytes *from, const ImageInfo *info, uint8_t **bytes,
                      size_t *count)
{
    const Pixels *upright = &t->decoded;
    TRY(image_decode(t->decoder, from, info, (Rect){0, 0, info->h, info->w}, &t->decoded));
    if (c->exif && info->orientation != 1) {
        TRY(orientation_apply(info->orientation, &t->decoded, &t->upright));
        upright = &t->upright;
    }
    if (info->orientation != 1) atomic_fetch_add(&c->rotated, 1);
    Resize r = convert_size(c, upright->h, upright->w);
    TRY(pixels_shape(&t->resized, r.out_h, r.out_w, upright->c));
    TRY(resizer_run(t->resizer, &r, upright, t->resized.at, t->resized.pitch));
    return jpeg_encode(&t->resized, c->quality, bytes, count);
}

void convert_skip(Convert *c, int64_t id)
{
    char where[PATH_BYTES];
    source_where(c->source, id, where, sizeof where);
    text_printf(stderr, "skipped: %s: %s\n", where, status_message());
    atomic_fetch_add(&c->damaged, 1);
}
