/* 1x1 convolutions of stride 1 whose weights are kept and whose outputs are channels of a concat: pixels times panels
 * of weights.
 *
 * oneDNN's fast products write packed rows; into a slice only those of an older kind do, which are slow for few
 * channels. Tiles of one pixel and one point go through the code of Winograd's algorithms (winograd.c), whose panels of
 * weights are made once. Training seldom has such convolutions: siblings are fused, and weights change. */
#include "kernels/cpu/conv/conv_impl.h"

#include "kernels/cpu/vector.h"

#if defined(__x86_64__)
#include "kernels/cpu/conv/winograd.h"

static const char *panels_take(const Device *device, const ConvProblem *p)
{
    enum { FEW_CHANNELS = 16, MANY_CHANNELS = 512, FEW_PIXELS = 256 };
    const Window *v = &p->window;
    (void)device;
    if (v->kh != 1 || v->kw != 1 || v->stride_h != 1 || v->stride_w != 1 || v->pad_h || v->pad_w)
        return "window is not one pixel of stride 1";
    if (p->kind != OP_CONV || !p->keeps_w) return "weights are not kept";
    if (tensor_is_packed(p->y)) return "outputs are packed";
    if (p->x->dtype != DTYPE_F32) return "types are not f32";
    if (p->x->shape.c > MANY_CHANNELS) return "sums are long: oneDNN's are as fast";
    return winograd_declines(p->x, p->y, FEW_CHANNELS, FEW_PIXELS);
}

static Status panels_create(Device *device, const ConvProblem *p, void **made)
{
    void *plan;
    TRY(winograd_begin(device, p, sizeof(Winograd), &winograd_1x1_avx512, &winograd_1x1_avx2, &plan));
    Winograd *g = plan;
    int pixels = (int)shape_pixels(p->y->shape);
    g->plan.x = (Shape){1, p->x->shape.c, 1, pixels}, g->plan.y = (Shape){1, p->y->shape.c, 1, pixels};
    g->x_pitch = p->x->pitch, g->y_pitch = p->y->pitch;
    g->plan.points = 1;
    g->plan.outputs = pixels;
    g->plan.block = BLOCK;
    g->plan.per_thread_bytes = d_bytes(g) + m_bytes(g);
    return winograd_create(p, g, made);
}

const ConvImpl conv_panels = {.name = "product of panels",
                              .takes = panels_take,
                              .create = panels_create,
                              .workspace = winograd_workspace,
                              .run = winograd_run,
                              .destroy = winograd_destroy,
                              .product_share = 1,
                              .adds_bias = true,
                              .adds_relu = true};
#endif
