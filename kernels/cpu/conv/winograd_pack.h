/* The factors of weight gradients by Winograd's algorithms: B' x B and A dy A' as words, in bf16 and in f32.
 *
 * A word is 32 bits: a pixel of two images in bf16, of one image in f32. Images that share words are a *stack*. The
 * transforms are written once (winograd_transforms.h) and compiled for both; those of six points are for f32 alone
 * (winograd_transforms_six.h). Matrices of the others are those of F(2, 3),
 *     B' = {1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1}   A = {1 0; 1 1; 1 -1; 0 1}
 * The last row of A, and so the last column of G' (winograd_back.h), has the opposite sign in the literature. */
#pragma once

#include "kernels/cpu/conv/wgrad.h"
#include "kernels/cpu/conv/winograd_squares.h"

/* A tensor as lines of pixels: rows, or columns. */
typedef struct Lines {
    int images, across;        /* lines of an image */
    int length;                /* pixels of a line */
    int64_t image, line, step; /* elements from one to the next: images, lines, pixels of a line */
} Lines;

/* Some channels of a line of a stack. A line that does not exist reads zeros with a step of 0. */
typedef struct PixelRow {
    const void *even, *odd; /* images; in f32 there is no odd one */
    int64_t even_step, odd_step;
    int length;
} PixelRow;

/* The destination of words, and the number of words from one to the next. */
typedef struct WordsPlace {
    uint32_t *words;
    int64_t point, tile;
} WordsPlace;

/* The products of the points of squares for one output: m[point][channels], and those of further slices, `step` floats
 * apart. */
typedef struct SquareSums {
    const float *m;
    int slices;
    int64_t step;
} SquareSums;

/* Those of the 14 points of F(4, 7), and of `plain` taps that had products of their own, from tap `plain_first` on. */
typedef struct LineSums {
    const float *m;
    int plain_first, plain;
} LineSums;

/* From products to the taps of one output; channels are a multiple of 16. */
typedef struct WinogradBack {
    void (*squares[SQUARES_KINDS])(const SquareSums *sums, int64_t channels, float *dw,
                                   int64_t tap);                     /* floats from tap to tap */
    void (*line)(const LineSums *sums, int64_t channels, float *dw); /* `channels` from tap to tap */
} WinogradBack;

extern const WinogradBack winograd_back_avx512, winograd_back_avx2;

typedef struct WinogradPack {
    int images; /* of a stack */
    int element_bytes;
    int channels; /* that one call packs */
    const WgradCode *products;
    const WinogradBack *back;
    /* A row of tiles of squares: the first begins at place `left` of its rows of x. NULL: there is no code for them. */
    void (*x_squares[SQUARES_KINDS])(const PixelRow *rows, int left, int tiles, WordsPlace to);
    void (*dy_squares[SQUARES_KINDS])(const PixelRow *rows, int tiles, WordsPlace to);
    /* F(4, 7), the tiles of a line. */
    void (*x_line)(const PixelRow *line, int left, int tiles, WordsPlace to);
    void (*dy_line)(const PixelRow *line, int tiles, WordsPlace to);
    /* A pixel without a transform. */
    void (*pixel)(const PixelRow *line, int at, uint32_t *to);
} WinogradPack;

extern const WinogradPack winograd_pack_bf16, winograd_pack_f32, winograd_pack_f32_avx2;

/* Why weight gradients of these tensors are not for Winograd's algorithms on this processor (ONEDNN_MAX_CPU_ISA
 * counts); NULL if they are. */
const char *winograd_pack_declines(const Tensor *x, const Tensor *dy);

/* The packing for tensors that winograd_pack_declines accepts. */
const WinogradPack *winograd_pack_for(const Tensor *x);

/* `down`: columns. */
Lines lines_of(const Tensor *t, bool down);

int lines_stacks(const Lines *lines, const WinogradPack *pack);

/* The channels from `channel` on of line `line`, which may lie outside. */
PixelRow lines_row(const Lines *lines, const WinogradPack *pack, const void *base, int64_t stack, int64_t line,
                   int64_t channel);
