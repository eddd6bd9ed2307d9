/* Weight gradients of stride 1 by Winograd's algorithms, dw = G' (sum over tiles of (A dy A') * (B' x B)) G, point by point: with
 * F(2x2, 3x3) and F(4, 7) in bf16 and in f32, with F(4x4, 3x3) and F(2x2, 5x5) in f32. They save as many products as winograd.c
 * does, and have the same processors and rounding of bf16.
 *
 * The products are those of wgrad.h: in bf16 two images are paired, tiles take the place of pixels and points that of taps;
 * packing includes the transform (winograd_dw_kernel.h). The error of F(2x2, 3x3) in f32 is half to twice that of oneDNN's sums,
 * depending on their order, that of six points about twice as large: docs/decisions/0006-winograd.md. Results are equal to the
 * bit for any number of threads.
 *
 * A *strip* is a row of tiles, or a line of 1-D tiles; if the line is one output longer than these, plain taps of that output
 * follow the points. Words of x and dy are packed as [panel of channels][point][tile]; then points of panels are multiplied. Three
 * ways to do so:
 *   SLICES  Large images: a block is some strips of an image group. Blocks are assigned to SLICES_MOST slices by shape alone; a
 *           thread computes whole slices in memory of its own, so that threads do not wait and words stay in its caches. The
 *           sums of a slice are m[output][point][input] until the end, when slices are added in order. In f32 many small images
 *           are cut into blocks like a large one.
 *   PARTS   Small images, which have many channels: one block of all of them, packed by the team; then a thread computes a part
 *           of dw from all its points.
 *   BLOCKS  1-D tiles: a block is some image groups, packed by the team; then each thread multiplies panels of outputs with all
 *           of x. Sums are m[output][point][input] until the last block. */
#include "kernels/cpu/conv/wgrad.h"

#ifdef CPU_HAS_LANES
enum {
    LANES = WGRAD_LANES,      /* of panels, on every processor */
    TILES = 128,              /* of a block, about: enough for sums that outweigh reading and writing m */
    FEW_TILES = 64,           /* of small images */
    MOST_TILES = 512,         /* of all small images */
    MOST_SUMS = 1 << 20,      /* of a slice of small images */
    SLICES_MOST = 8,          /* enough for that many threads */
    BLOCK_BYTES = 16 << 20,   /* BLOCKS: of words, about: in the last level of caches */
    F32_BLOCK_BYTES = 5 << 20 /* its products take twice as long, so m may be read and written more often */
};

typedef enum DwOrder { SLICES, PARTS, BLOCKS } DwOrder;

typedef struct WinogradDw {
    WinogradAlgorithm algorithm;
    const WinogradDwCode *code;
    const WgradCode *products;
    Dtype dtype;
    Shape x, dy;
    Lines from, to;
    int x_lines, dy_lines;     /* read for a strip: a line, or alpha and m rows */
    int lines_step, top, left; /* lines from strip to strip; position of the first pixel in x */
    int strips, tiles;         /* of an image group; of a strip */
    LineTiles line;            /* 1-D tiles */
    DwOrder order;
    int threads;
    int span;      /* strips that are cut into blocks: of an image group, or of all */
    int most;      /* strips of a block */
    int blocks;    /* of a span */
    int slices;    /* SLICES */
    int64_t chain; /* tiles summed at once, at most */
    Panels x_panels;
} WinogradDw;

/* The arguments of a run. */
typedef struct DwRun {
    const WinogradDw *g;
    const void *x, *dy;
    float *m, *dw;
    char *words; /* of the members of the team (slice_run), one after another, or of all */
} DwRun;

/* Some strips, numbered through all image groups. */
typedef struct DwBlock {
    const WinogradDw *g;
    const DwRun *run;
    uint32_t *x_words, *dy_words;
    int64_t first, strips;
    float *m;
    bool add; /* to what m holds */
} DwBlock;

/* ---- which problems it is for */

#if defined(__x86_64__)
static const WgradCode *products_for(Dtype dtype)
{
    return dtype == DTYPE_BF16 ? &wgrad_avx512 : wgrad_for_f32();
}

static const WinogradDwCode *code_for(Dtype dtype, WinogradAlgorithm a)
{
    if (dtype == DTYPE_BF16) return &winograd_dw_bf16[a];
    return cpu_isa() >= CPU_AVX512 ? &winograd_dw_avx512[a] : &winograd_dw_avx2[a];
}
#else
static const WgradCode *products_for(Dtype dtype)
{
    (void)dtype;
    return wgrad_for_f32();
}

static const WinogradDwCode *code_for(Dtype dtype, WinogradAlgorithm a)
{
    (void)dtype;
    return &winograd_dw_neon[a];
}
#endif

/* Why this processor or these tensors are not for our code. */
static const char *tensors_decline(const Tensor *x, const Tensor *dy)
{
    enum { FEW_CHANNELS = 32 };
    const char *declines = winograd_tensors_decline(x, dy, LANES, FEW_CHANNELS);
    if (declines) return declines;
    return x->shape.n < products_for(x->dtype)->images ? "a single image cannot be paired" : NULL;
}

static int image_groups(const Tensor *t)
{
    int images = products_for(t->dtype)->images;
    return (t->shape.n + images - 1) / images;
}

static int64_t group_tiles(const Tensor *dy, WinogradAlgorithm a)
{
    return winograd_tiles(dy->shape, winograd_m(a));
}

/* Whether all images make one block. */
static bool is_small(const Tensor *dy, WinogradAlgorithm a)
{
    bool few = dy->dtype == DTYPE_F32 || group_tiles(dy, a) < FEW_TILES;
    return few && group_tiles(dy, a) * image_groups(dy) <= MOST_TILES;
}

/* Whether images are cut into blocks: each of them, or in f32 all of them together. */
static bool is_large(const Tensor *x, const Tensor *dy, WinogradAlgorithm a)
{
    int64_t sums = (int64_t)winograd_points(a) * x->shape.c * dy->shape.c;
    return group_tiles(dy, a) >= FEW_TILES || (dy->dtype == DTYPE_F32 && sums <= MOST_SUMS);
}

static const char *dw_takes(const Device *device, const ConvProblem *p, WinogradAlgorithm a)
{
    const Tensor *x = p->x, *dy = p->y;
    const char *declines = winograd_declines(device, p, a);
    if (!declines) declines = tensors_decline(x, dy);
    if (declines || a == F4_7) return declines;
    if (group_tiles(dy, a) * image_groups(dy) < FEW_TILES) return "too few pixels";
    return is_small(dy, a) || is_large(x, dy, a) ? NULL : "images are too small for blocks of one and too many";
}

/* ---- sizes */

static int points_of(const WinogradDw *g)
{
    return winograd_points(g->algorithm) + tail_taps(&g->line);
}

/* Words of a channel, of x and of dy: the tiles of all points, then by strip those of plain taps and the last output. */
static int64_t x_count(const WinogradDw *g, int64_t strips)
{
    return strips * (g->tiles * winograd_points(g->algorithm) + tail_taps(&g->line));
}

static int64_t dy_count(const WinogradDw *g, int64_t strips)
{
    return strips * (g->tiles * winograd_points(g->algorithm) + (g->algorithm == F4_7));
}

static int64_t words_count(const WinogradDw *g, int64_t strips)
{
    return x_count(g, strips) * g->x.c + dy_count(g, strips) * g->dy.c;
}

static size_t block_bytes(const WinogradDw *g)
{
    return (size_t)words_count(g, g->most) * sizeof(uint32_t);
}

static int64_t m_count(const WinogradDw *g)
{
    return (int64_t)points_of(g) * g->x.c * g->dy.c;
}

/* Floats of the sums of a panel of x and a panel of dy. */
static int64_t part_count(const WinogradDw *g)
{
    return (int64_t)points_of(g) * LANES * PANEL_VECTORS * LANES;
}

static size_t m_bytes(const WinogradDw *g)
{
    int64_t count = g->order == SLICES  ? g->slices * m_count(g)
                    : g->order == PARTS ? g->threads * part_count(g)
                                        : m_count(g);
    return (size_t)count * sizeof(float);
}

static size_t dw_workspace(const void *plan)
{
    const WinogradDw *g = plan;
    return m_bytes(g) + (g->order == SLICES ? (size_t)smaller(g->threads, g->slices) : 1) * block_bytes(g);
}

/* ---- plans */

/* Cuts each image group, or all of them if a group is less than a block, into blocks of about equal size. */
static void slices_plan(WinogradDw *g, int64_t groups)
{
    bool fraction = g->strips * g->tiles < FEW_TILES;
    g->order = SLICES;
    g->span = (int)(fraction ? groups * g->strips : g->strips);
    int64_t most = larger(1, ((int64_t)g->span * g->tiles + TILES / 2) / TILES);
    g->most = (int)larger(1, (g->span + most - 1) / most);
    g->blocks = (g->span + g->most - 1) / g->most;
    g->slices = (int)smaller(SLICES_MOST, fraction ? g->blocks : groups * g->blocks);
}

static void tiles_plan(const ConvProblem *p, WinogradDw *g)
{
    const Tensor *dy = p->y;
    int m = winograd_m(g->algorithm);
    g->x_lines = winograd_alpha(g->algorithm);
    g->dy_lines = g->lines_step = m;
    g->top = p->window.pad_h, g->left = p->window.pad_w;
    g->strips = (g->dy.h + m - 1) / m;
    g->tiles = (g->dy.w + m - 1) / m;
    if (!is_small(dy, g->algorithm)) {
        slices_plan(g, image_groups(dy));
        return;
    }
    g->order = PARTS;
    g->span = g->most = image_groups(dy) * g->strips;
    if (g->dtype == DTYPE_F32) g->chain = TILES; /* its rounding error grows with the length of a sum */
}

static void lines_plan(const ConvProblem *p, WinogradDw *g)
{
    int64_t bytes = g->dtype == DTYPE_F32 ? F32_BLOCK_BYTES : BLOCK_BYTES;
    g->order = BLOCKS;
    g->x_lines = g->dy_lines = g->lines_step = 1;
    g->left = p->window.pad_h + p->window.pad_w;
    g->strips = g->to.across;
    g->line = line_tiles(g->from.length, g->to.length, g->left);
    g->tiles = g->line.count;
    g->span = image_groups(p->y) * g->strips;
    int64_t groups = bytes / ((int64_t)sizeof(uint32_t) * words_count(g, g->strips));
    g->most = (int)smaller(g->span, larger(1, groups) * g->strips);
}

static Status dw_create(Device *device, const ConvProblem *p, WinogradAlgorithm a, void **plan)
{
    const Tensor *x = p->x, *dy = p->y;
    bool down = a == F4_7 && p->window.kh > 1;
    WinogradDw *g = calloc(1, sizeof *g);
    if (!g) return FAIL(ERR_MEMORY, "no memory for the Winograd weight gradient of '%s'", p->call->name);
    *g = (WinogradDw){.algorithm = a,
                      .code = code_for(x->dtype, a),
                      .products = products_for(x->dtype),
                      .dtype = x->dtype,
                      .x = x->shape,
                      .dy = dy->shape,
                      .from = lines_of(x->shape, x->pitch, down),
                      .to = lines_of(dy->shape, dy->pitch, down),
                      .chain = INT64_MAX,
                      .x_panels = panels_of(LANES, x->shape.c),
                      .threads = cpu_threads(device)};
    (a == F4_7 ? lines_plan : tiles_plan)(p, g);
    *plan = g;
    return OK;
}

/* ---- packing */

/* The channels from `channel` on of line `line` of an image group, which may lie outside. */
static PixelRow line_row(const WinogradDw *g, const Lines *lines, const void *base, int64_t group, int64_t line,
                         int64_t channel)
{
    static const float zeros[WGRAD_LANES];
    const int64_t images = g->products->images, bytes = (int64_t)dtype_bytes(g->dtype);
    bool even = line >= 0 && line < lines->across, odd = even && images * group + 1 < lines->images;
    int64_t at = images * group * lines->image + line * lines->line + channel;
    const char *elements = base;
    return (PixelRow){.even = even ? elements + at * bytes : (const char *)zeros,
                      .odd = odd ? elements + (at + lines->image) * bytes : (const char *)zeros,
                      .even_step = even ? lines->step : 0,
                      .odd_step = odd ? lines->step : 0,
                      .length = lines->length};
}

/* Some channels of panel k of x, of a strip. */
static void x_pack(const DwBlock *block, int64_t strip, int64_t k, int64_t channel)
{
    const WinogradDw *g = block->g;
    const int64_t group = (block->first + strip) / g->strips, line = (block->first + strip) % g->strips * g->lines_step;
    const int64_t first = panels_first(&g->x_panels, k), width = panels_width(&g->x_panels, k),
                  tiles = block->strips * g->tiles;
    PixelRow rows[ALPHA_MOST];
    for (int r = 0; r < g->x_lines; r++)
        rows[r] = line_row(g, &g->from, block->run->x, group, line - g->top + r, channel);
    uint32_t *to = block->x_words + first * x_count(g, block->strips) + channel - first;
    g->code->x_pack(rows, -g->left, g->tiles, (WordSteps){to + strip * g->tiles * width, tiles * width, width});
    to += (winograd_points(g->algorithm) * tiles + strip) * width;
    for (int i = 0; i < tail_taps(&g->line); i++)
        g->code->pixel_pack(rows, g->to.length - 1 - g->left + g->line.tail_first + i, to + i * block->strips * width);
}

static void dy_pack(const DwBlock *block, int64_t strip, int64_t channel)
{
    const WinogradDw *g = block->g;
    const int64_t group = (block->first + strip) / g->strips, line = (block->first + strip) % g->strips * g->lines_step;
    const int64_t tiles = block->strips * g->tiles, lane = channel % LANES;
    PixelRow rows[M_MOST];
    for (int r = 0; r < g->dy_lines; r++) rows[r] = line_row(g, &g->to, block->run->dy, group, line + r, channel);
    uint32_t *to = block->dy_words + (channel - lane) * dy_count(g, block->strips) + lane;
    g->code->dy_pack(rows, g->tiles, (WordSteps){to + strip * g->tiles * LANES, tiles * LANES, LANES});
    to += (winograd_points(g->algorithm) * tiles + strip) * LANES;
    if (g->algorithm == F4_7) g->code->pixel_pack(rows, g->to.length - 1, to);
}

static void strips_chunk(void *context, int64_t first, int64_t end)
{
    const DwBlock *block = context;
    const WinogradDw *g = block->g;
    for (int64_t strip = first; strip < end; strip++) {
        for (int64_t k = 0; k < g->x_panels.count; k++)
            for (int64_t c = panels_first(&g->x_panels, k); c < panels_first(&g->x_panels, k + 1);
                 c += g->code->channels)
                x_pack(block, strip, k, c);
        for (int64_t c = 0; c < g->dy.c; c += g->code->channels) dy_pack(block, strip, c);
    }
}

/* ---- products */

/* A point, or a plain tap, of panel k of x and of a panel of dy; its sums go to `to`, from output to output by `step`. */
static void point_multiply(const DwBlock *block, int64_t k, int64_t out, int64_t point, float *to, int64_t step)
{
    const WinogradDw *g = block->g;
    const int64_t width = panels_width(&g->x_panels, k), tiles = block->strips * g->tiles,
                  points = winograd_points(g->algorithm);
    const int64_t plain = point - points, count = plain < 0 ? tiles : block->strips;
    const int64_t x_at = plain < 0 ? point * tiles : points * tiles + plain * block->strips;
    const int64_t dy_at = plain < 0 ? point * tiles : points * tiles;
    const uint32_t *x = block->x_words + panels_first(&g->x_panels, k) * x_count(g, block->strips) + x_at * width;
    const uint32_t *dy = block->dy_words + out * dy_count(g, block->strips) + dy_at * LANES;
    const int64_t chain = smaller(g->chain, larger(1, count));
    int64_t at = 0;
    do { /* once for a line of one output, which has no tiles */
        WgradTile tile = {.x = x + at * width,
                          .dy = dy + at * LANES,
                          .groups = 1,
                          .rows = 1,
                          .columns = smaller(chain, count - at),
                          .vectors = (int)(width / LANES),
                          .outs = LANES,
                          .ins = (int)width,
                          .dw = to,
                          .dw_out = step,
                          .add = block->add || at > 0};
        g->products->tile(&tile);
        at += chain;
    } while (at < count);
}

/* All of x with panels [first, end) of outputs. */
static void panels_multiply(const DwBlock *block, int64_t first, int64_t end)
{
    const WinogradDw *g = block->g;
    const int64_t points = points_of(g);
    for (int64_t k = 0; k < g->x_panels.count; k++)
        for (int64_t point = 0; point < points; point++)
            for (int64_t i = first; i < end; i++) {
                float *to = block->m + (i * LANES * points + point) * g->x.c + panels_first(&g->x_panels, k);
                point_multiply(block, k, i * LANES, point, to, points * g->x.c);
            }
}

/* ---- back: dw = G' m G */

/* One output, from sums[point][width] to the inputs from `in` on. */
static void output_back(const DwRun *run, int64_t out, PointSums sums, int64_t in, int64_t width)
{
    const WinogradDw *g = run->g;
    sums.plain_first = g->line.tail_first, sums.plain = tail_taps(&g->line);
    g->code->back(&sums, width, run->dw + out * winograd_taps(g->algorithm) * g->x.c + in, g->x.c);
}

static void back_chunk(void *context, int64_t first, int64_t end)
{
    const DwRun *run = context;
    const WinogradDw *g = run->g;
    for (int64_t out = first; out < end; out++) {
        const float *m = run->m + out * points_of(g) * g->x.c;
        output_back(run, out, (PointSums){m, .slices = g->slices, .step = m_count(g)}, 0, g->x.c);
    }
}

/* ---- the three orders */

static DwBlock block_at(const DwRun *run, char *words, int64_t first, int64_t strips)
{
    const WinogradDw *g = run->g;
    uint32_t *x_words = (uint32_t *)(void *)words;
    return (DwBlock){.g = g,
                     .run = run,
                     .x_words = x_words,
                     .dy_words = x_words + x_count(g, strips) * g->x.c,
                     .first = first,
                     .strips = strips,
                     .m = run->m};
}

/* Slice `slice`, by one thread. Words have memory for each thread, or for each slice if these are fewer. */
static void slice_run(const DwRun *run, int64_t slice)
{
    const WinogradDw *g = run->g;
    size_t own = g->threads < g->slices ? (size_t)team_member() : (size_t)slice;
    int64_t groups = (g->to.images + g->products->images - 1) / g->products->images;
    int64_t all = groups * g->strips / g->span * g->blocks, begin = all * slice / g->slices;
    for (int64_t i = begin; i < all * (slice + 1) / g->slices; i++) {
        int64_t first = i % g->blocks * g->most, strips = smaller(g->most, g->span - first);
        DwBlock block = block_at(run, run->words + own * block_bytes(g), i / g->blocks * g->span + first, strips);
        block.m = run->m + slice * m_count(g);
        block.add = i > begin;
        strips_chunk(&block, 0, strips);
        panels_multiply(&block, 0, g->dy.c / LANES);
    }
}

static void slices_chunk(void *context, int64_t first, int64_t end)
{
    for (int64_t slice = first; slice < end; slice++) slice_run(context, slice);
}

static void slices_run(DwRun *run, const Device *device)
{
    chunks_run(device, run->g->slices, 1, slices_chunk, run);
    chunks_run(device, run->g->dy.c, 4, back_chunk, run);
}

/* Parts of dw: of a panel of x and a panel of dy, all points, then all taps. */
static void parts_chunk(void *context, int64_t first, int64_t end)
{
    const DwBlock *block = context;
    const WinogradDw *g = block->g;
    const int64_t points = points_of(g), outs = g->dy.c / LANES;
    float *m = block->m + team_member() * part_count(g);
    for (int64_t i = first; i < end; i++) {
        int64_t out = i % outs * LANES, k = i / outs, width = panels_width(&g->x_panels, k);
        for (int64_t point = 0; point < points; point++)
            point_multiply(block, k, out, point, m + point * width, points * width);
        for (int64_t o = 0; o < LANES; o++)
            output_back(block->run, out + o, (PointSums){m + o * points * width, .slices = 1},
                        panels_first(&g->x_panels, k), width);
    }
}

static void parts_run(DwRun *run, const Device *device)
{
    const WinogradDw *g = run->g;
    DwBlock block = block_at(run, run->words, 0, g->span);
    chunks_run(device, g->span, 1, strips_chunk, &block);
    chunks_run(device, g->x_panels.count * (g->dy.c / LANES), 1, parts_chunk, &block);
}

static void panels_chunk(void *context, int64_t first, int64_t end)
{
    const DwBlock *block = context;
    const WinogradDw *g = block->g;
    panels_multiply(block, first, end);
    if (block->first + block->strips < g->span) return;
    for (int64_t out = first * LANES; out < end * LANES; out++)
        output_back(block->run, out, (PointSums){block->m + out * points_of(g) * g->x.c, .slices = 1}, 0, g->x.c);
}

static void blocks_run(DwRun *run, const Device *device)
{
    const WinogradDw *g = run->g;
    int64_t panels = g->dy.c / LANES, threads = cpu_threads(device);
    for (int64_t first = 0; first < g->span; first += g->most) {
        DwBlock block = block_at(run, run->words, first, smaller(g->most, g->span - first));
        block.add = first > 0;
        chunks_run(device, block.strips, 1, strips_chunk, &block);
        chunks_run(device, panels, (panels + threads - 1) / threads, panels_chunk, &block);
    }
}

static Status dw_run(const void *plan, Device *device, OpCall *call)
{
    static void (*const orders[])(DwRun *,
                                  const Device *) = {[SLICES] = slices_run, [PARTS] = parts_run, [BLOCKS] = blocks_run};
    const WinogradDw *g = plan;
    DwRun run = {.g = g, .x = call->in[0].data, .dy = call->in[1].data, .dw = call->out[0].data};
    run.m = call->workspace;
    run.words = (char *)call->workspace + m_bytes(g);
    orders[g->order](&run, device);
    return OK;
}

/* ---- the rows of the list */

#define WINOGRAD_DW_ROW(row, algorithm, title, share)                                                                  \
    static const char *takes_##algorithm(const Device *device, const ConvProblem *p)                                   \
    {                                                                                                                  \
        return dw_takes(device, p, algorithm);                                                                         \
    }                                                                                                                  \
    static Status create_##algorithm(Device *device, const ConvProblem *p, void **plan)                                \
    {                                                                                                                  \
        return dw_create(device, p, algorithm, plan);                                                                  \
    }                                                                                                                  \
    const ConvImpl row = {.name = "winograd " title,                                                                   \
                          .takes = takes_##algorithm,                                                                  \
                          .create = create_##algorithm,                                                                \
                          .workspace = dw_workspace,                                                                   \
                          .run = dw_run,                                                                               \
                          .destroy = free,                                                                             \
                          .product_share = share}
WINOGRAD_DW_ROW(conv_winograd_dw_f2_3, F2_3, "F(2x2, 3x3)", 16.0f / 36);
WINOGRAD_DW_ROW(conv_winograd_dw_f4_3, F4_3, "F(4x4, 3x3)", 36.0f / 144);
WINOGRAD_DW_ROW(conv_winograd_dw_f2_5, F2_5, "F(2x2, 5x5)", 36.0f / 100);
WINOGRAD_DW_ROW(conv_winograd_dw_f4_7, F4_7, "F(4, 7)", 14.0f / 28);
#endif
