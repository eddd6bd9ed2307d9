/* Weight gradients by F(2x2, 3x3); see winograd_dw.h.
 *
 * Words of x and dy are packed by panels of channels, in them by point, in them by tile; then points of panels are
 * multiplied. Large images: a block is some rows of tiles of a pair. Blocks are dealt to SLICES, by shape alone; a
 * member of the team does whole slices, in memory of its own, so that nobody waits and packed words stay in its caches.
 * The sums of a slice stand as m[output][point][input] until the end, when slices are added in order. Small images,
 * which have many channels: one block of all of them, packed by the team; then a member makes a part of dw from all its
 * points. */
#include "kernels/cpu/winograd_dw.h"

#include "kernels/cpu/vector.h"
#include "kernels/cpu/wgrad.h"
#include "kernels/cpu/winograd.h"

#include <stdlib.h>

#if defined(__x86_64__)
#include "kernels/cpu/winograd_words.h"

enum {
    SIDE = 4, /* of the 4x4 pixels of a tile, and of its points */
    POINTS = SIDE * SIDE,
    TAPS = 9,
    TILES = 128,      /* of a block, about: enough for sums that outweigh reading and writing m */
    FEW_TILES = 64,   /* of small images */
    MOST_TILES = 512, /* of all small images */
    SLICES = 8        /* of the blocks: so many threads have work */
};

struct WinogradDw {
    Shape x, dy;
    int64_t x_pitch, dy_pitch;
    int pad_h, pad_w;
    int tiles_h, tiles_w;
    int threads;
    int rows;        /* of tiles in a block, at most */
    int blocks;      /* of a pair */
    int slices;      /* 0: small images */
    int x_panels;    /* of up to 3 vectors */
    uint16_t *zeros; /* owned: a pixel outside the image */
};

/* One run. */
typedef struct Run {
    const WinogradDw *g;
    const uint16_t *x, *dy;
    float *m, *dw;
    char *own; /* words: of the members of the team, one after another, or of all */
} Run;

typedef struct Block {
    const WinogradDw *g;
    const uint16_t *x, *dy;
    uint32_t *x_words, *dy_words;
    int64_t tiles;
    float *m;
    bool add; /* to what m holds */
} Block;

/* A row of tiles: of which images, and of its first tile the number in the block. */
typedef struct TileRow {
    int pair, row;
    int64_t at;
} TileRow;

static int64_t image_tiles(const Tensor *dy)
{
    return (int64_t)((dy->shape.h + 1) / 2) * ((dy->shape.w + 1) / 2);
}

bool winograd_dw_takes(const Tensor *x, const Tensor *dy, const Window *window)
{
    int64_t tiles = image_tiles(dy), all = tiles * ((x->shape.n + 1) / 2);
    bool enough = tiles >= FEW_TILES || (all >= FEW_TILES && all <= MOST_TILES);
    return winograd_takes(x, dy, window) && wgrad_avx512.usable() && x->shape.n > 1 && enough;
}

static int pairs_of(const WinogradDw *g)
{
    return (g->x.n + 1) / 2;
}

/* Blocks of about equal size. */
static void blocks_cut(WinogradDw *g)
{
    bool small = g->tiles_h * g->tiles_w < FEW_TILES;
    int most = (int)larger(1, (g->tiles_h * g->tiles_w + TILES / 2) / TILES);
    g->rows = (int)larger(1, (g->tiles_h + most - 1) / most);
    g->blocks = (g->tiles_h + g->rows - 1) / g->rows;
    g->slices = small ? 0 : (int)smaller(SLICES, (int64_t)pairs_of(g) * g->blocks);
}

Status winograd_dw_create(const Tensor *x, const Tensor *dy, const Window *window, int threads, WinogradDw **made)
{
    WinogradDw *g = calloc(1, sizeof *g);
    uint16_t *zeros = calloc((size_t)larger(x->shape.c, dy->shape.c), sizeof *zeros);
    if (!g || !zeros) {
        free(g);
        free(zeros);
        return FAIL(ERR_MEMORY, "a weight gradient by Winograd's algorithm");
    }
    *g = (WinogradDw){.x = x->shape,
                      .dy = dy->shape,
                      .x_pitch = x->pitch,
                      .dy_pitch = dy->pitch,
                      .pad_h = window->pad_h,
                      .pad_w = window->pad_w,
                      .tiles_h = (dy->shape.h + 1) / 2,
                      .tiles_w = (dy->shape.w + 1) / 2,
                      .threads = threads,
                      .zeros = zeros};
    blocks_cut(g);
    g->x_panels = (x->shape.c / LANES + wgrad_avx512.vectors - 1) / wgrad_avx512.vectors;
    *made = g;
    return OK;
}

void winograd_dw_destroy(WinogradDw *winograd)
{
    if (!winograd) return;
    free(winograd->zeros);
    free(winograd);
}

static int64_t block_tiles(const WinogradDw *g)
{
    return (int64_t)(g->slices ? g->rows : pairs_of(g) * g->tiles_h) * g->tiles_w;
}

static size_t words_bytes(const WinogradDw *g, int channels)
{
    return (size_t)POINTS * (size_t)block_tiles(g) * (size_t)channels * sizeof(uint32_t);
}

static size_t block_bytes(const WinogradDw *g)
{
    return words_bytes(g, g->x.c) + words_bytes(g, g->dy.c);
}

static int64_t m_count(const WinogradDw *g)
{
    return (int64_t)POINTS * g->x.c * g->dy.c;
}

/* Of a panel of x and a panel of dy. */
static int64_t part_count(void)
{
    return (int64_t)POINTS * LANES * wgrad_avx512.vectors * LANES;
}

size_t winograd_dw_workspace_bytes(const WinogradDw *g)
{
    size_t threads = (size_t)g->threads;
    if (!g->slices) return block_bytes(g) + threads * (size_t)part_count() * sizeof(float);
    return threads * block_bytes(g) + (size_t)g->slices * (size_t)m_count(g) * sizeof(float);
}

/* First channel of panel k of x: panels are about equal. */
static int64_t panel_first(const WinogradDw *g, int64_t k)
{
    return g->x.c / LANES * k / g->x_panels * LANES;
}

/* ---- packing */

/* 16 channels, the first of which is `channel`, of row h of a pair of images. */
static Row row_at(const WinogradDw *g, const uint16_t *base, Shape s, int64_t pitch, int pair, int h, int64_t channel)
{
    int64_t image = 2 * pair, line = (image * s.h + h) * s.w * pitch + channel;
    bool inside = h >= 0 && h < s.h, second = inside && image + 1 < s.n;
    const uint16_t *zeros = g->zeros;
    return (Row){inside ? base + line : zeros, second ? base + line + (int64_t)s.h * s.w * pitch : zeros,
                 inside ? pitch : 0, second ? pitch : 0};
}

/* Column w of B' x, B' = {1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1}. */
TILE_INLINE void x_column(const Row rows[SIDE], int w, int width, Pixel to[SIDE])
{
    if (w < 0 || w >= width) {
        for (int r = 0; r < SIDE; r++) to[r] = (Pixel){_mm512_setzero_ps(), _mm512_setzero_ps()};
        return;
    }
    Pixel a = pixel_load(rows, w), b = pixel_load(rows + 1, w), c = pixel_load(rows + 2, w);
    to[0] = pixel_sub(a, c);
    to[1] = pixel_add(b, c);
    to[2] = pixel_sub(c, b);
    to[3] = pixel_sub(b, pixel_load(rows + 3, w));
}

/* A row of tiles: B' x B. Two columns of a tile are the first of the next. Points are `step` words apart, tiles
 * `width`. */
TILE_CODE static void x_row_pack(const WinogradDw *g, const Row rows[SIDE], uint32_t *to, int64_t step, int64_t width)
{
    Pixel first[SIDE], second[SIDE], third[SIDE];
    int left = -g->pad_w;
    x_column(rows, left, g->x.w, first);
    x_column(rows, left + 1, g->x.w, second);
    for (int t = 0; t < g->tiles_w; t++, to += width) {
        left += 2;
        x_column(rows, left, g->x.w, third);
        for (int r = 0; r < SIDE; r++) {
            words_store(to + SIDE * r * step, pixel_sub(first[r], third[r]));
            words_store(to + (SIDE * r + 1) * step, pixel_add(second[r], third[r]));
            words_store(to + (SIDE * r + 2) * step, pixel_sub(third[r], second[r]));
            first[r] = third[r];
        }
        x_column(rows, left + 1, g->x.w, third);
        for (int r = 0; r < SIDE; r++) {
            words_store(to + (SIDE * r + 3) * step, pixel_sub(second[r], third[r]));
            second[r] = third[r];
        }
    }
}

/* A row of tiles: A dy A', A = {1 0; 1 1; 1 -1; 0 1}. (The last row has the other sign in the literature, and so the
 * last column of G'.) */
TILE_INLINE void dy_line(Pixel a, Pixel b, uint32_t *to, int64_t step)
{
    words_store(to, a);
    words_store(to + step, pixel_add(a, b));
    words_store(to + 2 * step, pixel_sub(a, b));
    words_store(to + 3 * step, b);
}

TILE_INLINE Pixel dy_pixel(const Row *row, int w, int width)
{
    return w < width ? pixel_load(row, w) : (Pixel){_mm512_setzero_ps(), _mm512_setzero_ps()};
}

TILE_CODE static void dy_row_pack(const WinogradDw *g, const Row rows[2], uint32_t *to, int64_t step)
{
    for (int t = 0; t < g->tiles_w; t++, to += LANES) {
        Pixel a = pixel_load(rows, 2 * t), b = dy_pixel(rows, 2 * t + 1, g->dy.w);
        Pixel c = pixel_load(rows + 1, 2 * t), d = dy_pixel(rows + 1, 2 * t + 1, g->dy.w);
        dy_line(a, b, to, step);
        dy_line(pixel_add(a, c), pixel_add(b, d), to + SIDE * step, step);
        dy_line(pixel_sub(a, c), pixel_sub(b, d), to + 2 * SIDE * step, step);
        dy_line(c, d, to + 3 * SIDE * step, step);
    }
}

/* 16 channels of panel k of x. */
static void x_pack(const Block *block, const TileRow *row, int k, int64_t channel)
{
    const WinogradDw *g = block->g;
    int64_t first = panel_first(g, k), width = panel_first(g, k + 1) - first;
    int top = row->row * 2 - g->pad_h;
    Row rows[SIDE];
    for (int r = 0; r < SIDE; r++) rows[r] = row_at(g, block->x, g->x, g->x_pitch, row->pair, top + r, channel);
    uint32_t *to = block->x_words + first * POINTS * block->tiles + row->at * width + (channel - first);
    x_row_pack(g, rows, to, block->tiles * width, width);
}

static void dy_pack(const Block *block, const TileRow *row, int64_t channel)
{
    const WinogradDw *g = block->g;
    Row rows[2];
    for (int r = 0; r < 2; r++)
        rows[r] = row_at(g, block->dy, g->dy, g->dy_pitch, row->pair, row->row * 2 + r, channel);
    uint32_t *to = block->dy_words + channel * POINTS * block->tiles + row->at * LANES;
    dy_row_pack(g, rows, to, block->tiles * LANES);
}

static void row_pack(const Block *block, const TileRow *row)
{
    const WinogradDw *g = block->g;
    for (int k = 0; k < g->x_panels; k++)
        for (int64_t c = panel_first(g, k); c < panel_first(g, k + 1); c += LANES) x_pack(block, row, k, c);
    for (int64_t c = 0; c < g->dy.c; c += LANES) dy_pack(block, row, c);
}

/* ---- products */

/* A point of panel k of x and of a panel of dy; its sums go to `to`, from output to output by `step`. */
static void point_multiply(const Block *block, int64_t k, int64_t out, int64_t point, float *to, int64_t step)
{
    const WinogradDw *g = block->g;
    int64_t first = panel_first(g, k), width = panel_first(g, k + 1) - first, tiles = block->tiles;
    WgradTile tile = {.x = block->x_words + first * POINTS * tiles + point * tiles * width,
                      .dy = block->dy_words + out * POINTS * tiles + point * tiles * LANES,
                      .pairs = 1,
                      .rows = 1,
                      .columns = tiles,
                      .vectors = (int)(width / LANES),
                      .outs = LANES,
                      .ins = (int)width,
                      .dw = to,
                      .dw_out = step,
                      .add = block->add};
    wgrad_avx512.tile(&tile);
}

static void task_multiply(const Block *block, int64_t task)
{
    const WinogradDw *g = block->g;
    int64_t outs = g->dy.c / LANES, out = task % outs * LANES, point = task / outs % POINTS, k = task / outs / POINTS;
    float *to = block->m + (out * POINTS + point) * g->x.c + panel_first(g, k);
    point_multiply(block, k, out, point, to, (int64_t)POINTS * g->x.c);
}

/* ---- back: dw = G' m G, G' = {1 1/2 1/2 0; 0 1/2 -1/2 0; 0 1/2 1/2 -1} */

TILE_INLINE void back_line(const __m512 *m, int step, __m512 *to, int to_step)
{
    __m512 half = _mm512_set1_ps(0.5f), mean = _mm512_mul_ps(half, _mm512_add_ps(m[step], m[2 * step]));
    to[0] = _mm512_add_ps(m[0], mean);
    to[to_step] = _mm512_mul_ps(half, _mm512_sub_ps(m[step], m[2 * step]));
    to[2 * to_step] = _mm512_sub_ps(mean, m[3 * step]);
}

/* Some inputs of one output, whose sums stand in `slices` places `step` floats apart; `tap`: floats from tap to tap. */
TILE_CODE static void back(const float *m, int slices, int64_t step, int64_t channels, float *dw, int64_t tap)
{
    for (int64_t c = 0; c < channels; c += LANES) {
        __m512 points[POINTS], rows[3 * SIDE], taps[TAPS];
        for (int i = 0; i < POINTS; i++) points[i] = _mm512_loadu_ps(m + i * channels + c);
        for (int k = 1; k < slices; k++)
            for (int i = 0; i < POINTS; i++)
                points[i] = _mm512_add_ps(points[i], _mm512_loadu_ps(m + k * step + i * channels + c));
        for (int s = 0; s < SIDE; s++) back_line(points + s, SIDE, rows + s, SIDE);
        for (int r = 0; r < 3; r++) back_line(rows + SIDE * r, 1, taps + 3 * r, 1);
        for (int i = 0; i < TAPS; i++) _mm512_storeu_ps(dw + i * tap + c, taps[i]);
    }
}

static void back_chunk(void *context, int64_t first, int64_t end, int thread)
{
    (void)thread;
    const Run *run = context;
    const WinogradDw *g = run->g;
    for (int64_t out = first; out < end; out++)
        back(run->m + out * POINTS * g->x.c, g->slices, m_count(g), g->x.c, run->dw + out * TAPS * g->x.c, g->x.c);
}

/* ---- large images */

static Block block_at(const Run *run, char *words)
{
    const WinogradDw *g = run->g;
    return (Block){.g = g,
                   .x = run->x,
                   .dy = run->dy,
                   .x_words = (uint32_t *)(void *)words,
                   .dy_words = (uint32_t *)(void *)(words + words_bytes(g, g->x.c)),
                   .tiles = block_tiles(g)};
}

/* Slice `slice` by one member of the team. */
static void slice_run(const Run *run, int64_t slice, int thread)
{
    const WinogradDw *g = run->g;
    char *own = run->own + (size_t)thread * block_bytes(g);
    int64_t all = (int64_t)pairs_of(g) * g->blocks, first = all * slice / g->slices;
    int64_t end = all * (slice + 1) / g->slices;
    int64_t tasks = (int64_t)g->x_panels * POINTS * (g->dy.c / LANES);
    Block block = block_at(run, own);
    block.m = run->m + slice * m_count(g);
    for (int64_t i = first; i < end; i++) {
        int row = (int)(i % g->blocks) * g->rows, rows = (int)smaller(g->rows, g->tiles_h - row);
        block.add = i > first;
        block.tiles = (int64_t)rows * g->tiles_w;
        for (int r = 0; r < rows; r++)
            row_pack(&block, &(TileRow){(int)(i / g->blocks), row + r, (int64_t)r * g->tiles_w});
        for (int64_t task = 0; task < tasks; task++) task_multiply(&block, task);
    }
}

static void slices_chunk(void *context, int64_t first, int64_t end, int thread)
{
    for (int64_t slice = first; slice < end; slice++) slice_run(context, slice, thread);
}

static void large_run(Run *run, const Device *device, char *workspace)
{
    const WinogradDw *g = run->g;
    run->m = (float *)(void *)workspace;
    run->own = workspace + (size_t)g->slices * (size_t)m_count(g) * sizeof(float);
    chunks_run(device, g->slices, 1, slices_chunk, run);
    chunks_run(device, g->dy.c, 4, back_chunk, run);
}

/* ---- small images */

static void rows_chunk(void *context, int64_t first, int64_t end, int thread)
{
    (void)thread;
    const Run *run = context;
    const WinogradDw *g = run->g;
    Block block = block_at(run, run->own);
    for (int64_t i = first; i < end; i++)
        row_pack(&block, &(TileRow){(int)(i / g->tiles_h), (int)(i % g->tiles_h), i * g->tiles_w});
}

/* Parts of dw: of a panel of x and a panel of dy, all points, then all taps. */
static void parts_chunk(void *context, int64_t first, int64_t end, int thread)
{
    const Run *run = context;
    const WinogradDw *g = run->g;
    Block block = block_at(run, run->own);
    float *m = run->m + thread * part_count();
    for (int64_t i = first; i < end; i++) {
        int64_t outs = g->dy.c / LANES, out = i % outs * LANES, k = i / outs;
        int64_t in = panel_first(g, k), width = panel_first(g, k + 1) - in;
        for (int64_t point = 0; point < POINTS; point++)
            point_multiply(&block, k, out, point, m + point * width, POINTS * width);
        for (int64_t o = 0; o < LANES; o++)
            back(m + o * POINTS * width, 1, 0, width, run->dw + (out + o) * TAPS * g->x.c + in, g->x.c);
    }
}

static void small_run(Run *run, const Device *device, char *workspace)
{
    const WinogradDw *g = run->g;
    run->own = workspace;
    run->m = (float *)(void *)(workspace + block_bytes(g));
    chunks_run(device, (int64_t)pairs_of(g) * g->tiles_h, 1, rows_chunk, run);
    chunks_run(device, (int64_t)g->x_panels * (g->dy.c / LANES), 1, parts_chunk, run);
}

void winograd_dw_run(const WinogradDw *g, const Device *device, const uint16_t *x, const uint16_t *dy, float *dw,
                     void *workspace)
{
    Run run = {.g = g, .x = x, .dy = dy, .dw = dw};
    (g->slices ? large_run : small_run)(&run, device, workspace);
}
#else /* never called where winograd_dw_takes says no */
bool winograd_dw_takes(const Tensor *x, const Tensor *dy, const Window *window)
{
    (void)x, (void)dy, (void)window;
    return false;
}

Status winograd_dw_create(const Tensor *x, const Tensor *dy, const Window *window, int threads, WinogradDw **made)
{
    (void)x, (void)dy, (void)window, (void)threads, (void)made;
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

void winograd_dw_run(const WinogradDw *winograd, const Device *device, const uint16_t *x, const uint16_t *dy, float *dw,
                     void *workspace)
{
    (void)winograd, (void)device, (void)x, (void)dy, (void)dw, (void)workspace;
}
#endif
