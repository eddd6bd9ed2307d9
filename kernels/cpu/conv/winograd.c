/* Convolutions of stride 1 by Winograd's algorithms of squares: 3x3 ones by F(2x2, 3x3), 16 products instead of 36, or
 * by F(4x4, 3x3), 36 instead of 144; 5x5 ones by F(2x2, 5x5), 36 instead of 100.
 *
 * Lavin and Gray, arXiv:1509.09308, section 4.1. The transforms of F(2x2, 3x3) add a few f32 values with factors 1, 1/2
 * and 1/4; no output depends on a pixel outside its window, so a window of zeros gives zero. In f32 the rounding is no
 * coarser than that of plain sums, which are nine times as long; in bf16, where transforms are rounded before the
 * products, it is about two and a half times as coarse. The others have six points and round up to four times as
 * coarsely as plain sums, so they are for f32 alone and for networks that ask for them:
 * docs/decisions/0006-winograd.md. The gradient with respect to x is the same convolution with rotated weights;
 * winograd_dw.c computes the weight gradient. f32 needs AVX-512 or AVX2; bf16 needs AVX512-BF16 and is not used if
 * there is AMX. The transforms are in winograd_code.h.
 *
 * Weights are transformed once per call: u[panel of outputs][point][words of inputs][outputs]. Then each thread takes
 * blocks of tiles, which are transformed to d[8 tiles][point][8][inputs], multiplied to m[8 tiles][point][8][outputs of
 * a panel], one point after another so that its weights stay in the caches, and transformed back. */
#include "kernels/cpu/conv/conv_impl.h"

#include "kernels/cpu/vector.h"

#if defined(__x86_64__)
#include "kernels/cpu/conv/winograd.h"
#include "kernels/cpu/conv/winograd_squares.h"

Status winograd_begin(const Device *device, const ConvProblem *p, size_t bytes, const WinogradCode *avx512,
                      const WinogradCode *avx2, void **made)
{
    const Tensor *x = conv_from(p), *y = conv_to(p);
    const WinogradCode *code = winograd_code(x, y, avx512, avx2);
    WinogradPlan *plan = calloc(1, bytes);
    void *zeros = calloc((size_t)x->shape.c, dtype_bytes(x->dtype));
    if (!plan || !zeros) {
        free(plan);
        free(zeros);
        return FAIL(ERR_MEMORY, "no memory for the Winograd convolution '%s'", p->call->name);
    }
    *plan = (WinogradPlan){.code = code,
                           .dtype = x->dtype,
                           .x = x->shape,
                           .y = y->shape,
                           .rotated = p->kind == OP_CONV_DX,
                           .threads = cpu_threads(device),
                           .panels = panels_of(code->lanes, y->shape.c),
                           .zeros = zeros};
    *made = plan;
    return OK;
}

void winograd_destroy(void *made)
{
    WinogradPlan *plan = made;
    free(plan->zeros);
    free(plan->kept);
    free(plan);
}

static size_t u_bytes(const WinogradPlan *plan)
{
    return (size_t)plan->points * (size_t)plan->x.c * (size_t)plan->y.c * dtype_bytes(plan->dtype);
}

Status winograd_create(const ConvProblem *p, void *begun, void **made)
{
    WinogradPlan *plan = begun;
    if (p->keeps_w) plan->kept = aligned_alloc(64, align_up(u_bytes(plan), 64));
    if (p->keeps_w && !plan->kept) {
        winograd_destroy(plan);
        return FAIL(ERR_MEMORY, "no memory for the transformed weights of '%s'", p->call->name);
    }
    *made = plan;
    return OK;
}

size_t winograd_workspace(const void *made)
{
    const WinogradPlan *plan = made;
    return (plan->kept ? 0 : u_bytes(plan)) + (size_t)plan->threads * plan->per_thread_bytes;
}

Status winograd_run(const void *made, Device *device, OpCall *call)
{
    const WinogradPlan *plan = made;
    WinogradRun run = {.plan = plan,
                       .finish = finish_of(call),
                       .x = call->in[0].data,
                       .w = call->in[1].data,
                       .y = call->out[0].data,
                       .u = plan->kept ? plan->kept : call->workspace};
    run.per_thread = (char *)call->workspace + (plan->kept ? 0 : u_bytes(plan));
    if (plan->rotated) run.acc = conv_optional(call, 2);
    int lanes = plan->code->lanes;
    if (!plan->kept || call->renewed)
        chunks_run(device, (int64_t)(plan->x.c / lanes) * (plan->y.c / lanes), 4, plan->code->weights, &run);
    chunks_share(device, plan->outputs, plan->block, plan->code->outputs, &run);
    return OK;
}

/* ---- the algorithms */

static int64_t tiles_of(const Tensor *y, int out)
{
    return y->shape.n * squares_tiles(y->shape, out);
}

static Status squares_create(Device *device, const ConvProblem *p, WinogradSquares squares, void **made)
{
    static const WinogradCode *const avx512[] = {&winograd_2x2_avx512, &winograd_4x4_avx512, &winograd_5x5_avx512};
    static const WinogradCode *const avx2[] = {&winograd_2x2_avx2, &winograd_4x4_avx2, &winograd_5x5_avx2};
    const Tensor *x = conv_from(p), *y = conv_to(p);
    const Window *v = &p->window;
    const SquaresSize *size = &squares_sizes[squares];
    void *plan;
    TRY(winograd_begin(device, p, sizeof(Winograd), avx512[squares], avx2[squares], &plan));
    Winograd *g = plan;
    bool rotated = g->plan.rotated;
    g->x_pitch = x->pitch, g->y_pitch = y->pitch;
    g->pad_h = rotated ? size->taps - 1 - v->pad_h : v->pad_h;
    g->pad_w = rotated ? size->taps - 1 - v->pad_w : v->pad_w;
    g->tiles_h = (y->shape.h + size->out - 1) / size->out;
    g->tiles_w = (y->shape.w + size->out - 1) / size->out;
    g->plan.points = size->side * size->side;
    g->plan.outputs = tiles_of(y, size->out);
    g->plan.block = BLOCK;
    g->plan.per_thread_bytes = d_bytes(g) + m_bytes(g);
    return winograd_create(p, g, made);
}

enum { FEW_PIXELS = 256 };

static const char *takes_BY_2X2(const Device *device, const ConvProblem *p)
{
    enum { FEW_CHANNELS = 32, SHORT = 6 };
    const Tensor *x = conv_from(p), *y = conv_to(p);
    const char *declines = squares_decline(device, p, BY_2X2);
    if (!declines) declines = winograd_declines(x, y, FEW_CHANNELS, FEW_PIXELS);
    if (declines) return declines;
    bool small = y->dtype == DTYPE_F32 && smaller(y->shape.h, y->shape.w) < SHORT;
    return small ? "image is small: plain sums skip the padding" : NULL;
}

/* Weights are transformed to four times as many, or 36 for 25. */
static const char *takes_six_points(const Device *device, const ConvProblem *p, WinogradSquares squares)
{
    enum { FEW_CHANNELS = 16, FEW_TILES = 128, FEW_TILES_KEPT = 64 };
    const char *declines = squares_decline(device, p, squares);
    if (!declines) declines = winograd_declines(conv_from(p), conv_to(p), FEW_CHANNELS, FEW_PIXELS);
    if (declines) return declines;
    int few = p->keeps_w ? FEW_TILES_KEPT : FEW_TILES;
    return tiles_of(conv_to(p), squares_sizes[squares].out) < few ? "too few tiles for so many weights" : NULL;
}

static const char *takes_BY_4X4(const Device *device, const ConvProblem *p)
{
    return takes_six_points(device, p, BY_4X4);
}

static const char *takes_BY_5X5(const Device *device, const ConvProblem *p)
{
    return takes_six_points(device, p, BY_5X5);
}

/* The row of an algorithm in the list, with what creates it. */
#define SQUARES_ROW(row, algorithm, title, share)                                                                      \
    static Status create_##algorithm(Device *device, const ConvProblem *p, void **made)                                \
    {                                                                                                                  \
        return squares_create(device, p, algorithm, made);                                                             \
    }                                                                                                                  \
    const ConvImpl row = {.name = "winograd " title,                                                                   \
                          .takes = takes_##algorithm,                                                                  \
                          .create = create_##algorithm,                                                                \
                          .workspace = winograd_workspace,                                                             \
                          .run = winograd_run,                                                                         \
                          .destroy = winograd_destroy,                                                                 \
                          .product_share = share,                                                                      \
                          .adds_bias = true,                                                                           \
                          .adds_relu = true}
SQUARES_ROW(conv_winograd, BY_2X2, "F(2x2, 3x3)", 16.0f / 36);
SQUARES_ROW(conv_winograd_4x4, BY_4X4, "F(4x4, 3x3)", 36.0f / 144);
SQUARES_ROW(conv_winograd_5x5, BY_5X5, "F(2x2, 5x5)", 36.0f / 100);
#endif
