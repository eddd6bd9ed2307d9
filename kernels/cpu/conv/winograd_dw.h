/* The code of weight gradients by Winograd's algorithms for a kind of processor (winograd_dw_kernel.h), as their driver
 * (winograd_dw.c) calls it.
 *
 * A word is 32 bits: a pixel of two images in bf16 (a VNNI pair along the sum), of one image in f32. Images that share words are
 * an *image group*. */
#pragma once

#include "kernels/cpu/conv/wgrad.h"
#include "kernels/cpu/conv/winograd.h"

/* Some channels of a line of an image group. A line that does not exist reads zeros with a step of 0. */
typedef struct PixelRow {
    const void *even, *odd; /* images; in f32 there is no odd one */
    int64_t even_step, odd_step;
    int length;
} PixelRow;

/* The destination of words, and the number of words from one to the next. */
typedef struct WordSteps {
    uint32_t *words;
    int64_t point, tile;
} WordSteps;

/* The products of the points for one output: m[point][channels], and those of further slices, `step` floats apart. Behind the
 * points of F(4, 7) are those of `plain` taps that had products of their own, from tap `plain_first` on. */
typedef struct PointSums {
    const float *m;
    int slices;
    int64_t step;
    int plain_first, plain;
} PointSums;

/* Of one algorithm. */
typedef struct WinogradDwCode {
    int channels; /* that one call packs */
    /* B' x B of a strip of tiles, the first of which begins at position `left` of its rows of x: alpha rows, or a line. */
    void (*x_pack)(const PixelRow *rows, int left, int tiles, WordSteps to);
    /* A dy A' of its outputs: m rows, or a line. */
    void (*dy_pack)(const PixelRow *rows, int tiles, WordSteps to);
    /* A pixel without a transform. */
    void (*pixel_pack)(const PixelRow *row, int at, uint32_t *to);
    /* dw = G' m G of one output; channels are a multiple of 16. `tap`: floats from tap to tap. */
    void (*back)(const PointSums *sums, int64_t channels, float *dw, int64_t tap);
} WinogradDwCode;

/* POINTWISE has none, and bf16 has only F(2x2, 3x3) and F(4, 7). */
extern const WinogradDwCode winograd_dw_bf16[WINOGRAD_ALGORITHMS], winograd_dw_avx512[WINOGRAD_ALGORITHMS],
    winograd_dw_avx2[WINOGRAD_ALGORITHMS], winograd_dw_neon[WINOGRAD_ALGORITHMS];
