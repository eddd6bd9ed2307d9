/* F(2x2, 3x3) as winograd.c plans it and winograd_code.h computes it. */
#pragma once

#include "kernels/cpu/conv/winograd_panels.h"

enum {
    SIDE = 4, /* of the 4x4 pixels that a tile reads, and of its points */
    POINTS = SIDE * SIDE,
    MOST = POINTS,
    TAPS = 9,
    BLOCK = 16 /* tiles that one thread computes at a time */
};

extern const WinogradCode winograd_avx512, winograd_avx2;

typedef struct Winograd {
    WinogradPlan plan;
    int64_t x_pitch, y_pitch;
    int pad_h, pad_w;
    int tiles_h, tiles_w;
} Winograd;

/* The memory of a thread: d, then m. */
static inline size_t d_bytes(const Winograd *g)
{
    return (size_t)POINTS * BLOCK * (size_t)g->plan.x.c * dtype_bytes(g->plan.dtype);
}

static inline size_t m_bytes(const Winograd *g)
{
    return (size_t)POINTS * BLOCK * VECTORS * (size_t)g->plan.code->lanes * sizeof(float);
}
