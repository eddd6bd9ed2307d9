/* F(2x2, 3x3), F(4x4, 3x3) and F(2x2, 5x5) as winograd.c plans them, and products of single pixels as panels.c does;
 * winograd_code.h computes them. */
#pragma once

#include "kernels/cpu/conv/winograd_panels.h"

enum { BLOCK = 16 /* tiles that one thread computes at a time */ };

extern const WinogradCode winograd_1x1_avx512, winograd_2x2_avx512, winograd_4x4_avx512, winograd_5x5_avx512;
extern const WinogradCode winograd_1x1_avx2, winograd_2x2_avx2, winograd_4x4_avx2, winograd_5x5_avx2;

typedef struct Winograd {
    WinogradPlan plan;
    int64_t x_pitch, y_pitch;
    int pad_h, pad_w;
    int tiles_h, tiles_w;
} Winograd;

/* The memory of a thread: d, then m. */
static inline size_t d_bytes(const Winograd *g)
{
    return (size_t)g->plan.points * BLOCK * (size_t)g->plan.x.c * dtype_bytes(g->plan.dtype);
}

static inline size_t m_bytes(const Winograd *g)
{
    return (size_t)g->plan.points * BLOCK * VECTORS * (size_t)g->plan.code->lanes * sizeof(float);
}
