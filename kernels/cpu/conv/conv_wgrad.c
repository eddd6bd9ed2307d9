/* Weight gradients as packed products: which convolutions they take, and on which processors. */
#include "kernels/cpu/conv/wgrad.h"

#ifdef CPU_HAS_LANES
/* With fewer channels, panels are mostly padding; with fewer pixels, reading and writing dw is what takes the time. */
static const char *size_declines(const ConvProblem *p)
{
    enum { FEW_CHANNELS = WGRAD_LANES, FEW_PIXELS = 128 };
    if (p->x->shape.c < FEW_CHANNELS || p->y->shape.c < FEW_CHANNELS / 2) return "too few channels";
    return shape_pixels(p->y->shape) < FEW_PIXELS ? "too few pixels" : NULL;
}

const WgradCode *wgrad_for_f32(void)
{
#if defined(__x86_64__)
    if (cpu_isa() >= CPU_AVX512) return &wgrad_f32_avx512;
    return cpu_isa() >= CPU_AVX2 ? &wgrad_f32_avx2 : NULL;
#else
    return &wgrad_f32_neon;
#endif
}

/* Why oneDNN computes this about as fast; NULL if it does not. A panel of one vector has too few products for its loads,
 * and short rows too few for storing their sums. */
static const char *f32_declines(const ConvProblem *p)
{
    enum { SIDE = 5, STRIDE = 2, SHORT = 8, FEW_INPUTS = 2 * WGRAD_LANES };
    const Window *v = &p->window;
    bool large = v->kh == SIDE && v->kw == SIDE && v->stride_h == STRIDE && v->stride_w == STRIDE;
    bool one_row = v->kh == 1 && v->kw == 1;
    if (!large && cpu_isa() >= CPU_AVX512) return "window is not 5x5 of stride 2";
    if (!large && !one_row && p->y->shape.w < SHORT) return "rows are short";
    if (size_declines(p)) return size_declines(p);
    return p->x->shape.c < FEW_INPUTS ? "too few channels" : NULL;
}

static const char *f32_takes(const Device *device, const ConvProblem *p)
{
    (void)device;
    if (p->x->dtype != DTYPE_F32 || p->y->dtype != DTYPE_F32) return "types are not f32";
    if (f32_declines(p)) return f32_declines(p);
    return wgrad_for_f32() ? NULL : "processor has no AVX-512, AVX2 or NEON";
}

static Status f32_create(Device *device, const ConvProblem *p, void **plan)
{
    return wgrad_create(wgrad_for_f32(), p, cpu_threads(device), plan);
}

const ConvImpl conv_wgrad_f32 = {.name = "packed products, f32",
                                 .takes = f32_takes,
                                 .create = f32_create,
                                 .workspace = wgrad_workspace,
                                 .run = wgrad_run,
                                 .destroy = wgrad_destroy};
#endif

#if defined(__x86_64__)
/* ---- pairs of bf16 */

const char *wgrad_declines(const ConvProblem *p)
{
    if (p->x->dtype != DTYPE_BF16 || p->y->dtype != DTYPE_BF16) return "types are not bf16";
    if (p->x->shape.n < 2) return "a single image cannot be paired";
    return size_declines(p);
}

static const char *amx_takes(const Device *device, const ConvProblem *p)
{
    (void)device;
    if (wgrad_declines(p)) return wgrad_declines(p);
    return cpu_isa() >= CPU_AMX && wgrad_amx_multiplies() ? NULL : "processor has no AMX";
}

static const char *avx512_takes(const Device *device, const ConvProblem *p)
{
    (void)device;
    if (wgrad_declines(p)) return wgrad_declines(p);
    return cpu_isa() >= CPU_AVX512_BF16 ? NULL : "processor has no AVX512-BF16";
}

static Status amx_create(Device *device, const ConvProblem *p, void **plan)
{
    return wgrad_create(&wgrad_amx, p, cpu_threads(device), plan);
}

static Status avx512_create(Device *device, const ConvProblem *p, void **plan)
{
    return wgrad_create(&wgrad_avx512, p, cpu_threads(device), plan);
}

const ConvImpl conv_wgrad_amx = {.name = "packed products, AMX",
                                 .takes = amx_takes,
                                 .create = amx_create,
                                 .workspace = wgrad_workspace,
                                 .run = wgrad_run,
                                 .destroy = wgrad_destroy};
const ConvImpl conv_wgrad_avx512 = {.name = "packed products, AVX512-BF16",
                                    .takes = avx512_takes,
                                    .create = avx512_create,
                                    .workspace = wgrad_workspace,
                                    .run = wgrad_run,
                                    .destroy = wgrad_destroy};
#endif
