/* Images of a batch as the network sees them, for display: crop and mirroring of the image's record applied, an erased
 * rectangle in the color that is normalized to 0, its partner mixed in. The network's own input is computed by OP_IMAGE. */
#pragma once

#include "towers/data/loading/loader.h"

/* Its class, or its number if it has no name: "rose"; of a mixed sample both, with their shares: "0.75 rose + 0.25
 * tulip"; of a sample with any number of classes all of them: "haze, primary"; "(none)"; "(damaged)". */
void batch_label(const Batch *batch, int32_t i, const Source *source, char *text, size_t bytes);

/* `pixels` [side][side][batch->c]; `mean` of each channel in [0, 1]. */
void batch_image(const Batch *batch, int32_t i, int32_t side, const float mean[3], uint8_t *pixels);
