/* See weight_gradient.h. */
#include "tests/support/weight_gradient.h"

#include "tests/support/reference.h"
#include "tests/support/unit.h"

#include <stdint.h>

enum { GUARD_BYTES = 4096 };

Window gradient_window(const GradientCase *c)
{
    return (Window){c->kh, c->kw, c->stride_h, c->stride_w, c->pad_h, c->pad_w, false};
}

/* ---- tensors */

static int random_below(int limit)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)(state >> 33) % limit;
}

/* Integers from -3 to 3, or (`fine`) any value; NaN between the pixels. */
static Tensor tensor_make(Shape shape, int gap, Dtype dtype, bool fine)
{
    Tensor t = {.shape = shape, .dtype = dtype, .pitch = shape.c + gap};
    int64_t count = shape_pixels(shape) * t.pitch;
    t.data = malloc((size_t)count * dtype_bytes(dtype));
    assert_non_null(t.data);
    memset(t.data, 0xFF, (size_t)count * dtype_bytes(dtype));
    for (int64_t i = 0; i < count; i++)
        if (i % t.pitch < shape.c)
            dtype_store(dtype, t.data, i, fine ? random_below(65536) / 32768.0 - 1.0 : random_below(7) - 3);
    return t;
}

static Tensor x_make(const GradientCase *c, Dtype dtype, bool fine)
{
    return tensor_make((Shape){c->n, c->ic, c->h, c->w}, c->x_gap, dtype, fine);
}

static Tensor dy_make(const GradientCase *c, Dtype dtype, bool fine)
{
    Window window = gradient_window(c);
    return tensor_make(window_out(&window, (Shape){c->n, c->ic, c->h, c->w}, c->oc), c->y_gap, dtype, fine);
}

static size_t dw_count(const GradientCase *c)
{
    return (size_t)c->oc * (size_t)(c->kh * c->kw) * (size_t)c->ic;
}

/* ---- plain loops */

/* All channels as doubles, packed. */
static double *doubles_of(const Tensor *t)
{
    int64_t channels = t->shape.c, count = shape_count(t->shape);
    double *values = malloc((size_t)count * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < count; i++)
        values[i] = dtype_load(t->dtype, t->data, i / channels * t->pitch + i % channels);
    return values;
}

static void pixel_add(const GradientCase *c, const double *x, const double *dy, double *dw)
{
    for (int o = 0; o < c->oc; o++)
        for (int i = 0; i < c->ic; i++) dw[(size_t)(o * c->kh * c->kw * c->ic + i)] += dy[o] * x[i];
}

static void loops_run(const GradientCase *c, const double *x, const double *dy, Shape out, double *dw)
{
    for (int64_t n = 0; n < c->n; n++)
        for (int oh = 0; oh < out.h; oh++)
            for (int ow = 0; ow < out.w; ow++)
                for (int tap = 0; tap < c->kh * c->kw; tap++) {
                    int h = oh * c->stride_h + tap / c->kw - c->pad_h, w = ow * c->stride_w + tap % c->kw - c->pad_w;
                    if (h < 0 || w < 0 || h >= c->h || w >= c->w) continue;
                    pixel_add(c, x + ((n * c->h + h) * c->w + w) * c->ic, dy + ((n * out.h + oh) * out.w + ow) * c->oc,
                              dw + tap * c->ic);
                }
}

static double *dw_wanted(const GradientCase *c, const Tensor *x, const Tensor *dy)
{
    double *dw = calloc(dw_count(c), sizeof *dw), *from = doubles_of(x), *to = doubles_of(dy);
    assert_non_null(dw);
    loops_run(c, from, to, dy->shape, dw);
    free(from);
    free(to);
    return dw;
}

/* ---- the kernel */

static unsigned char *guarded(size_t bytes)
{
    unsigned char *memory = aligned_alloc(64, (bytes + GUARD_BYTES + 63) / 64 * 64);
    assert_non_null(memory);
    memset(memory, 0xFF, bytes + GUARD_BYTES);
    return memory;
}

static void check_guard(const GradientCase *c, const unsigned char *memory, size_t bytes)
{
    for (size_t i = bytes; i < bytes + GUARD_BYTES; i++)
        if (memory[i] != 0xFF) fail_msg("%s: wrote %zu bytes behind its %zu", c->name, i - bytes, bytes);
}

ConvProblem gradient_problem(const Tensor *x, const Tensor *dy, const Window *window)
{
    static const OpCall call = {.kind = OP_CONV_DW, .name = "a weight gradient"};
    return (ConvProblem){.kind = OP_CONV_DW, .call = &call, .x = x, .y = dy, .window = *window, .groups = 1};
}

/* Output and workspace start as NaN, with bytes behind them that must stay. */
static float *dw_run(const GradientKernel *kernel, const GradientCase *c, const Tensor *x, const Tensor *dy,
                     int threads)
{
    Window window = gradient_window(c);
    Device device = {.config = {DEVICE_USUAL, .winograd = true, .threads = threads}};
    ConvProblem problem = gradient_problem(x, dy, &window);
    const ConvImpl *impl = kernel->impl;
    OpCall call = {.kind = OP_CONV_DW, .name = c->name, .in_count = 2, .out_count = 1, .in = {*x, *dy}};
    const char *declines = impl->takes(&device, &problem);
    if (declines) fail_msg("%s declines %s: %s", kernel->name, c->name, declines);
    void *plan;
    if (impl->create(&device, &problem, &plan) != OK) fail_msg("%s", status_message());
    size_t bytes = impl->workspace(plan), dw_bytes = dw_count(c) * sizeof(float);
    unsigned char *workspace = guarded(bytes), *dw = guarded(dw_bytes);
    assert_int_equal(bytes % 64, 0);
    call.workspace = workspace;
    call.out[0].data = dw;
    if (impl->run(plan, &device, &call) != OK) fail_msg("%s", status_message());
    check_guard(c, workspace, bytes);
    check_guard(c, dw, dw_bytes);
    impl->destroy(plan);
    free(workspace);
    return (float *)(void *)dw;
}

void gradient_check(const GradientKernel *kernel, const GradientCase *c)
{
    Tensor x = x_make(c, kernel->dtype, false), dy = dy_make(c, kernel->dtype, false);
    double *wanted = dw_wanted(c, &x, &dy);
    float *dw = dw_run(kernel, c, &x, &dy, kernel->threads);
    for (size_t i = 0; i < dw_count(c); i++)
        if ((double)dw[i] != wanted[i])
            fail_msg("%s, %s: output %zu, tap %zu, input %zu is %g, wanted %g", kernel->name, c->name,
                     i / (size_t)(c->ic * c->kh * c->kw), i / (size_t)c->ic % (size_t)(c->kh * c->kw),
                     i % (size_t)c->ic, (double)dw[i], wanted[i]);
    free(wanted);
    free(dw);
    free(x.data);
    free(dy.data);
}

void gradient_check_threads(const GradientKernel *kernel, const GradientCase *c)
{
    Tensor x = x_make(c, kernel->dtype, true), dy = dy_make(c, kernel->dtype, true);
    float *one = dw_run(kernel, c, &x, &dy, 1);
    for (int threads = 2; threads <= 5; threads++) {
        float *more = dw_run(kernel, c, &x, &dy, threads);
        if (memcmp(one, more, dw_count(c) * sizeof *one) != 0)
            fail_msg("%s, %s: %d threads make other bits than one", kernel->name, c->name, threads);
        free(more);
    }
    free(one);
    free(x.data);
    free(dy.data);
}

double gradient_error(const GradientKernel *kernel, const GradientCase *c)
{
    Tensor x = x_make(c, kernel->dtype, true), dy = dy_make(c, kernel->dtype, true);
    double *wanted = dw_wanted(c, &x, &dy), off = 0, all = 0;
    float *dw = dw_run(kernel, c, &x, &dy, kernel->threads);
    for (size_t i = 0; i < dw_count(c); i++) {
        off += ((double)dw[i] - wanted[i]) * ((double)dw[i] - wanted[i]);
        all += wanted[i] * wanted[i];
    }
    free(wanted);
    free(dw);
    free(x.data);
    free(dy.data);
    return sqrt(off / all);
}
