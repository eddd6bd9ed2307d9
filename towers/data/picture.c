/* The pixel operations of OP_IMAGE without its normalization; see picture.h. */
#include "towers/data/picture.h"

#include <math.h>
#include <string.h>

void batch_picture(const Batch *b, int32_t i, int32_t side, const float mean[3], uint8_t *pixels)
{
    const int32_t *record = b->augment + (size_t)i * IMAGE_RECORD;
    size_t c = (size_t)b->c, canvas = (size_t)b->canvas;
    const uint8_t *from = b->pixels + (size_t)i * canvas * canvas * c;
    for (int32_t y = 0; y < side; y++)
        for (int32_t x = 0; x < side; x++) {
            uint8_t *to = pixels + ((size_t)y * (size_t)side + (size_t)x) * c;
            int32_t column = record[IMAGE_OX] + (record[IMAGE_FLIP] ? side - 1 - x : x);
            bool erased = y >= record[IMAGE_ERASE_Y] && y < record[IMAGE_ERASE_Y] + record[IMAGE_ERASE_H] &&
                          x >= record[IMAGE_ERASE_X] && x < record[IMAGE_ERASE_X] + record[IMAGE_ERASE_W];
            memcpy(to, from + ((size_t)(record[IMAGE_OY] + y) * canvas + (size_t)column) * c, c);
            for (size_t k = 0; k < c && erased; k++) to[k] = (uint8_t)lrintf(255 * mean[k]);
        }
}
