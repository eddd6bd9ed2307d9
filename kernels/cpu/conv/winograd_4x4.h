/* The transforms of F(4x4, 3x3) along one dimension, for the kind of vectors whose header (lanes_*.h) was included
 * before. */
#pragma once

#include "kernels/cpu/conv/winograd_six.h"

enum {
    OUT = 4,    /* outputs along a side of a tile */
    KERNEL = 3, /* taps along a side of the window */
    TAPS = KERNEL * KERNEL,
    POINTS = SIDE * SIDE,
    MOST = POINTS,
    OUTPUTS = OUT * OUT
};

#include "kernels/cpu/conv/winograd_both.h"

/* G of three taps, `from` vectors apart; points are `step` vectors apart. */
TILE_INLINE void taps_line(const Vector *w, int from, Vector *to, int step)
{
    const float pp = NEAR * NEAR, qq = FAR * FAR;
    Vector outer = NEAR_SCALE * add_times(w[0], w[2 * from], pp), inner = NEAR_SCALE * NEAR * w[from];
    to[0] = 1 / (pp * qq) * w[0];
    to[step] = outer + inner;
    to[2 * step] = outer - inner;
    outer = FAR_SCALE * add_times(w[0], w[2 * from], qq), inner = FAR_SCALE * FAR * w[from];
    to[3 * step] = outer + inner;
    to[4 * step] = outer - inner;
    to[5 * step] = w[2 * from];
}

/* A' */
TILE_INLINE void outputs_line(const Vector m[SIDE], Vector to[OUT])
{
    const float pp = NEAR * NEAR, qq = FAR * FAR;
    Vector even = m[1] + m[2], odd = m[1] - m[2], far_even = m[3] + m[4], far_odd = m[3] - m[4];
    to[0] = m[0] + even + far_even;
    to[1] = add_times(NEAR * odd, far_odd, FAR);
    to[2] = add_times(pp * even, far_even, qq);
    to[3] = add_times(add_times(m[5], odd, pp * NEAR), far_odd, qq * FAR);
}
