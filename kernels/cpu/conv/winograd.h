/* F(2x2, 3x3) as winograd.c plans it and winograd_code.h computes it. */
#pragma once

#include "kernels/cpu/conv/winograd_panels.h"

enum {
    SIDE = 4, /* of the 4x4 pixels that a tile reads, and of its points */
    POINTS = SIDE * SIDE,
    TAPS = 9,
    BLOCK = 16 /* tiles that one thread computes at a time */
};

/* Their context is a WinogradRun. */
extern const WinogradCode winograd_avx512, winograd_avx2;

typedef struct Winograd {
    const WinogradCode *code;
    Dtype dtype;
    Shape x, y;
    int64_t x_pitch, y_pitch;
    int pad_h, pad_w;
    int tiles_h, tiles_w;
    bool rotated;
    int threads;
    Panels panels;
    void *zeros;    /* owned: a pixel outside the image */
    uint32_t *kept; /* owned: transformed weights (kept_create), or NULL */
} Winograd;

/* The arguments of a run. */
typedef struct WinogradRun {
    const Winograd *g;
    const void *x;
    const float *w;
    const Tensor *acc;
    Finish finish;
    void *y;
    uint32_t *u;      /* transformed weights */
    char *per_thread; /* memory of each thread, one after another: d, then m */
} WinogradRun;

static inline size_t d_bytes(const Winograd *g)
{
    return (size_t)POINTS * BLOCK * (size_t)g->x.c * dtype_bytes(g->dtype);
}

static inline size_t m_bytes(const Winograd *g)
{
    return (size_t)POINTS * BLOCK * VECTORS * (size_t)g->code->lanes * sizeof(float);
}

static inline size_t per_thread_bytes(const Winograd *g)
{
    return d_bytes(g) + m_bytes(g);
}
