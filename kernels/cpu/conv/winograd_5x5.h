/* The transforms of F(2x2, 5x5) along one dimension, for the kind of vectors whose header (lanes_*.h) was included
 * before. */
#pragma once

#include "kernels/cpu/conv/winograd_six.h"

enum {
    OUT = 2,    /* outputs along a side of a tile */
    KERNEL = 5, /* taps along a side of the window */
    TAPS = KERNEL * KERNEL,
    POINTS = SIDE * SIDE,
    MOST = POINTS,
    OUTPUTS = OUT * OUT
};

#include "kernels/cpu/conv/winograd_both.h"

/* G of five taps, `from` vectors apart; points are `step` vectors apart. */
TILE_INLINE void taps_line(const Vector *w, int from, Vector *to, int step)
{
    const float pp = NEAR * NEAR, qq = FAR * FAR;
    Vector outer = NEAR_SCALE * add_times(add_times(w[0], w[2 * from], pp), w[4 * from], pp * pp);
    Vector inner = NEAR_SCALE * NEAR * add_times(w[from], w[3 * from], pp);
    to[0] = 1 / (pp * qq) * w[0];
    to[step] = outer + inner;
    to[2 * step] = outer - inner;
    outer = FAR_SCALE * add_times(add_times(w[0], w[2 * from], qq), w[4 * from], qq * qq);
    inner = FAR_SCALE * FAR * add_times(w[from], w[3 * from], qq);
    to[3 * step] = outer + inner;
    to[4 * step] = outer - inner;
    to[5 * step] = w[4 * from];
}

/* A' */
TILE_INLINE void outputs_line(const Vector m[SIDE], Vector to[OUT])
{
    to[0] = m[0] + (m[1] + m[2]) + (m[3] + m[4]);
    to[1] = add_times(add_times(m[5], m[1] - m[2], NEAR), m[3] - m[4], FAR);
}
