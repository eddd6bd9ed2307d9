/* The pixel operations of OP_IMAGE without its normalization, which commutes with mixing; see batch_image.h. */
#include "towers/data/loading/batch_image.h"

#include "kernels/base/text.h"

/* Pixel (y, x) of image i alone. */
static void pixel_of(const Batch *b, int32_t i, int32_t side, const float mean[3], int32_t y, int32_t x, uint8_t *to)
{
    const int32_t *record = b->augment + (size_t)i * IMAGE_RECORD;
    size_t c = (size_t)b->c, canvas = (size_t)b->canvas;
    const uint8_t *from = b->pixels + (size_t)i * canvas * canvas * c;
    int32_t column = record[IMAGE_OX] + (record[IMAGE_FLIP] ? side - 1 - x : x);
    bool erased = y >= record[IMAGE_ERASE_Y] && y < record[IMAGE_ERASE_Y] + record[IMAGE_ERASE_H] &&
                  x >= record[IMAGE_ERASE_X] && x < record[IMAGE_ERASE_X] + record[IMAGE_ERASE_W];
    memcpy(to, from + ((size_t)(record[IMAGE_OY] + y) * canvas + (size_t)column) * c, c);
    for (size_t k = 0; k < c && erased; k++) to[k] = (uint8_t)lrintf(255 * mean[k]);
}

void batch_image(const Batch *b, int32_t i, int32_t side, const float mean[3], uint8_t *pixels)
{
    const int32_t *record = b->augment + (size_t)i * IMAGE_RECORD;
    size_t c = (size_t)b->c;
    for (int32_t y = 0; y < side; y++)
        for (int32_t x = 0; x < side; x++) {
            uint8_t *to = pixels + ((size_t)y * (size_t)side + (size_t)x) * c, partner[4];
            pixel_of(b, i, side, mean, y, x, to);
            if (!record[IMAGE_PARTNER]) continue;
            bool cut = y >= record[IMAGE_CUT_Y] && y < record[IMAGE_CUT_Y] + record[IMAGE_CUT_H] &&
                       x >= record[IMAGE_CUT_X] && x < record[IMAGE_CUT_X] + record[IMAGE_CUT_W];
            float share = cut ? 1 : (float)record[IMAGE_SHARE] / IMAGE_SHARE_ONE;
            pixel_of(b, record[IMAGE_PARTNER] - 1, side, mean, y, x, partner);
            for (size_t k = 0; k < c; k++)
                to[k] = (uint8_t)lrintf((1 - share) * (float)to[k] + share * (float)partner[k]);
        }
}

static void class_add(Text *to, const SourceInfo *info, int32_t label)
{
    const char *name = info->class_names[label];
    if (*name)
        text_add(to, "%s", name);
    else
        text_add(to, "%d", label);
}

static void classes_add(Text *to, const Source *source, int64_t id, int32_t label)
{
    const SourceInfo *info = source_info(source);
    const int32_t *labels = &label;
    int32_t count = info->multi_label ? source_labels(source, id, &labels) : 1;
    if (!count) text_add(to, "(none)");
    for (int32_t k = 0; k < count; k++) {
        if (k) text_add(to, ", ");
        class_add(to, info, labels[k]);
    }
}

void batch_label(const Batch *b, int32_t i, const Source *source, char *text, size_t bytes)
{
    Text to = text_start(text, bytes);
    int32_t partner = b->augment[(size_t)i * IMAGE_RECORD + IMAGE_PARTNER] - 1;
    if (b->labels[i] == LABEL_NONE) {
        text_add(&to, "(damaged)");
        return;
    }
    if (partner >= 0) text_add(&to, "%.4g ", 1 - b->share);
    classes_add(&to, source, b->ids[i], b->labels[i]);
    if (partner < 0) return;
    text_add(&to, " + %.4g ", b->share);
    classes_add(&to, source, b->ids[partner], b->labels[partner]);
}
