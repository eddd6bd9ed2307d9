/* Depthwise convolutions with one output for each channel, and their gradients, by own kernels; see depthwise.h.
 *
 *   CONV     y[at]  = sum over taps of x[at s + tap - pad] w[tap]
 *   CONV_DX  dx[at] = sum over taps of dy[(at + pad - tap) / s] w[tap], over the taps that s divides: in a row, the pixels
 *                     with the same rest have the same taps, so each rest is a row of a plain convolution
 *   CONV_DW  dw[tap] = sum over y of x[at s + tap - pad] dy[at]: parts of the rows are summed on their own, and the parts in order
 *
 * A sum is made by one thread, in an order that follows from the shapes alone. The weights are laid out as [tap][channel] in
 * workspace at each call, channels padded with zeros. */
#include "kernels/cpu/conv/depthwise.h"
#include "kernels/cpu/conv/conv_impl.h"

enum { PARTS = 16 /* of a weight gradient, at most */ };

typedef struct Depthwise {
    const DepthwiseCode *code;
    Window window;
    int64_t padded; /* channels */
    int64_t parts;  /* CONV_DW */
    size_t workspace_bytes;
} Depthwise;

typedef struct DepthwiseRun {
    const Depthwise *plan;
    const Tensor *x, *y, *acc; /* acc: NULL if there is none */
    const float *w, *bias;     /* [tap][padded]; NULL */
    float *dw, *sums;          /* dw as the network holds it; [part][tap][padded] */
    bool relu;
} DepthwiseRun;

static const DepthwiseCode *code_for(Dtype dtype)
{
    switch (cpu_vectors(dtype)) {
#if defined(__x86_64__)
    case CPU_AVX512: return &depthwise_avx512;
    case CPU_AVX2: return &depthwise_avx2;
#elif defined(__aarch64__)
    case CPU_NEON: return &depthwise_neon;
#endif
    default: return NULL;
    }
}

static const char *depthwise_takes(const Device *device, const ConvProblem *p)
{
    (void)device;
    bool depthwise = p->w->shape.c == 1 && p->w->shape.n == p->x->shape.c && p->groups > 1;
    if (!depthwise) return "not one window for each channel";
    if (p->window.kh > DEPTHWISE_TAPS || p->window.kw > DEPTHWISE_TAPS) return "a window above 7x7";
    if (p->x->dtype != p->y->dtype) return "tensors of two types";
    if (p->acc && p->acc->dtype != p->x->dtype) return "tensors of two types";
    return code_for(p->x->dtype) ? NULL : "no vector code for this processor and type";
}

static Status depthwise_create(Device *device, const ConvProblem *p, void **plan)
{
    (void)device;
    Depthwise *d = calloc(1, sizeof *d);
    if (!d) return FAIL(ERR_MEMORY, "no memory for the state of the convolution '%s'", p->call->name);
    d->code = code_for(p->x->dtype);
    d->window = p->window;
    d->padded = rounded_up(p->x->shape.c, DEPTHWISE_PADDED);
    d->parts = p->kind == OP_CONV_DW ? smaller(PARTS, (int64_t)p->y->shape.n * p->y->shape.h) : 1;
    d->workspace_bytes = (size_t)(d->parts * p->window.kh * p->window.kw * d->padded) * sizeof(float);
    *plan = d;
    return OK;
}

static size_t depthwise_workspace(const void *plan)
{
    return ((const Depthwise *)plan)->workspace_bytes;
}

/* [channel][tap] -> [tap][padded channel] */
static void weights_lay_out(const Depthwise *d, const Tensor *w, float *to)
{
    int64_t taps = (int64_t)w->shape.h * w->shape.w;
    const float *from = w->data;
    for (int64_t tap = 0; tap < taps; tap++)
        for (int64_t c = 0; c < d->padded; c++) to[tap * d->padded + c] = c < w->shape.n ? from[c * taps + tap] : 0;
}

static const void *row_of(const Tensor *t, int64_t image, int64_t row)
{
    return element_at(t, (image * t->shape.h + row) * t->shape.w * t->pitch);
}

/* ---- y */

static void y_rows(void *context, int64_t first, int64_t end)
{
    const DepthwiseRun *run = context;
    const Depthwise *d = run->plan;
    const Window *v = &d->window;
    Shape xs = run->x->shape, ys = run->y->shape;
    for (int64_t at = first; at < end; at++) {
        int64_t image = at / ys.h, top = at % ys.h * v->stride_h - v->pad_h;
        DepthwiseRow row = {.dtype = run->y->dtype,
                            .c = ys.c,
                            .taps = v->kw,
                            .w_step = d->padded,
                            .columns = xs.w,
                            .in_pitch = run->x->pitch,
                            .first = -v->pad_w,
                            .in_step = v->stride_w,
                            .tap_step = 1,
                            .count = ys.w,
                            .out = element_at(run->y, at * ys.w * run->y->pitch),
                            .out_step = run->y->pitch,
                            .bias = run->bias,
                            .relu = run->relu};
        for (int k = 0; k < v->kh; k++) {
            if (top + k < 0 || top + k >= xs.h) continue;
            row.in[row.rows] = row_of(run->x, image, top + k);
            row.w[row.rows++] = run->w + (int64_t)k * v->kw * d->padded;
        }
        d->code->row(&row);
    }
}

/* ---- dx */

/* The pixels of a row of dx whose column leaves the rest `phase` when divided by the stride. */
static void dx_phase(const DepthwiseRun *run, const DepthwiseRow *row, int64_t at, int phase)
{
    const Window *v = &run->plan->window;
    const Tensor *dx = run->x;
    int skipped = (phase + v->pad_w) % v->stride_w; /* the first tap that the stride divides */
    int64_t pixel = at * dx->shape.w + phase;
    DepthwiseRow own = *row;
    own.taps = skipped < v->kw ? (v->kw - skipped + v->stride_w - 1) / v->stride_w : 0;
    for (int k = 0; k < own.rows && own.taps; k++) own.w[k] += skipped * run->plan->padded;
    own.first = (phase + v->pad_w - skipped) / v->stride_w;
    own.count = (dx->shape.w - phase + v->stride_w - 1) / v->stride_w;
    own.out = element_at(dx, pixel * dx->pitch);
    own.acc = run->acc ? element_at(run->acc, pixel * run->acc->pitch) : NULL;
    run->plan->code->row(&own);
}

static void dx_rows(void *context, int64_t first, int64_t end)
{
    const DepthwiseRun *run = context;
    const Depthwise *d = run->plan;
    const Window *v = &d->window;
    Shape xs = run->x->shape, ys = run->y->shape;
    for (int64_t at = first; at < end; at++) {
        int64_t image = at / xs.h, below = at % xs.h + v->pad_h;
        DepthwiseRow row = {.dtype = run->x->dtype,
                            .c = xs.c,
                            .w_step = d->padded * v->stride_w,
                            .columns = ys.w,
                            .in_pitch = run->y->pitch,
                            .in_step = 1,
                            .tap_step = -1,
                            .out_step = run->x->pitch * v->stride_w,
                            .acc_step = run->acc ? run->acc->pitch * v->stride_w : 0};
        for (int k = (int)(below % v->stride_h); k < v->kh; k += v->stride_h) {
            int64_t from = (below - k) / v->stride_h;
            if (from < 0 || from >= ys.h || below < k) continue;
            row.in[row.rows] = row_of(run->y, image, from);
            row.w[row.rows++] = run->w + (int64_t)k * v->kw * d->padded;
        }
        for (int phase = 0; phase < v->stride_w && phase < xs.w; phase++) dx_phase(run, &row, at, phase);
    }
}

/* ---- dw */

static void dw_parts(void *context, int64_t first, int64_t end)
{
    const DepthwiseRun *run = context;
    const Depthwise *d = run->plan;
    const Window *v = &d->window;
    Shape xs = run->x->shape, ys = run->y->shape;
    int64_t rows = (int64_t)ys.n * ys.h, size = v->kh * v->kw * d->padded;
    for (int64_t part = first; part < end; part++) {
        float *sums = run->sums + part * size;
        memset(sums, 0, (size_t)size * sizeof *sums);
        for (int64_t at = rows * part / d->parts; at < rows * (part + 1) / d->parts; at++)
            for (int k = 0; k < v->kh; k++) {
                int64_t from = at % ys.h * v->stride_h - v->pad_h + k;
                if (from < 0 || from >= xs.h) continue;
                DepthwiseTaps taps = {.dtype = run->x->dtype,
                                      .c = xs.c,
                                      .taps = v->kw,
                                      .x = row_of(run->x, at / ys.h, from),
                                      .dy = element_at(run->y, at * ys.w * run->y->pitch),
                                      .columns = xs.w,
                                      .x_pitch = run->x->pitch,
                                      .dy_pitch = run->y->pitch,
                                      .first = -v->pad_w,
                                      .step = v->stride_w,
                                      .count = ys.w,
                                      .sums = sums + k * v->kw * d->padded};
                d->code->taps(&taps);
            }
    }
}

/* The sum of all parts, in order, as the network holds weights. */
static void dw_channels(void *context, int64_t first, int64_t end)
{
    const DepthwiseRun *run = context;
    const Depthwise *d = run->plan;
    int64_t taps = d->window.kh * d->window.kw;
    for (int64_t c = first; c < end; c++)
        for (int64_t tap = 0; tap < taps; tap++) {
            float sum = 0;
            for (int64_t part = 0; part < d->parts; part++) sum += run->sums[(part * taps + tap) * d->padded + c];
            run->dw[c * taps + tap] = sum;
        }
}

/* ---- the rows of the lists */

static Status depthwise_run(const void *plan, Device *device, OpCall *call)
{
    const Depthwise *d = plan;
    bool dx = call->kind == OP_CONV_DX;
    const Tensor *third = conv_optional(call, 2);
    DepthwiseRun run = {.plan = d,
                        .x = dx ? &call->out[0] : &call->in[0],
                        .y = dx ? &call->in[0] : &call->out[0],
                        .acc = dx ? third : NULL,
                        .w = call->workspace,
                        .bias = third && !dx ? third->data : NULL,
                        .relu = !dx && call->attr.conv.relu};
    weights_lay_out(d, &call->in[1], call->workspace);
    Shape to = call->out[0].shape;
    int64_t size = chunk_pixels((int64_t)to.w * to.c);
    chunks_run(device, (int64_t)to.n * to.h, size, dx ? dx_rows : y_rows, &run);
    return OK;
}

static Status depthwise_dw_run(const void *plan, Device *device, OpCall *call)
{
    enum { CHANNELS = 64 };
    const Depthwise *d = plan;
    DepthwiseRun run = {
        .plan = d, .x = &call->in[0], .y = &call->in[1], .dw = call->out[0].data, .sums = call->workspace};
    chunks_run(device, d->parts, 1, dw_parts, &run);
    chunks_run(device, run.x->shape.c, CHANNELS, dw_channels, &run);
    return OK;
}

const ConvImpl conv_depthwise = {.name = "depthwise",
                                 .takes = depthwise_takes,
                                 .create = depthwise_create,
                                 .workspace = depthwise_workspace,
                                 .run = depthwise_run,
                                 .destroy = free,
                                 .takes_groups = true,
                                 .adds_bias = true,
                                 .adds_relu = true};
const ConvImpl conv_depthwise_dw = {.name = "weight gradient, depthwise",
                                    .takes = depthwise_takes,
                                    .create = depthwise_create,
                                    .workspace = depthwise_workspace,
                                    .run = depthwise_dw_run,
                                    .destroy = free,
                                    .takes_groups = true};
