/* Images: a set of 8-bit square images of equal size in memory, as the measures of quality and the sheets of images
 * use them; real ones are read from a data set. */
#pragma once

#include "towers/data/loading/loader.h"

typedef struct Images {
    uint8_t *at; /* owned: [count][side][side][c] */
    int64_t count;
    int32_t side, c;
} Images;

NODISCARD Status images_create(int64_t count, int32_t side, int32_t c, Images *images);
void images_free(Images *images); /* a zeroed one is fine */
static inline size_t image_bytes(const Images *images)
{
    return (size_t)images->side * (size_t)images->side * (size_t)images->c;
}

/* The first `count` samples of a data set in the order of this seed, as an evaluation sees them. */
typedef struct ImagesConfig {
    const Source *source; /* borrowed */
    Transform transform;
    uint64_t seed;
    int64_t count; /* at most as many as the source has */
    int workers;
} ImagesConfig;
NODISCARD Status images_read(const ImagesConfig *config, Images *images);

/* Gray images become color images of three equal channels, color ones the gray of ITU-R BT.601 (as in Pillow's
 * convert("L")). */
NODISCARD Status images_to_channels(Images *images, int32_t c);

/* Independent uniform pixels. */
void images_noise(uint64_t seed, Images *images);

/* Images [first, first + rows * columns) side by side, row by row; black where there are fewer. *pixels is the caller's:
 * [rows * side][columns * side][c]. */
NODISCARD Status images_grid(const Images *images, int64_t first, int32_t columns, int32_t rows, uint8_t **pixels);
