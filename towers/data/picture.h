/* What the network sees of a picture of a batch, as pixels: crop and mirror of its record applied, an erased rectangle
 * as the color that normalizes to 0. For people; the network's own copy is OP_IMAGE's. */
#ifndef TOWERS_DATA_PICTURE_H
#define TOWERS_DATA_PICTURE_H

#include "towers/data/loader.h"

/* `pixels` [side][side][batch->c]; `mean` of each channel in [0, 1]. */
void batch_picture(const Batch *batch, int32_t i, int32_t side, const float mean[3], uint8_t *pixels);

#endif
