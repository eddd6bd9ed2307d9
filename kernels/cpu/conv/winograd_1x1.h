/* The one point of a 1x1 convolution, which needs no transform, for the kind of vectors whose header (lanes_*.h) was
 * included before: so winograd_code.h multiplies plain pixels. */
#pragma once

#include "kernels/cpu/conv/winograd.h"

enum { OUT = 1, KERNEL = 1, SIDE = 1, TAPS = 1, POINTS = 1, MOST = POINTS, OUTPUTS = 1 };

#include "kernels/cpu/conv/winograd_both.h"

TILE_INLINE void taps_line(const Vector *w, int from, Vector *to, int step)
{
    (void)from;
    (void)step;
    to[0] = w[0];
}

TILE_INLINE void pixels_line(const Vector x[SIDE], Vector to[SIDE])
{
    to[0] = x[0];
}

TILE_INLINE void outputs_line(const Vector m[SIDE], Vector to[OUT])
{
    to[0] = m[0];
}
