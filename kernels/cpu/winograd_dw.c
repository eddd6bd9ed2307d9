/* Weight gradients by F(2x2, 3x3); see winograd_dw.h.
 *
 * A block is some rows of tiles of a pair of images: words of x and dy are packed by panels of channels, in them by
 * point, in them by tile; then the whole team multiplies, each member taking points of panels. Sums over all blocks
 * stand as m[output][point][input] until the end. */
#include "kernels/cpu/winograd_dw.h"

#include "kernels/cpu/vector.h"
#include "kernels/cpu/wgrad.h"
#include "kernels/cpu/winograd.h"

#include <stdlib.h>

#if defined(__x86_64__)
#include <immintrin.h>

enum {
    LANES = WGRAD_LANES,
    SIDE = 4, /* of the 4x4 pixels of a tile, and of its points */
    POINTS = SIDE * SIDE,
    TAPS = 9,
    TILES = 128 /* of a block, about: enough for sums that outweigh reading and writing m */
};

#define TILE_CODE __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#define TILE_INLINE TILE_CODE static inline __attribute__((always_inline))

struct WinogradDw {
    Shape x, dy;
    int64_t x_pitch, dy_pitch;
    int pad_h, pad_w;
    int tiles_h, tiles_w;
    int rows;     /* of tiles in a block, at most */
    int x_panels; /* of up to 3 vectors */
};

typedef struct Block {
    const WinogradDw *g;
    const uint16_t *x, *dy;
    uint32_t *x_words, *dy_words;
    float *m;
    int pair, row, rows;
} Block;

bool winograd_dw_takes(const Tensor *x, const Tensor *dy, const Window *window)
{
    enum { FEW_TILES = 64 };
    int64_t tiles = (int64_t)((dy->shape.h + 1) / 2) * ((dy->shape.w + 1) / 2);
    return winograd_takes(x, dy, window) && wgrad_avx512.usable() && x->shape.n > 1 && tiles >= FEW_TILES;
}

Status winograd_dw_create(const Tensor *x, const Tensor *dy, const Window *window, WinogradDw **made)
{
    WinogradDw *g = calloc(1, sizeof *g);
    if (!g) return FAIL(ERR_MEMORY, "a weight gradient by Winograd's algorithm");
    *g = (WinogradDw){.x = x->shape,
                      .dy = dy->shape,
                      .x_pitch = x->pitch,
                      .dy_pitch = dy->pitch,
                      .pad_h = window->pad_h,
                      .pad_w = window->pad_w,
                      .tiles_h = (dy->shape.h + 1) / 2,
                      .tiles_w = (dy->shape.w + 1) / 2};
    int blocks = (int)larger(1, (g->tiles_h * g->tiles_w + TILES / 2) / TILES);
    g->rows = (int)larger(1, (g->tiles_h + blocks - 1) / blocks);
    g->x_panels = (x->shape.c / LANES + wgrad_avx512.vectors - 1) / wgrad_avx512.vectors;
    *made = g;
    return OK;
}

void winograd_dw_destroy(WinogradDw *winograd)
{
    free(winograd);
}

static size_t words_bytes(const WinogradDw *g, int channels)
{
    return (size_t)POINTS * (size_t)(g->rows * g->tiles_w) * (size_t)channels * sizeof(uint32_t);
}

size_t winograd_dw_workspace_bytes(const WinogradDw *g)
{
    return words_bytes(g, g->x.c) + words_bytes(g, g->dy.c) +
           (size_t)POINTS * (size_t)g->x.c * (size_t)g->dy.c * sizeof(float);
}

/* First channel of panel k of x: panels are about equal. */
static int64_t panel_first(const WinogradDw *g, int64_t k)
{
    return g->x.c / LANES * k / g->x_panels * LANES;
}

/* ---- packing */

TILE_INLINE __m512 half_load(const uint16_t *from)
{
    __m256i halves = _mm256_loadu_si256((const __m256i *)(const void *)from);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

/* Numbers of the halves of two vectors, in turn. */
TILE_INLINE __m512i turns(void)
{
    const __m512i even = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_or_si512(even, _mm512_slli_epi32(_mm512_add_epi32(even, _mm512_set1_epi32(LANES)), 16));
}

TILE_INLINE void words_store(uint32_t *to, __m512 even, __m512 odd)
{
    _mm512_storeu_si512(to, _mm512_permutexvar_epi16(turns(), (__m512i)_mm512_cvtne2ps_pbh(odd, even)));
}

/* B' x B, B' = {1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1}, of 16 channels. NULL is a pixel of zeros. */
TILE_INLINE void x_line(const __m512 *d, int step, __m512 *to, int to_step)
{
    to[0] = _mm512_sub_ps(d[0], d[2 * step]);
    to[to_step] = _mm512_add_ps(d[step], d[2 * step]);
    to[2 * to_step] = _mm512_sub_ps(d[2 * step], d[step]);
    to[3 * to_step] = _mm512_sub_ps(d[step], d[3 * step]);
}

TILE_INLINE void x_transform(const uint16_t *const pixels[POINTS], int64_t channel, __m512 to[POINTS])
{
    __m512 d[POINTS], t[POINTS];
    for (int i = 0; i < POINTS; i++) d[i] = pixels[i] ? half_load(pixels[i] + channel) : _mm512_setzero_ps();
    for (int s = 0; s < SIDE; s++) x_line(d + s, SIDE, t + s, SIDE);
    for (int r = 0; r < SIDE; r++) x_line(t + SIDE * r, 1, to + SIDE * r, 1);
}

/* A dy A', A = {1 0; 1 1; 1 -1; 0 -1}. */
TILE_INLINE void dy_line(__m512 a, __m512 b, __m512 *to, int step)
{
    to[0] = a;
    to[step] = _mm512_add_ps(a, b);
    to[2 * step] = _mm512_sub_ps(a, b);
    to[3 * step] = _mm512_sub_ps(_mm512_setzero_ps(), b);
}

TILE_INLINE void dy_transform(const uint16_t *const pixels[4], int64_t channel, __m512 to[POINTS])
{
    __m512 d[4], t[2 * SIDE];
    for (int i = 0; i < 4; i++) d[i] = pixels[i] ? half_load(pixels[i] + channel) : _mm512_setzero_ps();
    for (int s = 0; s < 2; s++) dy_line(d[s], d[2 + s], t + s, 2);
    for (int r = 0; r < SIDE; r++) dy_line(t[2 * r], t[2 * r + 1], to + SIDE * r, 1);
}

/* Channels [first, first + width) of a tile; points are `step` words apart. */
TILE_CODE static void x_pack(const uint16_t *const pixels[2][POINTS], int64_t first, int64_t width, uint32_t *to,
                             int64_t step)
{
    for (int64_t c = 0; c < width; c += LANES) {
        __m512 even[POINTS], odd[POINTS];
        x_transform(pixels[0], first + c, even);
        x_transform(pixels[1], first + c, odd);
        for (int i = 0; i < POINTS; i++) words_store(to + i * step + c, even[i], odd[i]);
    }
}

TILE_CODE static void dy_pack(const uint16_t *const pixels[2][4], int64_t channel, uint32_t *to, int64_t step)
{
    __m512 even[POINTS], odd[POINTS];
    dy_transform(pixels[0], channel, even);
    dy_transform(pixels[1], channel, odd);
    for (int i = 0; i < POINTS; i++) words_store(to + i * step, even[i], odd[i]);
}

/* The square of pixels at (top, left) of image `image`, NULL where there is none. */
static void square_find(const uint16_t *base, Shape s, int64_t pitch, int64_t image, int top, int left, int side,
                        const uint16_t **pixels)
{
    for (int i = 0; i < side * side; i++) {
        int h = top + i / side, w = left + i % side;
        bool inside = image < s.n && h >= 0 && w >= 0 && h < s.h && w < s.w;
        pixels[i] = inside ? base + ((image * s.h + h) * s.w + w) * pitch : NULL;
    }
}

/* Tile `t` of a block, of x and of dy. */
static void tile_pack(const Block *block, int64_t t)
{
    const WinogradDw *g = block->g;
    const uint16_t *x[2][POINTS], *dy[2][4];
    int64_t tiles = (int64_t)block->rows * g->tiles_w, points = POINTS * tiles;
    int h = (block->row + (int)(t / g->tiles_w)) * 2, w = (int)(t % g->tiles_w) * 2;
    for (int k = 0; k < 2; k++) {
        square_find(block->x, g->x, g->x_pitch, 2 * block->pair + k, h - g->pad_h, w - g->pad_w, SIDE, x[k]);
        square_find(block->dy, g->dy, g->dy_pitch, 2 * block->pair + k, h, w, 2, dy[k]);
    }
    for (int k = 0; k < g->x_panels; k++) {
        int64_t first = panel_first(g, k), width = panel_first(g, k + 1) - first;
        x_pack(x, first, width, block->x_words + first * points + t * width, tiles * width);
    }
    for (int64_t c = 0; c < g->dy.c; c += LANES)
        dy_pack(dy, c, block->dy_words + c * points + t * LANES, tiles * LANES);
}

/* ---- products */

/* A point of a panel of x and a panel of dy. */
static void task_multiply(const Block *block, int64_t task)
{
    const WinogradDw *g = block->g;
    int64_t outs = g->dy.c / LANES, out = task % outs * LANES, point = task / outs % POINTS, k = task / outs / POINTS;
    int64_t first = panel_first(g, k), width = panel_first(g, k + 1) - first, tiles = (int64_t)block->rows * g->tiles_w;
    WgradTile tile = {.x = block->x_words + first * POINTS * tiles + point * tiles * width,
                      .dy = block->dy_words + out * POINTS * tiles + point * tiles * LANES,
                      .pairs = 1,
                      .rows = 1,
                      .columns = tiles,
                      .vectors = (int)(width / LANES),
                      .outs = LANES,
                      .ins = (int)width,
                      .dw = block->m + (out * POINTS + point) * g->x.c + first,
                      .dw_out = (int64_t)POINTS * g->x.c,
                      .add = block->pair > 0 || block->row > 0};
    wgrad_avx512.tile(&tile);
}

static void block_run(const Block *block, int threads)
{
    const WinogradDw *g = block->g;
    int64_t tiles = (int64_t)block->rows * g->tiles_w, tasks = (int64_t)g->x_panels * POINTS * (g->dy.c / LANES);
    (void)threads;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
#pragma omp for schedule(static)
        for (int64_t t = 0; t < tiles; t++) tile_pack(block, t);
#pragma omp for schedule(dynamic, 4)
        for (int64_t task = 0; task < tasks; task++) task_multiply(block, task);
    }
}

/* ---- back: dw = G' m G, G' = {1 1/2 1/2 0; 0 1/2 -1/2 0; 0 1/2 1/2 1} */

TILE_INLINE void back_line(const __m512 *m, int step, __m512 *to, int to_step)
{
    __m512 half = _mm512_set1_ps(0.5f), mean = _mm512_mul_ps(half, _mm512_add_ps(m[step], m[2 * step]));
    to[0] = _mm512_add_ps(m[0], mean);
    to[to_step] = _mm512_mul_ps(half, _mm512_sub_ps(m[step], m[2 * step]));
    to[2 * to_step] = _mm512_add_ps(mean, m[3 * step]);
}

/* One output. */
TILE_CODE static void back(const float *m, int64_t channels, float *dw)
{
    for (int64_t c = 0; c < channels; c += LANES) {
        __m512 points[POINTS], rows[3 * SIDE], taps[TAPS];
        for (int i = 0; i < POINTS; i++) points[i] = _mm512_loadu_ps(m + i * channels + c);
        for (int s = 0; s < SIDE; s++) back_line(points + s, SIDE, rows + s, SIDE);
        for (int r = 0; r < 3; r++) back_line(rows + SIDE * r, 1, taps + 3 * r, 1);
        for (int i = 0; i < TAPS; i++) _mm512_storeu_ps(dw + i * channels + c, taps[i]);
    }
}

void winograd_dw_run(const WinogradDw *g, int threads, const uint16_t *x, const uint16_t *dy, float *dw,
                     void *workspace)
{
    char *at = workspace;
    Block block = {.g = g, .x = x, .dy = dy, .x_words = workspace};
    block.dy_words = (uint32_t *)(void *)(at + words_bytes(g, g->x.c));
    block.m = (float *)(void *)(at + words_bytes(g, g->x.c) + words_bytes(g, g->dy.c));
    for (block.pair = 0; block.pair < (g->x.n + 1) / 2; block.pair++)
        for (block.row = 0; block.row < g->tiles_h; block.row += g->rows) {
            block.rows = (int)smaller(g->rows, g->tiles_h - block.row);
            block_run(&block, threads);
        }
    (void)threads;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int32_t out = 0; out < g->dy.c; out++)
        back(block.m + (int64_t)out * POINTS * g->x.c, g->x.c, dw + (int64_t)out * TAPS * g->x.c);
}
#else /* never called where winograd_dw_takes says no */
bool winograd_dw_takes(const Tensor *x, const Tensor *dy, const Window *window)
{
    (void)x, (void)dy, (void)window;
    return false;
}

Status winograd_dw_create(const Tensor *x, const Tensor *dy, const Window *window, WinogradDw **made)
{
    (void)x, (void)dy, (void)window, (void)made;
    return FAIL(ERR_UNSUPPORTED, "Winograd's algorithm in bf16 needs AVX512-BF16");
}

void winograd_dw_destroy(WinogradDw *winograd)
{
    (void)winograd;
}

size_t winograd_dw_workspace_bytes(const WinogradDw *winograd)
{
    (void)winograd;
    return 0;
}

void winograd_dw_run(const WinogradDw *winograd, int threads, const uint16_t *x, const uint16_t *dy, float *dw,
                     void *workspace)
{
    (void)winograd, (void)threads, (void)x, (void)dy, (void)dw, (void)workspace;
}
#endif
