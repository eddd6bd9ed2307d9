/* Weight gradients of 3x3 and 5x5 convolutions of stride 1 by Winograd's algorithms, dw = G' (sum over tiles of (A dy
 * A') * (B' x B)) G, point by point: F(2x2, 3x3) in bf16 and in f32 with 16 products instead of 36, in f32 F(4x4, 3x3)
 * with 36 instead of 144, too, and for 5x5 F(2x2, 5x5) with 36 instead of 100.
 *
 * Products and packing are those of wgrad.h: in bf16 two images are paired, tiles take the place of pixels and points
 * that of taps; packing includes the transform. Processors and the rounding of bf16 are as in winograd.c. f32 needs
 * AVX-512 or AVX2; the error of F(2x2, 3x3) is half to twice that of oneDNN's sums, depending on their order, that of
 * six points about twice as large: docs/decisions/0006-winograd.md. Results are equal to the bit for any number of
 * threads.
 *
 * Words of x and dy are packed as [panel of channels][point][tile]; then points of panels are multiplied. Large images:
 * a block is some rows of tiles of a stack of images. Blocks are assigned to SLICES by shape alone; a thread computes
 * whole slices in memory of its own, so that threads do not wait and packed words stay in its caches. The sums of a
 * slice are m[output][point][input] until the end, when slices are added in order. Small images, which have many
 * channels: one block of all of them, packed by the team; then a thread computes a part of dw from all its points. In
 * f32 many small images are cut into blocks like a large one. */
#include "kernels/cpu/conv/conv_impl.h"
#include "kernels/cpu/conv/winograd_pack.h"
#include "kernels/cpu/vector.h"

#if defined(__x86_64__)
enum {
    LANES = WGRAD_LANES,
    SIDE_MOST = 6,       /* of the pixels of x of a tile, and of its points */
    TILES = 128,         /* of a block, about: enough for sums that outweigh reading and writing m */
    FEW_TILES = 64,      /* of small images */
    MOST_TILES = 512,    /* of all small images */
    MOST_SUMS = 1 << 20, /* of a slice of small images */
    SLICES = 8           /* of the blocks: enough for that many threads */
};

typedef struct WinogradDw {
    const WinogradPack *pack;
    WinogradSquares squares;
    SquaresSize size;
    int64_t points;
    Shape x, dy;
    Lines from, to; /* rows of x and dy */
    int pad_h, pad_w;
    int tiles_h, tiles_w;
    int threads;
    int span;     /* rows of tiles that are cut into blocks: of a stack, or of all */
    int rows;     /* of a block, at most */
    int blocks;   /* of a span */
    int slices;   /* 0: small images */
    int chain;    /* tiles summed at once, at most */
    int x_panels; /* of up to 3 vectors */
} WinogradDw;

/* The arguments of a run. */
typedef struct DwRun {
    const WinogradDw *g;
    const void *x, *dy;
    float *m, *dw;
    char *per_thread; /* words: of the members of the team (slice_run), one after another, or of all */
} DwRun;

typedef struct DwBlock {
    const WinogradDw *g;
    const void *x, *dy;
    uint32_t *x_words, *dy_words;
    int64_t tiles;
    float *m;
    bool add; /* to what m holds */
} DwBlock;

/* A row of tiles: its stack of images, its number, and the number of its first tile in the block. */
typedef struct TileRow {
    int64_t stack, row, at;
} TileRow;

/* Tiles of all images, or stacks. */
static int64_t all_tiles(const WinogradPack *pack, const Tensor *dy, int out)
{
    return squares_tiles(dy->shape, out) * ((dy->shape.n + pack->images - 1) / pack->images);
}

/* Whether all images make one block. */
static bool is_small(const WinogradPack *pack, const Tensor *dy, int out)
{
    bool few = pack->images == 1 || squares_tiles(dy->shape, out) < FEW_TILES;
    return few && all_tiles(pack, dy, out) <= MOST_TILES;
}

/* Whether images are cut into blocks: each of them, or in f32 all of them together. */
static bool is_large(const WinogradPack *pack, const Tensor *x, const Tensor *dy, const SquaresSize *size)
{
    int64_t sums = (int64_t)size->side * size->side * x->shape.c * dy->shape.c;
    return squares_tiles(dy->shape, size->out) >= FEW_TILES || (pack->images == 1 && sums <= MOST_SUMS);
}

static const char *squares_take(const Device *device, const ConvProblem *p, WinogradSquares squares)
{
    const SquaresSize *size = &squares_sizes[squares];
    const Tensor *x = p->x, *dy = p->y;
    const char *declines = squares_decline(device, p, squares);
    if (!declines) declines = winograd_pack_declines(x, dy);
    if (declines) return declines;
    const WinogradPack *pack = winograd_pack_for(x);
    if (all_tiles(pack, dy, size->out) < FEW_TILES) return "too few pixels";
    bool fits = is_small(pack, dy, size->out) || is_large(pack, x, dy, size);
    return fits ? NULL : "images are too small for blocks of one and too many";
}

static int stacks_of(const WinogradDw *g)
{
    return lines_stacks(&g->to, g->pack);
}

/* Cuts each stack, or all of them if a stack is less than a block, into blocks of about equal size. */
static void blocks_cut(WinogradDw *g)
{
    int64_t stacks = stacks_of(g);
    bool fraction = g->tiles_h * g->tiles_w < FEW_TILES;
    g->span = (int)(fraction ? stacks * g->tiles_h : g->tiles_h);
    int64_t most = larger(1, ((int64_t)g->span * g->tiles_w + TILES / 2) / TILES);
    g->rows = (int)larger(1, (g->span + most - 1) / most);
    g->blocks = (g->span + g->rows - 1) / g->rows;
    g->slices = (int)smaller(SLICES, fraction ? g->blocks : stacks * g->blocks);
}

static int64_t block_tiles(const WinogradDw *g)
{
    return (int64_t)g->rows * g->tiles_w;
}

static Status squares_create(Device *device, const ConvProblem *p, WinogradSquares squares, void **made)
{
    const Tensor *x = p->x, *dy = p->y;
    const WinogradPack *pack = winograd_pack_for(x);
    const SquaresSize size = squares_sizes[squares];
    WinogradDw *g = calloc(1, sizeof *g);
    if (!g) return FAIL(ERR_MEMORY, "no memory for the Winograd weight gradient of '%s'", p->call->name);
    *g = (WinogradDw){.pack = pack,
                      .squares = squares,
                      .size = size,
                      .points = (int64_t)size.side * size.side,
                      .x = x->shape,
                      .dy = dy->shape,
                      .from = lines_of(x, false),
                      .to = lines_of(dy, false),
                      .pad_h = p->window.pad_h,
                      .pad_w = p->window.pad_w,
                      .tiles_h = (dy->shape.h + size.out - 1) / size.out,
                      .tiles_w = (dy->shape.w + size.out - 1) / size.out,
                      .threads = cpu_threads(device)};
    if (is_small(pack, dy, size.out))
        g->span = g->rows = stacks_of(g) * g->tiles_h;
    else
        blocks_cut(g);
    /* The rounding error of f32 grows with the length of a sum. */
    g->chain = (int)(pack->images == 1 && !g->slices ? TILES : block_tiles(g));
    g->x_panels = (x->shape.c / LANES + pack->products->vectors - 1) / pack->products->vectors;
    *made = g;
    return OK;
}

static int64_t taps_of(const WinogradDw *g)
{
    return (int64_t)g->size.taps * g->size.taps;
}

static size_t words_bytes(const WinogradDw *g, int channels)
{
    return (size_t)g->points * (size_t)block_tiles(g) * (size_t)channels * sizeof(uint32_t);
}

static size_t block_bytes(const WinogradDw *g)
{
    return words_bytes(g, g->x.c) + words_bytes(g, g->dy.c);
}

static int64_t m_count(const WinogradDw *g)
{
    return g->points * g->x.c * g->dy.c;
}

/* Floats of the sums of a panel of x and a panel of dy. */
static int64_t part_count(const WinogradDw *g)
{
    return g->points * LANES * g->pack->products->vectors * LANES;
}

static size_t dw_workspace(const void *made)
{
    const WinogradDw *g = made;
    size_t threads = (size_t)g->threads;
    if (!g->slices) return block_bytes(g) + threads * (size_t)part_count(g) * sizeof(float);
    threads = (size_t)smaller(g->threads, g->slices);
    return threads * block_bytes(g) + (size_t)g->slices * (size_t)m_count(g) * sizeof(float);
}

/* First channel of panel k of x: panels are about equal. */
static int64_t panel_first(const WinogradDw *g, int64_t k)
{
    return g->x.c / LANES * k / g->x_panels * LANES;
}

/* ---- packing */

/* 16 channels of panel k of x. */
static void x_pack(const DwBlock *block, const TileRow *row, int k, int64_t channel)
{
    const WinogradDw *g = block->g;
    int64_t first = panel_first(g, k), width = panel_first(g, k + 1) - first;
    int64_t top = row->row * g->size.out - g->pad_h;
    PixelRow rows[SIDE_MOST];
    for (int r = 0; r < g->size.side; r++)
        rows[r] = lines_row(&g->from, g->pack, block->x, row->stack, top + r, channel);
    uint32_t *to = block->x_words + first * g->points * block->tiles + row->at * width + (channel - first);
    g->pack->x_squares[g->squares](rows, -g->pad_w, g->tiles_w, (WordsPlace){to, block->tiles * width, width});
}

static void dy_pack(const DwBlock *block, const TileRow *row, int64_t channel)
{
    const WinogradDw *g = block->g;
    PixelRow rows[SIDE_MOST];
    for (int r = 0; r < g->size.out; r++)
        rows[r] = lines_row(&g->to, g->pack, block->dy, row->stack, row->row * g->size.out + r, channel);
    int64_t lane = channel % LANES;
    uint32_t *to = block->dy_words + (channel - lane) * g->points * block->tiles + row->at * LANES + lane;
    g->pack->dy_squares[g->squares](rows, g->tiles_w, (WordsPlace){to, block->tiles * LANES, LANES});
}

/* Row `index` of those of all stacks, as tiles `at` and following. */
static void row_pack(const DwBlock *block, int64_t index, int64_t at)
{
    const WinogradDw *g = block->g;
    TileRow row = {index / g->tiles_h, index % g->tiles_h, at};
    for (int k = 0; k < g->x_panels; k++)
        for (int64_t c = panel_first(g, k); c < panel_first(g, k + 1); c += g->pack->channels)
            x_pack(block, &row, k, c);
    for (int64_t c = 0; c < g->dy.c; c += g->pack->channels) dy_pack(block, &row, c);
}

/* ---- products */

/* A point of panel k of x and of a panel of dy; its sums go to `to`, from output to output by `step`. */
static void point_multiply(const DwBlock *block, int64_t k, int64_t out, int64_t point, float *to, int64_t step)
{
    const WinogradDw *g = block->g;
    int64_t first = panel_first(g, k), width = panel_first(g, k + 1) - first, tiles = block->tiles;
    const uint32_t *x = block->x_words + first * g->points * tiles + point * tiles * width;
    const uint32_t *dy = block->dy_words + out * g->points * tiles + point * tiles * LANES;
    for (int64_t at = 0; at < tiles; at += g->chain) {
        WgradTile tile = {.x = x + at * width,
                          .dy = dy + at * LANES,
                          .pairs = 1,
                          .rows = 1,
                          .columns = smaller(g->chain, tiles - at),
                          .vectors = (int)(width / LANES),
                          .outs = LANES,
                          .ins = (int)width,
                          .dw = to,
                          .dw_out = step,
                          .add = block->add || at > 0};
        g->pack->products->tile(&tile);
    }
}

static void task_multiply(const DwBlock *block, int64_t task)
{
    const WinogradDw *g = block->g;
    int64_t outs = g->dy.c / LANES, out = task % outs * LANES, point = task / outs % g->points,
            k = task / outs / g->points;
    float *to = block->m + (out * g->points + point) * g->x.c + panel_first(g, k);
    point_multiply(block, k, out, point, to, g->points * g->x.c);
}

/* ---- back: dw = G' m G */

static void back_chunk(void *context, int64_t first, int64_t end)
{
    const DwRun *run = context;
    const WinogradDw *g = run->g;
    for (int64_t out = first; out < end; out++)
        g->pack->back->squares[g->squares](&(SquareSums){run->m + out * g->points * g->x.c, g->slices, m_count(g)},
                                           g->x.c, run->dw + out * taps_of(g) * g->x.c, g->x.c);
}

/* ---- large images */

static DwBlock block_at(const DwRun *run, char *words)
{
    const WinogradDw *g = run->g;
    return (DwBlock){.g = g,
                     .x = run->x,
                     .dy = run->dy,
                     .x_words = (uint32_t *)(void *)words,
                     .dy_words = (uint32_t *)(void *)(words + words_bytes(g, g->x.c)),
                     .tiles = block_tiles(g)};
}

/* Block `index`. */
static void block_run(DwBlock *block, int64_t index)
{
    const WinogradDw *g = block->g;
    int64_t tasks = (int64_t)g->x_panels * g->points * (g->dy.c / LANES);
    int64_t first = index % g->blocks * g->rows, rows = smaller(g->rows, g->span - first);
    block->tiles = rows * g->tiles_w;
    for (int64_t r = 0; r < rows; r++) row_pack(block, index / g->blocks * g->span + first + r, r * g->tiles_w);
    for (int64_t task = 0; task < tasks; task++) task_multiply(block, task);
}

/* Slice `slice`, by one thread. Words have a place for each thread, or for each slice if these are fewer. */
static void slice_run(const DwRun *run, int64_t slice)
{
    const WinogradDw *g = run->g;
    size_t place = g->threads < g->slices ? (size_t)team_member() : (size_t)slice;
    int64_t all = (int64_t)stacks_of(g) * g->tiles_h / g->span * g->blocks, first = all * slice / g->slices;
    DwBlock block = block_at(run, run->per_thread + place * block_bytes(g));
    block.m = run->m + slice * m_count(g);
    for (int64_t i = first; i < all * (slice + 1) / g->slices; i++) {
        block.add = i > first;
        block_run(&block, i);
    }
}

static void slices_chunk(void *context, int64_t first, int64_t end)
{
    for (int64_t slice = first; slice < end; slice++) slice_run(context, slice);
}

static void large_run(DwRun *run, const Device *device, char *workspace)
{
    const WinogradDw *g = run->g;
    run->m = (float *)(void *)workspace;
    run->per_thread = workspace + (size_t)g->slices * (size_t)m_count(g) * sizeof(float);
    chunks_run(device, g->slices, 1, slices_chunk, run);
    chunks_run(device, g->dy.c, 4, back_chunk, run);
}

/* ---- small images */

static void rows_chunk(void *context, int64_t first, int64_t end)
{
    const DwRun *run = context;
    const WinogradDw *g = run->g;
    DwBlock block = block_at(run, run->per_thread);
    for (int64_t i = first; i < end; i++) row_pack(&block, i, i * g->tiles_w);
}

/* Parts of dw: of a panel of x and a panel of dy, all points, then all taps. */
static void parts_chunk(void *context, int64_t first, int64_t end)
{
    const DwRun *run = context;
    const WinogradDw *g = run->g;
    DwBlock block = block_at(run, run->per_thread);
    float *m = run->m + team_member() * part_count(g);
    for (int64_t i = first; i < end; i++) {
        int64_t outs = g->dy.c / LANES, out = i % outs * LANES, k = i / outs;
        int64_t in = panel_first(g, k), width = panel_first(g, k + 1) - in;
        for (int64_t point = 0; point < g->points; point++)
            point_multiply(&block, k, out, point, m + point * width, g->points * width);
        for (int64_t o = 0; o < LANES; o++)
            g->pack->back->squares[g->squares](&(SquareSums){m + o * g->points * width, 1, 0}, width,
                                               run->dw + (out + o) * taps_of(g) * g->x.c + in, g->x.c);
    }
}

static void small_run(DwRun *run, const Device *device, char *workspace)
{
    const WinogradDw *g = run->g;
    run->per_thread = workspace;
    run->m = (float *)(void *)(workspace + block_bytes(g));
    chunks_run(device, (int64_t)stacks_of(g) * g->tiles_h, 1, rows_chunk, run);
    chunks_run(device, (int64_t)g->x_panels * (g->dy.c / LANES), 1, parts_chunk, run);
}

static Status dw_run(const void *made, Device *device, OpCall *call)
{
    const WinogradDw *g = made;
    DwRun run = {.g = g, .x = call->in[0].data, .dy = call->in[1].data, .dw = call->out[0].data};
    (g->slices ? large_run : small_run)(&run, device, call->workspace);
    return OK;
}

/* The row of an algorithm in the list, with what takes and creates it. */
#define SQUARES_ROW(row, algorithm, title, share)                                                                      \
    static const char *takes_##algorithm(const Device *device, const ConvProblem *p)                                   \
    {                                                                                                                  \
        return squares_take(device, p, algorithm);                                                                     \
    }                                                                                                                  \
    static Status create_##algorithm(Device *device, const ConvProblem *p, void **made)                                \
    {                                                                                                                  \
        return squares_create(device, p, algorithm, made);                                                             \
    }                                                                                                                  \
    const ConvImpl row = {.name = "winograd " title,                                                                   \
                          .takes = takes_##algorithm,                                                                  \
                          .create = create_##algorithm,                                                                \
                          .workspace = dw_workspace,                                                                   \
                          .run = dw_run,                                                                               \
                          .destroy = free,                                                                             \
                          .product_share = share}
SQUARES_ROW(conv_winograd_dw, BY_2X2, "F(2x2, 3x3)", 16.0f / 36);
SQUARES_ROW(conv_winograd_dw_4x4, BY_4X4, "F(4x4, 3x3)", 36.0f / 144);
SQUARES_ROW(conv_winograd_dw_5x5, BY_5X5, "F(2x2, 5x5)", 36.0f / 100);
#endif
