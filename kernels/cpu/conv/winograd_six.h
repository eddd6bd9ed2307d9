/* B' of six points along one dimension, for the kind of vectors whose header (lanes_*.h) was included before. */
#pragma once

#include "kernels/cpu/conv/winograd.h"
#include "kernels/cpu/conv/winograd_points.h"

enum { SIDE = 6 /* pixels along a side of a tile, and its points */ };

TILE_INLINE void pixels_line(const Vector x[SIDE], Vector to[SIDE])
{
    const float pp = NEAR * NEAR, qq = FAR * FAR;
    Vector even = add_times(x[4], x[2], -qq), odd = add_times(x[3], x[1], -qq);
    to[0] = add_times(add_times(x[4], x[2], -(pp + qq)), x[0], pp * qq);
    to[1] = add_times(even, odd, NEAR);
    to[2] = add_times(even, odd, -NEAR);
    even = add_times(x[4], x[2], -pp), odd = add_times(x[3], x[1], -pp);
    to[3] = add_times(even, odd, FAR);
    to[4] = add_times(even, odd, -FAR);
    to[5] = add_times(add_times(x[5], x[3], -(pp + qq)), x[1], pp * qq);
}
