/* The geometry of wgrad: how x and dy are cut into blocks and packed, and which pixels meet for which part of dw.
 *
 * Along an axis with stride s, tap k of output i reads input i s + k - pad. Packed x has s *phases*: place u of phase p
 * is input u s + p - pad, so tap k of output i is place i + k / s of phase k mod s: a fixed shift. Places outside the
 * image are packed as zeros, and skipped where a tile may skip them.
 * A block is some pairs of images, or some rows of one pair: packed by the whole team, then multiplied by the whole
 * team, each member taking tiles of dw. */
#include "kernels/cpu/wgrad.h"

#include "kernels/cpu/onednn.h"
#include "kernels/cpu/vector.h"

#include <stdlib.h>

enum {
    DY_BLOCK_BYTES = 512 << 10, /* of packed dy, which a thread reads again for every part of dw: in its L2 cache */
    X_BLOCK_BYTES = 2 << 20,    /* of packed x, of which it reads a panel at a time */
    TASKS_PER_THREAD = 8
};

typedef struct Axis {
    int in, out, taps, stride, pad;
    int phases; /* in use */
    int spread; /* places beyond `out` */
} Axis;

struct Wgrad {
    const WgradCode *code;
    Axis h, w;
    int images, ins, outs;
    int64_t x_pitch, dy_pitch;
    int pairs, rows; /* of a block, at most */
    int x_panels, dy_panels;
    int32_t *x_first, *dy_first; /* see WgradPanels */
};

/* Pairs of images `pair` and following, output rows `row` and following. */
typedef struct Block {
    const Wgrad *wgrad;
    int pair, pairs, row, rows;
    const uint16_t *x, *dy;
    WgradPanels x_panels, dy_panels;
    float *dw;
    int tasks_out; /* tasks along the outputs */
    int task_tiles;
} Block;

static Axis axis_of(int in, int out, int taps, int stride, int pad)
{
    return (Axis){in, out, taps, stride, pad, taps < stride ? taps : stride, (taps - 1) / stride};
}

/* ---- sizes */

static int places(const Wgrad *g)
{
    return g->w.out + g->w.spread;
}

static int block_x_rows(const Wgrad *g, int rows)
{
    return rows + g->h.spread;
}

/* Pixels of dy of one pair: with rows of outputs, they stand in rows as wide as those of x. */
static int64_t pair_dy_pixels(const Wgrad *g, int rows)
{
    return g->code->pack_rows ? rounded_up((int64_t)rows * places(g), g->code->step) : (int64_t)rows * g->w.out;
}

static int64_t pair_x_pixels(const Wgrad *g, int rows)
{
    return (int64_t)g->h.phases * g->w.phases * block_x_rows(g, rows) * places(g);
}

/* What a last step reads beyond the last pixel. */
static int64_t block_x_pixels(const Wgrad *g, int pairs, int rows)
{
    return pairs * pair_x_pixels(g, rows) + g->code->step - 1;
}

static size_t x_bytes(const Wgrad *g, int pairs, int rows)
{
    return (size_t)(block_x_pixels(g, pairs, rows) * g->x_first[g->x_panels]) * sizeof(uint32_t);
}

static size_t dy_bytes(const Wgrad *g, int pairs, int rows)
{
    return (size_t)(pairs * pair_dy_pixels(g, rows) * g->dy_first[g->dy_panels]) * sizeof(uint32_t);
}

static bool block_fits(const Wgrad *g, int pairs, int rows)
{
    return x_bytes(g, pairs, rows) <= X_BLOCK_BYTES && dy_bytes(g, pairs, rows) <= DY_BLOCK_BYTES;
}

/* The most that fits, in blocks of about equal size. */
static int even_share(int whole, int most)
{
    int blocks = (whole + most - 1) / most;
    return (whole + blocks - 1) / blocks;
}

static void block_choose(Wgrad *g)
{
    int all = (g->images + 1) / 2, pairs = 1, rows = g->h.out;
    while (rows > 1 && !block_fits(g, 1, rows)) rows--;
    while (rows == g->h.out && pairs < all && block_fits(g, pairs + 1, rows)) pairs++;
    g->rows = even_share(g->h.out, rows);
    g->pairs = even_share(all, pairs);
}

/* Panels of `most` vectors of 16 channels or fewer, about equal. */
static int32_t *panels_cut(int channels, int most, int *count)
{
    int vectors = (channels + WGRAD_LANES - 1) / WGRAD_LANES, panels = (vectors + most - 1) / most;
    int32_t *first = calloc((size_t)panels + 1, sizeof *first);
    for (int k = 0; first && k <= panels; k++) first[k] = (int32_t)((int64_t)vectors * k / panels) * WGRAD_LANES;
    *count = panels;
    return first;
}

/* Below this, panels are mostly padding, or a sum so short that reading and writing dw is what takes the time. */
bool wgrad_takes(const WgradCode *code, const Tensor *x, const Tensor *dy)
{
    enum { FEW_CHANNELS = WGRAD_LANES, FEW_PIXELS = 128 };
    return code && x->dtype == DTYPE_BF16 && dy->dtype == DTYPE_BF16 && x->shape.n > 1 && x->shape.c >= FEW_CHANNELS &&
           dy->shape.c >= FEW_CHANNELS / 2 && shape_pixels(dy->shape) >= FEW_PIXELS;
}

Status wgrad_create(const WgradCode *code, const Tensor *x, const Tensor *dy, const Window *window, Wgrad **made)
{
    Status st = OK;
    const Window *v = window;
    Wgrad *g = calloc(1, sizeof *g);
    if (!g) return FAIL(ERR_MEMORY, "weight gradient");
    g->code = code;
    g->images = x->shape.n;
    g->ins = x->shape.c;
    g->outs = dy->shape.c;
    g->x_pitch = x->pitch;
    g->dy_pitch = dy->pitch;
    g->h = axis_of(x->shape.h, dy->shape.h, v->kh, v->stride_h, v->pad_h);
    g->w = axis_of(x->shape.w, dy->shape.w, v->kw, v->stride_w, v->pad_w);
    g->x_first = panels_cut(g->ins, code->vectors, &g->x_panels);
    g->dy_first = panels_cut(g->outs, 1, &g->dy_panels);
    if (!g->x_first || !g->dy_first) TRY_OUT(FAIL(ERR_MEMORY, "panels of a weight gradient"));
    block_choose(g);
    *made = g;
    g = NULL;
out:
    wgrad_destroy(g);
    return st;
}

void wgrad_destroy(Wgrad *wgrad)
{
    if (!wgrad) return;
    free(wgrad->x_first);
    free(wgrad->dy_first);
    free(wgrad);
}

static size_t aligned(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

size_t wgrad_workspace_bytes(const Wgrad *g)
{
    return aligned(x_bytes(g, g->pairs, g->rows)) + aligned(dy_bytes(g, g->pairs, g->rows));
}

/* ---- packing */

static void zeros_pack(const WgradPanels *panels, int64_t at, int64_t pixels)
{
    for (int k = 0; k < panels->count; k++) {
        int first = panels->first[k], width = panels->first[k + 1] - first;
        memset(panels->words + first * panels->pixels + at * width, 0, (size_t)(pixels * width) * sizeof(uint32_t));
    }
}

static void zeros_pack_rows(const WgradPanels *panels, int64_t at, int64_t pixels)
{
    for (int64_t out = 0; out < panels->first[panels->count]; out++)
        memset(panels->words + out * panels->pixels + at, 0, (size_t)pixels * sizeof(uint32_t));
}

static WgradRow row_of(const Wgrad *g, const uint16_t *base, int pair, int64_t image, int64_t at)
{
    bool single = 2 * pair + 1 == g->images;
    const uint16_t *even = base + 2 * pair * image + at;
    return (WgradRow){.even = even, .odd = single ? even : even + image, .single = single};
}

/* Places of phase `phase` of a row. */
static void phase_pack(const Wgrad *g, const WgradPanels *panels, int64_t at, const WgradRow *row, int phase)
{
    const Axis *w = &g->w;
    int origin = phase - w->pad, lo = origin < 0 ? (-origin + w->stride - 1) / w->stride : 0;
    int hi = w->in > origin ? (w->in - 1 - origin) / w->stride + 1 : 0;
    if (hi > places(g)) hi = places(g);
    if (lo > hi) lo = hi;
    WgradRow inner = *row;
    int64_t start = (int64_t)(lo * w->stride + origin) * g->x_pitch;
    inner.pixels = hi - lo;
    inner.step = w->stride * g->x_pitch;
    inner.channels = g->ins;
    if (hi > lo) inner.even += start, inner.odd += start;
    zeros_pack(panels, at, lo);
    g->code->pack(panels, at + lo, &inner);
    zeros_pack(panels, at + hi, places(g) - hi);
}

/* Unit `unit` of a block's x: a row of a phase of a pair. */
static void x_row_pack(const Block *block, int64_t unit)
{
    const Wgrad *g = block->wgrad;
    int rows = block_x_rows(g, block->rows), u = (int)(unit % rows), phases = (int)(unit / rows);
    int phase_w = phases % g->w.phases, phase_h = phases / g->w.phases % g->h.phases;
    int pair = phases / g->w.phases / g->h.phases, h = (block->row + u) * g->h.stride + phase_h - g->h.pad;
    int64_t at = unit * places(g), line = (int64_t)g->w.in * g->x_pitch;
    if (h < 0 || h >= g->h.in) {
        zeros_pack(&block->x_panels, at, places(g));
        return;
    }
    WgradRow row = row_of(g, block->x, block->pair + pair, g->h.in * line, h * line);
    phase_pack(g, &block->x_panels, at, &row, phase_w);
}

static void dy_row_pack(const Block *block, int64_t unit)
{
    const Wgrad *g = block->wgrad;
    int pair = (int)(unit / block->rows), r = (int)(unit % block->rows), width = g->w.out;
    int64_t line = width * g->dy_pitch;
    WgradRow row = row_of(g, block->dy, block->pair + pair, g->h.out * line, (block->row + r) * line);
    row.pixels = width;
    row.step = g->dy_pitch;
    row.channels = g->outs;
    if (!g->code->pack_rows) {
        g->code->pack(&block->dy_panels, unit * width, &row);
        return;
    }
    int64_t at = pair * pair_dy_pixels(g, block->rows) + (int64_t)r * places(g);
    int64_t end = r + 1 < block->rows ? at + places(g) : (pair + 1) * pair_dy_pixels(g, block->rows);
    g->code->pack_rows(&block->dy_panels, at, &row);
    zeros_pack_rows(&block->dy_panels, at + width, end - at - width);
}

static int64_t x_units(const Block *block)
{
    const Wgrad *g = block->wgrad;
    return (int64_t)block->pairs * g->h.phases * g->w.phases * block_x_rows(g, block->rows);
}

static void unit_pack(const Block *block, int64_t unit)
{
    int64_t x = x_units(block), tail = block->wgrad->code->step - 1;
    if (unit == 0 && tail) zeros_pack(&block->x_panels, block->x_panels.pixels - tail, tail);
    if (unit < x)
        x_row_pack(block, unit);
    else
        dy_row_pack(block, unit - x);
}

/* ---- multiplying */

static int taps_of(const Wgrad *g)
{
    return g->h.taps * g->w.taps;
}

/* The outputs [*lo, *hi) along an axis whose tap `tap` lies inside the image. */
static void tap_range(const Axis *axis, int tap, int *lo, int *hi)
{
    int shift = tap - axis->pad, last = axis->in - 1 - shift;
    int from = shift < 0 ? (-shift + axis->stride - 1) / axis->stride : 0;
    int to = last < 0 ? 0 : last / axis->stride + 1;
    if (from > *lo) *lo = from;
    if (to < *hi) *hi = to;
    if (*hi < *lo) *hi = *lo;
}

/* Everything about a tile but its outputs. */
static WgradTile tile_at(const Block *block, int panel, int tap)
{
    const Wgrad *g = block->wgrad;
    int r = tap / g->w.taps, s = tap % g->w.taps, width = places(g);
    int top = block->row, bottom = block->row + block->rows, left = 0, right = g->w.out;
    int first = g->x_first[panel], words = g->x_first[panel + 1] - first;
    int64_t image_rows = block_x_rows(g, block->rows), phase = r % g->h.stride * g->w.phases + s % g->w.stride;
    if (!g->code->pack_rows) {
        tap_range(&g->h, r, &top, &bottom);
        tap_range(&g->w, s, &left, &right);
    }
    int64_t x_at = (phase * image_rows + top - block->row + r / g->h.stride) * width + left + s / g->w.stride;
    int64_t dy_at = (int64_t)(top - block->row) * g->w.out + left;
    WgradTile tile = {.pairs = block->pairs,
                      .rows = bottom - top,
                      .columns = right - left,
                      .x_pair = pair_x_pixels(g, block->rows) * words,
                      .x_row = (int64_t)width * words,
                      .vectors = words / WGRAD_LANES,
                      .ins = g->ins - first < words ? g->ins - first : words,
                      .dw_out = (int64_t)taps_of(g) * g->ins,
                      .add = block->pair > 0 || block->row > 0};
    tile.x = block->x_panels.words + first * block->x_panels.pixels + x_at * words;
    tile.dy_panel = WGRAD_LANES * block->dy_panels.pixels;
    tile.dy_pair = pair_dy_pixels(g, block->rows) * (g->code->pack_rows ? 1 : WGRAD_LANES);
    tile.dy_row = (int64_t)g->w.out * WGRAD_LANES;
    tile.dy_out = block->dy_panels.pixels;
    tile.dw = block->dw + (int64_t)tap * g->ins + first;
    tile.dy = block->dy_panels.words + dy_at * WGRAD_LANES;
    if (g->code->pack_rows) {
        tile.rows = 1;
        tile.columns = pair_dy_pixels(g, block->rows);
        tile.dy = block->dy_panels.words;
    }
    return tile;
}

static int tiles_out(const Wgrad *g)
{
    return (g->dy_panels + g->code->panels - 1) / g->code->panels;
}

/* Task `task`: a panel of inputs, a tap, some tiles of outputs. */
static void task_multiply(const Block *block, int64_t task)
{
    const Wgrad *g = block->wgrad;
    int part = (int)(task % block->tasks_out), taps = taps_of(g), tap = (int)(task / block->tasks_out % taps);
    WgradTile tile = tile_at(block, (int)(task / block->tasks_out / taps), tap), whole = tile;
    int end = (int)smaller(tiles_out(g), (int64_t)(part + 1) * block->task_tiles);
    for (int k = part * block->task_tiles; k < end; k++) {
        int out = k * g->code->panels * WGRAD_LANES;
        tile.outs = (int)smaller(g->code->panels * WGRAD_LANES, g->outs - out);
        tile.dy = whole.dy + k * g->code->panels * tile.dy_panel;
        tile.dw = whole.dw + out * tile.dw_out;
        g->code->tile(&tile);
    }
}

/* ---- the whole */

static void tasks_cut(Block *block, int threads)
{
    const Wgrad *g = block->wgrad;
    int parts = g->x_panels * taps_of(g), tiles = tiles_out(g);
    block->task_tiles = tiles;
    while (block->task_tiles > 1 &&
           parts * ((tiles + block->task_tiles - 1) / block->task_tiles) < TASKS_PER_THREAD * threads)
        block->task_tiles = (block->task_tiles + 1) / 2;
    block->tasks_out = (tiles + block->task_tiles - 1) / block->task_tiles;
}

static void block_run(Block *block, int threads)
{
    const Wgrad *g = block->wgrad;
    block->x_panels.pixels = block_x_pixels(g, block->pairs, block->rows);
    block->dy_panels.pixels = block->pairs * pair_dy_pixels(g, block->rows);
    int64_t units = x_units(block) + (int64_t)block->pairs * block->rows;
    int64_t tasks = (int64_t)g->x_panels * taps_of(g) * block->tasks_out;
    (void)threads;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
#pragma omp for schedule(static)
        for (int64_t unit = 0; unit < units; unit++) unit_pack(block, unit);
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < tasks; task++) task_multiply(block, task);
    }
}

void wgrad_run(const Wgrad *g, int threads, const uint16_t *x, const uint16_t *dy, float *dw, void *workspace)
{
    uint32_t *x_words = workspace;
    uint32_t *dy_words = (uint32_t *)((char *)workspace + aligned(x_bytes(g, g->pairs, g->rows)));
    Block block = {.wgrad = g,
                   .x = x,
                   .dy = dy,
                   .dw = dw,
                   .x_panels = {x_words, 0, g->x_first, g->x_panels},
                   .dy_panels = {dy_words, 0, g->dy_first, g->dy_panels}};
    tasks_cut(&block, threads);
    for (block.pair = 0; block.pair < (g->images + 1) / 2; block.pair += g->pairs)
        for (block.row = 0; block.row < g->h.out; block.row += g->rows) {
            block.pairs = (int)smaller(g->pairs, (g->images + 1) / 2 - block.pair);
            block.rows = (int)smaller(g->rows, g->h.out - block.row);
            block_run(&block, threads);
        }
}

const WgradCode *wgrad_code(void)
{
#if defined(__x86_64__)
    if (onednn_has_amx() && wgrad_amx.usable()) return &wgrad_amx;
    if (onednn_has_bf16() && wgrad_avx512.usable()) return &wgrad_avx512;
#endif
    return NULL;
}
