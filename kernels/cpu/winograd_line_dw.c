/* Weight gradients by F(4, 7) along lines; see winograd_line_dw.h.
 *
 * A block is some pairs of images: the team packs words of x and dy by panels of channels, in them by point, in them by
 * tile; where a line is one output longer than its tiles, plain taps of that output follow the points, by line. Then
 * each member of the team multiplies panels of outputs of its own with all of x. Sums stand as
 * m[output][point][input] until the last block. */
#include "kernels/cpu/winograd_line_dw.h"

#include "kernels/cpu/vector.h"
#include "kernels/cpu/wgrad.h"
#include "kernels/cpu/winograd_line.h"

#include <stdlib.h>

#if defined(__x86_64__)
#include "kernels/cpu/winograd_words.h"

enum {
    TAPS = 7,
    SIDE = 4,
    POINTS = 14,
    BLOCK_BYTES = 16 << 20 /* of words, about: in the last level of caches */
};

/* Lines of x or dy. */
typedef struct Lines {
    int length;
    int64_t across;            /* lines of an image */
    int64_t image, line, step; /* elements from one to the next: images, lines, pixels of a line */
} Lines;

struct WinogradLineDw {
    Shape x, dy;
    Lines from, to;
    int pad;
    int tiles;                /* of a line */
    int tail_first, tail_end; /* taps of one more output that lie inside the line; equal if there is none */
    int pairs;                /* of a block, at most */
    int x_panels;             /* of up to 3 vectors */
    uint16_t *zeros;          /* owned: a pixel outside the image */
};

typedef struct Block {
    const WinogradLineDw *g;
    const uint16_t *x, *dy;
    float *m, *dw;
    uint32_t *x_words, *dy_words;
    int64_t pair, pairs;
} Block;

bool winograd_line_dw_takes(const Tensor *x, const Tensor *dy, const Window *window)
{
    enum { FEW_CHANNELS = 32 };
    return winograd_line_takes(x, dy, window) && wgrad_avx512.usable() && x->shape.n > 1 &&
           x->shape.c >= FEW_CHANNELS && dy->shape.c >= FEW_CHANNELS;
}

static Lines lines_of(Shape s, int64_t pitch, bool down)
{
    int64_t row = s.w * pitch;
    return down ? (Lines){s.h, s.w, s.h * row, pitch, row} : (Lines){s.w, s.h, s.h * row, row, pitch};
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

size_t winograd_line_dw_workspace_bytes(const WinogradLineDw *g)
{
    return (size_t)m_count(g) * sizeof(float) + (size_t)words_count(g, g->pairs * g->to.across) * sizeof(uint32_t);
}

/* First channel of panel k of x: panels are about equal. */
static int64_t panel_first(const WinogradLineDw *g, int64_t k)
{
    return g->x.c / LANES * k / g->x_panels * LANES;
}

Status winograd_line_dw_create(const Tensor *x, const Tensor *dy, const Window *v, WinogradLineDw **made)
{
    WinogradLineDw *g = calloc(1, sizeof *g);
    uint16_t *zeros = calloc((size_t)larger(x->shape.c, dy->shape.c), sizeof *zeros);
    if (!g || !zeros) {
        free(g);
        free(zeros);
        return FAIL(ERR_MEMORY, "a weight gradient along lines by Winograd's algorithm");
    }
    *g = (WinogradLineDw){.x = x->shape,
                          .dy = dy->shape,
                          .from = lines_of(x->shape, x->pitch, v->kh > 1),
                          .to = lines_of(dy->shape, dy->pitch, v->kh > 1),
                          .pad = v->pad_h + v->pad_w,
                          .zeros = zeros};
    tail_choose(g);
    g->x_panels = (x->shape.c / LANES + wgrad_avx512.vectors - 1) / wgrad_avx512.vectors;
    int64_t most = BLOCK_BYTES / ((int64_t)sizeof(uint32_t) * words_count(g, g->to.across));
    g->pairs = (int)smaller((x->shape.n + 1) / 2, larger(1, most));
    *made = g;
    return OK;
}

void winograd_line_dw_destroy(WinogradLineDw *winograd)
{
    if (!winograd) return;
    free(winograd->zeros);
    free(winograd);
}

/* ---- packing */

/* A line of both images. */
typedef struct Strand {
    const uint16_t *even, *odd; /* NULL: there is no such image */
    const uint16_t *zeros;
    int64_t step;
    int length;
} Strand;

static Strand strand_of(const WinogradLineDw *g, const Lines *lines, const uint16_t *base, int64_t pair, int64_t line)
{
    const uint16_t *even = base + 2 * pair * lines->image + line * lines->line;
    bool second = 2 * pair + 1 < g->x.n;
    return (Strand){even, second ? even + lines->image : NULL, g->zeros, lines->step, lines->length};
}

TILE_INLINE Pixel strand_load(const Strand *strand, int at, int64_t channel)
{
    bool inside = at >= 0 && at < strand->length;
    const uint16_t *zeros = strand->zeros;
    Row row = {inside ? strand->even + at * strand->step + channel : zeros,
               inside && strand->odd ? strand->odd + at * strand->step + channel : zeros, 0, 0};
    return pixel_load(&row, 0);
}

/* d = B' x B, in rows of the square. */
TILE_INLINE void x_line(Pixel a, Pixel b, Pixel c, Pixel d, Pixel to[SIDE])
{
    to[0] = pixel_sub(a, c);
    to[1] = pixel_add(b, c);
    to[2] = pixel_sub(c, b);
    to[3] = pixel_sub(b, d);
}

TILE_INLINE void x_store(uint32_t *to, int64_t step, Pixel rows[SIDE][SIDE])
{
    for (int i = 0; i < 3; i++) words_store(to + i * step, pixel_sub(rows[0][i], rows[2][i]));
    for (int i = 0; i < SIDE; i++) words_store(to + (3 + i) * step, pixel_add(rows[1][i], rows[2][i]));
    for (int i = 0; i < SIDE; i++) words_store(to + (7 + i) * step, pixel_sub(rows[2][i], rows[1][i]));
    for (int i = 1; i < SIDE; i++) words_store(to + (10 + i) * step, pixel_sub(rows[1][i], rows[3][i]));
}

/* 16 channels of a line. Points are `step` words apart, tiles `width`. */
TILE_CODE static void x_strand_pack(const WinogradLineDw *g, const Strand *x, int64_t channel, uint32_t *to,
                                    int64_t step, int64_t width)
{
    Pixel rows[SIDE][SIDE], last[2];
    int at = -g->pad;
    last[0] = strand_load(x, at + 2, channel), last[1] = strand_load(x, at + 3, channel);
    x_line(strand_load(x, at, channel), strand_load(x, at + 1, channel), last[0], last[1], rows[0]);
    Pixel a = strand_load(x, at + 4, channel), b = strand_load(x, at + 5, channel);
    x_line(last[0], last[1], a, b, rows[1]);
    for (int t = 0; t < g->tiles; t++, at += SIDE) {
        Pixel c = strand_load(x, at + 6, channel), d = strand_load(x, at + 7, channel);
        x_line(a, b, c, d, rows[2]);
        a = strand_load(x, at + 8, channel), b = strand_load(x, at + 9, channel);
        x_line(c, d, a, b, rows[3]);
        x_store(to + t * width, step, rows);
        for (int i = 0; i < SIDE; i++) rows[0][i] = rows[2][i], rows[1][i] = rows[3][i];
    }
}

/* A dy A', A = {1 0; 1 1; 1 -1; 0 1}: as in winograd_dw.c, the last row has the other sign, and so the last column of
 * G'. */
TILE_INLINE void dy_line(Pixel a, Pixel b, uint32_t *to, int64_t step, int first, int end)
{
    if (first == 0) words_store(to, a);
    words_store(to + step, pixel_add(a, b));
    words_store(to + 2 * step, pixel_sub(a, b));
    if (end == SIDE) words_store(to + 3 * step, b);
}

TILE_CODE static void dy_strand_pack(const WinogradLineDw *g, const Strand *dy, int64_t channel, uint32_t *to,
                                     int64_t step)
{
    for (int t = 0; t < g->tiles; t++, to += LANES) {
        Pixel a = strand_load(dy, SIDE * t, channel), b = strand_load(dy, SIDE * t + 1, channel);
        Pixel c = strand_load(dy, SIDE * t + 2, channel), d = strand_load(dy, SIDE * t + 3, channel);
        dy_line(a, b, to, step, 0, 3);
        dy_line(pixel_add(a, c), pixel_add(b, d), to + 3 * step, step, 0, SIDE);
        dy_line(pixel_sub(a, c), pixel_sub(b, d), to + 7 * step, step, 0, SIDE);
        dy_line(c, d, to + 10 * step, step, 1, SIDE);
    }
}

/* Line `line` of a block. Plain taps stand by line behind the points. */
TILE_CODE static void line_pack(const Block *block, int64_t line)
{
    const WinogradLineDw *g = block->g;
    int64_t pair = block->pair + line / g->to.across, lines = block->pairs * g->to.across, tiles = lines * g->tiles;
    Strand x = strand_of(g, &g->from, block->x, pair, line % g->to.across);
    Strand dy = strand_of(g, &g->to, block->dy, pair, line % g->to.across);
    int last = g->to.length - 1;
    for (int k = 0; k < g->x_panels; k++) {
        int64_t first = panel_first(g, k), width = panel_first(g, k + 1) - first;
        uint32_t *panel = block->x_words + first * x_count(g, lines);
        for (int64_t c = 0; c < width; c += LANES) {
            x_strand_pack(g, &x, first + c, panel + line * g->tiles * width + c, tiles * width, width);
            for (int i = 0; i < tail_taps(g); i++)
                words_store(panel + ((POINTS * tiles + i * lines) + line) * width + c,
                            strand_load(&x, last - g->pad + g->tail_first + i, first + c));
        }
    }
    for (int64_t c = 0; c < g->dy.c; c += LANES) {
        uint32_t *panel = block->dy_words + c * dy_count(g, lines);
        dy_strand_pack(g, &dy, c, panel + line * g->tiles * LANES, tiles * LANES);
        words_store(panel + (POINTS * tiles + line) * LANES, strand_load(&dy, last, c));
    }
}

static void lines_chunk(void *context, int64_t first, int64_t end, int thread)
{
    (void)thread;
    for (int64_t line = first; line < end; line++) line_pack(context, line);
}

/* ---- products */

/* A point, or a plain tap, of a panel of x and a panel of dy. */
static void task_multiply(const Block *block, int k, int point, int64_t out)
{
    const WinogradLineDw *g = block->g;
    bool plain = point >= POINTS;
    int64_t first = panel_first(g, k), width = panel_first(g, k + 1) - first;
    int64_t lines = block->pairs * g->to.across, tiles = lines * g->tiles;
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
                      .add = block->pair > 0};
    wgrad_avx512.tile(&tile);
}

/* ---- back: dh = G' m G, G' = {1 1/2 1/2 0; 0 1/2 -1/2 0; 0 1/2 1/2 -1} */

TILE_INLINE void back_line(__m512 a, __m512 b, __m512 c, __m512 d, __m512 to[3])
{
    __m512 half = _mm512_set1_ps(0.5f), mean = _mm512_mul_ps(half, _mm512_add_ps(b, c));
    to[0] = _mm512_add_ps(a, mean);
    to[1] = _mm512_mul_ps(half, _mm512_sub_ps(b, c));
    to[2] = _mm512_sub_ps(mean, d);
}

/* The taps of 16 inputs. Points are `step` floats apart. */
TILE_INLINE void taps_find(const float *m, int64_t step, __m512 taps[TAPS])
{
    const __m512 zero = _mm512_setzero_ps();
    __m512 p[POINTS], rows[SIDE][3], columns[3][3];
    for (int i = 0; i < POINTS; i++) p[i] = _mm512_loadu_ps(m + i * step);
    back_line(p[0], p[1], p[2], zero, rows[0]);
    back_line(p[3], p[4], p[5], p[6], rows[1]);
    back_line(p[7], p[8], p[9], p[10], rows[2]);
    back_line(zero, p[11], p[12], p[13], rows[3]);
    for (int i = 0; i < 3; i++) back_line(rows[0][i], rows[1][i], rows[2][i], rows[3][i], columns[i]);
    taps[0] = columns[0][0], taps[1] = columns[1][0], taps[2] = columns[0][1], taps[3] = columns[1][1];
    taps[4] = columns[2][1], taps[5] = columns[1][2], taps[6] = columns[2][2];
}

/* One output. */
TILE_CODE static void back(const WinogradLineDw *g, const float *m, float *dw)
{
    for (int64_t c = 0; c < g->x.c; c += LANES) {
        __m512 taps[TAPS];
        taps_find(m + c, g->x.c, taps);
        for (int i = 0; i < tail_taps(g); i++) {
            __m512 *tap = &taps[g->tail_first + i];
            *tap = _mm512_add_ps(*tap, _mm512_loadu_ps(m + (POINTS + i) * (int64_t)g->x.c + c));
        }
        for (int i = 0; i < TAPS; i++) _mm512_storeu_ps(dw + i * (int64_t)g->x.c + c, taps[i]);
    }
}

/* ---- the whole */

/* Panels [first, end) of outputs. */
static void outputs_chunk(void *context, int64_t first, int64_t end, int thread)
{
    (void)thread;
    const Block *block = context;
    const WinogradLineDw *g = block->g;
    for (int k = 0; k < g->x_panels; k++)
        for (int point = 0; point < points(g); point++)
            for (int64_t i = first; i < end; i++) task_multiply(block, k, point, i * LANES);
    if (2 * (block->pair + block->pairs) < g->x.n) return;
    for (int64_t out = first * LANES; out < end * LANES; out++)
        back(g, block->m + out * points(g) * g->x.c, block->dw + out * TAPS * g->x.c);
}

void winograd_line_dw_run(const WinogradLineDw *g, const Device *device, const uint16_t *x, const uint16_t *dy,
                          float *dw, void *workspace)
{
    int64_t panels = g->dy.c / LANES, threads = cpu_threads(device), all = (g->x.n + 1) / 2;
    Block block = {.g = g, .x = x, .dy = dy, .m = workspace, .dw = dw};
    block.x_words = (uint32_t *)workspace + m_count(g);
    for (block.pair = 0; block.pair < all; block.pair += g->pairs) {
        block.pairs = smaller(g->pairs, all - block.pair);
        block.dy_words = block.x_words + x_count(g, block.pairs * g->to.across) * g->x.c;
        chunks_run(device, block.pairs * g->to.across, 1, lines_chunk, &block);
        chunks_run(device, panels, (panels + threads - 1) / threads, outputs_chunk, &block);
    }
}
#else /* never called where winograd_line_dw_takes says no */
bool winograd_line_dw_takes(const Tensor *x, const Tensor *dy, const Window *window)
{
    (void)x, (void)dy, (void)window;
    return false;
}

Status winograd_line_dw_create(const Tensor *x, const Tensor *dy, const Window *window, WinogradLineDw **made)
{
    (void)x, (void)dy, (void)window, (void)made;
    return FAIL(ERR_UNSUPPORTED, "Winograd's algorithm in bf16 needs AVX512-BF16");
}

void winograd_line_dw_destroy(WinogradLineDw *winograd)
{
    (void)winograd;
}

size_t winograd_line_dw_workspace_bytes(const WinogradLineDw *winograd)
{
    (void)winograd;
    return 0;
}

void winograd_line_dw_run(const WinogradLineDw *winograd, const Device *device, const uint16_t *x, const uint16_t *dy,
                          float *dw, void *workspace)
{
    (void)winograd, (void)device, (void)x, (void)dy, (void)dw, (void)workspace;
}
#endif
