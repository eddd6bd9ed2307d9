/* F(2x2, 3x3) in bf16; see winograd.h.
 *
 * Weights are transformed once a call: u[panel of outputs][point][pairs of inputs][outputs], a pair being a word that
 * vdpbf16ps multiplies at once. Then each member of the team takes blocks of tiles of 2x2 outputs: 8 tiles are
 * transformed to d[point][8][inputs], multiplied to m[point][8][outputs of a panel], and transformed back, all in its
 * caches. */
#include "kernels/cpu/winograd.h"

#include "kernels/cpu/onednn.h"
#include "kernels/cpu/vector.h"

#include <stdlib.h>

#if defined(__x86_64__)
#include "kernels/cpu/winograd_tile.h"

enum {
    SIDE = 4, /* of the 4x4 pixels that a tile reads, and of its points */
    POINTS = SIDE * SIDE,
    TAPS = 9,
    BLOCK = 32 /* tiles that one member of the team does at a time */
};

struct Winograd {
    Shape x, y;
    int64_t x_pitch, y_pitch;
    int pad_h, pad_w;
    int tiles_h, tiles_w;
    bool turned;
    int threads;
    int panels;
    uint16_t *zeros; /* owned: a pixel outside the image */
};

/* One run. */
typedef struct Run {
    const Winograd *g;
    const uint16_t *x;
    const float *w;
    const Tensor *acc;
    uint16_t *y;
    uint32_t *u; /* transformed weights */
    char *own;   /* memory of the members of the team, one after another */
    size_t own_bytes;
} Run;

bool winograd_takes(const Tensor *x, const Tensor *y, const Window *v)
{
    enum { FEW_CHANNELS = 32, FEW_PIXELS = 256 };
    bool square = v->kh == 3 && v->kw == 3 && v->stride_h == 1 && v->stride_w == 1 && v->pad_h < 3 && v->pad_w < 3;
    bool halves = x->dtype == DTYPE_BF16 && y->dtype == DTYPE_BF16;
    bool whole = x->shape.c % LANES == 0 && y->shape.c % LANES == 0;
    return square && halves && whole && x->shape.c >= FEW_CHANNELS && y->shape.c >= FEW_CHANNELS &&
           shape_pixels(y->shape) >= FEW_PIXELS && onednn_has_bf16() && !onednn_has_amx() &&
           __builtin_cpu_supports("avx512bf16");
}

Status winograd_create(const Tensor *x, const Tensor *y, const Window *v, bool turned, int threads, Winograd **made)
{
    Winograd *g = calloc(1, sizeof *g);
    uint16_t *zeros = calloc((size_t)x->shape.c, sizeof *zeros);
    if (!g || !zeros) {
        free(g);
        free(zeros);
        return FAIL(ERR_MEMORY, "a convolution by Winograd's algorithm");
    }
    *g = (Winograd){.x = x->shape,
                    .y = y->shape,
                    .x_pitch = x->pitch,
                    .y_pitch = y->pitch,
                    .pad_h = turned ? 2 - v->pad_h : v->pad_h,
                    .pad_w = turned ? 2 - v->pad_w : v->pad_w,
                    .tiles_h = (y->shape.h + 1) / 2,
                    .tiles_w = (y->shape.w + 1) / 2,
                    .turned = turned,
                    .threads = threads,
                    .panels = (y->shape.c / LANES + VECTORS - 1) / VECTORS,
                    .zeros = zeros};
    *made = g;
    return OK;
}

void winograd_destroy(Winograd *winograd)
{
    if (!winograd) return;
    free(winograd->zeros);
    free(winograd);
}

/* ---- sizes */

/* Vectors of outputs before panel k: panels are about equal. */
static int64_t panel_first(const Winograd *g, int k)
{
    return (int64_t)g->y.c / LANES * k / g->panels;
}

static int panel_vectors(const Winograd *g, int k)
{
    return (int)(panel_first(g, k + 1) - panel_first(g, k));
}

static size_t u_bytes(const Winograd *g)
{
    return (size_t)POINTS * (size_t)g->x.c * (size_t)g->y.c * sizeof(uint16_t);
}

static size_t d_bytes(const Winograd *g)
{
    return (size_t)POINTS * BLOCK * (size_t)g->x.c * sizeof(uint16_t);
}

static size_t m_bytes(void)
{
    return (size_t)POINTS * GROUP * VECTORS * LANES * sizeof(float);
}

size_t winograd_workspace_bytes(const Winograd *g)
{
    return u_bytes(g) + (size_t)g->threads * (d_bytes(g) + m_bytes());
}

/* ---- weights: u = G w G', G = {1 0 0; 1/2 1/2 1/2; 1/2 -1/2 1/2; 0 0 1} */

TILE_INLINE void weights_line(__m512 a, __m512 b, __m512 c, __m512 *to, int step)
{
    __m512 half = _mm512_set1_ps(0.5f), outer = _mm512_mul_ps(half, _mm512_add_ps(a, c));
    __m512 inner = _mm512_mul_ps(half, b);
    to[0] = a;
    to[step] = _mm512_add_ps(outer, inner);
    to[2 * step] = _mm512_sub_ps(outer, inner);
    to[3 * step] = c;
}

/* Nine vectors `stride` floats apart, in reverse if the weights are turned. */
TILE_INLINE void weights_transform(const float *w, int64_t stride, bool turned, __m512 u[POINTS])
{
    __m512 rows[3 * SIDE];
    if (turned) w += (TAPS - 1) * stride, stride = -stride;
    for (int r = 0; r < 3; r++, w += 3 * stride)
        weights_line(_mm512_loadu_ps(w), _mm512_loadu_ps(w + stride), _mm512_loadu_ps(w + 2 * stride), rows + SIDE * r,
                     1);
    for (int s = 0; s < SIDE; s++) weights_line(rows[s], rows[SIDE + s], rows[2 * SIDE + s], u + s, SIDE);
}

/* Where the word of input pair `pair` and output `out` lies, for point 0; points are `*step` words apart. */
static uint32_t *u_at(const Run *run, int pair, int out, int64_t *width, int64_t *step)
{
    const Winograd *g = run->g;
    int vector = out / LANES, k = 0;
    while (panel_first(g, k + 1) <= vector) k++;
    int64_t first = panel_first(g, k), pairs = g->x.c / 2;
    *width = panel_vectors(g, k) * LANES;
    *step = pairs * *width;
    return run->u + first * LANES * pairs * POINTS + pair * *width + (out - first * LANES);
}

/* Inputs of the gradient are outputs of the convolution: rows of w. Two of them make words. */
TILE_CODE static void weights_turned(const Run *run, int pair)
{
    const Winograd *g = run->g;
    const int64_t c = g->y.c, row = TAPS * c;
    for (int out = 0; out < g->y.c; out += LANES) {
        __m512 low[POINTS], high[POINTS];
        int64_t width, step;
        uint32_t *to = u_at(run, pair, out, &width, &step);
        weights_transform(run->w + 2 * pair * row + out, c, true, low);
        weights_transform(run->w + (2 * pair + 1) * row + out, c, true, high);
        for (int i = 0; i < POINTS; i++) {
            __m512i below = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(low[i]));
            __m512i above = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(high[i]));
            _mm512_storeu_si512(to + i * step, _mm512_or_si512(below, _mm512_slli_epi32(above, 16)));
        }
    }
}

/* 16 inputs of one output: 8 words of 8 different rows. */
TILE_CODE static void weights_straight(const Run *run, int out)
{
    const Winograd *g = run->g;
    const int64_t c = g->x.c;
    for (int in = 0; in < g->x.c; in += LANES) {
        __m512 u[POINTS];
        int64_t width, step;
        uint32_t *to = u_at(run, in / 2, out, &width, &step), words[LANES / 2];
        weights_transform(run->w + out * TAPS * c + in, c, false, u);
        for (int i = 0; i < POINTS; i++) {
            _mm256_storeu_si256((__m256i *)(void *)words, (__m256i)_mm512_cvtneps_pbh(u[i]));
            for (int k = 0; k < LANES / 2; k++) to[i * step + k * width] = words[k];
        }
    }
}

static void weights_chunk(void *context, int64_t first, int64_t end, int thread)
{
    (void)thread;
    const Run *run = context;
    for (int64_t i = first; i < end; i++) (run->g->turned ? weights_turned : weights_straight)(run, (int)i);
}

/* ---- tiles of x: d = B' x B, B' = {1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1} */

/* `pixels`: the 4x4 of the tile. Point i goes to d + i * step. */
TILE_CODE static void tile_transform(const uint16_t *const *pixels, int64_t channels, uint16_t *d, int64_t step)
{
    for (int64_t c = 0; c < channels; c += LANES) {
        __m512 t[POINTS];
        for (int s = 0; s < 4; s++) { /* down the columns */
            __m512 a = half_load(pixels[s] + c), b = half_load(pixels[4 + s] + c);
            __m512 e = half_load(pixels[8 + s] + c), f = half_load(pixels[12 + s] + c);
            t[s] = _mm512_sub_ps(a, e);
            t[4 + s] = _mm512_add_ps(b, e);
            t[8 + s] = _mm512_sub_ps(e, b);
            t[12 + s] = _mm512_sub_ps(b, f);
        }
        for (int r = 0; r < 4; r++) { /* along the rows */
            const __m512 *row = t + 4 * r;
            uint16_t *to = d + 4 * r * step + c;
            half_store(to, _mm512_sub_ps(row[0], row[2]));
            half_store(to + step, _mm512_add_ps(row[1], row[2]));
            half_store(to + 2 * step, _mm512_sub_ps(row[2], row[1]));
            half_store(to + 3 * step, _mm512_sub_ps(row[1], row[3]));
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

static void tile_read(const Run *run, int64_t tile, uint16_t *d)
{
    const Winograd *g = run->g;
    const uint16_t *pixels[POINTS];
    Place at = place_of(g, tile);
    int top = at.h - g->pad_h, left = at.w - g->pad_w;
    const uint16_t *first = run->x + ((at.image * g->x.h + top) * g->x.w + left) * g->x_pitch;
    for (int r = 0; r < SIDE; r++)
        for (int s = 0; s < SIDE; s++) {
            bool inside = top + r >= 0 && left + s >= 0 && top + r < g->x.h && left + s < g->x.w;
            pixels[SIDE * r + s] = inside ? first + (r * g->x.w + s) * g->x_pitch : g->zeros;
        }
    tile_transform(pixels, g->x.c, d, GROUP * (int64_t)g->x.c);
}

/* ---- products: m[8][vectors * 16] = d[8][channels] u[channels][vectors * 16] */

TILE_CODE static void group_multiply(const uint16_t *d, int64_t channels, const uint32_t *u, float *m, int vectors)
{
    const int64_t d_step = GROUP * channels, u_step = channels / 2 * vectors * LANES, m_step = GROUP * vectors * LANES;
    for (int i = 0; i < POINTS; i++) group_product(d + i * d_step, channels, u + i * u_step, m + i * m_step, vectors);
}

/* ---- back: y = A' m A, A' = {1 1 1 0; 0 1 -1 -1} */

/* A tile's outputs; NULL where a pixel does not exist, or nothing is added. */
typedef struct Outputs {
    uint16_t *to[4];
    const uint16_t *acc[4];
} Outputs;

/* `vectors` vectors; points are `step` apart. */
TILE_CODE static void tile_back(const float *m, int64_t step, int vectors, const Outputs *out)
{
    for (int64_t c = 0; c < vectors * LANES; c += LANES) {
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
            if (out->acc[i]) y = _mm512_add_ps(y, half_load(out->acc[i] + c));
            half_store(out->to[i] + c, y);
        }
    }
}

/* A panel of a tile, whose first channel is `channel`. */
static void tile_write(const Run *run, int64_t tile, const float *m, int vectors, int64_t channel)
{
    const Winograd *g = run->g;
    const Tensor *acc = run->acc;
    Outputs out = {{NULL}, {NULL}};
    Place at = place_of(g, tile);
    for (int i = 0; i < 4; i++) {
        int h = at.h + i / 2, w = at.w + i % 2;
        int64_t pixel = (at.image * g->y.h + h) * g->y.w + w;
        if (h >= g->y.h || w >= g->y.w) continue;
        out.to[i] = run->y + pixel * g->y_pitch + channel;
        if (acc) out.acc[i] = (const uint16_t *)acc->data + pixel * acc->pitch + channel;
    }
    tile_back(m, GROUP * vectors * LANES, vectors, &out);
}

/* ---- the whole */

static void tiles_chunk(void *context, int64_t first, int64_t end, int thread)
{
    const Run *run = context;
    const Winograd *g = run->g;
    char *own = run->own + (size_t)thread * run->own_bytes;
    uint16_t *d = (uint16_t *)(void *)own;
    float *m = (float *)(void *)(own + d_bytes(g));
    int64_t channels = g->x.c, group = GROUP * POINTS * channels, count = end - first;
    for (int64_t t = 0; t < rounded_up(count, GROUP); t++) /* the last tile again, where a group is not full */
        tile_read(run, first + smaller(t, count - 1), d + t / GROUP * group + t % GROUP * channels);
    for (int k = 0; k < g->panels; k++) {
        int vectors = panel_vectors(g, k);
        const uint32_t *u = run->u + panel_first(g, k) * LANES * (channels / 2) * POINTS;
        for (int64_t t = 0; t < count; t += GROUP) {
            group_multiply(d + t / GROUP * group, channels, u, m, vectors);
            for (int64_t i = 0; i < smaller(GROUP, count - t); i++)
                tile_write(run, first + t + i, m + i * vectors * LANES, vectors, panel_first(g, k) * LANES);
        }
    }
}

void winograd_run(const Winograd *g, const Device *device, const uint16_t *x, const float *w, const Tensor *acc,
                  uint16_t *y, void *workspace)
{
    Run run = {.g = g,
               .x = x,
               .w = w,
               .acc = acc,
               .y = y,
               .u = workspace,
               .own = (char *)workspace + u_bytes(g),
               .own_bytes = d_bytes(g) + m_bytes()};
    chunks_run(device, g->turned ? g->x.c / 2 : g->y.c, 4, weights_chunk, &run);
    chunks_run(device, (int64_t)g->x.n * g->tiles_h * g->tiles_w, BLOCK, tiles_chunk, &run);
}
#else /* never called where winograd_takes says no */
bool winograd_takes(const Tensor *x, const Tensor *y, const Window *window)
{
    (void)x, (void)y, (void)window;
    return false;
}

Status winograd_create(const Tensor *x, const Tensor *y, const Window *window, bool turned, int threads,
                       Winograd **made)
{
    (void)x, (void)y, (void)window, (void)turned, (void)threads, (void)made;
    return FAIL(ERR_UNSUPPORTED, "Winograd's algorithm in bf16 needs AVX512-BF16");
}

void winograd_destroy(Winograd *winograd)
{
    (void)winograd;
}

size_t winograd_workspace_bytes(const Winograd *winograd)
{
    (void)winograd;
    return 0;
}

void winograd_run(const Winograd *winograd, const Device *device, const uint16_t *x, const float *w, const Tensor *acc,
                  uint16_t *y, void *workspace)
{
    (void)winograd, (void)device, (void)x, (void)w, (void)acc, (void)y, (void)workspace;
}
#endif
