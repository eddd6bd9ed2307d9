/* Images of a batch as the network sees them, for display: crop and mirroring of the image's record applied, an erased
 * rectangle in the color that is normalized to 0. The network's own input is computed by OP_IMAGE. */
#ifndef TOWERS_DATA_PICTURE_H
#define TOWERS_DATA_PICTURE_H

#include "towers/data/loader.h"

/* `pixels` [side][side][batch->c]; `mean` of each channel in [0, 1]. */
void batch_picture(const Batch *batch, int32_t i, int32_t side, const float mean[3], uint8_t *pixels);

#endif
