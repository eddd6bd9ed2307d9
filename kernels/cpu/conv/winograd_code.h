/* The transforms and products of winograd.c for the kind of vectors whose header (lanes_*.h) was included before, and
 * for the algorithm whose header was (winograd_1x1.h, winograd_2x2.h, winograd_4x4.h, winograd_5x5.h). */
#pragma once

/* ---- weights: u = G w G' */

TILE_INLINE void weights_transform(const Vector *w, Vector *u)
{
    Vector rows[KERNEL * SIDE];
    for (int r = 0; r < KERNEL; r++) taps_line(w + KERNEL * r, 1, rows + SIDE * r, 1);
    for (int s = 0; s < SIDE; s++) taps_line(rows + s, SIDE, u + s, SIDE);
}

/* ---- tiles of x: d = B' x B */

/* `pixels`: the square of the tile. Point i goes to d + i * step. */
TILE_INLINE void tile_transform(Dtype dtype, const void *const *pixels, int64_t channels, void *d, int64_t step)
{
    for (int64_t c = 0; c < channels; c += LANES) {
        Vector t[SIDE][SIDE], line[SIDE], row[SIDE];
        for (int s = 0; s < SIDE; s++) { /* down the columns */
            for (int r = 0; r < SIDE; r++) line[r] = vector_load(dtype, pixels[SIDE * r + s], c);
            pixels_line(line, t[s]);
        }
        for (int r = 0; r < SIDE; r++) { /* along the rows */
            for (int s = 0; s < SIDE; s++) line[s] = t[s][r];
            pixels_line(line, row);
            for (int s = 0; s < SIDE; s++) vector_store(dtype, d, (SIDE * r + s) * step + c, row[s]);
        }
    }
}

typedef struct TilePlace {
    int64_t image;
    int h, w; /* first output */
} TilePlace;

static TilePlace place_of(const Winograd *g, int64_t tile)
{
    if (SIDE == 1) return (TilePlace){0, 0, (int)tile}; /* all pixels are one line */
    int64_t line = tile / g->tiles_w;
    return (TilePlace){line / g->tiles_h, (int)(line % g->tiles_h) * OUT, (int)(tile % g->tiles_w) * OUT};
}

TILE_INLINE void tile_read(Dtype dtype, const WinogradRun *run, int64_t tile, void *d)
{
    const Winograd *g = (const Winograd *)run->plan;
    const void *pixels[POINTS];
    TilePlace at = place_of(g, tile);
    int top = at.h - g->pad_h, left = at.w - g->pad_w;
    int64_t first = (at.image * g->plan.x.h + top) * g->plan.x.w + left;
    for (int r = 0; r < SIDE; r++)
        for (int s = 0; s < SIDE; s++) {
            bool inside = top + r >= 0 && left + s >= 0 && top + r < g->plan.x.h && left + s < g->plan.x.w;
            pixels[SIDE * r + s] =
                inside ? vector_at(dtype, run->x, (first + r * g->plan.x.w + s) * g->x_pitch) : g->plan.zeros;
        }
    tile_transform(dtype, pixels, g->plan.x.c, d, GROUP * (int64_t)g->plan.x.c);
}

/* ---- back: y = A' m A */

/* `width` outputs; points are `step` apart. */
TILE_INLINE void tile_back(Dtype dtype, const float *m, int64_t step, int64_t width, const Outputs *out)
{
    for (int64_t c = 0; c < width; c += LANES) {
        Vector t[SIDE][OUT], line[SIDE], y[OUT];
        for (int s = 0; s < SIDE; s++) {
            for (int r = 0; r < SIDE; r++) line[r] = floats_load(m + (SIDE * r + s) * step + c);
            outputs_line(line, t[s]);
        }
        for (int r = 0; r < OUT; r++) {
            for (int s = 0; s < SIDE; s++) line[s] = t[s][r];
            outputs_line(line, y);
            for (int s = 0; s < OUT; s++) output_store(dtype, out, OUT * r + s, c, y[s]);
        }
    }
}

/* A panel of a tile, whose first channel is `channel`. */
TILE_INLINE void tile_write(Dtype dtype, const WinogradRun *run, int64_t tile, const float *m, int64_t width,
                            int64_t channel)
{
    const Winograd *g = (const Winograd *)run->plan;
    const Tensor *acc = run->acc;
    Outputs out = {.finish = &run->finish, .channel = channel};
    TilePlace at = place_of(g, tile);
    for (int i = 0; i < OUTPUTS; i++) {
        int h = at.h + i / OUT, w = at.w + i % OUT;
        int64_t pixel = (at.image * g->plan.y.h + h) * g->plan.y.w + w;
        if (h >= g->plan.y.h || w >= g->plan.y.w) continue;
        out.to[i] = vector_at(dtype, run->y, pixel * g->y_pitch + channel);
        if (acc) out.acc[i] = vector_at(dtype, acc->data, pixel * acc->pitch + channel);
    }
    tile_back(dtype, m, GROUP * width, width, &out);
}

/* ---- the whole */

/* m = d u for `count` tiles and panel k. */
TILE_INLINE void panel_multiply(Dtype dtype, const WinogradRun *run, const void *d, int64_t count, int64_t k, float *m)
{
    const Winograd *g = (const Winograd *)run->plan;
    const int64_t channels = g->plan.x.c, words = channels / word_elements(dtype),
                  width = panels_width(&g->plan.panels, k);
    const uint32_t *u = run->u + panels_first(&g->plan.panels, k) * words * POINTS;
    for (int64_t i = 0; i < POINTS; i++, u += words * width)
        for (int64_t t = 0; t < count; t += GROUP)
            group_product(dtype, vector_at(dtype, d, tile_at(t, channels) + i * GROUP * channels), words, u,
                          m + tile_at(t, width) + i * GROUP * width, width);
}

TILE_INLINE void block_run(Dtype dtype, const WinogradRun *run, int64_t first, int64_t count, char *per_thread)
{
    const Winograd *g = (const Winograd *)run->plan;
    float *m = (float *)(void *)(per_thread + d_bytes(g));
    for (int64_t t = 0; t < rounded_up(count, GROUP); t++) /* an incomplete group repeats the last tile */
        tile_read(dtype, run, first + smaller(t, count - 1), vector_at(dtype, per_thread, tile_at(t, g->plan.x.c)));
    for (int64_t k = 0; k < g->plan.panels.count; k++) {
        int64_t width = panels_width(&g->plan.panels, k);
        panel_multiply(dtype, run, per_thread, count, k, m);
        for (int64_t t = 0; t < count; t++)
            tile_write(dtype, run, first + t, m + tile_at(t, width), width, panels_first(&g->plan.panels, k));
    }
}

TILE_CODE static void tiles_chunk(void *context, int64_t first, int64_t end)
{
    const WinogradRun *run = context;
    char *per_thread = run->per_thread + (size_t)team_member() * run->plan->per_thread_bytes;
    BY_WORDS(run->plan->dtype, block_run, run, first, end - first, per_thread);
}
