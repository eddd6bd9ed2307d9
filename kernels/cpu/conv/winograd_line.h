/* F(4, 7) as winograd_line.c plans it and winograd_line_code.h computes it. */
#pragma once

#include "kernels/cpu/conv/winograd_panels.h"

enum {
    TAPS = 7,
    SIDE = 4,             /* outputs of a tile; and of the square of its inner and outer points */
    POINTS = 14,          /* of that square, less two corners */
    MOST = POINTS + TAPS, /* and with plain taps */
    OUTPUTS = SIDE
};

/* The lines of x or y. */
typedef struct LineLayout {
    int length;
    int64_t across;            /* lines of an image */
    int64_t image, line, step; /* elements from one to the next: images, lines, pixels of a line */
} LineLayout;

extern const WinogradCode winograd_line_avx512, winograd_line_avx2;

typedef struct WinogradLine {
    WinogradPlan plan;
    bool down; /* lines are columns */
    LineLayout from, to;
    int pad;
    int tiles;                /* of a line */
    bool tail;                /* one more output */
    int tail_first, tail_end; /* the taps of it that lie inside the line */
} WinogradLine;

/* ---- the memory of a thread: d, tails, m */

static inline int tail_taps(const WinogradLine *g)
{
    return g->tail ? g->tail_end - g->tail_first : 0;
}

/* A whole number of groups; a block of last outputs alone has no tiles, but needs room for their sums. */
static inline size_t block_tiles(const WinogradLine *g)
{
    return (size_t)rounded_up(larger(1, g->plan.block * g->tiles), GROUP);
}

static inline size_t d_bytes(const WinogradLine *g)
{
    return block_tiles(g) * POINTS * (size_t)g->plan.x.c * dtype_bytes(g->plan.dtype);
}

static inline size_t tails_bytes(const WinogradLine *g)
{
    return (size_t)GROUP * (size_t)tail_taps(g) * (size_t)g->plan.x.c * dtype_bytes(g->plan.dtype);
}

static inline size_t m_bytes(const WinogradLine *g)
{
    return block_tiles(g) * POINTS * VECTORS * (size_t)g->plan.code->lanes * sizeof(float);
}

static inline LineLayout line_layout(Shape s, int64_t pitch, bool down)
{
    int64_t row = s.w * pitch;
    return down ? (LineLayout){s.h, s.w, s.h * row, pitch, row} : (LineLayout){s.w, s.h, s.h * row, row, pitch};
}
