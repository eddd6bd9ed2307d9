/* Weight gradients of convolutions by our own kernel: dw[o][r][s][c] = sum over n,h,w of dy[n,h,w,o] x[n,h',w',c].
 *
 * Processors multiply bf16 in pairs along the sum. This code pairs equal pixels of two images, which no shift, stride or
 * padding of the window separates; such a pair is a *word* of 32 bits, and the two are an *image group*. Blocks of words are
 * packed into panels (wgrad_pack.c) and multiplied by tiles of dw that stay in registers, with the instructions of AVX512-BF16
 * (wgrad_avx512.c) or of AMX (wgrad_amx.c). In f32 a word is a float, and a group is one image (wgrad_pack_f32.h,
 * wgrad_avx512.c, wgrad_f32_kernel.h). Sums are f32 in an order that depends on the shape alone: results are equal to the bit for
 * any number of threads. */
#pragma once

#include "kernels/cpu/conv/winograd.h"

enum {
    WGRAD_LANES = 16,               /* words in a vector of 512 bits */
    WGRAD_VECTORS = 3,              /* of so many inputs, in a tile by vectors, at most */
    WGRAD_BLOCK_BYTES = 8 << 20,    /* of packed x, or dy: see wgrad.c */
    WGRAD_L2_BLOCK_BYTES = 1 << 20, /* of packed dy that is read from L2 */
};

/* A tile of dw, a sum over `groups` x `rows` x `columns` pixels of panels of x and dy. */
typedef struct WgradTile {
    const uint32_t *x, *dy;
    int64_t groups, rows, columns;
    int64_t x_group, x_row, dy_group, dy_row; /* words from one to the next */
    int64_t dy_panel;                         /* words from a panel of outputs to the next */
    int vectors, outs, ins;                   /* vectors of x in a pixel; the part of the tile that exists */
    float *dw;
    int64_t dw_out; /* floats from output to output */
    bool add;       /* to what dw holds */
} WgradTile;

/* A row of pixels of two images, or in f32 of one. `odd` is not read if there is no second image. */
typedef struct WgradRow {
    const void *even, *odd;
    bool single;
    int64_t pixels, step; /* elements from pixel to pixel */
    int64_t positions;    /* of pack_rows: pixels to fill in the panel; those beyond `pixels` become 0 */
    int channels;
} WgradRow;

/* Panels of `pixels` pixels each: panel k holds words first[k] .. first[k + 1] of every pixel. */
typedef struct WgradPanels {
    uint32_t *words;
    int64_t pixels;
    const int32_t *first;
    int count;
} WgradPanels;

/* Packs the row as pixels `at` and following; channels of the last panel beyond `channels` become 0. */
typedef void WgradPack(const WgradPanels *panels, int64_t at, const WgradRow *row);

/* The code for one kind of processor. */
typedef struct WgradCode {
    int images;          /* in a word: 2 of bf16, 1 of f32 */
    int panels;          /* of 16 outputs, in a tile */
    int vectors;         /* of 16 inputs, at most */
    int step;            /* number of pixels summed at a time */
    size_t dy_bytes;     /* of packed dy in a block that all threads compute, at most */
    void (*begin)(void); /* not NULL: called by a thread before its tiles, and end after them */
    void (*end)(void);
    void (*tile)(const WgradTile *tile);
    WgradPack *pack;
    WgradPack *pack_rows; /* not NULL: panels of dy are squares of 16 outputs x 16 pixels, and rows are padded with
                             zeros to the length of those of x */
} WgradCode;

/* That by vectors: tiles of 16 outputs x up to WGRAD_VECTORS vectors. */
#define WGRAD_VECTOR_CODE(images_in_word, run, pack_row)                                                               \
    {                                                                                                                  \
        .images = images_in_word, .panels = 1, .vectors = WGRAD_VECTORS, .step = 1, .dy_bytes = WGRAD_BLOCK_BYTES,     \
        .tile = run, .pack = pack_row                                                                                  \
    }

extern const WgradCode wgrad_avx512, wgrad_amx;

/* Whether tiles multiply small integers rightly, which not every virtual machine with AMX does: to be asked first. */
bool wgrad_amx_multiplies(void);

/* Words are floats. */
extern const WgradCode wgrad_f32_avx512, wgrad_f32_avx2, wgrad_f32_neon;

/* The code for f32 of this processor, NULL if there is none (ONEDNN_MAX_CPU_ISA counts). */
const WgradCode *wgrad_for_f32(void);

/* Why another implementation is better for these tensors on every processor; NULL if none is. */
const char *wgrad_declines(const ConvProblem *problem);

/* x and dy: of the words' dtype, slices too. */
NODISCARD Status wgrad_create(const WgradCode *code, const ConvProblem *problem, int threads, void **plan);
size_t wgrad_workspace(const void *plan);
Status wgrad_run(const void *plan, Device *device, OpCall *call);
void wgrad_destroy(void *plan);

/* ---- packing with AVX-512 (wgrad_pack.c) */

void wgrad_pack(const WgradPanels *panels, int64_t at, const WgradRow *row);
void wgrad_pack_rows(const WgradPanels *panels, int64_t at, const WgradRow *row);
void wgrad_pack_f32(const WgradPanels *panels, int64_t at, const WgradRow *row);

/* ---- Winograd's algorithms: the code for a kind of processor (winograd_dw_kernel.h), as their driver (winograd_dw.c) calls it.
 *
 * A word is 32 bits here too: a pixel of two images in bf16 (a VNNI pair along the sum), of one image in f32. */

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
