/* F(4, 7) along lines in bf16; see winograd_line.h.
 *
 * A line is a row of an image (1x7) or a column (7x1). Weights are transformed once a call: u[panel of outputs][point]
 * [pairs of inputs][outputs], after the points the plain taps of a last output. Then each member of the team takes some
 * lines: their tiles of 4 outputs are transformed to d[8 tiles][point][8][inputs], multiplied to m[point][8][outputs of
 * a panel], and transformed back, all in its caches. */
#include "kernels/cpu/winograd_line.h"

#include "kernels/cpu/onednn.h"
#include "kernels/cpu/vector.h"

#include <stdlib.h>

#if defined(__x86_64__)
#include "kernels/cpu/winograd_tile.h"

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

struct WinogradLine {
    Shape x, y;
    bool down; /* lines are columns */
    Lines from, to;
    int pad;
    int tiles;                /* of a line */
    bool tail;                /* one more output */
    int tail_first, tail_end; /* the taps of it that lie inside the line */
    int block;                /* lines that one member of the team does at a time */
    bool turned;
    int threads;
    int panels;
    uint16_t *zeros; /* owned: a pixel outside the image */
};

/* One run. */
typedef struct Run {
    const WinogradLine *g;
    const uint16_t *x;
    const float *w;
    const Tensor *acc;
    uint16_t *y;
    uint32_t *u; /* transformed weights */
    char *own;   /* memory of the members of the team, one after another */
} Run;

/* Some lines of one. */
typedef struct Block {
    const Run *run;
    int64_t first, count; /* lines */
    uint16_t *d, *tails;
    float *m;
} Block;

bool winograd_line_takes(const Tensor *x, const Tensor *y, const Window *v)
{
    enum { FEW_CHANNELS = 32, FEW_PIXELS = 256 };
    bool row = v->kh == 1 && v->kw == TAPS && v->pad_h == 0 && v->pad_w < TAPS;
    bool column = v->kh == TAPS && v->kw == 1 && v->pad_h < TAPS && v->pad_w == 0;
    bool dense = v->stride_h == 1 && v->stride_w == 1;
    bool halves = x->dtype == DTYPE_BF16 && y->dtype == DTYPE_BF16;
    bool whole = x->shape.c % LANES == 0 && y->shape.c % LANES == 0;
    return (row || column) && dense && halves && whole && x->shape.c >= FEW_CHANNELS && y->shape.c >= FEW_CHANNELS &&
           shape_pixels(y->shape) >= FEW_PIXELS && onednn_has_bf16() && !onednn_has_amx() &&
           __builtin_cpu_supports("avx512bf16");
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

Status winograd_line_create(const Tensor *x, const Tensor *y, const Window *v, bool turned, int threads,
                            WinogradLine **made)
{
    enum { BLOCK_TILES = 32 };
    WinogradLine *g = calloc(1, sizeof *g);
    uint16_t *zeros = calloc((size_t)x->shape.c, sizeof *zeros);
    if (!g || !zeros) {
        free(g);
        free(zeros);
        return FAIL(ERR_MEMORY, "a convolution along lines by Winograd's algorithm");
    }
    int pad = v->pad_h + v->pad_w;
    *g = (WinogradLine){.x = x->shape,
                        .y = y->shape,
                        .down = v->kh > 1,
                        .from = lines_of(x->shape, x->pitch, v->kh > 1),
                        .to = lines_of(y->shape, y->pitch, v->kh > 1),
                        .pad = turned ? TAPS - 1 - pad : pad,
                        .turned = turned,
                        .threads = threads,
                        .panels = (y->shape.c / LANES + VECTORS - 1) / VECTORS,
                        .zeros = zeros};
    tail_choose(g);
    g->block = (int)smaller(GROUP, larger(1, BLOCK_TILES / larger(1, g->tiles)));
    *made = g;
    return OK;
}

void winograd_line_destroy(WinogradLine *winograd)
{
    if (!winograd) return;
    free(winograd->zeros);
    free(winograd);
}

/* ---- sizes */

/* Vectors of outputs before panel k: panels are about equal. */
static int64_t panel_first(const WinogradLine *g, int k)
{
    return (int64_t)g->y.c / LANES * k / g->panels;
}

static int panel_vectors(const WinogradLine *g, int k)
{
    return (int)(panel_first(g, k + 1) - panel_first(g, k));
}

static int tail_taps(const WinogradLine *g)
{
    return g->tail ? g->tail_end - g->tail_first : 0;
}

/* What u holds for an input and an output. */
static int points(const WinogradLine *g)
{
    return POINTS + tail_taps(g);
}

static size_t u_bytes(const WinogradLine *g)
{
    return (size_t)points(g) * (size_t)g->x.c * (size_t)g->y.c * sizeof(uint16_t);
}

static size_t d_bytes(const WinogradLine *g)
{
    return (size_t)rounded_up((int64_t)g->block * g->tiles, GROUP) * POINTS * (size_t)g->x.c * sizeof(uint16_t);
}

static size_t tails_bytes(const WinogradLine *g)
{
    return (size_t)GROUP * (size_t)tail_taps(g) * (size_t)g->x.c * sizeof(uint16_t);
}

static size_t m_bytes(void)
{
    return (size_t)POINTS * GROUP * VECTORS * LANES * sizeof(float);
}

static size_t own_bytes(const WinogradLine *g)
{
    return d_bytes(g) + tails_bytes(g) + m_bytes();
}

size_t winograd_line_workspace_bytes(const WinogradLine *g)
{
    return u_bytes(g) + (size_t)g->threads * own_bytes(g);
}

/* ---- weights: u = G h G', G = {1 0 0; 1/2 1/2 1/2; 1/2 -1/2 1/2; 0 0 1} */

TILE_INLINE void weights_line(__m512 a, __m512 b, __m512 c, __m512 to[SIDE])
{
    __m512 half = _mm512_set1_ps(0.5f), outer = _mm512_mul_ps(half, _mm512_add_ps(a, c));
    __m512 inner = _mm512_mul_ps(half, b);
    to[0] = a;
    to[1] = _mm512_add_ps(outer, inner);
    to[2] = _mm512_sub_ps(outer, inner);
    to[3] = c;
}

/* h: taps of 16 outputs. After the points, taps as they are. */
TILE_INLINE void weights_transform(const __m512 h[TAPS], __m512 u[MOST])
{
    const __m512 zero = _mm512_setzero_ps();
    __m512 columns[3][SIDE], row[SIDE];
    weights_line(h[0], h[2], zero, columns[0]);
    weights_line(h[1], h[3], h[5], columns[1]);
    weights_line(zero, h[4], h[6], columns[2]);
    weights_line(columns[0][0], columns[1][0], zero, row);
    for (int i = 0; i < 3; i++) u[i] = row[i];
    weights_line(columns[0][1], columns[1][1], columns[2][1], u + 3);
    weights_line(columns[0][2], columns[1][2], columns[2][2], u + 7);
    weights_line(zero, columns[1][3], columns[2][3], row);
    for (int i = 1; i < SIDE; i++) u[10 + i] = row[i];
    for (int i = 0; i < TAPS; i++) u[POINTS + i] = h[i];
}

/* The words of input pair `pair` and 16 outputs. */
TILE_INLINE void words_store(const Run *run, int64_t pair, int64_t out, const __m512 low[TAPS], const __m512 high[TAPS])
{
    const WinogradLine *g = run->g;
    __m512 below[MOST], above[MOST];
    int k = 0;
    while (panel_first(g, k + 1) * LANES <= out) k++;
    int64_t first = panel_first(g, k) * LANES, pairs = g->x.c / 2, width = panel_vectors(g, k) * LANES;
    uint32_t *to = run->u + first * pairs * points(g) + pair * width + (out - first);
    weights_transform(low, below);
    weights_transform(high, above);
    for (int i = 0; i < points(g); i++) {
        int from = i < POINTS ? i : i + g->tail_first;
        __m512i even = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(below[from]));
        __m512i odd = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(above[from]));
        _mm512_storeu_si512(to + i * pairs * width, _mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
    }
}

/* Inputs of the gradient are outputs of the convolution, and lie in rows of w; taps are turned. */
TILE_CODE static void weights_turned(const Run *run, int64_t out)
{
    const int64_t c = run->g->y.c, row = TAPS * c;
    for (int64_t in = 0; in < run->g->x.c; in += 2) {
        __m512 low[TAPS], high[TAPS];
        for (int i = 0; i < TAPS; i++) {
            const float *w = run->w + in * row + (TAPS - 1 - i) * c + out;
            low[i] = _mm512_loadu_ps(w);
            high[i] = _mm512_loadu_ps(w + row);
        }
        words_store(run, in / 2, out, low, high);
    }
}

/* Rows become columns: lanes of rows `step` apart change places, for steps of 1, 2, 4 and 8. */
TILE_INLINE void square_transpose(__m512 rows[LANES])
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (int step = 1; step < LANES; step *= 2) {
        __m512i by = _mm512_set1_epi32(step);
        __mmask16 odd = _mm512_test_epi32_mask(lane, by);
        __m512i low = _mm512_mask_add_epi32(lane, odd, lane, _mm512_set1_epi32(LANES - step));
        __m512i high = _mm512_mask_add_epi32(_mm512_add_epi32(lane, by), odd, lane, _mm512_set1_epi32(LANES));
        for (int i = 0; i < LANES; i++) {
            if (i & step) continue;
            __m512 a = rows[i], b = rows[i + step];
            rows[i] = _mm512_permutex2var_ps(a, low, b);
            rows[i + step] = _mm512_permutex2var_ps(a, high, b);
        }
    }
}

TILE_CODE static void weights_straight(const Run *run, int64_t out)
{
    const int64_t c = run->g->x.c, row = TAPS * c;
    for (int64_t in = 0; in < c; in += LANES) {
        __m512 taps[LANES][TAPS], square[LANES];
        for (int i = 0; i < TAPS; i++) {
            for (int k = 0; k < LANES; k++) square[k] = _mm512_loadu_ps(run->w + (out + k) * row + i * c + in);
            square_transpose(square);
            for (int k = 0; k < LANES; k++) taps[k][i] = square[k];
        }
        for (int k = 0; k < LANES; k += 2) words_store(run, (in + k) / 2, out, taps[k], taps[k + 1]);
    }
}

static void weights_chunk(void *context, int64_t first, int64_t end, int thread)
{
    (void)thread;
    const Run *run = context;
    for (int64_t i = first; i < end; i++) (run->g->turned ? weights_turned : weights_straight)(run, i * LANES);
}

/* ---- tiles of x: d = B' x B, B' = {1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1} */

TILE_INLINE void x_line(__m512 a, __m512 b, __m512 c, __m512 d, __m512 to[SIDE])
{
    to[0] = _mm512_sub_ps(a, c);
    to[1] = _mm512_add_ps(b, c);
    to[2] = _mm512_sub_ps(c, b);
    to[3] = _mm512_sub_ps(b, d);
}

/* 16 channels of a tile out of its 4 rows. Points are `step` apart. */
TILE_INLINE void d_store(uint16_t *d, int64_t step, const __m512 rows[SIDE][SIDE])
{
    for (int i = 0; i < 3; i++) half_store(d + i * step, _mm512_sub_ps(rows[0][i], rows[2][i]));
    for (int i = 0; i < SIDE; i++) half_store(d + (3 + i) * step, _mm512_add_ps(rows[1][i], rows[2][i]));
    for (int i = 0; i < SIDE; i++) half_store(d + (7 + i) * step, _mm512_sub_ps(rows[2][i], rows[1][i]));
    for (int i = 1; i < SIDE; i++) half_store(d + (10 + i) * step, _mm512_sub_ps(rows[1][i], rows[3][i]));
}

enum { STRETCH = 8, STRETCH_PIXELS = SIDE * STRETCH + TAPS - 1 };

/* Some tiles of a line, one after another: the last two rows of one are the first two of the next. */
TILE_CODE static void stretch_transform(const uint16_t *const *pixels, int tiles, int64_t channels, uint16_t *const *d)
{
    for (int64_t c = 0; c < channels; c += LANES) {
        __m512 x[SIDE + 2], rows[SIDE][SIDE];
        for (int i = 0; i < SIDE + 2; i++) x[i] = half_load(pixels[i] + c);
        x_line(x[0], x[1], x[2], x[3], rows[0]);
        x_line(x[2], x[3], x[4], x[5], rows[1]);
        for (int t = 0; t < tiles; t++) {
            const uint16_t *const *next = pixels + SIDE * t + SIDE + 2;
            __m512 a = half_load(next[0] + c), b = half_load(next[1] + c);
            __m512 e = half_load(next[2] + c), f = half_load(next[3] + c);
            x_line(x[4], x[5], a, b, rows[2]);
            x_line(a, b, e, f, rows[3]);
            d_store(d[t] + c, GROUP * channels, rows);
            for (int i = 0; i < SIDE; i++) rows[0][i] = rows[2][i], rows[1][i] = rows[3][i];
            x[4] = e, x[5] = f;
        }
    }
}

/* Tile `tile` of a block, point 0. */
static int64_t d_at(const WinogradLine *g, int64_t tile)
{
    return (tile / GROUP * GROUP * POINTS + tile % GROUP) * g->x.c;
}

static int64_t line_at(const Lines *lines, int64_t line)
{
    return line / lines->across * lines->image + line % lines->across * lines->line;
}

static void line_read(const Block *block, int64_t line)
{
    const WinogradLine *g = block->run->g;
    const Lines *from = &g->from;
    const uint16_t *x = block->run->x + line_at(from, block->first + line), *pixels[STRETCH_PIXELS];
    uint16_t *d[STRETCH];
    for (int tile = 0; tile < g->tiles; tile += STRETCH) {
        int count = (int)smaller(STRETCH, g->tiles - tile);
        for (int i = 0; i < SIDE * count + TAPS - 1; i++) {
            int at = SIDE * tile - g->pad + i;
            pixels[i] = at >= 0 && at < from->length ? x + at * from->step : g->zeros;
        }
        for (int t = 0; t < count; t++) d[t] = block->d + d_at(g, line * g->tiles + tile + t);
        stretch_transform(pixels, count, g->x.c, d);
    }
    int64_t at = g->to.length - 1 - g->pad + g->tail_first;
    for (int i = 0; i < tail_taps(g); i++)
        memcpy(block->tails + (line * tail_taps(g) + i) * g->x.c, x + (at + i) * from->step,
               (size_t)g->x.c * sizeof *x);
}

/* ---- back: y = A' m A, A' = {1 1 1 0; 0 1 -1 -1} */

/* A tile's outputs; NULL where a pixel does not exist, or nothing is added. */
typedef struct Outputs {
    uint16_t *to[SIDE];
    const uint16_t *acc[SIDE];
} Outputs;

TILE_INLINE void output_store(const Outputs *out, int i, int64_t channel, __m512 y)
{
    if (!out->to[i]) return;
    if (out->acc[i]) y = _mm512_add_ps(y, half_load(out->acc[i] + channel));
    half_store(out->to[i] + channel, y);
}

/* `vectors` vectors; points are `step` apart. */
TILE_CODE static void tile_back(const float *m, int64_t step, int vectors, const Outputs *out)
{
    for (int64_t c = 0; c < vectors * LANES; c += LANES) {
        __m512 p[POINTS], even[SIDE], odd[SIDE];
        for (int i = 0; i < POINTS; i++) p[i] = _mm512_loadu_ps(m + i * step + c);
        even[0] = _mm512_add_ps(_mm512_add_ps(p[0], p[1]), p[2]), odd[0] = _mm512_sub_ps(p[1], p[2]);
        for (int k = 1; k < 3; k++) {
            const __m512 *row = p + SIDE * k - 1;
            even[k] = _mm512_add_ps(_mm512_add_ps(row[0], row[1]), row[2]);
            odd[k] = _mm512_sub_ps(_mm512_sub_ps(row[1], row[2]), row[3]);
        }
        even[3] = _mm512_add_ps(p[11], p[12]), odd[3] = _mm512_sub_ps(_mm512_sub_ps(p[11], p[12]), p[13]);
        output_store(out, 0, c, _mm512_add_ps(_mm512_add_ps(even[0], even[1]), even[2]));
        output_store(out, 1, c, _mm512_add_ps(_mm512_add_ps(odd[0], odd[1]), odd[2]));
        output_store(out, 2, c, _mm512_sub_ps(_mm512_sub_ps(even[1], even[2]), even[3]));
        output_store(out, 3, c, _mm512_sub_ps(_mm512_sub_ps(odd[1], odd[2]), odd[3]));
    }
}

TILE_CODE static void tail_back(const float *m, int vectors, const Outputs *out)
{
    for (int64_t c = 0; c < vectors * LANES; c += LANES) output_store(out, 0, c, _mm512_loadu_ps(m + c));
}

/* Pixels `first` and following of a line, from channel `channel`. */
static Outputs outputs_of(const Block *block, int64_t line, int first, int64_t channel)
{
    const Run *run = block->run;
    const WinogradLine *g = run->g;
    const Tensor *acc = run->acc;
    Outputs out = {{NULL}, {NULL}};
    int64_t at = line_at(&g->to, block->first + line);
    Lines added = acc ? lines_of(acc->shape, acc->pitch, g->down) : g->to;
    int64_t acc_at = line_at(&added, block->first + line);
    for (int i = 0; i < SIDE && first + i < g->to.length; i++) {
        out.to[i] = run->y + at + (first + i) * g->to.step + channel;
        if (acc) out.acc[i] = (const uint16_t *)acc->data + acc_at + (first + i) * added.step + channel;
    }
    return out;
}

/* ---- the whole */

/* 8 tiles of a panel. */
TILE_CODE static void group_run(const Block *block, int64_t tile, const uint32_t *u, int vectors, int64_t channel)
{
    const WinogradLine *g = block->run->g;
    const int64_t channels = g->x.c, d_step = GROUP * channels, u_step = channels / 2 * vectors * LANES;
    const int64_t m_step = GROUP * vectors * LANES;
    const uint16_t *d = block->d + d_at(g, tile);
    for (int i = 0; i < POINTS; i++)
        group_product(d + i * d_step, channels, u + i * u_step, block->m + i * m_step, vectors);
    for (int64_t t = 0; t < GROUP && tile + t < block->count * g->tiles; t++) {
        Outputs out = outputs_of(block, (tile + t) / g->tiles, (int)((tile + t) % g->tiles) * SIDE, channel);
        tile_back(block->m + t * vectors * LANES, m_step, vectors, &out);
    }
}

/* The last outputs of all lines. */
TILE_CODE static void tails_run(const Block *block, const uint32_t *u, int vectors, int64_t channel)
{
    const WinogradLine *g = block->run->g;
    group_product(block->tails, tail_taps(g) * (int64_t)g->x.c, u, block->m, vectors);
    for (int64_t line = 0; line < block->count; line++) {
        Outputs out = outputs_of(block, line, g->to.length - 1, channel);
        tail_back(block->m + line * vectors * LANES, vectors, &out);
    }
}

/* Rows of a group that no tile fills are multiplied as they are, and their products never read. */
static void lines_chunk(void *context, int64_t first, int64_t end, int thread)
{
    const Run *run = context;
    const WinogradLine *g = run->g;
    char *own = run->own + (size_t)thread * own_bytes(g);
    Block block = {run, first, end - first};
    block.d = (uint16_t *)(void *)own;
    block.tails = (uint16_t *)(void *)(own + d_bytes(g));
    block.m = (float *)(void *)(own + d_bytes(g) + tails_bytes(g));
    for (int64_t line = 0; line < block.count; line++) line_read(&block, line);
    for (int k = 0; k < g->panels; k++) {
        int vectors = panel_vectors(g, k);
        int64_t channel = panel_first(g, k) * LANES, pairs = g->x.c / 2;
        const uint32_t *u = run->u + channel * pairs * points(g);
        for (int64_t t = 0; t < block.count * g->tiles; t += GROUP) group_run(&block, t, u, vectors, channel);
        if (g->tail) tails_run(&block, u + POINTS * pairs * vectors * LANES, vectors, channel);
    }
}

void winograd_line_run(const WinogradLine *g, const Device *device, const uint16_t *x, const float *w,
                       const Tensor *acc, uint16_t *y, void *workspace)
{
    Run run = {.g = g, .x = x, .w = w, .acc = acc, .y = y, .u = workspace, .own = (char *)workspace + u_bytes(g)};
    chunks_run(device, g->y.c / LANES, 1, weights_chunk, &run);
    chunks_run(device, g->y.n * g->to.across, g->block, lines_chunk, &run);
}
#else /* never called where winograd_line_takes says no */
bool winograd_line_takes(const Tensor *x, const Tensor *y, const Window *window)
{
    (void)x, (void)y, (void)window;
    return false;
}

Status winograd_line_create(const Tensor *x, const Tensor *y, const Window *window, bool turned, int threads,
                            WinogradLine **made)
{
    (void)x, (void)y, (void)window, (void)turned, (void)threads, (void)made;
    return FAIL(ERR_UNSUPPORTED, "Winograd's algorithm in bf16 needs AVX512-BF16");
}

void winograd_line_destroy(WinogradLine *winograd)
{
    (void)winograd;
}

size_t winograd_line_workspace_bytes(const WinogradLine *winograd)
{
    (void)winograd;
    return 0;
}

void winograd_line_run(const WinogradLine *winograd, const Device *device, const uint16_t *x, const float *w,
                       const Tensor *acc, uint16_t *y, void *workspace)
{
    (void)winograd, (void)device, (void)x, (void)w, (void)acc, (void)y, (void)workspace;
}
#endif
