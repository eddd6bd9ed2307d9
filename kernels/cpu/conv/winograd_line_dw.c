/* Weight gradients of 1x7 and 7x1 convolutions of stride 1 by F(4, 7), in bf16 and in f32: dh = G' (sum over tiles of
 * (A dy A') * (B' x B)) G, with 14 products instead of 28 and the matrices of winograd_line.c.
 *
 * In bf16 two images are paired, and the products are those of wgrad.h. Processors and rounding: as in winograd_dw.c.
 * Results are equal to the bit for any number of threads.
 *
 * A block is some stacks of images: the team packs words of x and dy as [panel of channels][point][tile]; if a line is
 * one output longer than its tiles, plain taps of that output follow the points, by line. Then each thread multiplies
 * panels of outputs with all of x. Sums are m[output][point][input] until the last block. */
#include "kernels/cpu/conv/conv_impl.h"
#include "kernels/cpu/conv/winograd_pack.h"
#include "kernels/cpu/vector.h"

#if defined(__x86_64__)
enum {
    LANES = WGRAD_LANES,
    TAPS = 7,
    SIDE = 4,
    POINTS = 14,
    BLOCK_BYTES = 16 << 20,   /* of words, about: in the last level of caches */
    F32_BLOCK_BYTES = 5 << 20 /* its products take twice as long, so m may be read and written more often */
};

typedef struct WinogradLineDw {
    const WinogradPack *pack;
    Shape x, dy;
    Lines from, to;
    int pad;
    int tiles;                /* of a line */
    int tail_first, tail_end; /* taps of one more output that lie inside the line; equal if there is none */
    int stacks;               /* of a block, at most */
    int x_panels;             /* of up to 3 vectors */
} WinogradLineDw;

typedef struct LineDwBlock {
    const WinogradLineDw *g;
    const void *x, *dy;
    float *m, *dw;
    uint32_t *x_words, *dy_words;
    int64_t stack, stacks;
} LineDwBlock;

static bool window_fits(const Window *v)
{
    bool row = v->kh == 1 && v->kw == TAPS && v->pad_h == 0 && v->pad_w < TAPS;
    bool column = v->kh == TAPS && v->kw == 1 && v->pad_h < TAPS && v->pad_w == 0;
    return (row || column) && v->stride_h == 1 && v->stride_w == 1;
}

static const char *line_dw_takes(const Device *device, const ConvProblem *p)
{
    if (!window_fits(&p->window)) return "window is not 1x7 or 7x1 of stride 1";
    if (conv_winograd_off(device, p)) return conv_winograd_off(device, p);
    return winograd_pack_declines(p->x, p->y);
}

static void tail_choose(WinogradLineDw *g)
{
    int last = g->to.length - 1;
    bool tail = last % SIDE == 0;
    g->tiles = tail ? last / SIDE : last / SIDE + 1;
    g->tail_first = tail ? (int)smaller(TAPS, larger(0, g->pad - last)) : 0;
    g->tail_end = tail ? (int)larger(g->tail_first, smaller(TAPS, g->from.length - last + g->pad)) : 0;
}

/* ---- sizes */

static int tail_taps(const WinogradLineDw *g)
{
    return g->tail_end - g->tail_first;
}

static int points(const WinogradLineDw *g)
{
    return POINTS + tail_taps(g);
}

/* Words of a channel, of x and of dy. */
static int64_t x_count(const WinogradLineDw *g, int64_t lines)
{
    return lines * (g->tiles * POINTS + tail_taps(g));
}

static int64_t dy_count(const WinogradLineDw *g, int64_t lines)
{
    return lines * (g->tiles * POINTS + 1);
}

static int64_t words_count(const WinogradLineDw *g, int64_t lines)
{
    return x_count(g, lines) * g->x.c + dy_count(g, lines) * g->dy.c;
}

static int64_t m_count(const WinogradLineDw *g)
{
    return (int64_t)points(g) * g->x.c * g->dy.c;
}

static size_t line_dw_workspace(const void *made)
{
    const WinogradLineDw *g = made;
    return (size_t)m_count(g) * sizeof(float) + (size_t)words_count(g, g->stacks * g->to.across) * sizeof(uint32_t);
}

/* First channel of panel k of x: panels are about equal. */
static int64_t panel_first(const WinogradLineDw *g, int64_t k)
{
    return g->x.c / LANES * k / g->x_panels * LANES;
}

static Status line_dw_create(Device *device, const ConvProblem *p, void **made)
{
    (void)device;
    const Tensor *x = p->x, *dy = p->y;
    const Window *v = &p->window;
    WinogradLineDw *g = calloc(1, sizeof *g);
    if (!g)
        return FAIL(ERR_MEMORY, "no memory for the one-dimensional Winograd weight gradient of '%s'", p->call->name);
    *g = (WinogradLineDw){.pack = winograd_pack_for(x),
                          .x = x->shape,
                          .dy = dy->shape,
                          .from = lines_of(x, v->kh > 1),
                          .to = lines_of(dy, v->kh > 1),
                          .pad = v->pad_h + v->pad_w};
    tail_choose(g);
    g->x_panels = (x->shape.c / LANES + g->pack->products->vectors - 1) / g->pack->products->vectors;
    int64_t bytes = x->dtype == DTYPE_F32 ? F32_BLOCK_BYTES : BLOCK_BYTES;
    int64_t most = bytes / ((int64_t)sizeof(uint32_t) * words_count(g, g->to.across));
    g->stacks = (int)smaller(lines_stacks(&g->from, g->pack), larger(1, most));
    *made = g;
    return OK;
}

/* ---- packing */

/* 16 channels of panel k of x, of line `line` of a block. Plain taps follow the points, by line. */
static void x_pack(const LineDwBlock *block, int64_t line, int k, int64_t channel)
{
    const WinogradLineDw *g = block->g;
    int64_t first = panel_first(g, k), width = panel_first(g, k + 1) - first;
    int64_t lines = block->stacks * g->to.across, tiles = lines * g->tiles;
    PixelRow x =
        lines_row(&g->from, g->pack, block->x, block->stack + line / g->to.across, line % g->to.across, channel);
    uint32_t *to = block->x_words + first * x_count(g, lines) + channel - first;
    g->pack->x_line(&x, -g->pad, g->tiles, (WordsPlace){to + line * g->tiles * width, tiles * width, width});
    for (int i = 0; i < tail_taps(g); i++)
        g->pack->pixel(&x, g->to.length - 1 - g->pad + g->tail_first + i,
                       to + ((POINTS * tiles + i * lines) + line) * width);
}

static void dy_pack(const LineDwBlock *block, int64_t line, int64_t channel)
{
    const WinogradLineDw *g = block->g;
    int64_t lines = block->stacks * g->to.across, tiles = lines * g->tiles;
    PixelRow dy =
        lines_row(&g->to, g->pack, block->dy, block->stack + line / g->to.across, line % g->to.across, channel);
    int64_t lane = channel % LANES;
    uint32_t *to = block->dy_words + (channel - lane) * dy_count(g, lines) + lane;
    g->pack->dy_line(&dy, g->tiles, (WordsPlace){to + line * g->tiles * LANES, tiles * LANES, LANES});
    g->pack->pixel(&dy, g->to.length - 1, to + (POINTS * tiles + line) * LANES);
}

static void line_pack(const LineDwBlock *block, int64_t line)
{
    const WinogradLineDw *g = block->g;
    for (int k = 0; k < g->x_panels; k++)
        for (int64_t c = panel_first(g, k); c < panel_first(g, k + 1); c += g->pack->channels)
            x_pack(block, line, k, c);
    for (int64_t c = 0; c < g->dy.c; c += g->pack->channels) dy_pack(block, line, c);
}

static void lines_chunk(void *context, int64_t first, int64_t end)
{
    for (int64_t line = first; line < end; line++) line_pack(context, line);
}

/* ---- products */

/* A point, or a plain tap, of a panel of x and a panel of dy. */
static void task_multiply(const LineDwBlock *block, int k, int point, int64_t out)
{
    const WinogradLineDw *g = block->g;
    bool plain = point >= POINTS;
    int64_t first = panel_first(g, k), width = panel_first(g, k + 1) - first;
    int64_t lines = block->stacks * g->to.across, tiles = lines * g->tiles;
    int64_t x_at = plain ? POINTS * tiles + (point - POINTS) * lines : point * tiles;
    WgradTile tile = {.x = block->x_words + first * x_count(g, lines) + x_at * width,
                      .dy = block->dy_words + out * dy_count(g, lines) + (plain ? POINTS : point) * tiles * LANES,
                      .pairs = 1,
                      .rows = 1,
                      .columns = plain ? lines : tiles,
                      .vectors = (int)(width / LANES),
                      .outs = LANES,
                      .ins = (int)width,
                      .dw = block->m + (out * points(g) + point) * g->x.c + first,
                      .dw_out = (int64_t)points(g) * g->x.c,
                      .add = block->stack > 0};
    g->pack->products->tile(&tile);
}

/* ---- the whole */

/* Panels [first, end) of outputs. */
static void outputs_chunk(void *context, int64_t first, int64_t end)
{
    const LineDwBlock *block = context;
    const WinogradLineDw *g = block->g;
    for (int k = 0; k < g->x_panels; k++)
        for (int point = 0; point < points(g); point++)
            for (int64_t i = first; i < end; i++) task_multiply(block, k, point, i * LANES);
    if (block->stack + block->stacks < lines_stacks(&g->from, g->pack)) return;
    for (int64_t out = first * LANES; out < end * LANES; out++)
        g->pack->back->line(&(LineSums){block->m + out * points(g) * g->x.c, g->tail_first, tail_taps(g)}, g->x.c,
                            block->dw + out * TAPS * g->x.c);
}

static Status line_dw_run(const void *made, Device *device, OpCall *call)
{
    const WinogradLineDw *g = made;
    int64_t panels = g->dy.c / LANES, threads = cpu_threads(device), all = lines_stacks(&g->from, g->pack);
    LineDwBlock block = {
        .g = g, .x = call->in[0].data, .dy = call->in[1].data, .m = call->workspace, .dw = call->out[0].data};
    block.x_words = (uint32_t *)call->workspace + m_count(g);
    for (block.stack = 0; block.stack < all; block.stack += g->stacks) {
        block.stacks = smaller(g->stacks, all - block.stack);
        block.dy_words = block.x_words + x_count(g, block.stacks * g->to.across) * g->x.c;
        chunks_run(device, block.stacks * g->to.across, 1, lines_chunk, &block);
        chunks_run(device, panels, (panels + threads - 1) / threads, outputs_chunk, &block);
    }
    return OK;
}

const ConvImpl conv_winograd_line_dw = {.name = "winograd F(4, 7)",
                                        .takes = line_dw_takes,
                                        .create = line_dw_create,
                                        .workspace = line_dw_workspace,
                                        .run = line_dw_run,
                                        .destroy = free,
                                        .product_share = 14.0f / 28};
#endif
