/* 3x3 convolutions of stride 1 by Winograd's F(2x2, 3x3): 16 products instead of 36.
 *
 * Lavin and Gray, arXiv:1509.09308, section 4.1. Transforms add a few f32 values with factors 1, 1/2 and 1/4; no output
 * depends on a pixel outside its window, so a window of zeros gives zero. In f32 the rounding is no coarser than that
 * of plain sums, which are nine times as long; in bf16, where transforms are rounded before the products, it is about
 * two and a half times as coarse: docs/decisions/0006-winograd.md. The gradient with respect to x is the same
 * convolution with rotated weights; winograd_dw.c computes the weight gradient. f32 needs AVX-512 or AVX2; bf16 needs
 * AVX512-BF16 and is not used if there is AMX. The transforms are in winograd_code.h.
 *
 * Weights are transformed once per call: u[panel of outputs][point][words of inputs][outputs]. Then each thread takes
 * blocks of tiles of 2x2 outputs, which are transformed to d[8 tiles][point][8][inputs], multiplied to m[8
 * tiles][point][8][outputs of a panel], one point after another so that its weights stay in the caches, and transformed
 * back. */
#include "kernels/cpu/conv/conv_impl.h"

#include "kernels/cpu/vector.h"

#if defined(__x86_64__)
#include "kernels/cpu/conv/winograd.h"

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
    return winograd_declines(x, y, FEW_CHANNELS, FEW_PIXELS);
}

Status winograd_begin(const Device *device, const ConvProblem *p, size_t bytes, const WinogradCode *avx512,
                      const WinogradCode *avx2, void **made)
{
    const Tensor *x = conv_from(p), *y = conv_to(p);
    const WinogradCode *code = winograd_code(x->dtype, avx512, avx2);
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
    chunks_run(device, plan->outputs, plan->block, plan->code->outputs, &run);
    return OK;
}

/* ---- F(2x2, 3x3) */

static Status square_create(Device *device, const ConvProblem *p, void **made)
{
    const Tensor *x = conv_from(p), *y = conv_to(p);
    const Window *v = &p->window;
    void *plan;
    TRY(winograd_begin(device, p, sizeof(Winograd), &winograd_avx512, &winograd_avx2, &plan));
    Winograd *g = plan;
    bool rotated = g->plan.rotated;
    g->x_pitch = x->pitch, g->y_pitch = y->pitch;
    g->pad_h = rotated ? 2 - v->pad_h : v->pad_h;
    g->pad_w = rotated ? 2 - v->pad_w : v->pad_w;
    g->tiles_h = (y->shape.h + 1) / 2;
    g->tiles_w = (y->shape.w + 1) / 2;
    g->plan.points = POINTS;
    g->plan.outputs = (int64_t)x->shape.n * g->tiles_h * g->tiles_w;
    g->plan.block = BLOCK;
    g->plan.per_thread_bytes = d_bytes(g) + m_bytes(g);
    return winograd_create(p, g, made);
}

const ConvImpl conv_winograd = {.name = "winograd F(2x2, 3x3)",
                                .takes = winograd_takes,
                                .create = square_create,
                                .workspace = winograd_workspace,
                                .run = winograd_run,
                                .destroy = winograd_destroy,
                                .product_share = 16.0f / 36,
                                .adds_bias = true,
                                .adds_relu = true};
#endif
