/* 1x7 and 7x1 convolutions of stride 1 by F(4, 7): 14 products instead of 28.
 *
 * F(2, 3) nested in itself with a stride of 2: output 2i + j sums taps 2k + l, i and j < 2, k and l < 3, which has two
 * places for taps 2 and 4; with the right ones empty two of the 16 products vanish:
 *     h0 h1 .          d = B' x B of x[2p + q], p and q < 4, B' and A' as in winograd.c, G in winograd_tile.h
 *     h2 h3 h4         u = G h G'
 *     .  h5 h6         y = A' (u d) A
 * Transforms and rounding are those of F(2x2, 3x3) in winograd.c. If a line is one output longer than its tiles, that
 * output is a plain sum. The gradient with respect to x is the same convolution with rotated weights. f32 needs
 * AVX-512; bf16 needs AVX512-BF16 and is not used if there is AMX; see docs/decisions/0006-winograd.md.
 *
 * A line is a row of an image (1x7) or a column (7x1). Weights are transformed once per call: u[panel of
 * outputs][point] [words of inputs][outputs], followed by the plain taps of a last output. Then each thread takes some
 * lines: their tiles of 4 outputs are transformed to d[8 tiles][point][8][inputs], multiplied to m[8 tiles][point][8]
 * [outputs of a panel], one point after another so that its weights stay in the caches, and transformed back. */
#include "kernels/cpu/conv/conv_impl.h"

#include "kernels/cpu/vector.h"

#include <stdlib.h>

#if defined(__x86_64__)
#include "kernels/cpu/conv/winograd_tile.h"

enum {
    TAPS = 7,
    SIDE = 4,            /* outputs of a tile; and of the square of its inner and outer points */
    POINTS = 14,         /* of that square, less two corners */
    MOST = POINTS + TAPS /* and with plain taps */
};

/* Lines of x or y. */
typedef struct Lines {
    int length;
    int64_t across;            /* lines of an image */
    int64_t image, line, step; /* elements from one to the next: images, lines, pixels of a line */
} Lines;

typedef struct WinogradLine {
    Dtype dtype;
    Shape x, y;
    bool down; /* lines are columns */
    Lines from, to;
    int pad;
    int tiles;                /* of a line */
    bool tail;                /* one more output */
    int tail_first, tail_end; /* the taps of it that lie inside the line */
    int block;                /* lines that one thread computes at a time */
    bool rotated;
    int threads;
    Panels panels;
    void *zeros; /* owned: a pixel outside the image */
} WinogradLine;

/* The arguments of a run. */
typedef struct Run {
    const WinogradLine *g;
    const void *x;
    const float *w;
    const Tensor *acc;
    void *y;
    uint32_t *u;      /* transformed weights */
    char *per_thread; /* memory of each thread, one after another */
} Run;

/* Some lines of one. */
typedef struct Block {
    const Run *run;
    int64_t first, count; /* lines */
    void *d, *tails;
    float *m;
} Block;

static const char *line_takes(const Device *device, const ConvProblem *p)
{
    enum { FEW_CHANNELS = 32, FEW_PIXELS = 256, SHORT = 8 };
    const Tensor *x = conv_from(p), *y = conv_to(p);
    const Window *v = &p->window;
    bool row = v->kh == 1 && v->kw == TAPS && v->pad_h == 0 && v->pad_w < TAPS;
    bool column = v->kh == TAPS && v->kw == 1 && v->pad_h < TAPS && v->pad_w == 0;
    if (!(row || column) || v->stride_h != 1 || v->stride_w != 1) return "window is not 1x7 or 7x1 of stride 1";
    if (conv_winograd_off(device, p)) return conv_winograd_off(device, p);
    if (x->dtype == DTYPE_F32 && (row ? y->shape.w : y->shape.h) < SHORT)
        return "lines are short: plain sums skip the padding";
    return tile_declines(x, y, FEW_CHANNELS, FEW_PIXELS);
}

static Lines lines_of(Shape s, int64_t pitch, bool down)
{
    int64_t row = s.w * pitch;
    return down ? (Lines){s.h, s.w, s.h * row, pitch, row} : (Lines){s.w, s.h, s.h * row, row, pitch};
}

static void tail_choose(WinogradLine *g)
{
    int last = g->to.length - 1;
    g->tail = last % SIDE == 0;
    g->tiles = g->tail ? last / SIDE : last / SIDE + 1;
    g->tail_first = (int)smaller(TAPS, larger(0, g->pad - last));
    g->tail_end = (int)larger(g->tail_first, smaller(TAPS, g->from.length - last + g->pad));
}

static Status line_create(Device *device, const ConvProblem *p, void **made)
{
    enum { BLOCK_TILES = 32 };
    const Tensor *x = conv_from(p), *y = conv_to(p);
    const Window *v = &p->window;
    bool rotated = p->kind == OP_CONV_DX;
    WinogradLine *g = calloc(1, sizeof *g);
    void *zeros = calloc((size_t)x->shape.c, dtype_bytes(x->dtype));
    if (!g || !zeros) {
        free(g);
        free(zeros);
        return FAIL(ERR_MEMORY, "no memory for the one-dimensional Winograd convolution '%s'", p->call->name);
    }
    int pad = v->pad_h + v->pad_w;
    *g = (WinogradLine){.dtype = x->dtype,
                        .x = x->shape,
                        .y = y->shape,
                        .down = v->kh > 1,
                        .from = lines_of(x->shape, x->pitch, v->kh > 1),
                        .to = lines_of(y->shape, y->pitch, v->kh > 1),
                        .pad = rotated ? TAPS - 1 - pad : pad,
                        .rotated = rotated,
                        .threads = cpu_threads(device),
                        .panels = panels_of(y->shape.c),
                        .zeros = zeros};
    tail_choose(g);
    g->block = (int)smaller(GROUP, larger(1, BLOCK_TILES / larger(1, g->tiles)));
    *made = g;
    return OK;
}

static void line_destroy(void *made)
{
    WinogradLine *g = made;
    free(g->zeros);
    free(g);
}

/* ---- sizes */

static int tail_taps(const WinogradLine *g)
{
    return g->tail ? g->tail_end - g->tail_first : 0;
}

/* Elements of u for an input and an output. */
static int points(const WinogradLine *g)
{
    return POINTS + tail_taps(g);
}

static size_t u_bytes(const WinogradLine *g)
{
    return (size_t)points(g) * (size_t)g->x.c * (size_t)g->y.c * dtype_bytes(g->dtype);
}

/* A whole number of groups; a block of last outputs alone has no tiles, but needs room for their sums. */
static size_t block_tiles(const WinogradLine *g)
{
    return (size_t)rounded_up(larger(1, (int64_t)g->block * g->tiles), GROUP);
}

static size_t d_bytes(const WinogradLine *g)
{
    return block_tiles(g) * POINTS * (size_t)g->x.c * dtype_bytes(g->dtype);
}

static size_t tails_bytes(const WinogradLine *g)
{
    return (size_t)GROUP * (size_t)tail_taps(g) * (size_t)g->x.c * dtype_bytes(g->dtype);
}

static size_t m_bytes(const WinogradLine *g)
{
    return block_tiles(g) * POINTS * VECTORS * LANES * sizeof(float);
}

static size_t per_thread_bytes(const WinogradLine *g)
{
    return d_bytes(g) + tails_bytes(g) + m_bytes(g);
}

static size_t line_workspace(const void *made)
{
    const WinogradLine *g = made;
    return u_bytes(g) + (size_t)g->threads * per_thread_bytes(g);
}

/* ---- weights: u = G h G' */

/* h: taps of 16 outputs. After the points, taps as they are. */
TILE_INLINE void weights_transform(const __m512 h[TAPS], __m512 u[MOST])
{
    const __m512 zero = _mm512_setzero_ps();
    __m512 columns[3][SIDE], row[SIDE];
    weights_line(h[0], h[2], zero, columns[0], 1);
    weights_line(h[1], h[3], h[5], columns[1], 1);
    weights_line(zero, h[4], h[6], columns[2], 1);
    weights_line(columns[0][0], columns[1][0], zero, row, 1);
    for (int i = 0; i < 3; i++) u[i] = row[i];
    weights_line(columns[0][1], columns[1][1], columns[2][1], u + 3, 1);
    weights_line(columns[0][2], columns[1][2], columns[2][2], u + 7, 1);
    weights_line(zero, columns[1][3], columns[2][3], row, 1);
    for (int i = 1; i < SIDE; i++) u[10 + i] = row[i];
    for (int i = 0; i < TAPS; i++) u[POINTS + i] = h[i];
}

/* 16 inputs from `in` on, for 16 outputs from `out` on. */
TILE_INLINE void weights_square(Dtype dtype, const Run *run, int64_t in, int64_t out)
{
    const WinogradLine *g = run->g;
    const int held = word_elements(dtype);
    const int64_t words = g->x.c / held;
    __m512 taps[LANES][TAPS], low[MOST], high[MOST], square[LANES];
    for (int i = 0; i < TAPS; i++) {
        tap_load(run->w, TAPS, g->rotated ? g->y.c : g->x.c, g->rotated, i, in, out, square);
        for (int k = 0; k < LANES; k++) taps[k][i] = square[k];
    }
    for (int k = 0; k < LANES; k += held) {
        int64_t width;
        uint32_t *to = words_at(&g->panels, run->u, words, points(g), (in + k) / held, out, &width);
        weights_transform(taps[k], low);
        weights_transform(taps[k + held - 1], high);
        for (int i = 0; i < points(g); i++) {
            int from = i < POINTS ? i : i + g->tail_first;
            words_join(dtype, to + i * words * width, low[from], high[from]);
        }
    }
}

TILE_CODE static void weights_chunk(void *context, int64_t first, int64_t end, int thread)
{
    (void)thread;
    const Run *run = context;
    const int64_t squares = run->g->x.c / LANES; /* for 16 outputs */
    for (int64_t i = first; i < end; i++)
        BY_DTYPE(run->g->dtype, weights_square, run, i % squares * LANES, i / squares * LANES);
}

/* ---- tiles of x: d = B' x B, B' = {1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1} */

TILE_INLINE void x_line(__m512 a, __m512 b, __m512 c, __m512 d, __m512 to[SIDE])
{
    to[0] = _mm512_sub_ps(a, c);
    to[1] = _mm512_add_ps(b, c);
    to[2] = _mm512_sub_ps(c, b);
    to[3] = _mm512_sub_ps(b, d);
}

/* Channels c and following of a tile out of its 4 rows. Points are `step` apart. */
TILE_INLINE void d_store(Dtype dtype, void *d, int64_t c, int64_t step, const __m512 rows[SIDE][SIDE])
{
    for (int i = 0; i < 3; i++) vector_store(dtype, d, c + i * step, _mm512_sub_ps(rows[0][i], rows[2][i]));
    for (int i = 0; i < SIDE; i++) vector_store(dtype, d, c + (3 + i) * step, _mm512_add_ps(rows[1][i], rows[2][i]));
    for (int i = 0; i < SIDE; i++) vector_store(dtype, d, c + (7 + i) * step, _mm512_sub_ps(rows[2][i], rows[1][i]));
    for (int i = 1; i < SIDE; i++) vector_store(dtype, d, c + (10 + i) * step, _mm512_sub_ps(rows[1][i], rows[3][i]));
}

enum { STRETCH = 8, STRETCH_PIXELS = SIDE * STRETCH + TAPS - 1 };

/* Some tiles of a line, one after another: the last two rows of one are the first two of the next. */
TILE_INLINE void stretch_transform(Dtype dtype, const void *const *pixels, int tiles, int64_t channels, void *const *d)
{
    for (int64_t c = 0; c < channels; c += LANES) {
        __m512 x[SIDE + 2], rows[SIDE][SIDE];
        for (int i = 0; i < SIDE + 2; i++) x[i] = vector_load(dtype, pixels[i], c);
        x_line(x[0], x[1], x[2], x[3], rows[0]);
        x_line(x[2], x[3], x[4], x[5], rows[1]);
        for (int t = 0; t < tiles; t++) {
            const void *const *next = pixels + SIDE * t + SIDE + 2;
            __m512 a = vector_load(dtype, next[0], c), b = vector_load(dtype, next[1], c);
            __m512 e = vector_load(dtype, next[2], c), f = vector_load(dtype, next[3], c);
            x_line(x[4], x[5], a, b, rows[2]);
            x_line(a, b, e, f, rows[3]);
            d_store(dtype, d[t], c, GROUP * channels, rows);
            for (int i = 0; i < SIDE; i++) rows[0][i] = rows[2][i], rows[1][i] = rows[3][i];
            x[4] = e, x[5] = f;
        }
    }
}

/* Point 0 of tile `tile` of a block, where a point of a tile takes `width`. */
static int64_t tile_at(int64_t tile, int64_t width)
{
    return (tile / GROUP * GROUP * POINTS + tile % GROUP) * width;
}

static int64_t line_at(const Lines *lines, int64_t line)
{
    return line / lines->across * lines->image + line % lines->across * lines->line;
}

/* The pixels that the last output of a line reads. */
static void tail_read(const Block *block, int64_t line)
{
    const WinogradLine *g = block->run->g;
    const size_t bytes = dtype_bytes(g->dtype), pixel = (size_t)g->x.c * bytes;
    const char *x = block->run->x;
    char *to = (char *)block->tails + (size_t)(line * tail_taps(g)) * pixel;
    int64_t at = g->to.length - 1 - g->pad + g->tail_first;
    x += (line_at(&g->from, block->first + line) + at * g->from.step) * (int64_t)bytes;
    for (int i = 0; i < tail_taps(g); i++) memcpy(to + i * pixel, x + i * g->from.step * (int64_t)bytes, pixel);
}

TILE_INLINE void line_read(Dtype dtype, const Block *block, int64_t line)
{
    const WinogradLine *g = block->run->g;
    const Lines *from = &g->from;
    const int64_t first = line_at(from, block->first + line);
    const void *pixels[STRETCH_PIXELS];
    void *d[STRETCH];
    for (int tile = 0; tile < g->tiles; tile += STRETCH) {
        int count = (int)smaller(STRETCH, g->tiles - tile);
        for (int i = 0; i < SIDE * count + TAPS - 1; i++) {
            int at = SIDE * tile - g->pad + i;
            bool inside = at >= 0 && at < from->length;
            pixels[i] = inside ? vector_at(dtype, block->run->x, first + at * from->step) : g->zeros;
        }
        for (int t = 0; t < count; t++) d[t] = vector_at(dtype, block->d, tile_at(line * g->tiles + tile + t, g->x.c));
        stretch_transform(dtype, pixels, count, g->x.c, d);
    }
    tail_read(block, line);
}

/* ---- back: y = A' m A, A' = {1 1 1 0; 0 1 -1 -1} */

/* A tile's outputs; NULL where a pixel does not exist, or nothing is added. */
typedef struct Outputs {
    void *to[SIDE];
    const void *acc[SIDE];
} Outputs;

TILE_INLINE void output_store(Dtype dtype, const Outputs *out, int i, int64_t channel, __m512 y)
{
    if (!out->to[i]) return;
    if (out->acc[i]) y = _mm512_add_ps(y, vector_load(dtype, out->acc[i], channel));
    vector_store(dtype, out->to[i], channel, y);
}

/* `width` outputs; points are `step` apart. */
TILE_INLINE void tile_back(Dtype dtype, const float *m, int64_t step, int64_t width, const Outputs *out)
{
    for (int64_t c = 0; c < width; c += LANES) {
        __m512 p[POINTS], even[SIDE], odd[SIDE];
        for (int i = 0; i < POINTS; i++) p[i] = _mm512_loadu_ps(m + i * step + c);
        even[0] = _mm512_add_ps(_mm512_add_ps(p[0], p[1]), p[2]), odd[0] = _mm512_sub_ps(p[1], p[2]);
        for (int k = 1; k < 3; k++) {
            const __m512 *row = p + SIDE * k - 1;
            even[k] = _mm512_add_ps(_mm512_add_ps(row[0], row[1]), row[2]);
            odd[k] = _mm512_sub_ps(_mm512_sub_ps(row[1], row[2]), row[3]);
        }
        even[3] = _mm512_add_ps(p[11], p[12]), odd[3] = _mm512_sub_ps(_mm512_sub_ps(p[11], p[12]), p[13]);
        output_store(dtype, out, 0, c, _mm512_add_ps(_mm512_add_ps(even[0], even[1]), even[2]));
        output_store(dtype, out, 1, c, _mm512_add_ps(_mm512_add_ps(odd[0], odd[1]), odd[2]));
        output_store(dtype, out, 2, c, _mm512_sub_ps(_mm512_sub_ps(even[1], even[2]), even[3]));
        output_store(dtype, out, 3, c, _mm512_sub_ps(_mm512_sub_ps(odd[1], odd[2]), odd[3]));
    }
}

TILE_INLINE void tail_back(Dtype dtype, const float *m, int64_t width, const Outputs *out)
{
    for (int64_t c = 0; c < width; c += LANES) output_store(dtype, out, 0, c, _mm512_loadu_ps(m + c));
}

/* Pixels `first` and following of a line, from channel `channel`. */
TILE_INLINE Outputs outputs_of(Dtype dtype, const Block *block, int64_t line, int first, int64_t channel)
{
    const Run *run = block->run;
    const WinogradLine *g = run->g;
    const Tensor *acc = run->acc;
    Outputs out = {{NULL}, {NULL}};
    int64_t at = line_at(&g->to, block->first + line);
    Lines added = acc ? lines_of(acc->shape, acc->pitch, g->down) : g->to;
    int64_t acc_at = line_at(&added, block->first + line);
    for (int i = 0; i < SIDE && first + i < g->to.length; i++) {
        out.to[i] = vector_at(dtype, run->y, at + (first + i) * g->to.step + channel);
        if (acc) out.acc[i] = vector_at(dtype, acc->data, acc_at + (first + i) * added.step + channel);
    }
    return out;
}

/* ---- the whole */

/* A panel of outputs. */
typedef struct Panel {
    int64_t first, width;
    const uint32_t *u;
} Panel;

TILE_INLINE void tiles_run(Dtype dtype, const Block *block, const Panel *panel)
{
    const WinogradLine *g = block->run->g;
    const int64_t channels = g->x.c, words = channels / word_elements(dtype), width = panel->width;
    const int64_t count = block->count * g->tiles;
    for (int64_t i = 0; i < POINTS; i++)
        for (int64_t t = 0; t < count; t += GROUP)
            group_product(dtype, vector_at(dtype, block->d, tile_at(t, channels) + i * GROUP * channels), words,
                          panel->u + i * words * width, block->m + tile_at(t, width) + i * GROUP * width, width);
    for (int64_t t = 0; t < count; t++) {
        Outputs out = outputs_of(dtype, block, t / g->tiles, (int)(t % g->tiles) * SIDE, panel->first);
        tile_back(dtype, block->m + tile_at(t, width), GROUP * width, width, &out);
    }
}

/* The last outputs of all lines. */
TILE_INLINE void tails_run(Dtype dtype, const Block *block, const Panel *panel)
{
    const WinogradLine *g = block->run->g;
    const int64_t words = g->x.c / word_elements(dtype), width = panel->width;
    group_product(dtype, block->tails, tail_taps(g) * words, panel->u + POINTS * words * width, block->m, width);
    for (int64_t line = 0; line < block->count; line++) {
        Outputs out = outputs_of(dtype, block, line, g->to.length - 1, panel->first);
        tail_back(dtype, block->m + line * width, width, &out);
    }
}

/* Rows of a group without a tile are multiplied as they are; their products are never read. */
TILE_INLINE void block_run(Dtype dtype, const Block *block)
{
    const Run *run = block->run;
    const WinogradLine *g = run->g;
    for (int64_t line = 0; line < block->count; line++) line_read(dtype, block, line);
    for (int64_t k = 0; k < g->panels.count; k++) {
        Panel panel = {panels_first(&g->panels, k), panels_width(&g->panels, k), run->u};
        panel.u += panel.first * (g->x.c / word_elements(dtype)) * points(g);
        tiles_run(dtype, block, &panel);
        if (g->tail) tails_run(dtype, block, &panel);
    }
}

TILE_CODE static void lines_chunk(void *context, int64_t first, int64_t end, int thread)
{
    const Run *run = context;
    const WinogradLine *g = run->g;
    char *per_thread = run->per_thread + (size_t)thread * per_thread_bytes(g);
    Block block = {run, first, end - first};
    block.d = per_thread;
    block.tails = per_thread + d_bytes(g);
    block.m = (float *)(void *)(per_thread + d_bytes(g) + tails_bytes(g));
    BY_DTYPE(g->dtype, block_run, &block);
}

static Status line_run(const void *made, Device *device, OpCall *call)
{
    const WinogradLine *g = made;
    Run run = {.g = g, .x = call->in[0].data, .w = call->in[1].data, .y = call->out[0].data, .u = call->workspace};
    run.per_thread = (char *)call->workspace + u_bytes(g);
    if (g->rotated) run.acc = conv_optional(call, 2);
    chunks_run(device, (int64_t)(g->x.c / LANES) * (g->y.c / LANES), 4, weights_chunk, &run);
    chunks_run(device, g->y.n * g->to.across, g->block, lines_chunk, &run);
    return OK;
}

const ConvImpl conv_winograd_line = {.name = "winograd F(4, 7)",
                                     .takes = line_takes,
                                     .create = line_create,
                                     .workspace = line_workspace,
                                     .run = line_run,
                                     .destroy = line_destroy,
                                     .product_share = 14.0f / 28};
#endif
