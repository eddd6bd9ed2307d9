/* Convolutions of stride 1 by Winograd's algorithms, and their gradients with respect to x: 3x3 ones by F(2x2, 3x3), 16
 * products instead of 36, or by F(4x4, 3x3), 36 instead of 144; 5x5 ones by F(2x2, 5x5), 36 instead of 100; 1x7 and 7x1 ones by
 * F(4, 7), 14 instead of 28. So are products of single pixels, without a transform, where weights are kept.
 *
 * Lavin and Gray, arXiv:1509.09308, section 4.1. The transforms of F(2x2, 3x3) add a few f32 values with factors 1, 1/2
 * and 1/4; no output depends on a pixel outside its window, so a window of zeros gives zero. In f32 the rounding is no
 * coarser than that of plain sums, which are nine times as long; in bf16, where transforms are rounded before the
 * products, it is about two and a half times as coarse. F(4, 7) is F(2, 3) nested in itself with a stride of 2: output
 * 2i + j sums taps 2k + l, i and j < 2, k and l < 3, which has two positions for taps 2 and 4; with the right ones empty two of
 * the 16 products vanish:
 *     h0 h1 .          d = B' x B of x[2r + s], r and s < 4
 *     h2 h3 h4         u = G h G'
 *     .  h5 h6         y = A' (u d) A
 * The others have six points and round up to four times as coarsely as plain sums, so they are for f32 alone and for networks
 * that ask for them: docs/decisions/0006-winograd.md. The gradient with respect to x is the same convolution with rotated
 * weights; winograd_dw.c computes the weight gradient. f32 needs AVX-512, AVX2 or NEON; bf16 needs AVX512-BF16 and is not
 * used if there is AMX.
 *
 * Weights are transformed once per call, to u. Then each thread takes blocks of tiles, or of lines of 1-D tiles, which are
 * transformed to d, multiplied to m, one point after another so that its weights stay in the caches, and transformed back:
 * winograd_kernel.h. README.md draws u, d and m. */
#include "kernels/cpu/conv/winograd.h"

/* ---- which problems the algorithms are for */

/* Pairs of an output and a tap along one dimension, with stride 1, whose pixel lies inside the image. */
static int64_t pairs_inside(int x, int y, int taps, int pad)
{
    int64_t pairs = 0;
    for (int k = 0; k < taps; k++) pairs += larger(0, smaller(y, x + pad - k) - larger(0, pad - k));
    return pairs;
}

/* Algorithms of six points are for networks that ask for them, in f32, where they save enough products. */
static const char *alpha_six_decline(const Device *device, const ConvProblem *p, WinogradAlgorithm a)
{
    enum { OF_2X2 = 87, OF_PLAIN = 60 }; /* % of the products of F(2x2, 3x3), and of plain sums, at most */
    const Shape x = p->x->shape, y = p->y->shape, *to = p->kind == OP_CONV_DX ? &x : &y;
    const Window *v = &p->window;
    int64_t products = 100 * winograd_points(a) * winograd_tiles(*to, winograd_m(a));
    int64_t plain = pairs_inside(x.h, y.h, v->kh, v->pad_h) * pairs_inside(x.w, y.w, v->kw, v->pad_w);
    if (!device->config.winograd) return "off without --winograd";
    if (p->x->dtype != DTYPE_F32 || p->y->dtype != DTYPE_F32) return "types are not f32";
    if (products > OF_PLAIN * plain) return "plain sums skip the padding";
    if (a == F4_3 && products > OF_2X2 * winograd_points(F2_3) * winograd_tiles(*to, winograd_m(F2_3)))
        return "tiles of 2x2 fit the image better";
    return NULL;
}

static const char *window_declines(const Window *v, WinogradAlgorithm a)
{
    int taps = a == F4_7 ? F4_7_TAPS : winograd_r(a);
    bool slides = v->stride_h == 1 && v->stride_w == 1 && v->pad_h < v->kh && v->pad_w < v->kw;
    bool row = v->kh == 1 && v->kw == taps && !v->more_h; /* as many lines of outputs as of pixels */
    bool column = v->kh == taps && v->kw == 1 && !v->more_w;
    if (a == F4_7) return slides && (row || column) ? NULL : "window is not 1x7 or 7x1 of stride 1";
    if (slides && v->kh == taps && v->kw == taps) return NULL;
    return taps == 3 ? "window is not 3x3 of stride 1" : "window is not 5x5 of stride 1";
}

/* Why settings forbid our own algorithms. */
static const char *settings_decline(const Device *device, const ConvProblem *p)
{
    bool bf16 = p->x->dtype == DTYPE_BF16;
    if (bf16 && !device->config.winograd_bf16) return "off (--no-winograd-bf16)";
    if (!bf16 && !device->config.winograd_f32) return "off (--no-winograd-f32)";
    if (p->y->dtype != DTYPE_F32 && (p->bias || p->relu))
        return "oneDNN adds bias and ReLU before it rounds to 16 bits";
    return NULL;
}

const char *winograd_declines(const Device *device, const ConvProblem *p, WinogradAlgorithm a)
{
    if (window_declines(&p->window, a)) return window_declines(&p->window, a);
    if (settings_decline(device, p)) return settings_decline(device, p);
    return winograd_alpha(a) == ALPHA_MOST ? alpha_six_decline(device, p, a) : NULL;
}

LineTiles line_tiles(int pixels, int outputs, int pad)
{
    int last = outputs - 1;
    bool tail = last % F4_7_OUTPUTS == 0;
    int first = (int)smaller(F4_7_TAPS, larger(0, pad - last));
    return (LineTiles){.count = tail ? last / F4_7_OUTPUTS : last / F4_7_OUTPUTS + 1,
                       .tail = tail,
                       .tail_first = first,
                       .tail_end = (int)larger(first, smaller(F4_7_TAPS, pixels - last + pad))};
}

#ifdef CPU_HAS_LANES
static bool multiples_of(int count, const Tensor *x, const Tensor *y)
{
    return x->shape.c % count == 0 && y->shape.c % count == 0;
}

const char *winograd_tensors_decline(const Tensor *x, const Tensor *y, int lanes, int few)
{
    enum { FEW_PIXELS = 256 };
    bool f32 = x->dtype == DTYPE_F32;
    if (x->dtype != y->dtype || (!f32 && x->dtype != DTYPE_BF16)) return "types are not f32 or bf16";
    if (f32 && cpu_isa() == CPU_PLAIN) return "processor has no AVX-512, AVX2 or NEON";
    if (!f32 && cpu_isa() < CPU_AVX512_BF16) return "processor has no AVX512-BF16";
    if (!f32 && cpu_isa() >= CPU_AMX) return "plain products by AMX are faster";
    if (!multiples_of(lanes, x, y))
        return lanes == 8 ? "channels are not multiples of 8" : "channels are not multiples of 16";
    if (x->shape.c < few || y->shape.c < few) return "too few channels";
    return shape_pixels(y->shape) < FEW_PIXELS ? "too few pixels" : NULL;
}

static const char *tensors_decline(const Tensor *x, const Tensor *y, int few)
{
    return winograd_tensors_decline(x, y, x->dtype == DTYPE_BF16 ? 16 : 8, few);
}

static int64_t all_tiles(const ConvProblem *p, WinogradAlgorithm a)
{
    const Shape y = conv_to(p)->shape;
    return y.n * winograd_tiles(y, winograd_m(a));
}

static const char *f2_3_takes(const Device *device, const ConvProblem *p)
{
    enum { FEW_CHANNELS = 32, SHORT = 6 };
    const Tensor *x = conv_from(p), *y = conv_to(p);
    const char *declines = winograd_declines(device, p, F2_3);
    if (!declines) declines = tensors_decline(x, y, FEW_CHANNELS);
    if (declines) return declines;
    bool small = y->dtype == DTYPE_F32 && smaller(y->shape.h, y->shape.w) < SHORT;
    return small ? "image is small: plain sums skip the padding" : NULL;
}

/* Weights are transformed to four times as many, or 36 for 25. */
static const char *alpha_six_take(const Device *device, const ConvProblem *p, WinogradAlgorithm a)
{
    enum { FEW_CHANNELS = 16, FEW_TILES = 128, FEW_TILES_KEPT = 64 };
    const char *declines = winograd_declines(device, p, a);
    if (!declines) declines = tensors_decline(conv_from(p), conv_to(p), FEW_CHANNELS);
    if (declines) return declines;
    return all_tiles(p, a) < (p->keeps_w ? FEW_TILES_KEPT : FEW_TILES) ? "too few tiles for so many weights" : NULL;
}

static const char *f4_3_takes(const Device *device, const ConvProblem *p)
{
    return alpha_six_take(device, p, F4_3);
}

static const char *f2_5_takes(const Device *device, const ConvProblem *p)
{
    return alpha_six_take(device, p, F2_5);
}

static const char *f4_7_takes(const Device *device, const ConvProblem *p)
{
    enum { FEW_CHANNELS = 32, SHORT = 8 };
    const Tensor *x = conv_from(p), *y = conv_to(p);
    const char *declines = winograd_declines(device, p, F4_7);
    if (declines) return declines;
    if (x->dtype == DTYPE_F32 && (p->window.kh == 1 ? y->shape.w : y->shape.h) < SHORT)
        return "lines are short: plain sums skip the padding";
    return tensors_decline(x, y, FEW_CHANNELS);
}

/* 1x1 convolutions whose weights are kept and whose outputs are channels of a concat. oneDNN's fast products write packed
 * rows; into a slice only those of an older kind do, which are slow for few channels. Training seldom has such convolutions:
 * siblings are fused, and weights change. */
static const char *pointwise_takes(const Device *device, const ConvProblem *p)
{
    enum { FEW_CHANNELS = 16, MANY_CHANNELS = 512 };
    (void)device;
    if (!window_is_point(&p->window)) return "window is not one pixel of stride 1";
    if (p->kind != OP_CONV || !p->keeps_w) return "weights are not kept";
    if (tensor_is_packed(p->y)) return "outputs are packed";
    if (p->x->dtype != DTYPE_F32) return "types are not f32";
    if (p->x->shape.c > MANY_CHANNELS) return "sums are long: oneDNN's are as fast";
    return tensors_decline(p->x, p->y, FEW_CHANNELS);
}

/* ---- plans */

/* bf16 has code for AVX-512 alone. Channels that are no multiple of its 16 lanes are computed with the 8 of AVX2, which every
 * processor with AVX-512 has. */
static const WinogradCode *code_for(const Tensor *x, const Tensor *y, WinogradAlgorithm a)
{
#if defined(__x86_64__)
    bool wide = x->dtype == DTYPE_BF16 || (cpu_isa() >= CPU_AVX512 && multiples_of(16, x, y));
    return wide ? &winograd_avx512[a] : &winograd_avx2[a];
#else
    (void)x, (void)y;
    return &winograd_neon[a];
#endif
}

/* The memory of a thread: `tiles` and `tails` of a block. */
static void memory_plan(WinogradPlan *g, int64_t tiles, int64_t tails)
{
    size_t element = dtype_bytes(g->dtype), points = (size_t)(tiles * winograd_points(g->algorithm));
    g->d_bytes = points * (size_t)g->x.c * element;
    g->tail_bytes = (size_t)(tails * tail_taps(&g->line)) * (size_t)g->x.c * element;
    g->m_bytes = points * (size_t)(PANEL_VECTORS * g->code->lanes) * sizeof(float);
}

static void tiles_plan(const ConvProblem *p, WinogradPlan *g)
{
    enum { BLOCK = 16 };
    const Window *v = &p->window;
    int m = winograd_m(g->algorithm), r = winograd_r(g->algorithm);
    g->pad_h = g->rotated ? r - 1 - v->pad_h : v->pad_h;
    g->pad_w = g->rotated ? r - 1 - v->pad_w : v->pad_w;
    g->tiles_h = (g->y.h + m - 1) / m;
    g->tiles_w = (g->y.w + m - 1) / m;
    g->outputs = all_tiles(p, g->algorithm);
    g->block = BLOCK;
    memory_plan(g, BLOCK, 0);
}

/* A whole number of groups; a block of last outputs alone has no tiles, but needs room for their sums. */
static void lines_plan(const ConvProblem *p, WinogradPlan *g)
{
    enum { BLOCK_TILES = 32 };
    int pad = p->window.pad_h + p->window.pad_w;
    g->down = p->window.kh > 1;
    g->from = lines_of(g->x, g->x_pitch, g->down);
    g->to = lines_of(g->y, g->y_pitch, g->down);
    g->pad = g->rotated ? F4_7_TAPS - 1 - pad : pad;
    g->line = line_tiles(g->from.length, g->to.length, g->pad);
    g->points += tail_taps(&g->line);
    g->outputs = g->y.n * g->to.across;
    g->block = smaller(GROUP, larger(1, BLOCK_TILES / larger(1, g->line.count)));
    memory_plan(g, rounded_up(larger(1, g->block * g->line.count), GROUP), GROUP);
}

static size_t u_bytes(const WinogradPlan *g)
{
    return (size_t)g->points * (size_t)g->x.c * (size_t)g->y.c * dtype_bytes(g->dtype);
}

static void winograd_destroy(void *plan)
{
    WinogradPlan *g = plan;
    if (!g) return;
    free(g->zeros);
    free(g->kept);
    free(g);
}

static Shape pixels_in_line(Shape s)
{
    return (Shape){1, s.c, 1, (int)shape_pixels(s)};
}

static Status winograd_create(const Device *device, const ConvProblem *p, WinogradAlgorithm a, void **plan)
{
    const Tensor *x = conv_from(p), *y = conv_to(p);
    WinogradPlan *g = calloc(1, sizeof *g);
    if (!g) return FAIL(ERR_MEMORY, "no memory for the Winograd convolution '%s'", p->call->name);
    *g = (WinogradPlan){.algorithm = a,
                        .code = code_for(x, y, a),
                        .dtype = x->dtype,
                        .x = x->shape,
                        .y = y->shape,
                        .x_pitch = x->pitch,
                        .y_pitch = y->pitch,
                        .rotated = p->kind == OP_CONV_DX,
                        .points = winograd_points(a),
                        .threads = cpu_threads(device)};
    if (a == POINTWISE) g->x = pixels_in_line(g->x), g->y = pixels_in_line(g->y);
    g->panels = panels_of(g->code->lanes, g->y.c);
    (a == F4_7 ? lines_plan : tiles_plan)(p, g);
    g->zeros = calloc((size_t)g->x.c, dtype_bytes(g->dtype));
    if (p->keeps_w) g->kept = aligned_alloc(CPU_ALIGNMENT, align_up(u_bytes(g), CPU_ALIGNMENT));
    if (!g->zeros || (p->keeps_w && !g->kept)) {
        winograd_destroy(g);
        return FAIL(ERR_MEMORY, "no memory for the Winograd convolution '%s'", p->call->name);
    }
    *plan = g;
    return OK;
}

static size_t winograd_workspace(const void *plan)
{
    const WinogradPlan *g = plan;
    return (g->kept ? 0 : u_bytes(g)) + (size_t)g->threads * winograd_thread_bytes(g);
}

/* ---- runs */

static Finish finish_of(const OpCall *call)
{
    const Tensor *bias = call->kind == OP_CONV ? conv_optional(call, 2) : NULL;
    return (Finish){bias ? bias->data : NULL, call->kind == OP_CONV && call->attr.conv.relu};
}

static Status winograd_run(const void *plan, Device *device, OpCall *call)
{
    const WinogradPlan *g = plan;
    WinogradRun run = {.plan = g,
                       .finish = finish_of(call),
                       .x = call->in[0].data,
                       .w = call->in[1].data,
                       .y = call->out[0].data,
                       .u = g->kept ? g->kept : call->workspace};
    run.per_thread = (char *)call->workspace + (g->kept ? 0 : u_bytes(g));
    if (g->rotated) run.acc = conv_optional(call, 2);
    int lanes = g->code->lanes;
    if (!g->kept || call->renewed)
        chunks_run(device, (int64_t)(g->x.c / lanes) * (g->y.c / lanes), 4, g->code->weights, &run);
    chunks_share(device, g->outputs, g->block, g->code->outputs, &run);
    return OK;
}

/* ---- the rows of the list */

#define WINOGRAD_ROW(row, algorithm, prefix, title, share)                                                             \
    static Status prefix##_create(Device *device, const ConvProblem *p, void **plan)                                   \
    {                                                                                                                  \
        return winograd_create(device, p, algorithm, plan);                                                            \
    }                                                                                                                  \
    const ConvImpl row = {.name = title,                                                                               \
                          .takes = prefix##_takes,                                                                     \
                          .create = prefix##_create,                                                                   \
                          .workspace = winograd_workspace,                                                             \
                          .run = winograd_run,                                                                         \
                          .destroy = winograd_destroy,                                                                 \
                          .product_share = share,                                                                      \
                          .adds_bias = true,                                                                           \
                          .adds_relu = true}
WINOGRAD_ROW(conv_winograd_f2_3, F2_3, f2_3, "winograd F(2x2, 3x3)", 16.0f / 36);
WINOGRAD_ROW(conv_winograd_f4_3, F4_3, f4_3, "winograd F(4x4, 3x3)", 36.0f / 144);
WINOGRAD_ROW(conv_winograd_f2_5, F2_5, f2_5, "winograd F(2x2, 5x5)", 36.0f / 100);
WINOGRAD_ROW(conv_winograd_f4_7, F4_7, f4_7, "winograd F(4, 7)", 14.0f / 28);
WINOGRAD_ROW(conv_pointwise, POINTWISE, pointwise, "product of panels", 1);
#endif
