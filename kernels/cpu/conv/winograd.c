/* 3x3 convolutions of stride 1 by Winograd's F(2x2, 3x3): 16 products instead of 36.
 *
 * Lavin and Gray, arXiv:1509.09308, section 4.1. Transforms add a few f32 values with factors 1, 1/2 and 1/4; no output
 * depends on a pixel outside its window, so a window of zeros gives zero. In f32 the rounding is no coarser than that
 * of plain sums, which are nine times as long; in bf16, where transforms are rounded before the products, it is about
 * two and a half times as coarse: docs/decisions/0006-winograd.md. The gradient with respect to x is the same
 * convolution with rotated weights; winograd_dw.c computes the weight gradient. f32 needs AVX-512; bf16 needs
 * AVX512-BF16 and is not used if there is AMX.
 *
 * Weights are transformed once per call: u[panel of outputs][point][words of inputs][outputs]. Then each thread takes
 * blocks of tiles of 2x2 outputs, which are transformed to d[8 tiles][point][8][inputs], multiplied to m[8
 * tiles][point][8][outputs of a panel], one point after another so that its weights stay in the caches, and transformed
 * back. */
#include "kernels/cpu/conv/conv_impl.h"

#include "kernels/cpu/vector.h"

#include <stdlib.h>

#if defined(__x86_64__)
#include "kernels/cpu/conv/winograd_tile.h"

enum {
    SIDE = 4, /* of the 4x4 pixels that a tile reads, and of its points */
    POINTS = SIDE * SIDE,
    TAPS = 9,
    BLOCK = 16 /* tiles that one thread computes at a time */
};

typedef struct Winograd {
    Dtype dtype;
    Shape x, y;
    int64_t x_pitch, y_pitch;
    int pad_h, pad_w;
    int tiles_h, tiles_w;
    bool rotated;
    int threads;
    Panels panels;
    void *zeros; /* owned: a pixel outside the image */
} Winograd;

/* The arguments of a run. */
typedef struct Run {
    const Winograd *g;
    const void *x;
    const float *w;
    const Tensor *acc;
    void *y;
    uint32_t *u;      /* transformed weights */
    char *per_thread; /* memory of each thread, one after another */
} Run;

static const char *winograd_takes(const Device *device, const ConvProblem *p)
{
    enum { FEW_CHANNELS = 32, FEW_PIXELS = 256, SHORT = 6 };
    const Tensor *x = conv_from(p), *y = conv_to(p);
    const Window *v = &p->window;
    if (v->kh != 3 || v->kw != 3 || v->stride_h != 1 || v->stride_w != 1 || v->pad_h >= 3 || v->pad_w >= 3)
        return "window is not 3x3 of stride 1";
    if (conv_winograd_off(device, p)) return conv_winograd_off(device, p);
    if (x->dtype == DTYPE_F32 && smaller(y->shape.h, y->shape.w) < SHORT)
        return "image is small: plain sums skip the padding";
    return tile_declines(x, y, FEW_CHANNELS, FEW_PIXELS);
}

static Status winograd_create(Device *device, const ConvProblem *p, void **made)
{
    const Tensor *x = conv_from(p), *y = conv_to(p);
    const Window *v = &p->window;
    bool rotated = p->kind == OP_CONV_DX;
    Winograd *g = calloc(1, sizeof *g);
    void *zeros = calloc((size_t)x->shape.c, dtype_bytes(x->dtype));
    if (!g || !zeros) {
        free(g);
        free(zeros);
        return FAIL(ERR_MEMORY, "no memory for the Winograd convolution '%s'", p->call->name);
    }
    *g = (Winograd){.dtype = x->dtype,
                    .x = x->shape,
                    .y = y->shape,
                    .x_pitch = x->pitch,
                    .y_pitch = y->pitch,
                    .pad_h = rotated ? 2 - v->pad_h : v->pad_h,
                    .pad_w = rotated ? 2 - v->pad_w : v->pad_w,
                    .tiles_h = (y->shape.h + 1) / 2,
                    .tiles_w = (y->shape.w + 1) / 2,
                    .rotated = rotated,
                    .threads = cpu_threads(device),
                    .panels = panels_of(y->shape.c),
                    .zeros = zeros};
    *made = g;
    return OK;
}

static void winograd_destroy(void *made)
{
    Winograd *g = made;
    free(g->zeros);
    free(g);
}

/* ---- sizes */

static size_t u_bytes(const Winograd *g)
{
    return (size_t)POINTS * (size_t)g->x.c * (size_t)g->y.c * dtype_bytes(g->dtype);
}

static size_t d_bytes(const Winograd *g)
{
    return (size_t)POINTS * BLOCK * (size_t)g->x.c * dtype_bytes(g->dtype);
}

static size_t m_bytes(void)
{
    return (size_t)POINTS * BLOCK * VECTORS * LANES * sizeof(float);
}

static size_t per_thread_bytes(const Winograd *g)
{
    return d_bytes(g) + m_bytes();
}

static size_t winograd_workspace(const void *made)
{
    const Winograd *g = made;
    return u_bytes(g) + (size_t)g->threads * per_thread_bytes(g);
}

/* ---- weights: u = G w G' */

TILE_INLINE void weights_transform(const __m512 w[TAPS], __m512 u[POINTS])
{
    __m512 rows[3 * SIDE];
    for (int r = 0; r < 3; r++) weights_line(w[3 * r], w[3 * r + 1], w[3 * r + 2], rows + SIDE * r, 1);
    for (int s = 0; s < SIDE; s++) weights_line(rows[s], rows[SIDE + s], rows[2 * SIDE + s], u + s, SIDE);
}

/* 16 inputs from `in` on, for 16 outputs from `out` on. */
TILE_INLINE void weights_square(Dtype dtype, const Run *run, int64_t in, int64_t out)
{
    const Winograd *g = run->g;
    const int held = word_elements(dtype);
    const int64_t words = g->x.c / held;
    __m512 taps[LANES][TAPS], low[POINTS], high[POINTS], square[LANES];
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
    const Run *run = context;
    const int64_t squares = run->g->x.c / LANES; /* for 16 outputs */
    for (int64_t i = first; i < end; i++)
        BY_DTYPE(run->g->dtype, weights_square, run, i % squares * LANES, i / squares * LANES);
}

/* ---- tiles of x: d = B' x B, B' = {1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1} */

/* `pixels`: the 4x4 of the tile. Point i goes to d + i * step. */
TILE_INLINE void tile_transform(Dtype dtype, const void *const *pixels, int64_t channels, void *d, int64_t step)
{
    for (int64_t c = 0; c < channels; c += LANES) {
        __m512 t[POINTS];
        for (int s = 0; s < 4; s++) { /* down the columns */
            __m512 a = vector_load(dtype, pixels[s], c), b = vector_load(dtype, pixels[4 + s], c);
            __m512 e = vector_load(dtype, pixels[8 + s], c), f = vector_load(dtype, pixels[12 + s], c);
            t[s] = _mm512_sub_ps(a, e);
            t[4 + s] = _mm512_add_ps(b, e);
            t[8 + s] = _mm512_sub_ps(e, b);
            t[12 + s] = _mm512_sub_ps(b, f);
        }
        for (int r = 0; r < 4; r++) { /* along the rows */
            const __m512 *row = t + 4 * r;
            int64_t to = 4 * r * step + c;
            vector_store(dtype, d, to, _mm512_sub_ps(row[0], row[2]));
            vector_store(dtype, d, to + step, _mm512_add_ps(row[1], row[2]));
            vector_store(dtype, d, to + 2 * step, _mm512_sub_ps(row[2], row[1]));
            vector_store(dtype, d, to + 3 * step, _mm512_sub_ps(row[1], row[3]));
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

TILE_INLINE void tile_read(Dtype dtype, const Run *run, int64_t tile, void *d)
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

/* `width` outputs; points are `step` apart. */
TILE_INLINE void tile_back(Dtype dtype, const float *m, int64_t step, int64_t width, const Outputs *out)
{
    for (int64_t c = 0; c < width; c += LANES) {
        __m512 t[2 * SIDE];
        for (int s = 0; s < SIDE; s++) {
            __m512 a = _mm512_loadu_ps(m + s * step + c), b = _mm512_loadu_ps(m + (SIDE + s) * step + c);
            __m512 e = _mm512_loadu_ps(m + (2 * SIDE + s) * step + c),
                   f = _mm512_loadu_ps(m + (3 * SIDE + s) * step + c);
            t[s] = _mm512_add_ps(_mm512_add_ps(a, b), e);
            t[SIDE + s] = _mm512_sub_ps(_mm512_sub_ps(b, e), f);
        }
        for (int i = 0; i < 4; i++) {
            const __m512 *row = t + SIDE * (i / 2);
            __m512 y = i % 2 == 0 ? _mm512_add_ps(_mm512_add_ps(row[0], row[1]), row[2])
                                  : _mm512_sub_ps(_mm512_sub_ps(row[1], row[2]), row[3]);
            if (!out->to[i]) continue;
            if (out->acc[i]) y = _mm512_add_ps(y, vector_load(dtype, out->acc[i], c));
            vector_store(dtype, out->to[i], c, y);
        }
    }
}

/* A panel of a tile, whose first channel is `channel`. */
TILE_INLINE void tile_write(Dtype dtype, const Run *run, int64_t tile, const float *m, int64_t width, int64_t channel)
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
    tile_back(dtype, m, GROUP * width, width, &out);
}

/* ---- the whole */

/* Point 0 of tile `tile` of a block, where a point of a tile takes `width`. */
static int64_t tile_at(int64_t tile, int64_t width)
{
    return (tile / GROUP * GROUP * POINTS + tile % GROUP) * width;
}

/* m = d u for `count` tiles and panel k. */
TILE_INLINE void panel_multiply(Dtype dtype, const Run *run, const void *d, int64_t count, int64_t k, float *m)
{
    const Winograd *g = run->g;
    const int64_t channels = g->x.c, words = channels / word_elements(dtype), width = panels_width(&g->panels, k);
    const uint32_t *u = run->u + panels_first(&g->panels, k) * words * POINTS;
    for (int64_t i = 0; i < POINTS; i++, u += words * width)
        for (int64_t t = 0; t < count; t += GROUP)
            group_product(dtype, vector_at(dtype, d, tile_at(t, channels) + i * GROUP * channels), words, u,
                          m + tile_at(t, width) + i * GROUP * width, width);
}

TILE_INLINE void block_run(Dtype dtype, const Run *run, int64_t first, int64_t count, char *per_thread)
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
    const Run *run = context;
    char *per_thread = run->per_thread + (size_t)thread * per_thread_bytes(run->g);
    BY_DTYPE(run->g->dtype, block_run, run, first, end - first, per_thread);
}

static Status winograd_run(const void *made, Device *device, OpCall *call)
{
    const Winograd *g = made;
    Run run = {.g = g, .x = call->in[0].data, .w = call->in[1].data, .y = call->out[0].data, .u = call->workspace};
    run.per_thread = (char *)call->workspace + u_bytes(g);
    if (g->rotated) run.acc = conv_optional(call, 2);
    chunks_run(device, (int64_t)(g->x.c / LANES) * (g->y.c / LANES), 4, weights_chunk, &run);
    chunks_run(device, (int64_t)g->x.n * g->tiles_h * g->tiles_w, BLOCK, tiles_chunk, &run);
    return OK;
}

const ConvImpl conv_winograd = {.name = "winograd F(2x2, 3x3)",
                                .takes = winograd_takes,
                                .create = winograd_create,
                                .workspace = winograd_workspace,
                                .run = winograd_run,
                                .destroy = winograd_destroy,
                                .product_share = 16.0f / 36};
#endif
