/* Winograd's algorithms of squares, F(out x out, taps x taps): their sizes, and which problems they are for. */
#pragma once

#include "kernels/cpu/conv/conv_impl.h"

typedef enum WinogradSquares { BY_2X2, BY_4X4, BY_5X5, SQUARES_KINDS } WinogradSquares;

typedef struct SquaresSize {
    int out;  /* outputs along a side of a tile; pixels of dy for a gradient of weights */
    int taps; /* along a side of the window */
    int side; /* pixels of x along a side of a tile, and points */
} SquaresSize;

extern const SquaresSize squares_sizes[SQUARES_KINDS];

/* Tiles that cover an image. */
int64_t squares_tiles(Shape image, int out);

/* Why the settings or the window of a problem are not for an algorithm, or too few of its products are saved; NULL if
 * none is. */
const char *squares_decline(const Device *device, const ConvProblem *problem, WinogradSquares squares);
