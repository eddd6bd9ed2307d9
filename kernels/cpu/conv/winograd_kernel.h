/* Convolutions by Winograd's algorithms and their gradients with respect to x, for the kind of vectors whose header (lanes_*.h)
 * was included before. Every function takes the algorithm, and the type, as constants, so that each is compiled by itself. The
 * layouts of u, d and m: README.md. */
#pragma once

#include "kernels/cpu/conv/gemm_tile.h"
#include "kernels/cpu/conv/winograd_matrices.h"

/* Call a body with its dtype as a constant. Only F(2x2, 3x3) and F(4, 7) have code for bf16. */
#define BY_ALGORITHM(a, dtype, body, ...)                                                                              \
    do {                                                                                                               \
        if ((a) == F2_3 || (a) == F4_7)                                                                                \
            BY_WORDS(dtype, body, __VA_ARGS__);                                                                        \
        else                                                                                                           \
            body(DTYPE_F32, __VA_ARGS__);                                                                              \
    } while (0)

TILE_INLINE void *vector_at(Dtype dtype, const void *base, int64_t index)
{
    return (char *)(uintptr_t)base + index * (dtype == DTYPE_F32 ? 4 : 2);
}

/* Point 0 of tile `tile` of a block, where a point of a tile takes `width`. */
TILE_INLINE int64_t tile_at(const WinogradAlgorithm a, int64_t tile, int64_t width)
{
    return (tile / GROUP * GROUP * winograd_points(a) + tile % GROUP) * width;
}

/* ---- weights: u = G w G' */

TILE_INLINE void weights_transform(const WinogradAlgorithm a, const Vector *w, Vector *u)
{
    const int alpha = winograd_alpha(a), r = winograd_r(a);
    Vector rows[5 * ALPHA_MOST];
    if (a == F4_7) { /* after the points, taps as they are */
        w_transform_1d(w, u);
        for (int i = 0; i < F4_7_TAPS; i++) u[F4_7_POINTS + i] = w[i];
        return;
    }
    for (int i = 0; i < r; i++) w_transform(a, w + r * i, 1, rows + alpha * i, 1);
    for (int s = 0; s < alpha; s++) w_transform(a, rows + s, alpha, u + s, alpha);
}

/* A vector of inputs from `in` on, for as many outputs from `out` on. */
TILE_INLINE void weights_square(Dtype dtype, const WinogradAlgorithm a, const WinogradRun *run, int64_t in, int64_t out)
{
    const WinogradPlan *g = run->plan;
    const int held = word_elements(dtype), taps = winograd_taps(a);
    const int64_t words = g->x.c / held;
    Vector w[LANES][TAPS_MOST], low[POINTS_MOST], high[POINTS_MOST], square[LANES];
    for (int i = 0; i < taps; i++) {
        tap_load(run->w, taps, g->rotated ? g->y.c : g->x.c, g->rotated, i, in, out, square);
        for (int k = 0; k < LANES; k++) w[k][i] = square[k];
    }
    for (int k = 0; k < LANES; k += held) {
        int64_t width;
        uint32_t *to = words_at(&g->panels, run->u, words, g->points, (in + k) / held, out, &width);
        weights_transform(a, w[k], low);
        weights_transform(a, w[k + held - 1], high);
        for (int i = 0; i < g->points; i++) {
            int from = i < winograd_points(a) ? i : i + g->line.tail_first;
            words_join(dtype, to + i * words * width, low[from], high[from]);
        }
    }
}

TILE_INLINE void weights_run(const WinogradAlgorithm a, const WinogradRun *run, int64_t first, int64_t end)
{
    const int64_t squares = run->plan->x.c / LANES; /* for a vector of outputs */
    for (int64_t i = first; i < end; i++)
        BY_ALGORITHM(a, run->plan->dtype, weights_square, a, run, i % squares * LANES, i / squares * LANES);
}

/* ---- products: m = d u */

TILE_INLINE void tiles_product(Dtype dtype, const int vectors, const GemmWord *d, int64_t words, const uint32_t *u,
                               float *m)
{
    const int64_t width = vectors * LANES;
    GemmSums sum;
    gemm_begin(TILE_ROWS, vectors, NULL, sum);
    gemm_add(dtype, TILE_ROWS, vectors, d, words, 1, u, width, words, sum);
    gemm_store(TILE_ROWS, vectors, sum, m, width, false);
}

/* One point: GROUP tiles of `words` each, a panel of `width` outputs. */
TILE_INLINE void group_product(Dtype dtype, const void *d, int64_t words, const uint32_t *u, float *m, int64_t width)
{
    const GemmWord *first = d;
    for (int t = 0; t < GROUP; t += TILE_ROWS, first += TILE_ROWS * words, m += TILE_ROWS * width)
        if (width == 3 * LANES)
            tiles_product(dtype, 3, first, words, u, m);
        else if (width == 2 * LANES)
            tiles_product(dtype, 2, first, words, u, m);
        else
            tiles_product(dtype, 1, first, words, u, m);
}

/* ---- outputs */

/* A tile's outputs; NULL where a pixel does not exist, or nothing is added. */
typedef struct Outputs {
    void *to[OUTPUTS_MOST];
    const void *acc[OUTPUTS_MOST];
    const Finish *finish;
    int64_t channel; /* the first */
} Outputs;

TILE_INLINE void output_store(Dtype dtype, const Outputs *out, int i, int64_t channel, Vector y)
{
    const Finish *finish = out->finish;
    if (!out->to[i]) return;
    if (out->acc[i]) y += vector_load(dtype, out->acc[i], channel);
    if (finish->bias) y += floats_load(finish->bias + out->channel + channel);
    vector_store(dtype, out->to[i], channel, finish->relu ? vector_relu(y) : y);
}

/* ---- tiles of m x m outputs: d = B' x B */

/* `pixels`: alpha x alpha. Point i goes to d + i * step. */
TILE_INLINE void tile_transform(Dtype dtype, const WinogradAlgorithm a, const void *const *pixels, int64_t channels,
                                void *d, int64_t step)
{
    const int alpha = winograd_alpha(a);
    for (int64_t c = 0; c < channels; c += LANES) {
        Vector t[ALPHA_MOST][ALPHA_MOST], from[ALPHA_MOST], to[ALPHA_MOST];
        for (int s = 0; s < alpha; s++) { /* down the columns */
            for (int r = 0; r < alpha; r++) from[r] = vector_load(dtype, pixels[alpha * r + s], c);
            x_transform(a, from, t[s]);
        }
        for (int r = 0; r < alpha; r++) { /* along the rows */
            for (int s = 0; s < alpha; s++) from[s] = t[s][r];
            x_transform(a, from, to);
            for (int s = 0; s < alpha; s++) vector_store(dtype, d, (alpha * r + s) * step + c, to[s]);
        }
    }
}

typedef struct TilePosition {
    int64_t image;
    int h, w; /* first output */
} TilePosition;

TILE_INLINE TilePosition tile_position(const WinogradAlgorithm a, const WinogradPlan *g, int64_t tile)
{
    if (a == POINTWISE) return (TilePosition){0, 0, (int)tile}; /* all pixels are one line */
    int64_t row = tile / g->tiles_w;
    return (TilePosition){row / g->tiles_h, (int)(row % g->tiles_h) * winograd_m(a),
                          (int)(tile % g->tiles_w) * winograd_m(a)};
}

TILE_INLINE void tile_read(Dtype dtype, const WinogradAlgorithm a, const WinogradRun *run, int64_t tile, void *d)
{
    const WinogradPlan *g = run->plan;
    const int alpha = winograd_alpha(a);
    const void *pixels[POINTS_MOST];
    TilePosition at = tile_position(a, g, tile);
    int top = at.h - g->pad_h, left = at.w - g->pad_w;
    int64_t first = (at.image * g->x.h + top) * g->x.w + left;
    for (int r = 0; r < alpha; r++)
        for (int s = 0; s < alpha; s++) {
            bool inside = top + r >= 0 && left + s >= 0 && top + r < g->x.h && left + s < g->x.w;
            pixels[alpha * r + s] = inside ? vector_at(dtype, run->x, (first + r * g->x.w + s) * g->x_pitch) : g->zeros;
        }
    tile_transform(dtype, a, pixels, g->x.c, d, GROUP * (int64_t)g->x.c);
}

/* ---- and back: y = A' m A */

/* `width` outputs; points are `step` apart. */
TILE_INLINE void tile_back(Dtype dtype, const WinogradAlgorithm a, const float *m, int64_t step, int64_t width,
                           const Outputs *out)
{
    const int alpha = winograd_alpha(a), outs = winograd_m(a);
    for (int64_t c = 0; c < width; c += LANES) {
        Vector t[ALPHA_MOST][M_MOST], from[ALPHA_MOST], y[M_MOST];
        for (int s = 0; s < alpha; s++) {
            for (int r = 0; r < alpha; r++) from[r] = floats_load(m + (alpha * r + s) * step + c);
            y_transform(a, from, t[s]);
        }
        for (int r = 0; r < outs; r++) {
            for (int s = 0; s < alpha; s++) from[s] = t[s][r];
            y_transform(a, from, y);
            for (int s = 0; s < outs; s++) output_store(dtype, out, outs * r + s, c, y[s]);
        }
    }
}

/* A panel of a tile, whose first channel is `channel`. */
TILE_INLINE void tile_write(Dtype dtype, const WinogradAlgorithm a, const WinogradRun *run, int64_t tile,
                            const float *m, int64_t width, int64_t channel)
{
    const WinogradPlan *g = run->plan;
    const int outs = winograd_m(a);
    const Tensor *acc = run->acc;
    Outputs out = {.finish = &run->finish, .channel = channel};
    TilePosition at = tile_position(a, g, tile);
    for (int i = 0; i < outs * outs; i++) {
        int h = at.h + i / outs, w = at.w + i % outs;
        int64_t pixel = (at.image * g->y.h + h) * g->y.w + w;
        if (h >= g->y.h || w >= g->y.w) continue;
        out.to[i] = vector_at(dtype, run->y, pixel * g->y_pitch + channel);
        if (acc) out.acc[i] = vector_at(dtype, acc->data, pixel * acc->pitch + channel);
    }
    tile_back(dtype, a, m, GROUP * width, width, &out);
}

/* ---- blocks of tiles */

/* m = d u for `count` tiles and a panel, whose weights are at u. */
TILE_INLINE void panel_product(Dtype dtype, const WinogradAlgorithm a, const void *d, int64_t count, int64_t channels,
                               const uint32_t *u, float *m, int64_t width)
{
    const int64_t words = channels / word_elements(dtype);
    for (int64_t i = 0; i < winograd_points(a); i++, u += words * width)
        for (int64_t t = 0; t < count; t += GROUP)
            group_product(dtype, vector_at(dtype, d, tile_at(a, t, channels) + i * GROUP * channels), words, u,
                          m + tile_at(a, t, width) + i * GROUP * width, width);
}

/* The weights of panel k. */
TILE_INLINE const uint32_t *panel_weights(Dtype dtype, const WinogradRun *run, int64_t k)
{
    const WinogradPlan *g = run->plan;
    return run->u + panels_first(&g->panels, k) * (g->x.c / word_elements(dtype)) * g->points;
}

TILE_INLINE void tiles_run(Dtype dtype, const WinogradAlgorithm a, const WinogradRun *run, int64_t first, int64_t count)
{
    const WinogradPlan *g = run->plan;
    char *d = winograd_thread_memory(run);
    float *m = (float *)(void *)(d + g->d_bytes);
    for (int64_t t = 0; t < rounded_up(count, GROUP); t++) /* an incomplete group repeats the last tile */
        tile_read(dtype, a, run, first + smaller(t, count - 1), vector_at(dtype, d, tile_at(a, t, g->x.c)));
    for (int64_t k = 0; k < g->panels.count; k++) {
        int64_t width = panels_width(&g->panels, k);
        panel_product(dtype, a, d, count, g->x.c, panel_weights(dtype, run, k), m, width);
        for (int64_t t = 0; t < count; t++)
            tile_write(dtype, a, run, first + t, m + tile_at(a, t, width), width, panels_first(&g->panels, k));
    }
}

/* ---- 1-D tiles: d = B' x B, where x is a square of 4 x 4 pixels, x[2 i + j] */

/* Some lines of a run. */
typedef struct LineBlock {
    const WinogradRun *run;
    int64_t first, count;
    void *d, *tails;
    float *m;
} LineBlock;

enum { LINE_TILES = 8 /* transformed in one call */, LINE_PIXELS = F4_7_OUTPUTS * LINE_TILES + F4_7_TAPS - 1 };

/* Some tiles of a line, one after another: the last two rows of one are the first two of the next. */
TILE_INLINE void tiles_1d_transform(Dtype dtype, const void *const *pixels, int tiles, int64_t channels, void *const *d)
{
    for (int64_t c = 0; c < channels; c += LANES) {
        Vector x[6], rows[4][4], points[F4_7_POINTS];
        for (int i = 0; i < 6; i++) x[i] = vector_load(dtype, pixels[i], c);
        x_transform_4(x, rows[0]);
        x_transform_4(x + 2, rows[1]);
        for (int t = 0; t < tiles; t++) {
            x[0] = x[4], x[1] = x[5];
            for (int i = 0; i < 4; i++) x[2 + i] = vector_load(dtype, pixels[4 * t + 6 + i], c);
            x_transform_4(x, rows[2]);
            x_transform_4(x + 2, rows[3]);
            x_transform_1d(rows, points);
            for (int i = 0; i < F4_7_POINTS; i++) vector_store(dtype, d[t], c + i * GROUP * channels, points[i]);
            for (int i = 0; i < 4; i++) rows[0][i] = rows[2][i], rows[1][i] = rows[3][i];
        }
    }
}

static int64_t line_at(const Lines *lines, int64_t line)
{
    return line / lines->across * lines->image + line % lines->across * lines->line;
}

/* The pixels that the last output of a line reads. */
static void tail_read(const LineBlock *block, int64_t line)
{
    const WinogradPlan *g = block->run->plan;
    const int taps = tail_taps(&g->line);
    const size_t bytes = dtype_bytes(g->dtype), pixel = (size_t)g->x.c * bytes;
    const char *x = block->run->x;
    char *to = (char *)block->tails + (size_t)(line * taps) * pixel;
    int64_t at = g->to.length - 1 - g->pad + g->line.tail_first;
    x += (line_at(&g->from, block->first + line) + at * g->from.step) * (int64_t)bytes;
    for (int i = 0; i < taps; i++) memcpy(to + i * pixel, x + i * g->from.step * (int64_t)bytes, pixel);
}

TILE_INLINE void line_read(Dtype dtype, const LineBlock *block, int64_t line)
{
    const WinogradPlan *g = block->run->plan;
    const Lines *from = &g->from;
    const int64_t first = line_at(from, block->first + line);
    const void *pixels[LINE_PIXELS];
    void *d[LINE_TILES];
    for (int tile = 0; tile < g->line.count; tile += LINE_TILES) {
        int count = (int)smaller(LINE_TILES, g->line.count - tile);
        for (int i = 0; i < F4_7_OUTPUTS * count + F4_7_TAPS - 1; i++) {
            int at = F4_7_OUTPUTS * tile - g->pad + i;
            bool inside = at >= 0 && at < from->length;
            pixels[i] = inside ? vector_at(dtype, block->run->x, first + at * from->step) : g->zeros;
        }
        for (int t = 0; t < count; t++)
            d[t] = vector_at(dtype, block->d, tile_at(F4_7, line * g->line.count + tile + t, g->x.c));
        tiles_1d_transform(dtype, pixels, count, g->x.c, d);
    }
    tail_read(block, line);
}

/* ---- and back: y = A' m A */

/* `width` outputs; points are `step` apart. */
TILE_INLINE void tile_1d_back(Dtype dtype, const float *m, int64_t step, int64_t width, const Outputs *out)
{
    for (int64_t c = 0; c < width; c += LANES) {
        Vector points[F4_7_POINTS], y[F4_7_OUTPUTS];
        for (int i = 0; i < F4_7_POINTS; i++) points[i] = floats_load(m + i * step + c);
        y_transform_1d(points, y);
        for (int i = 0; i < F4_7_OUTPUTS; i++) output_store(dtype, out, i, c, y[i]);
    }
}

/* Pixels `first` and following of a line, from channel `channel`. */
TILE_INLINE Outputs line_outputs(Dtype dtype, const LineBlock *block, int64_t line, int first, int64_t channel)
{
    const WinogradRun *run = block->run;
    const WinogradPlan *g = run->plan;
    const Tensor *acc = run->acc;
    Outputs out = {.finish = &run->finish, .channel = channel};
    int64_t at = line_at(&g->to, block->first + line);
    Lines added = acc ? lines_of(acc->shape, acc->pitch, g->down) : g->to;
    int64_t acc_at = line_at(&added, block->first + line);
    for (int i = 0; i < F4_7_OUTPUTS && first + i < g->to.length; i++) {
        out.to[i] = vector_at(dtype, run->y, at + (first + i) * g->to.step + channel);
        if (acc) out.acc[i] = vector_at(dtype, acc->data, acc_at + (first + i) * added.step + channel);
    }
    return out;
}

/* ---- blocks of lines */

/* The last outputs of all lines; u: the plain taps of panel k, behind its points. */
TILE_INLINE void tails_run(Dtype dtype, const LineBlock *block, int64_t k, const uint32_t *u)
{
    const WinogradPlan *g = block->run->plan;
    const int64_t words = g->x.c / word_elements(dtype), width = panels_width(&g->panels, k);
    group_product(dtype, block->tails, tail_taps(&g->line) * words, u, block->m, width);
    for (int64_t line = 0; line < block->count; line++) {
        Outputs out = line_outputs(dtype, block, line, g->to.length - 1, panels_first(&g->panels, k));
        for (int64_t c = 0; c < width; c += LANES)
            output_store(dtype, &out, 0, c, floats_load(block->m + line * width + c));
    }
}

TILE_INLINE void line_panel_run(Dtype dtype, const LineBlock *block, int64_t k)
{
    const WinogradPlan *g = block->run->plan;
    const int64_t width = panels_width(&g->panels, k), count = block->count * g->line.count;
    const uint32_t *u = panel_weights(dtype, block->run, k);
    panel_product(dtype, F4_7, block->d, count, g->x.c, u, block->m, width);
    for (int64_t t = 0; t < count; t++) {
        Outputs out = line_outputs(dtype, block, t / g->line.count, (int)(t % g->line.count) * F4_7_OUTPUTS,
                                   panels_first(&g->panels, k));
        tile_1d_back(dtype, block->m + tile_at(F4_7, t, width), GROUP * width, width, &out);
    }
    if (g->line.tail) tails_run(dtype, block, k, u + F4_7_POINTS * (g->x.c / word_elements(dtype)) * width);
}

/* Rows of a group without a tile are multiplied as they are; their products are never read. */
TILE_INLINE void lines_run(Dtype dtype, const WinogradRun *run, int64_t first, int64_t count)
{
    const WinogradPlan *g = run->plan;
    char *d = winograd_thread_memory(run), *tails = d + g->d_bytes;
    LineBlock block = {run, first, count, d, tails, (float *)(void *)(tails + g->tail_bytes)};
    for (int64_t line = 0; line < count; line++) line_read(dtype, &block, line);
    for (int64_t k = 0; k < g->panels.count; k++) line_panel_run(dtype, &block, k);
}

TILE_INLINE void outputs_run(const WinogradAlgorithm a, const WinogradRun *run, int64_t first, int64_t end)
{
    if (a == F4_7)
        BY_WORDS(run->plan->dtype, lines_run, run, first, end - first);
    else
        BY_ALGORITHM(a, run->plan->dtype, tiles_run, a, run, first, end - first);
}

/* ---- the code of each algorithm */

#define WINOGRAD_BODIES(a)                                                                                             \
    TILE_CODE static void weights_##a(void *run, int64_t first, int64_t end)                                           \
    {                                                                                                                  \
        weights_run(a, run, first, end);                                                                               \
    }                                                                                                                  \
    TILE_CODE static void outputs_##a(void *run, int64_t first, int64_t end)                                           \
    {                                                                                                                  \
        outputs_run(a, run, first, end);                                                                               \
    }
WINOGRAD_BODIES(POINTWISE)
WINOGRAD_BODIES(F2_3)
WINOGRAD_BODIES(F4_3)
WINOGRAD_BODIES(F2_5)
WINOGRAD_BODIES(F4_7)

#define WINOGRAD_CODE(a) [a] = {LANES, weights_##a, outputs_##a}
#define WINOGRAD_CODES                                                                                                 \
    {                                                                                                                  \
        WINOGRAD_CODE(POINTWISE), WINOGRAD_CODE(F2_3), WINOGRAD_CODE(F4_3), WINOGRAD_CODE(F2_5), WINOGRAD_CODE(F4_7)   \
    }
