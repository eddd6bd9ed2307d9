/* The transforms and products of winograd_line.c for the kind of vectors whose header (lanes_*.h) was included before. */
#pragma once

#include "kernels/cpu/conv/winograd_line.h"

#include "kernels/cpu/conv/winograd_both.h"

static inline const WinogradLine *line_of(const WinogradRun *run)
{
    return (const WinogradLine *)run->plan;
}

/* Some lines of a run. */
typedef struct LineBlock {
    const WinogradRun *run;
    int64_t first, count; /* lines */
    void *d, *tails;
    float *m;
} LineBlock;

/* ---- weights: u = G h G' */

/* h: taps of a vector of outputs. After the points, taps as they are. */
TILE_INLINE void weights_transform(const Vector *h, Vector *u)
{
    const Vector zero = (Vector){0};
    Vector columns[3][SIDE], row[SIDE];
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

/* ---- tiles of x: d = B' x B */

/* Channels c and following of a tile out of its 4 rows. Points are `step` apart. */
TILE_INLINE void d_store(Dtype dtype, void *d, int64_t c, int64_t step, const Vector rows[SIDE][SIDE])
{
    for (int i = 0; i < 3; i++) vector_store(dtype, d, c + i * step, rows[0][i] - rows[2][i]);
    for (int i = 0; i < SIDE; i++) vector_store(dtype, d, c + (3 + i) * step, rows[1][i] + rows[2][i]);
    for (int i = 0; i < SIDE; i++) vector_store(dtype, d, c + (7 + i) * step, rows[2][i] - rows[1][i]);
    for (int i = 1; i < SIDE; i++) vector_store(dtype, d, c + (10 + i) * step, rows[1][i] - rows[3][i]);
}

enum { STRETCH = 8, STRETCH_PIXELS = SIDE * STRETCH + TAPS - 1 };

/* Some tiles of a line, one after another: the last two rows of one are the first two of the next. */
TILE_INLINE void stretch_transform(Dtype dtype, const void *const *pixels, int tiles, int64_t channels, void *const *d)
{
    for (int64_t c = 0; c < channels; c += LANES) {
        Vector x[SIDE + 2], rows[SIDE][SIDE];
        for (int i = 0; i < SIDE + 2; i++) x[i] = vector_load(dtype, pixels[i], c);
        x_line(x[0], x[1], x[2], x[3], rows[0]);
        x_line(x[2], x[3], x[4], x[5], rows[1]);
        for (int t = 0; t < tiles; t++) {
            const void *const *next = pixels + SIDE * t + SIDE + 2;
            Vector a = vector_load(dtype, next[0], c), b = vector_load(dtype, next[1], c);
            Vector e = vector_load(dtype, next[2], c), f = vector_load(dtype, next[3], c);
            x_line(x[4], x[5], a, b, rows[2]);
            x_line(a, b, e, f, rows[3]);
            d_store(dtype, d[t], c, GROUP * channels, rows);
            for (int i = 0; i < SIDE; i++) rows[0][i] = rows[2][i], rows[1][i] = rows[3][i];
            x[4] = e, x[5] = f;
        }
    }
}

static int64_t line_at(const LineLayout *lines, int64_t line)
{
    return line / lines->across * lines->image + line % lines->across * lines->line;
}

/* The pixels that the last output of a line reads. */
static void tail_read(const LineBlock *block, int64_t line)
{
    const WinogradLine *g = line_of(block->run);
    const size_t bytes = dtype_bytes(g->plan.dtype), pixel = (size_t)g->plan.x.c * bytes;
    const char *x = block->run->x;
    char *to = (char *)block->tails + (size_t)(line * tail_taps(g)) * pixel;
    int64_t at = g->to.length - 1 - g->pad + g->tail_first;
    x += (line_at(&g->from, block->first + line) + at * g->from.step) * (int64_t)bytes;
    for (int i = 0; i < tail_taps(g); i++) memcpy(to + i * pixel, x + i * g->from.step * (int64_t)bytes, pixel);
}

TILE_INLINE void line_read(Dtype dtype, const LineBlock *block, int64_t line)
{
    const WinogradLine *g = line_of(block->run);
    const LineLayout *from = &g->from;
    const int64_t first = line_at(from, block->first + line);
    const void *pixels[STRETCH_PIXELS];
    void *d[STRETCH];
    for (int tile = 0; tile < g->tiles; tile += STRETCH) {
        int count = (int)smaller(STRETCH, g->tiles - tile);
        for (int i = 0; i < SIDE * count + TAPS - 1; i++) {
            int at = SIDE * tile - g->pad + i;
            bool inside = at >= 0 && at < from->length;
            pixels[i] = inside ? vector_at(dtype, block->run->x, first + at * from->step) : g->plan.zeros;
        }
        for (int t = 0; t < count; t++)
            d[t] = vector_at(dtype, block->d, tile_at(line * g->tiles + tile + t, g->plan.x.c));
        stretch_transform(dtype, pixels, count, g->plan.x.c, d);
    }
    tail_read(block, line);
}

/* ---- back: y = A' m A */

/* `width` outputs; points are `step` apart. */
TILE_INLINE void tile_back(Dtype dtype, const float *m, int64_t step, int64_t width, const Outputs *out)
{
    for (int64_t c = 0; c < width; c += LANES) {
        Vector p[POINTS], even[SIDE], odd[SIDE];
        for (int i = 0; i < POINTS; i++) p[i] = floats_load(m + i * step + c);
        even[0] = back_even(p[0], p[1], p[2]), odd[0] = p[1] - p[2];
        for (int k = 1; k < 3; k++) {
            const Vector *row = p + SIDE * k - 1;
            even[k] = back_even(row[0], row[1], row[2]);
            odd[k] = back_odd(row[1], row[2], row[3]);
        }
        even[3] = p[11] + p[12], odd[3] = back_odd(p[11], p[12], p[13]);
        output_store(dtype, out, 0, c, back_even(even[0], even[1], even[2]));
        output_store(dtype, out, 1, c, back_even(odd[0], odd[1], odd[2]));
        output_store(dtype, out, 2, c, back_odd(even[1], even[2], even[3]));
        output_store(dtype, out, 3, c, back_odd(odd[1], odd[2], odd[3]));
    }
}

TILE_INLINE void tail_back(Dtype dtype, const float *m, int64_t width, const Outputs *out)
{
    for (int64_t c = 0; c < width; c += LANES) output_store(dtype, out, 0, c, floats_load(m + c));
}

/* Pixels `first` and following of a line, from channel `channel`. */
TILE_INLINE Outputs outputs_of(Dtype dtype, const LineBlock *block, int64_t line, int first, int64_t channel)
{
    const WinogradRun *run = block->run;
    const WinogradLine *g = line_of(run);
    const Tensor *acc = run->acc;
    Outputs out = {.finish = &run->finish, .channel = channel};
    int64_t at = line_at(&g->to, block->first + line);
    LineLayout added = acc ? line_layout(acc->shape, acc->pitch, g->down) : g->to;
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

TILE_INLINE void tiles_run(Dtype dtype, const LineBlock *block, const Panel *panel)
{
    const WinogradLine *g = line_of(block->run);
    const int64_t channels = g->plan.x.c, words = channels / word_elements(dtype), width = panel->width;
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
TILE_INLINE void tails_run(Dtype dtype, const LineBlock *block, const Panel *panel)
{
    const WinogradLine *g = line_of(block->run);
    const int64_t words = g->plan.x.c / word_elements(dtype), width = panel->width;
    group_product(dtype, block->tails, tail_taps(g) * words, panel->u + POINTS * words * width, block->m, width);
    for (int64_t line = 0; line < block->count; line++) {
        Outputs out = outputs_of(dtype, block, line, g->to.length - 1, panel->first);
        tail_back(dtype, block->m + line * width, width, &out);
    }
}

/* Rows of a group without a tile are multiplied as they are; their products are never read. */
TILE_INLINE void block_run(Dtype dtype, const LineBlock *block)
{
    const WinogradRun *run = block->run;
    const WinogradLine *g = line_of(run);
    for (int64_t line = 0; line < block->count; line++) line_read(dtype, block, line);
    for (int64_t k = 0; k < g->plan.panels.count; k++) {
        Panel panel = {panels_first(&g->plan.panels, k), panels_width(&g->plan.panels, k), run->u};
        panel.u += panel.first * (g->plan.x.c / word_elements(dtype)) * g->plan.points;
        tiles_run(dtype, block, &panel);
        if (g->tail) tails_run(dtype, block, &panel);
    }
}

TILE_CODE static void lines_chunk(void *context, int64_t first, int64_t end)
{
    const WinogradRun *run = context;
    const WinogradLine *g = line_of(run);
    char *per_thread = run->per_thread + (size_t)team_member() * g->plan.per_thread_bytes;
    LineBlock block = {run, first, end - first};
    block.d = per_thread;
    block.tails = per_thread + d_bytes(g);
    block.m = (float *)(void *)(per_thread + d_bytes(g) + tails_bytes(g));
    BY_WORDS(g->plan.dtype, block_run, &block);
}
