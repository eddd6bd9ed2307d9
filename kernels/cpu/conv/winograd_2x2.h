/* The transforms of F(2x2, 3x3) along one dimension, for the kind of vectors whose header (lanes_*.h) was included
 * before. Points 0, 1, -1 and infinity. */
#pragma once

#include "kernels/cpu/conv/winograd.h"

enum {
    OUT = 2,                 /* outputs along a side of a tile */
    KERNEL = 3,              /* taps along a side of the window */
    SIDE = OUT + KERNEL - 1, /* pixels that a tile reads, and its points */
    TAPS = KERNEL * KERNEL,
    POINTS = SIDE * SIDE,
    MOST = POINTS,
    OUTPUTS = OUT * OUT
};

#include "kernels/cpu/conv/winograd_both.h"

/* G of three taps, `from` vectors apart; points are `step` vectors apart. */
TILE_INLINE void taps_line(const Vector *w, int from, Vector *to, int step)
{
    weights_line(w[0], w[from], w[2 * from], to, step);
}

/* B' */
TILE_INLINE void pixels_line(const Vector x[SIDE], Vector to[SIDE])
{
    x_line(x[0], x[1], x[2], x[3], to);
}

/* A' */
TILE_INLINE void outputs_line(const Vector m[SIDE], Vector to[OUT])
{
    to[0] = back_even(m[0], m[1], m[2]);
    to[1] = back_odd(m[1], m[2], m[3]);
}
