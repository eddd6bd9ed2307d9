/* The transforms and products of winograd.c for the kind of vectors whose header (lanes_*.h) was included before. */
#pragma once

#include "kernels/cpu/conv/winograd.h"
#include "kernels/cpu/conv/winograd_tile.h"

/* ---- weights: u = G w G' */

TILE_INLINE void weights_transform(const Vector w[TAPS], Vector u[POINTS])
{
    Vector rows[3 * SIDE];
    for (int r = 0; r < 3; r++) weights_line(w[3 * r], w[3 * r + 1], w[3 * r + 2], rows + SIDE * r, 1);
    for (int s = 0; s < SIDE; s++) weights_line(rows[s], rows[SIDE + s], rows[2 * SIDE + s], u + s, SIDE);
}

/* A vector of inputs from `in` on, for as many outputs from `out` on. */
TILE_INLINE void weights_square(Dtype dtype, const WinogradRun *run, int64_t in, int64_t out)
{
    const Winograd *g = run->g;
    const int held = word_elements(dtype);
    const int64_t words = g->x.c / held;
    Vector taps[LANES][TAPS], low[POINTS], high[POINTS], square[LANES];
    for (int i = 0; i < TAPS; i++) {
        tap_load(run->w, TAPS, g->rotated ? g->y.c : g->x.c, g->rotated, i, in, out, square);
        for (int k = 0; k < LANES; k++) taps[k][i] = square[k];
    }
    for (int k = 0; k < LANES; k += held) {
        int64_t width;
        uint32_t *to = words_at(&g->panels, run->u, words, POINTS, (in + k) / held, out, &width);
        weights_transform(taps[k], low);
        weights_transform(taps[k + held - 1], high);
        for (int i = 0; i < POINTS; i++) words_join(dtype, to + i * words * width, low[i], high[i]);
    }
}

TILE_CODE static void weights_chunk(void *context, int64_t first, int64_t end, int thread)
{
    (void)thread;
    const WinogradRun *run = context;
    const int64_t squares = run->g->x.c / LANES; /* for a vector of outputs */
    for (int64_t i = first; i < end; i++)
        BY_WORDS(run->g->dtype, weights_square, run, i % squares * LANES, i / squares * LANES);
}

/* ---- tiles of x: d = B' x B, B' = {1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1} */

/* `pixels`: the 4x4 of the tile. Point i goes to d + i * step. */
TILE_INLINE void tile_transform(Dtype dtype, const void *const *pixels, int64_t channels, void *d, int64_t step)
{
    for (int64_t c = 0; c < channels; c += LANES) {
        Vector t[POINTS];
        for (int s = 0; s < 4; s++) { /* down the columns */
            Vector a = vector_load(dtype, pixels[s], c), b = vector_load(dtype, pixels[4 + s], c);
            Vector e = vector_load(dtype, pixels[8 + s], c), f = vector_load(dtype, pixels[12 + s], c);
            t[s] = vector_sub(a, e);
            t[4 + s] = vector_add(b, e);
            t[8 + s] = vector_sub(e, b);
            t[12 + s] = vector_sub(b, f);
        }
        for (int r = 0; r < 4; r++) { /* along the rows */
            const Vector *row = t + 4 * r;
            int64_t to = 4 * r * step + c;
            vector_store(dtype, d, to, vector_sub(row[0], row[2]));
            vector_store(dtype, d, to + step, vector_add(row[1], row[2]));
            vector_store(dtype, d, to + 2 * step, vector_sub(row[2], row[1]));
            vector_store(dtype, d, to + 3 * step, vector_sub(row[1], row[3]));
        }
    }
}

typedef struct Place {
    int64_t image;
    int h, w; /* first output */
} Place;

static Place place_of(const Winograd *g, int64_t tile)
{
    int64_t line = tile / g->tiles_w;
    return (Place){line / g->tiles_h, (int)(line % g->tiles_h) * 2, (int)(tile % g->tiles_w) * 2};
}

TILE_INLINE void tile_read(Dtype dtype, const WinogradRun *run, int64_t tile, void *d)
{
    const Winograd *g = run->g;
    const void *pixels[POINTS];
    Place at = place_of(g, tile);
    int top = at.h - g->pad_h, left = at.w - g->pad_w;
    int64_t first = (at.image * g->x.h + top) * g->x.w + left;
    for (int r = 0; r < SIDE; r++)
        for (int s = 0; s < SIDE; s++) {
            bool inside = top + r >= 0 && left + s >= 0 && top + r < g->x.h && left + s < g->x.w;
            pixels[SIDE * r + s] = inside ? vector_at(dtype, run->x, (first + r * g->x.w + s) * g->x_pitch) : g->zeros;
        }
    tile_transform(dtype, pixels, g->x.c, d, GROUP * (int64_t)g->x.c);
}

/* ---- back: y = A' m A, A' = {1 1 1 0; 0 1 -1 -1} */

/* A tile's outputs; NULL where a pixel does not exist, or nothing is added. */
typedef struct Outputs {
    void *to[4];
    const void *acc[4];
} Outputs;

/* `width` outputs from `channel` on; points are `step` apart. */
TILE_INLINE void tile_back(Dtype dtype, const float *m, int64_t step, int64_t width, const Outputs *out,
                           const Finish *finish, int64_t channel)
{
    for (int64_t c = 0; c < width; c += LANES) {
        Vector t[2 * SIDE];
        for (int s = 0; s < SIDE; s++) {
            Vector a = floats_load(m + s * step + c), b = floats_load(m + (SIDE + s) * step + c);
            Vector e = floats_load(m + (2 * SIDE + s) * step + c), f = floats_load(m + (3 * SIDE + s) * step + c);
            t[s] = vector_add(vector_add(a, b), e);
            t[SIDE + s] = vector_sub(vector_sub(b, e), f);
        }
        for (int i = 0; i < 4; i++) {
            const Vector *row = t + SIDE * (i / 2);
            Vector y = i % 2 == 0 ? vector_add(vector_add(row[0], row[1]), row[2])
                                  : vector_sub(vector_sub(row[1], row[2]), row[3]);
            if (!out->to[i]) continue;
            if (out->acc[i]) y = vector_add(y, vector_load(dtype, out->acc[i], c));
            vector_store(dtype, out->to[i], c, vector_finish(y, finish, channel + c));
        }
    }
}

/* A panel of a tile, whose first channel is `channel`. */
TILE_INLINE void tile_write(Dtype dtype, const WinogradRun *run, int64_t tile, const float *m, int64_t width,
                            int64_t channel)
{
    const Winograd *g = run->g;
    const Tensor *acc = run->acc;
    Outputs out = {{NULL}, {NULL}};
    Place at = place_of(g, tile);
    for (int i = 0; i < 4; i++) {
        int h = at.h + i / 2, w = at.w + i % 2;
        int64_t pixel = (at.image * g->y.h + h) * g->y.w + w;
        if (h >= g->y.h || w >= g->y.w) continue;
        out.to[i] = vector_at(dtype, run->y, pixel * g->y_pitch + channel);
        if (acc) out.acc[i] = vector_at(dtype, acc->data, pixel * acc->pitch + channel);
    }
    tile_back(dtype, m, GROUP * width, width, &out, &run->finish, channel);
}

/* ---- the whole */

/* Point 0 of tile `tile` of a block, where a point of a tile takes `width`. */
static int64_t tile_at(int64_t tile, int64_t width)
{
    return (tile / GROUP * GROUP * POINTS + tile % GROUP) * width;
}

/* m = d u for `count` tiles and panel k. */
TILE_INLINE void panel_multiply(Dtype dtype, const WinogradRun *run, const void *d, int64_t count, int64_t k, float *m)
{
    const Winograd *g = run->g;
    const int64_t channels = g->x.c, words = channels / word_elements(dtype), width = panels_width(&g->panels, k);
    const uint32_t *u = run->u + panels_first(&g->panels, k) * words * POINTS;
    for (int64_t i = 0; i < POINTS; i++, u += words * width)
        for (int64_t t = 0; t < count; t += GROUP)
            group_product(dtype, vector_at(dtype, d, tile_at(t, channels) + i * GROUP * channels), words, u,
                          m + tile_at(t, width) + i * GROUP * width, width);
}

TILE_INLINE void block_run(Dtype dtype, const WinogradRun *run, int64_t first, int64_t count, char *per_thread)
{
    const Winograd *g = run->g;
    float *m = (float *)(void *)(per_thread + d_bytes(g));
    for (int64_t t = 0; t < rounded_up(count, GROUP); t++) /* an incomplete group repeats the last tile */
        tile_read(dtype, run, first + smaller(t, count - 1), vector_at(dtype, per_thread, tile_at(t, g->x.c)));
    for (int64_t k = 0; k < g->panels.count; k++) {
        int64_t width = panels_width(&g->panels, k);
        panel_multiply(dtype, run, per_thread, count, k, m);
        for (int64_t t = 0; t < count; t++)
            tile_write(dtype, run, first + t, m + tile_at(t, width), width, panels_first(&g->panels, k));
    }
}

TILE_CODE static void tiles_chunk(void *context, int64_t first, int64_t end, int thread)
{
    const WinogradRun *run = context;
    char *per_thread = run->per_thread + (size_t)thread * per_thread_bytes(run->g);
    BY_WORDS(run->g->dtype, block_run, run, first, end - first, per_thread);
}
