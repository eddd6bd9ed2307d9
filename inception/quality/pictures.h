/* Pictures: a set of 8-bit square images of equal size in memory, as the measures of quality and the sheets of images
 * use them; real ones are read from a data set. */
#pragma once

#include "towers/data/loading/loader.h"

typedef struct Pictures {
    uint8_t *at; /* owned: [count][side][side][c] */
    int64_t count;
    int32_t side, c;
} Pictures;

NODISCARD Status pictures_create(int64_t count, int32_t side, int32_t c, Pictures *pictures);
void pictures_free(Pictures *pictures); /* a zeroed one is fine */
static inline size_t picture_bytes(const Pictures *pictures)
{
    return (size_t)pictures->side * (size_t)pictures->side * (size_t)pictures->c;
}

/* The first `count` samples of a data set in the order of this seed, as an evaluation sees them. */
typedef struct PicturesConfig {
    const Source *source; /* borrowed */
    Transform transform;
    uint64_t seed;
    int64_t count; /* at most as many as the source has */
    int workers;
} PicturesConfig;
NODISCARD Status pictures_read(const PicturesConfig *config, Pictures *pictures);

/* Gray pictures become color pictures of three equal channels, color ones the gray of ITU-R BT.601 (as in Pillow's
 * convert("L")). */
NODISCARD Status pictures_to_channels(Pictures *pictures, int32_t c);

/* Independent uniform pixels. */
void pictures_noise(uint64_t seed, Pictures *pictures);

/* Pictures [first, first + rows * columns) side by side, row by row; black where there are fewer. *pixels is the caller's:
 * [rows * side][columns * side][c]. */
NODISCARD Status pictures_grid(const Pictures *pictures, int64_t first, int32_t columns, int32_t rows,
                               uint8_t **pixels);
