/* Winograd's algorithms: their sizes, which problems they are for, and the plan of a convolution that its code for a kind of
 * processor (winograd_kernel.h) runs.
 *
 * F(m x m, r x r) computes a tile of m x m outputs of an r x r window out of alpha x alpha pixels, alpha = m + r - 1, with
 * one product for each of alpha x alpha points. F(4, 7) computes 1-D tiles of 4 outputs of a window of 7 taps in a line; it is
 * F(2, 3) nested in itself, so its m, r and alpha are those of F(2, 3), and two of its 16 points have no product. */
#pragma once

#include "kernels/cpu/conv/conv_impl.h"
#include "kernels/cpu/vector.h"

typedef enum WinogradAlgorithm {
    POINTWISE, /* a 1x1 convolution, whose only point needs no transform */
    F2_3,      /* F(2x2, 3x3) */
    F4_3,      /* F(4x4, 3x3) */
    F2_5,      /* F(2x2, 5x5) */
    F4_7,      /* F(4, 7), along rows or columns */
    WINOGRAD_ALGORITHMS
} WinogradAlgorithm;

enum {
    ALPHA_MOST = 6,
    POINTS_MOST = ALPHA_MOST * ALPHA_MOST,
    TAPS_MOST = 25,
    M_MOST = 4,
    OUTPUTS_MOST = M_MOST * M_MOST,
    F4_7_TAPS = 7,
    F4_7_POINTS = 14,
    F4_7_OUTPUTS = 4,
    GROUP = 8,        /* tiles multiplied together */
    PANEL_VECTORS = 3 /* of channels in a packed panel, at most */
};

static inline int winograd_m(WinogradAlgorithm a)
{
    return a == POINTWISE ? 1 : a == F4_3 ? 4 : 2;
}

static inline int winograd_r(WinogradAlgorithm a)
{
    return a == POINTWISE ? 1 : a == F2_5 ? 5 : 3;
}

static inline int winograd_alpha(WinogradAlgorithm a)
{
    return winograd_m(a) + winograd_r(a) - 1;
}

static inline int winograd_points(WinogradAlgorithm a)
{
    return a == F4_7 ? F4_7_POINTS : winograd_alpha(a) * winograd_alpha(a);
}

static inline int winograd_taps(WinogradAlgorithm a)
{
    return a == F4_7 ? F4_7_TAPS : winograd_r(a) * winograd_r(a);
}

/* Tiles of m x m that cover an image. */
static inline int64_t winograd_tiles(Shape image, int m)
{
    return (int64_t)((image.h + m - 1) / m) * ((image.w + m - 1) / m);
}

/* Why an algorithm is not for a problem: by settings, by its window, or because it saves too few products; NULL if it is. */
const char *winograd_declines(const Device *device, const ConvProblem *problem, WinogradAlgorithm algorithm);

/* Why this processor or these tensors are not for our code by vectors; NULL if they are. Both have numbers of channels that are at
 * least `few` and multiples of `lanes`. */
const char *winograd_tensors_decline(const Tensor *x, const Tensor *y, int lanes, int few);

/* ---- lines of pixels, for 1-D tiles */

/* A tensor as lines of pixels: rows, or columns (`down`). */
typedef struct Lines {
    int images, across;        /* lines of an image */
    int length;                /* pixels of a line */
    int64_t image, line, step; /* elements from one to the next: images, lines, pixels of a line */
} Lines;

static inline Lines lines_of(Shape s, int64_t pitch, bool down)
{
    int64_t row = s.w * pitch;
    return down ? (Lines){s.n, s.w, s.h, s.h * row, pitch, row} : (Lines){s.n, s.h, s.w, s.h * row, row, pitch};
}

/* The 1-D tiles of a line of outputs, and the output that is left if the line is one longer than its tiles: a plain sum. */
typedef struct LineTiles {
    int count;
    bool tail;
    int tail_first, tail_end; /* the taps of that output that lie inside the line of pixels */
} LineTiles;

/* `pixels` and `outputs`: the lengths of the lines. */
LineTiles line_tiles(int pixels, int outputs, int pad);

static inline int tail_taps(const LineTiles *tiles)
{
    return tiles->tail ? tiles->tail_end - tiles->tail_first : 0;
}

/* ---- packed panels of channels */

/* Channels, outputs or the inputs of a weight gradient, are cut into about equal panels of up to PANEL_VECTORS vectors. */
typedef struct Panels {
    int64_t lanes;   /* of a vector */
    int64_t vectors; /* of all channels */
    int64_t count;
} Panels;

static inline Panels panels_of(int64_t lanes, int64_t channels)
{
    int64_t vectors = channels / lanes;
    return (Panels){lanes, vectors, (vectors + PANEL_VECTORS - 1) / PANEL_VECTORS};
}

/* The first channel of panel k. */
static inline int64_t panels_first(const Panels *p, int64_t k)
{
    return p->vectors * k / p->count * p->lanes;
}

static inline int64_t panels_width(const Panels *p, int64_t k)
{
    return panels_first(p, k + 1) - panels_first(p, k);
}

static inline int64_t panels_find(const Panels *p, int64_t out)
{
    int64_t k = 0;
    while (panels_first(p, k + 1) <= out) k++;
    return k;
}

/* ---- the plan and the run of CONV and CONV_DX */

/* An algorithm's code for one kind of processor: bodies of chunks_run. */
typedef struct WinogradCode {
    int lanes;          /* of a vector */
    ChunkBody *weights; /* squares of lanes x lanes weights */
    ChunkBody *outputs; /* tiles, or lines of 1-D tiles */
} WinogradCode;

extern const WinogradCode winograd_avx512[WINOGRAD_ALGORITHMS], winograd_avx2[WINOGRAD_ALGORITHMS],
    winograd_neon[WINOGRAD_ALGORITHMS];

typedef struct WinogradPlan {
    WinogradAlgorithm algorithm;
    const WinogradCode *code;
    Dtype dtype;
    Shape x, y; /* what is read and written: those of a gradient are exchanged */
    int64_t x_pitch, y_pitch;
    bool rotated;     /* weights are: this is CONV_DX */
    int pad_h, pad_w; /* tiles of m x m: above and left of the pixels that are read */
    int tiles_h, tiles_w;
    bool down; /* 1-D tiles: lines are columns */
    Lines from, to;
    int pad; /* 1-D tiles: before the first pixel of a line */
    LineTiles line;
    int points; /* elements of u for an input and an output: the algorithm's, and the taps of a tail */
    int threads;
    size_t d_bytes, tail_bytes, m_bytes; /* of a thread */
    int64_t outputs, block;              /* tiles, or lines: in all, and those that one thread computes at a time */
    Panels panels;
    void *zeros; /* owned: a pixel outside the image */
    /* owned: transformed weights that are kept from launch to launch, or NULL: each launch makes them */
    uint32_t *kept;
} WinogradPlan;

/* What follows the sums of a convolution's outputs. */
typedef struct Finish {
    const float *bias; /* [channels]; NULL: none */
    bool relu;
} Finish;

/* The arguments of a run: the context of a WinogradCode. */
typedef struct WinogradRun {
    const WinogradPlan *plan;
    const void *x;
    const float *w;
    const Tensor *acc;
    Finish finish;
    void *y;
    uint32_t *u;      /* transformed weights */
    char *per_thread; /* d, pixels of tails, m of each thread, one after another */
} WinogradRun;

static inline size_t winograd_thread_bytes(const WinogradPlan *g)
{
    return g->d_bytes + g->tail_bytes + g->m_bytes;
}

static inline char *winograd_thread_memory(const WinogradRun *run)
{
    return run->per_thread + (size_t)team_member() * winograd_thread_bytes(run->plan);
}

/* Elements of a word, which is what one instruction multiplies: a float, or a VNNI pair of bf16. */
static inline int word_elements(Dtype dtype)
{
    return dtype == DTYPE_F32 ? 1 : 2;
}

/* Address of word `word` of the inputs for a vector of outputs from `out` on in u[panel][point][words][width], for
 * point 0. */
static inline uint32_t *words_at(const Panels *p, uint32_t *u, int64_t words, int points, int64_t word, int64_t out,
                                 int64_t *width)
{
    int64_t k = panels_find(p, out), first = panels_first(p, k);
    *width = panels_width(p, k);
    return u + first * words * points + word * *width + (out - first);
}
