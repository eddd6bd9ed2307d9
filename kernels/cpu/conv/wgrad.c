/* The geometry of wgrad: how x and dy are cut into blocks and packed, and which pixels contribute to which part of dw.
 *
 * Along an axis with stride s, tap k of output i reads input i s + k - pad. Packed x has s *phases*: position u of phase p
 * is input u s + p - pad, so tap k of output i is position i + k / s of phase k mod s: a fixed shift. Positions outside the
 * image are packed as zeros, and skipped where a tile may skip them.
 * A block is some image groups (wgrad.h), or some rows of one. If dw is large, the whole team packs a block and then
 * multiplies it, each thread taking tiles of dw. With few large blocks, sums are long, and dw is rarely read, written and
 * synchronized; panels of dy then come from L3, once for every panel of x and tap, which costs vectors less than that,
 * but is too slow for the tiles of AMX. If dw is small, blocks are small, too, and are assigned to SLICES by
 * shape alone: a thread computes whole slices in memory of its own, and the dw of all slices are added in order. */
#include "kernels/cpu/conv/wgrad.h"

#include "kernels/cpu/span.h"

#ifdef CPU_HAS_LANES
enum {
    OWN_BLOCK_BYTES = 512 << 10, /* if a thread packs alone: fits its L2 cache */
    SMALL_DW_BYTES = 320 << 10,
    SLICES = 8, /* so many threads have work */
    TASKS_PER_THREAD = 8
};

typedef struct WgradAxis {
    int in, out, taps, stride, pad;
    int phases; /* in use */
    int spread; /* positions beyond `out` */
} WgradAxis;

typedef struct Wgrad {
    const WgradCode *code;
    WgradAxis h, w;
    int images, ins, outs;
    int64_t x_pitch, dy_pitch;
    int groups, rows; /* of a block, at most */
    int slices;       /* 0 if the whole team computes each block */
    int threads;
    int x_panels, dy_panels;
    int32_t *x_first, *dy_first; /* see WgradPanels */
} Wgrad;

/* Image groups `group` and following, output rows `row` and following. */
typedef struct WgradBlock {
    const Wgrad *wgrad;
    int group, groups, row, rows;
    const char *x, *dy;
    WgradPanels x_panels, dy_panels;
    float *dw;
    bool add;      /* to what dw holds */
    int tasks_out; /* tasks along the outputs */
    int task_tiles;
} WgradBlock;

static WgradAxis axis_of(int in, int out, int taps, int stride, int pad)
{
    return (WgradAxis){in, out, taps, stride, pad, taps < stride ? taps : stride, (taps - 1) / stride};
}

/* ---- sizes */

static int positions(const Wgrad *g)
{
    return g->w.out + g->w.spread;
}

static int block_x_rows(const Wgrad *g, int rows)
{
    return rows + g->h.spread;
}

/* Pixels of dy of one group: with rows of outputs, they stand in rows as wide as those of x. */
static int64_t group_dy_pixels(const Wgrad *g, int rows)
{
    return g->code->pack_rows ? rounded_up((int64_t)rows * positions(g), g->code->step) : (int64_t)rows * g->w.out;
}

static int64_t group_x_pixels(const Wgrad *g, int rows)
{
    return (int64_t)g->h.phases * g->w.phases * block_x_rows(g, rows) * positions(g);
}

/* Zeros behind x: what the last step reads beyond the end, if dy is filled up to whole steps from the last tap's position. */
static int tail_pixels(const Wgrad *g)
{
    return g->code->step - 1 + (g->code->pack_rows ? g->w.spread : 0);
}

static int64_t block_x_pixels(const Wgrad *g, int groups, int rows)
{
    return groups * group_x_pixels(g, rows) + tail_pixels(g);
}

static size_t x_bytes(const Wgrad *g, int groups, int rows)
{
    return (size_t)(block_x_pixels(g, groups, rows) * g->x_first[g->x_panels]) * sizeof(uint32_t);
}

static size_t dy_bytes(const Wgrad *g, int groups, int rows)
{
    return (size_t)(groups * group_dy_pixels(g, rows) * g->dy_first[g->dy_panels]) * sizeof(uint32_t);
}

static bool block_fits(const Wgrad *g, int groups, int rows, size_t most_x, size_t most_dy)
{
    return x_bytes(g, groups, rows) <= most_x && dy_bytes(g, groups, rows) <= most_dy;
}

/* The size of blocks of about equal size, at most `most`. */
static int even_share(int whole, int most)
{
    int blocks = (whole + most - 1) / most;
    return (whole + blocks - 1) / blocks;
}

static int image_groups(const Wgrad *g)
{
    return (g->images + g->code->images - 1) / g->code->images;
}

static int64_t dw_count(const Wgrad *g)
{
    return (int64_t)g->outs * g->h.taps * g->w.taps * g->ins;
}

/* Blocks of one group, or one: groups are not cut if there are several in a block. */
static int blocks_down(const Wgrad *g)
{
    return (g->h.out + g->rows - 1) / g->rows;
}

static int64_t blocks_of(const Wgrad *g)
{
    return (int64_t)((image_groups(g) + g->groups - 1) / g->groups) * blocks_down(g);
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

void wgrad_destroy(void *plan)
{
    Wgrad *g = plan;
    if (!g) return;
    free(g->x_first);
    free(g->dy_first);
    free(g);
}

Status wgrad_create(const WgradCode *code, const ConvProblem *p, int threads, void **plan)
{
    Status st = OK;
    const Tensor *x = p->x, *dy = p->y;
    const Window *v = &p->window;
    Wgrad *g = calloc(1, sizeof *g);
    if (!g) return FAIL(ERR_MEMORY, "no memory for the weight gradient of '%s'", p->call->name);
    g->code = code;
    g->threads = threads;
    g->images = x->shape.n;
    g->ins = x->shape.c;
    g->outs = dy->shape.c;
    g->x_pitch = x->pitch;
    g->dy_pitch = dy->pitch;
    g->h = axis_of(x->shape.h, dy->shape.h, v->kh, v->stride_h, v->pad_h);
    g->w = axis_of(x->shape.w, dy->shape.w, v->kw, v->stride_w, v->pad_w);
    g->x_first = panels_cut(g->ins, code->vectors, &g->x_panels);
    g->dy_first = panels_cut(g->outs, 1, &g->dy_panels);
    if (!g->x_first || !g->dy_first)
        TRY_OUT(FAIL(ERR_MEMORY, "no memory for the weight gradient of '%s'", p->call->name));
    bool small = dw_count(g) * (int64_t)sizeof(float) <= SMALL_DW_BYTES;
    size_t most_x = small ? OWN_BLOCK_BYTES : WGRAD_BLOCK_BYTES, most_dy = small ? OWN_BLOCK_BYTES : code->dy_bytes;
    int all = image_groups(g), groups = 1, rows = g->h.out;
    while (rows > 1 && !block_fits(g, 1, rows, most_x, most_dy)) rows--;
    while (rows == g->h.out && groups < all && block_fits(g, groups + 1, rows, most_x, most_dy)) groups++;
    g->rows = even_share(g->h.out, rows);
    g->groups = even_share(all, groups);
    g->slices = small ? (int)smaller(SLICES, blocks_of(g)) : 0;
    *plan = g;
    g = NULL;
out:
    wgrad_destroy(g);
    return st;
}

static size_t block_bytes(const Wgrad *g)
{
    return align_up(x_bytes(g, g->groups, g->rows), CPU_ALIGNMENT) +
           align_up(dy_bytes(g, g->groups, g->rows), CPU_ALIGNMENT);
}

/* Bytes of one slice's partial sum. Slice 0 accumulates directly into dw. */
static size_t sums_bytes(const Wgrad *g)
{
    return align_up((size_t)dw_count(g) * sizeof(float), CPU_ALIGNMENT);
}

size_t wgrad_workspace(const void *plan)
{
    const Wgrad *g = plan;
    if (!g->slices) return block_bytes(g);
    return (size_t)smaller(g->threads, g->slices) * block_bytes(g) + (size_t)(g->slices - 1) * sums_bytes(g);
}

/* ---- packing */

static void zeros_pack(const WgradPanels *panels, int64_t at, int64_t pixels)
{
    for (int k = 0; k < panels->count; k++) {
        int first = panels->first[k], width = panels->first[k + 1] - first;
        memset(panels->words + first * panels->pixels + at * width, 0, (size_t)(pixels * width) * sizeof(uint32_t));
    }
}

static int64_t element_bytes(const Wgrad *g)
{
    return (int64_t)sizeof(uint32_t) / g->code->images;
}

/* Element `at` of the images of a group, each of `image` elements. */
static WgradRow row_of(const Wgrad *g, const char *base, int group, int64_t image, int64_t at)
{
    bool single = g->code->images == 1 || 2 * group + 1 == g->images;
    const char *even = base + (g->code->images * group * image + at) * element_bytes(g);
    return (WgradRow){.even = even, .odd = single ? even : even + image * element_bytes(g), .single = single};
}

/* Positions of phase `phase` of a row. */
static void phase_pack(const Wgrad *g, const WgradPanels *panels, int64_t at, const WgradRow *row, int phase)
{
    const WgradAxis *w = &g->w;
    int origin = phase - w->pad, lo = origin < 0 ? (-origin + w->stride - 1) / w->stride : 0;
    int hi = w->in > origin ? (w->in - 1 - origin) / w->stride + 1 : 0;
    if (hi > positions(g)) hi = positions(g);
    if (lo > hi) lo = hi;
    WgradRow inner = *row;
    int64_t start = (int64_t)(lo * w->stride + origin) * g->x_pitch * element_bytes(g);
    inner.pixels = hi - lo;
    inner.step = w->stride * g->x_pitch;
    inner.channels = g->ins;
    if (hi > lo) inner.even = (const char *)row->even + start, inner.odd = (const char *)row->odd + start;
    zeros_pack(panels, at, lo);
    g->code->pack(panels, at + lo, &inner);
    zeros_pack(panels, at + hi, positions(g) - hi);
}

/* Unit `unit` of a block's x: a row of a phase of a group. */
static void x_row_pack(const WgradBlock *block, int64_t unit)
{
    const Wgrad *g = block->wgrad;
    int rows = block_x_rows(g, block->rows), u = (int)(unit % rows), phases = (int)(unit / rows);
    int phase_w = phases % g->w.phases, phase_h = phases / g->w.phases % g->h.phases;
    int group = phases / g->w.phases / g->h.phases, h = (block->row + u) * g->h.stride + phase_h - g->h.pad;
    int64_t at = unit * positions(g), line = (int64_t)g->w.in * g->x_pitch;
    if (h < 0 || h >= g->h.in) {
        zeros_pack(&block->x_panels, at, positions(g));
        return;
    }
    WgradRow row = row_of(g, block->x, block->group + group, g->h.in * line, h * line);
    phase_pack(g, &block->x_panels, at, &row, phase_w);
}

static void dy_row_pack(const WgradBlock *block, int64_t unit)
{
    const Wgrad *g = block->wgrad;
    int group = (int)(unit / block->rows), r = (int)(unit % block->rows), width = g->w.out;
    int64_t line = width * g->dy_pitch;
    WgradRow row = row_of(g, block->dy, block->group + group, g->h.out * line, (block->row + r) * line);
    row.pixels = width;
    row.step = g->dy_pitch;
    row.channels = g->outs;
    if (!g->code->pack_rows) {
        g->code->pack(&block->dy_panels, unit * width, &row);
        return;
    }
    int64_t at = group * group_dy_pixels(g, block->rows) + (int64_t)r * positions(g);
    int64_t end = r + 1 < block->rows ? at + positions(g) : (group + 1) * group_dy_pixels(g, block->rows);
    row.positions = end - at;
    g->code->pack_rows(&block->dy_panels, at, &row);
}

static int64_t x_units(const WgradBlock *block)
{
    const Wgrad *g = block->wgrad;
    return (int64_t)block->groups * g->h.phases * g->w.phases * block_x_rows(g, block->rows);
}

static void unit_pack(const WgradBlock *block, int64_t unit)
{
    int64_t x = x_units(block), tail = tail_pixels(block->wgrad);
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
static void tap_range(const WgradAxis *axis, int tap, int *lo, int *hi)
{
    int shift = tap - axis->pad, last = axis->in - 1 - shift;
    int from = shift < 0 ? (-shift + axis->stride - 1) / axis->stride : 0;
    int to = last < 0 ? 0 : last / axis->stride + 1;
    if (from > *lo) *lo = from;
    if (to < *hi) *hi = to;
    if (*hi < *lo) *hi = *lo;
}

/* Joins contiguous rows, and then images, into one row. */
static void tile_join(WgradTile *tile)
{
    int64_t words = tile->vectors * WGRAD_LANES;
    if (tile->x_row == tile->columns * words && tile->dy_row == tile->columns * WGRAD_LANES) {
        tile->columns *= tile->rows;
        tile->rows = 1;
    }
    if (tile->rows == 1 && tile->x_group == tile->columns * words && tile->dy_group == tile->columns * WGRAD_LANES) {
        tile->columns *= tile->groups;
        tile->groups = 1;
    }
}

/* A tile without its outputs. */
static WgradTile tile_at(const WgradBlock *block, int panel, int tap)
{
    const Wgrad *g = block->wgrad;
    int r = tap / g->w.taps, s = tap % g->w.taps, width = positions(g);
    int top = block->row, bottom = block->row + block->rows, left = 0, right = g->w.out;
    int first = g->x_first[panel], words = g->x_first[panel + 1] - first;
    int64_t image_rows = block_x_rows(g, block->rows), phase = r % g->h.stride * g->w.phases + s % g->w.stride;
    if (!g->code->pack_rows) {
        tap_range(&g->h, r, &top, &bottom);
        tap_range(&g->w, s, &left, &right);
    }
    int64_t x_at = (phase * image_rows + top - block->row + r / g->h.stride) * width + left + s / g->w.stride;
    int64_t dy_at = (int64_t)(top - block->row) * g->w.out + left;
    WgradTile tile = {.groups = block->groups,
                      .rows = bottom - top,
                      .columns = right - left,
                      .x_group = group_x_pixels(g, block->rows) * words,
                      .x_row = (int64_t)width * words,
                      .vectors = words / WGRAD_LANES,
                      .ins = g->ins - first < words ? g->ins - first : words,
                      .dw_out = (int64_t)taps_of(g) * g->ins,
                      .add = block->add};
    tile.x = block->x_panels.words + first * block->x_panels.pixels + x_at * words;
    tile.dy_panel = WGRAD_LANES * block->dy_panels.pixels;
    tile.dy_group = group_dy_pixels(g, block->rows) * WGRAD_LANES;
    tile.dy_row = (int64_t)g->w.out * WGRAD_LANES;
    tile.dw = block->dw + (int64_t)tap * g->ins + first;
    tile.dy = block->dy_panels.words + dy_at * WGRAD_LANES;
    if (g->code->pack_rows) {
        tile.rows = 1;
        tile.columns = group_dy_pixels(g, block->rows);
        tile.dy = block->dy_panels.words;
    }
    tile_join(&tile);
    return tile;
}

static int tiles_out(const Wgrad *g)
{
    return (g->dy_panels + g->code->panels - 1) / g->code->panels;
}

/* Task `task`: a panel of inputs, a tap, some tiles of outputs. */
static void task_multiply(const WgradBlock *block, int64_t task)
{
    const Wgrad *g = block->wgrad;
    int part = (int)(task % block->tasks_out), taps = taps_of(g), tap = (int)(task / block->tasks_out % taps);
    WgradTile tile = tile_at(block, (int)(task / block->tasks_out / taps), tap), whole = tile;
    int end = (int)smaller(tiles_out(g), (int64_t)(part + 1) * block->task_tiles);
    if (g->code->begin) g->code->begin();
    for (int k = part * block->task_tiles; k < end; k++) {
        int out = k * g->code->panels * WGRAD_LANES;
        tile.outs = (int)smaller(g->code->panels * WGRAD_LANES, g->outs - out);
        tile.dy = whole.dy + k * g->code->panels * tile.dy_panel;
        tile.dw = whole.dw + out * tile.dw_out;
        g->code->tile(&tile);
    }
    if (g->code->end) g->code->end();
}

/* ---- the whole */

/* One run. */
typedef struct WgradRun {
    const Wgrad *g;
    const char *x, *dy;
    float *dw;
    char *workspace;
} WgradRun;

/* Block `index`, packed at `memory`. */
static WgradBlock block_at(const WgradRun *run, int64_t index, char *memory)
{
    const Wgrad *g = run->g;
    WgradBlock block = {
        .wgrad = g, .x = run->x, .dy = run->dy, .dw = run->dw, .tasks_out = 1, .task_tiles = tiles_out(g)};
    block.group = (int)(index / blocks_down(g)) * g->groups;
    block.row = (int)(index % blocks_down(g)) * g->rows;
    block.groups = (int)smaller(g->groups, image_groups(g) - block.group);
    block.rows = (int)smaller(g->rows, g->h.out - block.row);
    block.x_panels =
        (WgradPanels){(uint32_t *)(void *)memory, block_x_pixels(g, block.groups, block.rows), g->x_first, g->x_panels};
    memory += align_up(x_bytes(g, g->groups, g->rows), CPU_ALIGNMENT);
    block.dy_panels = (WgradPanels){(uint32_t *)(void *)memory, block.groups * group_dy_pixels(g, block.rows),
                                    g->dy_first, g->dy_panels};
    return block;
}

static int64_t units_of(const WgradBlock *block)
{
    return x_units(block) + (int64_t)block->groups * block->rows;
}

static int64_t tasks_of(const WgradBlock *block)
{
    return (int64_t)block->wgrad->x_panels * taps_of(block->wgrad) * block->tasks_out;
}

static void tasks_cut(WgradBlock *block, int threads)
{
    const Wgrad *g = block->wgrad;
    int parts = g->x_panels * taps_of(g), tiles = tiles_out(g);
    while (block->task_tiles > 1 &&
           parts * ((tiles + block->task_tiles - 1) / block->task_tiles) < TASKS_PER_THREAD * threads)
        block->task_tiles = (block->task_tiles + 1) / 2;
    block->tasks_out = (tiles + block->task_tiles - 1) / block->task_tiles;
}

static void block_run(const WgradBlock *block, int threads)
{
    int64_t units = units_of(block), tasks = tasks_of(block);
    (void)threads;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
#pragma omp for schedule(static)
        for (int64_t unit = 0; unit < units; unit++) unit_pack(block, unit);
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < tasks; task++) task_multiply(block, task);
    }
}

/* Slice `slice` by one member of the team. */
static void slice_run(const WgradRun *run, int64_t slice, int thread)
{
    const Wgrad *g = run->g;
    int64_t all = blocks_of(g), first = all * slice / g->slices;
    char *per_thread = run->workspace + (size_t)(g->slices - 1) * sums_bytes(g) + (size_t)thread * block_bytes(g);
    float *dw = slice ? (float *)(void *)(run->workspace + (size_t)(slice - 1) * sums_bytes(g)) : run->dw;
    for (int64_t i = first; i < all * (slice + 1) / g->slices; i++) {
        WgradBlock block = block_at(run, i, per_thread);
        block.dw = dw;
        block.add = i > first;
        for (int64_t unit = 0; unit < units_of(&block); unit++) unit_pack(&block, unit);
        for (int64_t task = 0; task < tasks_of(&block); task++) task_multiply(&block, task);
    }
}

static void slices_chunk(void *context, int64_t first, int64_t end)
{
    for (int64_t slice = first; slice < end; slice++) slice_run(context, slice, team_member());
}

static void sums_chunk(void *context, int64_t first, int64_t end)
{
    const WgradRun *run = context;
    const char *sums = run->workspace;
    for (int k = 1; k < run->g->slices; k++, sums += sums_bytes(run->g))
        row_add(run->dw + first, (const float *)(const void *)sums + first, end - first);
}

Status wgrad_run(const void *plan, Device *device, OpCall *call)
{
    enum { SUMS_CHUNK = 2048 };
    const Wgrad *g = plan;
    WgradRun run = {g, call->in[0].data, call->in[1].data, call->out[0].data, call->workspace};
    if (g->slices) {
        chunks_run(device, g->slices, 1, slices_chunk, &run);
        chunks_run(device, dw_count(g), SUMS_CHUNK, sums_chunk, &run);
        return OK;
    }
    for (int64_t i = 0; i < blocks_of(g); i++) {
        WgradBlock block = block_at(&run, i, call->workspace);
        block.add = i > 0;
        tasks_cut(&block, cpu_threads(device));
        block_run(&block, cpu_threads(device));
    }
    return OK;
}
#endif
