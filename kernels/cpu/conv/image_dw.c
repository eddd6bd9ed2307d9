/* Weight gradients of the convolution of an image, which has few channels, on processors with AVX2 and without AVX-512, or with
 * NEON.
 *
 * oneDNN's code for AVX2 fills its vectors with the channels of x, of which an image has 1 or 3. Here a vector holds
 * channels of dy, and nine terms (a tap of the window and a channel of x; all of a 3 x 3 window over a gray image) are
 * summed at once in registers: for each pixel one load of dy and nine of x for nine products.
 *
 * The images are cut into parts by their number alone, each summed row by row by one thread; the parts are added in
 * order. */
#include "kernels/cpu/conv/conv_impl.h"

#ifdef CPU_HAS_LANES
#if defined(__x86_64__)
#include "kernels/cpu/conv/lanes_avx2.h"
#else
#include "kernels/cpu/conv/lanes_neon.h"
#endif

#include "kernels/cpu/conv/gemm_tile.h"
#include "kernels/cpu/span.h"

enum { IMAGE_CHANNELS_MAX = 4, TERMS = 9, TERMS_MAX = 256, SHORT = 8, PARTS_MIN = 8, PARTS_MAX = 64 };

typedef struct ImageDw {
    Window window;
    Shape x, y;                   /* x: padded */
    int32_t terms, groups, parts; /* groups: of nine terms, the last one filled up */
    int threads;
    bool pads;
    size_t sums_floats, padded_floats; /* of a part; of a thread */
} ImageDw;

static const char *image_dw_takes(const Device *device, const ConvProblem *p)
{
    (void)device;
    if (cpu_isa() >= CPU_AVX512) return "processor has AVX-512";
    if (cpu_isa() == CPU_PLAIN) return "processor has no AVX2 or NEON";
    if (p->x->shape.c > IMAGE_CHANNELS_MAX) return "more than 4 channels";
    if (p->x->dtype != DTYPE_F32 || p->y->dtype != DTYPE_F32) return "types are not f32";
    if (p->y->shape.c % LANES) return "outputs do not fill vectors";
    if (p->x->shape.n < PARTS_MIN) return "too few images for many threads";
    if (p->y->shape.w < SHORT || p->window.kh * p->window.kw * p->x->shape.c > TERMS_MAX)
        return "rows are short, or the window is large";
    return tensor_is_packed(p->x) ? NULL : "x is a slice";
}

static Status image_dw_create(Device *device, const ConvProblem *p, void **plan)
{
    const Window *v = &p->window;
    ImageDw *state = calloc(1, sizeof *state);
    if (!state) return FAIL(ERR_MEMORY, "no memory for the state of the convolution '%s'", p->call->name);
    state->window = *v;
    state->x = p->x->shape, state->y = p->y->shape;
    state->pads = window_is_padded(v);
    state->x.h += 2 * v->pad_h + v->more_h, state->x.w += 2 * v->pad_w + v->more_w;
    state->terms = v->kh * v->kw * p->x->shape.c;
    state->groups = (state->terms + TERMS - 1) / TERMS;
    state->parts = (int32_t)smaller(PARTS_MAX, p->x->shape.n);
    state->threads = cpu_threads(device);
    state->sums_floats = (size_t)state->groups * TERMS * (size_t)p->y->shape.c;
    state->padded_floats = state->pads ? align_up((size_t)(shape_count(state->x) / state->x.n), 16) : 0;
    *plan = state;
    return OK;
}

static size_t image_dw_workspace(const void *plan)
{
    const ImageDw *state = plan;
    size_t sums = (size_t)state->parts * state->sums_floats, padded = (size_t)state->threads * state->padded_floats;
    return (sums + padded) * sizeof(float);
}

/* One image, with zeros around it. */
static void image_pad(const ImageDw *state, const float *image, float *padded)
{
    const Window *v = &state->window;
    int64_t row = (int64_t)state->x.w * state->x.c, inner = row - (2 * v->pad_w + v->more_w) * (int64_t)state->x.c;
    memset(padded, 0, state->padded_floats * sizeof *padded);
    for (int32_t h = 0; h < state->x.h - 2 * v->pad_h - v->more_h; h++)
        memcpy(padded + (h + v->pad_h) * row + v->pad_w * state->x.c, image + h * inner,
               (size_t)inner * sizeof *padded);
}

/* sums += nine terms of the pixels of a row of dy, for a vector of its channels; x: of each term, its first position. */
TILE_CODE static void row_multiply(const GemmWord *const *x, int64_t x_step, const float *dy, int64_t dy_step,
                                   int64_t pixels, float *sums)
{
    GemmSums sum;
    gemm_begin(TERMS, 1, NULL, sum);
    for (int64_t i = 0, at = 0; i < pixels; i++, at += x_step, dy += dy_step)
        gemm_step(DTYPE_F32, TERMS, 1, x, 1, 0, at, (const GemmWord *)dy, sum);
    gemm_store(TERMS, 1, sum, sums, LANES, true);
}

/* sums: [vectors of channels][groups][TERMS][LANES] */
static void image_multiply(const ImageDw *state, const float *image, const float *dy, int64_t dy_pitch, float *sums)
{
    const Window *v = &state->window;
    int32_t across = v->kw * state->x.c; /* terms of a row of the window, side by side in x */
    int64_t x_row = (int64_t)state->x.w * state->x.c, x_step = (int64_t)v->stride_w * state->x.c;
    for (int32_t h = 0; h < state->y.h; h++) {
        const float *x = image + h * v->stride_h * x_row, *row = dy + h * state->y.w * dy_pitch;
        for (int32_t group = 0; group < state->groups; group++) {
            const GemmWord *first[TERMS];
            for (int t = 0; t < TERMS; t++) {
                int32_t term = (int32_t)smaller(group * TERMS + t, state->terms - 1);
                first[t] = (const GemmWord *)x + term / across * x_row + term % across;
            }
            for (int32_t c = 0; c < state->y.c; c += LANES)
                row_multiply(first, x_step, row + c, dy_pitch, state->y.w,
                             sums + ((int64_t)(c / LANES) * state->groups + group) * TERMS * LANES);
        }
    }
}

typedef struct ImageDwRun {
    const ImageDw *state;
    const OpCall *call;
} ImageDwRun;

static float *part_sums(const ImageDwRun *run, int64_t part)
{
    return (float *)run->call->workspace + (size_t)part * run->state->sums_floats;
}

static void parts_chunk(void *context, int64_t first, int64_t end)
{
    const ImageDwRun *run = context;
    const ImageDw *state = run->state;
    const Tensor *x = &run->call->in[0], *dy = &run->call->in[1];
    int64_t pixels = shape_count(x->shape) / x->shape.n, sent = (int64_t)state->y.h * state->y.w * dy->pitch;
    float *padded = part_sums(run, state->parts) + (size_t)team_member() * state->padded_floats; /* behind all sums */
    for (int64_t part = first; part < end; part++) {
        float *sums = part_sums(run, part);
        memset(sums, 0, state->sums_floats * sizeof *sums);
        for (int64_t n = x->shape.n * part / state->parts; n < x->shape.n * (part + 1) / state->parts; n++) {
            const float *image = (const float *)x->data + n * pixels;
            if (state->pads) image_pad(state, image, padded);
            image_multiply(state, state->pads ? padded : image, (const float *)dy->data + n * sent, dy->pitch, sums);
        }
    }
}

static Status image_dw_run(const void *plan, Device *device, OpCall *call)
{
    const ImageDw *state = plan;
    ImageDwRun run = {state, call};
    float *dw = call->out[0].data, *sums = part_sums(&run, 0);
    chunks_run(device, state->parts, 1, parts_chunk, &run);
    for (int32_t part = 1; part < state->parts; part++)
        row_add(sums, part_sums(&run, part), (int64_t)state->sums_floats);
    for (int32_t k = 0; k < state->y.c; k++)
        for (int32_t term = 0; term < state->terms; term++)
            dw[k * state->terms + term] =
                sums[((int64_t)(k / LANES) * state->groups * TERMS + term) * LANES + k % LANES];
    return OK;
}

const ConvImpl conv_image_dw = {.name = "vectors of outputs, " LANES_NAME,
                                .takes = image_dw_takes,
                                .create = image_dw_create,
                                .workspace = image_dw_workspace,
                                .run = image_dw_run,
                                .destroy = free};
#endif
