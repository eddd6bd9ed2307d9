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

static size_t u_bytes(const Winograd *g)
{
    return (size_t)POINTS * (size_t)g->x.c * (size_t)g->y.c * dtype_bytes(g->dtype);
}

static void winograd_destroy(void *made)
{
    Winograd *g = made;
    free(g->zeros);
    free(g->kept);
    free(g);
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
    const WinogradCode *code = winograd_code(x->dtype, &winograd_avx512, &winograd_avx2);
    *g = (Winograd){.code = code,
                    .dtype = x->dtype,
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
                    .panels = panels_of(code->lanes, y->shape.c),
                    .zeros = zeros};
    Status st = kept_create(p, u_bytes(g), &g->kept);
    if (st == OK)
        *made = g;
    else
        winograd_destroy(g);
    return st;
}

/* ---- sizes */

static size_t winograd_workspace(const void *made)
{
    const Winograd *g = made;
    return (g->kept ? 0 : u_bytes(g)) + (size_t)g->threads * per_thread_bytes(g);
}

/* ---- the whole */

static Status winograd_run(const void *made, Device *device, OpCall *call)
{
    const Winograd *g = made;
    WinogradRun run = {.g = g,
                       .finish = finish_of(call),
                       .x = call->in[0].data,
                       .w = call->in[1].data,
                       .y = call->out[0].data,
                       .u = g->kept ? g->kept : call->workspace};
    run.per_thread = (char *)call->workspace + (g->kept ? 0 : u_bytes(g));
    if (g->rotated) run.acc = conv_optional(call, 2);
    if (!g->kept || call->renewed)
        chunks_run(device, (int64_t)(g->x.c / g->code->lanes) * (g->y.c / g->code->lanes), 4, g->code->weights, &run);
    chunks_run(device, (int64_t)g->x.n * g->tiles_h * g->tiles_w, BLOCK, g->code->outputs, &run);
    return OK;
}

const ConvImpl conv_winograd = {.name = "winograd F(2x2, 3x3)",
                                .takes = winograd_takes,
                                .create = winograd_create,
                                .workspace = winograd_workspace,
                                .run = winograd_run,
                                .destroy = winograd_destroy,
                                .product_share = 16.0f / 36,
                                .adds_bias = true,
                                .adds_relu = true};
#endif
