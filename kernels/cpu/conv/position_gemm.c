/* Convolutions with a large window and a stride over small images, and their gradients with respect to x, in f32 with
 * AVX-512 or NEON, which have 32 registers: matrix products whose rows are the images of a batch.
 *
 *   CONV     y[n, at]   = sum over taps of x[n, at s + tap - pad] w[tap]
 *   CONV_DX  dx[n, at]  = sum over taps of dy[n, (at + pad - tap) / s] w[tap]'
 *
 * At one position all images have the same taps inside the image. The others are left out, and so are the zeros between
 * the strides of a gradient: a 5x5 window of stride 2 over 7x7 pixels has 256 products per channel in place of 400.
 * A sum is made by one thread, in an order that does not depend on the number of threads. Weights are packed once per call:
 * u[panel of outputs][tap][input][outputs of the panel]. */
#include "kernels/cpu/conv/conv_impl.h"

#include "kernels/cpu/vector.h"

#ifdef CPU_HAS_LANES
#if defined(__x86_64__)
#include "kernels/cpu/conv/lanes_avx512.h"
#else
#include "kernels/cpu/conv/lanes_neon.h"
#endif

#include "kernels/cpu/conv/gemm_tile.h"

enum {
    ROWS = GEMM_ROWS, /* of a tile, at most: with two vectors, 28 sums in registers */
    PANEL = 2 * LANES /* outputs of a panel, at most: two vectors */
};

/* ---- tiles: c[rows][vectors] = the sum over some taps of a[rows][depth] b[depth][vectors] */

typedef struct Term {
    int32_t a, b; /* offset of a tap in an image of the input; number of the tap */
} Term;

typedef struct Tile {
    const Term *term;
    int terms;
    int64_t depth; /* products of a tap */
    const GemmWord *a, *b;
    int64_t a_row;
    const float *start; /* of every row: added to the sums; NULL: nothing */
    float *c;
    int64_t c_row;
} Tile;

/* Three rows share a pointer, because an address may add its index once or twice. */
enum { SHARE = 3, POINTERS = (ROWS + SHARE - 1) / SHARE };

/* Rows are images, terms the taps; b is packed. */
TILE_INLINE void tile_sum(const Tile *t, const int rows, const int vectors)
{
    enum { STEPS = 4 };
    GemmSums sum;
    gemm_begin(rows, vectors, t->start, sum);
    for (int i = 0; i < t->terms; i++) {
        const GemmWord *a[POINTERS], *b = t->b + t->term[i].b * t->depth * vectors * LANES;
        for (int p = 0; p * SHARE < rows; p++) a[p] = t->a + t->term[i].a + p * SHARE * t->a_row;
        for (int64_t left = t->depth; left > 0;) {
            const int steps = left >= STEPS ? STEPS : 1;
            gemm_step(DTYPE_F32, rows, vectors, a, SHARE, t->a_row, 0, b, sum);
            for (int k = 1; k < STEPS && steps == STEPS; k++)
                gemm_step(DTYPE_F32, rows, vectors, a, SHARE, t->a_row, k, b + k * vectors * LANES, sum);
            for (int p = 0; p * SHARE < rows; p++) a[p] += steps;
            b += steps * vectors * LANES;
            left -= steps;
        }
    }
    gemm_store(rows, vectors, sum, t->c, t->c_row, false);
}

#define TILES_OF(rows)                                                                                                 \
    TILE_CODE static void tile_##rows##_1(const Tile *t)                                                               \
    {                                                                                                                  \
        tile_sum(t, rows, 1);                                                                                          \
    }                                                                                                                  \
    TILE_CODE static void tile_##rows##_2(const Tile *t)                                                               \
    {                                                                                                                  \
        tile_sum(t, rows, 2);                                                                                          \
    }
#define TILE_ROW(rows) {tile_##rows##_1, tile_##rows##_2},
#define EVERY_ROW(DO) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14)
EVERY_ROW(TILES_OF)

static void (*const tiles[ROWS][PANEL / LANES])(const Tile *) = {EVERY_ROW(TILE_ROW)};

/* ---- geometry */

/* The pixels of x or y. */
typedef struct PixelSteps {
    int32_t h, w;
    int64_t channels;
    int64_t pixel, row, image; /* elements from one to the next */
} PixelSteps;

typedef struct PositionGemm {
    Window window;
    PixelSteps x, y;
    int64_t images;
    int taps;
    bool back;         /* CONV_DX */
    int64_t positions; /* of the output */
    Term *term;        /* owned: [positions][taps] */
    int *terms;        /* owned: of each position */
} PositionGemm;

static PixelSteps pixels_of(const Tensor *t)
{
    int64_t row = t->shape.w * t->pitch;
    return (PixelSteps){t->shape.h, t->shape.w, t->shape.c, t->pitch, row, t->shape.h * row};
}

static const PixelSteps *from_of(const PositionGemm *g)
{
    return g->back ? &g->y : &g->x;
}

static const PixelSteps *to_of(const PositionGemm *g)
{
    return g->back ? &g->x : &g->y;
}

/* Where tap `tap` of position `at` along an axis lies in the input; -1: outside of it, or between strides. */
static int32_t offset_of(bool back, int32_t at, int32_t tap, int32_t stride, int32_t pad, int32_t side)
{
    int32_t offset = back ? at + pad - tap : at * stride + tap - pad;
    if (offset < 0 || (back && offset % stride)) return -1;
    if (back) offset /= stride;
    return offset < side ? offset : -1;
}

/* Tap `tap` of the pixel (h, w) of the output: the offset in an image of the input; -1 if there is none. */
static int32_t pixel_of(const PositionGemm *g, int32_t h, int32_t w, int tap)
{
    const Window *v = &g->window;
    const PixelSteps *from = from_of(g);
    int32_t row = offset_of(g->back, h, tap / v->kw, v->stride_h, v->pad_h, from->h),
            column = offset_of(g->back, w, tap % v->kw, v->stride_w, v->pad_w, from->w);
    return row < 0 || column < 0 ? -1 : (int32_t)(row * from->row + column * from->pixel);
}

/* For every position its taps: offset in an image of the input, and number. */
static void taps_list(const PositionGemm *g)
{
    const PixelSteps *to = to_of(g);
    for (int32_t at = 0; at < g->positions; at++)
        for (int tap = 0; tap < g->taps; tap++) {
            int32_t offset = pixel_of(g, at / to->w, at % to->w, tap);
            if (offset >= 0) g->term[at * g->taps + g->terms[at]++] = (Term){offset, tap};
        }
}

/* The first element of part k, if `whole` elements are cut into `parts` of about equal size. */
static int64_t part_first(int64_t whole, int64_t parts, int64_t k)
{
    return whole * k / parts;
}

static int64_t parts_of(int64_t whole, int64_t most)
{
    return (whole + most - 1) / most;
}

/* ---- what it is for */

/* Leaving out zeros is worth the scattered reads for large windows with a stride: measured, a gradient to 32 channels
 * takes 0.8 of oneDNN's time, one to 16 channels, of one vector, 1.2. Batches of few images fill no tile, and large
 * images have little padding. */
static const char *position_gemm_decline(const ConvProblem *p)
{
    enum { LARGE = 25, TAPS_MAX = 64, FEW_IMAGES = 8, SIDE_OF_X = 64, SIDE_OF_Y = 15 };
    const Window *v = &p->window;
    int taps = v->kh * v->kw;
    if (p->x->dtype != DTYPE_F32 || p->y->dtype != DTYPE_F32) return "types are not f32";
    if (v->stride_h < 2 || v->stride_w < 2 || taps < LARGE || taps > TAPS_MAX)
        return "window is not about 5x5 with a stride";
    if (p->x->shape.n < FEW_IMAGES) return "too few images";
    Shape x = p->x->shape, y = p->y->shape;
    if (x.h > SIDE_OF_X || x.w > SIDE_OF_X || y.h > SIDE_OF_Y || y.w > SIDE_OF_Y) return "images are large";
    return cpu_isa() == CPU_NEON || cpu_isa() >= CPU_AVX512 ? NULL : "processor has no AVX-512 or NEON";
}

static const char *position_gemm_take(const Device *device, const ConvProblem *p)
{
    (void)device;
    if (conv_to(p)->shape.c % LANES) return "channels do not fill vectors";
    if (p->kind == OP_CONV_DX && p->x->shape.c < PANEL) return "few channels";
    if (p->acc) return "dx is added to a sum";
    return position_gemm_decline(p);
}

static void position_gemm_destroy(void *plan)
{
    PositionGemm *g = plan;
    free(g->term);
    free(g->terms);
    free(g);
}

static Status position_gemm_create(Device *device, const ConvProblem *p, void **plan)
{
    (void)device;
    PositionGemm *g = calloc(1, sizeof *g);
    if (!g) return FAIL(ERR_MEMORY, "no memory for the convolution '%s'", p->call->name);
    *g = (PositionGemm){.window = p->window,
                        .x = pixels_of(p->x),
                        .y = pixels_of(p->y),
                        .images = p->x->shape.n,
                        .taps = p->window.kh * p->window.kw,
                        .back = p->kind == OP_CONV_DX};
    g->positions = (int64_t)to_of(g)->h * to_of(g)->w;
    g->term = calloc((size_t)(g->positions * g->taps), sizeof *g->term);
    g->terms = calloc((size_t)g->positions, sizeof *g->terms);
    if (!g->term || !g->terms) {
        position_gemm_destroy(g);
        return FAIL(ERR_MEMORY, "no memory for the taps of the convolution '%s'", p->call->name);
    }
    taps_list(g);
    *plan = g;
    return OK;
}

/* ---- the products */

static size_t position_gemm_workspace(const void *plan)
{
    const PositionGemm *g = plan;
    return (size_t)(g->taps * g->x.channels * g->y.channels) * sizeof(float);
}

typedef struct PositionGemmRun {
    const PositionGemm *g;
    const float *from, *w, *bias; /* bias: NULL if there is none */
    float *to, *u;
} PositionGemmRun;

static int64_t panels(const PixelSteps *to)
{
    return parts_of(to->channels, PANEL);
}

static int64_t panel_width(const PixelSteps *to, int64_t panel)
{
    return smaller(PANEL, to->channels - panel * PANEL);
}

/* The panel's taps lie behind one another, each [inputs][width]. */
static float *panel_at(const PositionGemmRun *run, int64_t panel)
{
    return run->u + panel * PANEL * run->g->taps * from_of(run->g)->channels;
}

/* One tap of a panel of one or two vectors of outputs from `first` on. */
TILE_CODE static void tap_pack(const PositionGemmRun *run, int tap, int64_t first, int64_t width, float *to)
{
    const PositionGemm *g = run->g;
    int64_t ins = from_of(g)->channels, channels = g->x.channels, filter = g->taps * channels;
    const float *w = run->w + tap * channels;
    int64_t squares = g->back ? 0 : ins / LANES * LANES;
    for (int64_t in = 0; in < squares; in += LANES)
        for (int64_t out = 0; out < width; out += LANES) {
            Vector square[LANES];
            tap_load(run->w, g->taps, channels, false, tap, in, first + out, square);
            for (int k = 0; k < LANES; k++) floats_store(to + (in + k) * width + out, square[k]);
        }
    for (int64_t in = squares; in < ins; in++) {
        if (g->back) memcpy(to + in * width, w + in * filter + first, (size_t)width * sizeof *to);
        for (int64_t out = 0; out < width && !g->back; out++) to[in * width + out] = w[(first + out) * filter + in];
    }
}

static void weights_chunk(void *context, int64_t first, int64_t end)
{
    const PositionGemmRun *run = context;
    const PositionGemm *g = run->g;
    for (int64_t unit = first; unit < end; unit++) {
        int64_t panel = unit / g->taps, width = panel_width(to_of(g), panel);
        int tap = (int)(unit % g->taps);
        tap_pack(run, tap, panel * PANEL, width, panel_at(run, panel) + tap * width * from_of(g)->channels);
    }
}

/* Tasks: blocks of images, in them panels, in them positions. */
static void position_gemm_chunk(void *context, int64_t first, int64_t end)
{
    const PositionGemmRun *run = context;
    const PositionGemm *g = run->g;
    const PixelSteps *from = from_of(g), *to = to_of(g);
    int64_t blocks = parts_of(g->images, ROWS), count = g->positions;
    for (int64_t task = first; task < end; task++) {
        int64_t at = task % count, panel = task / count % panels(to), block = task / count / panels(to);
        int64_t image = part_first(g->images, blocks, block), out = panel * PANEL, width = panel_width(to, panel);
        Tile tile = {.term = g->term + at * g->taps,
                     .terms = g->terms[at],
                     .depth = from->channels,
                     .a = (const GemmWord *)run->from + image * from->image,
                     .b = (const GemmWord *)panel_at(run, panel),
                     .a_row = from->image,
                     .start = run->bias ? run->bias + out : NULL,
                     .c = run->to + image * to->image + at / to->w * to->row + at % to->w * to->pixel + out,
                     .c_row = to->image};
        int64_t rows = part_first(g->images, blocks, block + 1) - image;
        tiles[rows - 1][width / LANES - 1](&tile);
    }
}

static Status position_gemm_run(const void *plan, Device *device, OpCall *call)
{
    const PositionGemm *g = plan;
    const Tensor *bias = g->back ? NULL : conv_optional(call, 2);
    PositionGemmRun run = {
        g, call->in[0].data, call->in[1].data, bias ? bias->data : NULL, call->out[0].data, call->workspace};
    int64_t tasks = parts_of(g->images, ROWS) * panels(to_of(g)) * g->positions;
    chunks_run(device, panels(to_of(g)) * g->taps, 1, weights_chunk, &run);
    chunks_run(device, tasks, 1, position_gemm_chunk, &run);
    return OK;
}

const ConvImpl conv_position_gemm = {.name = "products of positions, " LANES_NAME,
                                     .takes = position_gemm_take,
                                     .create = position_gemm_create,
                                     .workspace = position_gemm_workspace,
                                     .run = position_gemm_run,
                                     .destroy = position_gemm_destroy,
                                     .adds_bias = true};
#endif
