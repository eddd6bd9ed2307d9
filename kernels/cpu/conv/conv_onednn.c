/* Convolutions by oneDNN; see conv_onednn.h.
 *
 * Candidates, best first, by measurement: a matrix product if the window is one pixel or covers the whole image; for
 * dx of stride 1 a forward convolution with rotated weights; the convolution on packed NHWC, which is as fast as
 * oneDNN's own layouts; the convolution in the layout that oneDNN chooses; the same in f32. Slices are packed into
 * workspace, except by products, which read them in place. The sum dx + acc is part of the task, or one more pass. Weight
 * gradients are cut into slices by shape alone (choice.h). */
#include "kernels/cpu/conv/conv_onednn.h"

#include "kernels/base/text.h"
#include "kernels/cpu/vector.h"

typedef struct Candidate Candidate;
typedef Status Offer(OnednnChoice *choice, Device *device, const ConvProblem *p, const Candidate *candidate, bool sum);

struct Candidate {
    const char *name;
    bool (*fits)(const ConvProblem *problem);
    Offer *offer;
    OnednnFit fit; /* of x and y, to offer_convolution */
    bool f32;      /* likewise: it computes in f32 whatever the tensors are */
    bool sums;     /* acc may be part of the task */
    bool rotates;  /* the task reads rotated weights */
};

/* ---- offers */

static Dtype native(const ConvProblem *p)
{
    return p->x->dtype == p->y->dtype ? p->x->dtype : DTYPE_F32;
}

static OnednnView view_of(const Tensor *t)
{
    Shape s = t->shape;
    OnednnView view = {.rank = 4, .dims = {s.n, s.c, s.h, s.w}, .dtype = t->dtype};
    view.strides[0] = (int64_t)s.h * s.w * t->pitch;
    view.strides[1] = 1;
    view.strides[2] = s.w * t->pitch;
    view.strides[3] = t->pitch;
    return view;
}

static OnednnView weights_view(const ConvProblem *p)
{
    OnednnView w = view_of(p->w), grouped = {.rank = 5, .dtype = w.dtype};
    if (p->groups == 1) return w;
    memcpy(grouped.dims + 1, w.dims, 4 * sizeof w.dims[0]);
    memcpy(grouped.strides + 1, w.strides, 4 * sizeof w.strides[0]);
    grouped.dims[0] = p->groups;
    grouped.dims[1] /= p->groups;
    grouped.strides[0] = grouped.dims[1] * grouped.strides[1];
    return grouped;
}

/* With outputs and inputs exchanged, within each group. */
static OnednnView weights_exchanged(const ConvProblem *p)
{
    OnednnView w = weights_view(p), exchanged = w;
    int out = w.rank - 4, in = out + 1;
    exchanged.dims[out] = w.dims[in], exchanged.strides[out] = w.strides[in];
    exchanged.dims[in] = w.dims[out], exchanged.strides[in] = w.strides[out];
    return exchanged;
}

static bool window_is_image(const ConvProblem *p)
{
    const Window *v = &p->window;
    return v->kh == p->x->shape.h && v->kw == p->x->shape.w && !window_is_padded(v) && tensor_is_packed(p->x);
}

static Status offer_product(OnednnChoice *choice, Device *device, const ConvProblem *p, const Candidate *c, bool sum)
{
    (void)c;
    static const OnednnProductKind kinds[OP_COUNT] = {
        [OP_CONV] = PRODUCT_Y, [OP_CONV_DX] = PRODUCT_DX, [OP_CONV_DW] = PRODUCT_DW};
    int64_t ins = shape_count(p->w->shape) / p->w->shape.n;
    OnednnProduct product = {.kind = kinds[p->kind],
                             .rows = shape_pixels(p->y->shape),
                             .ins = ins,
                             .outs = p->w->shape.n,
                             .x_pitch = window_is_point(&p->window) ? p->x->pitch : ins,
                             .y_pitch = p->y->pitch,
                             .x = p->x->dtype,
                             .y = p->y->dtype,
                             .bias = p->bias != NULL,
                             .relu = p->relu,
                             .keeps_w = p->keeps_w,
                             .sum = sum};
    return choice_offer_product(choice, device, &product);
}

/* The gradient by a convolution of stride 1 is a convolution of stride 1 with the weights rotated by 180 degrees and the
 * roles of their channels exchanged; oneDNN's forward code is the better tuned: 1.4 times as fast for 80 input channels
 * in f32, equal elsewhere. Not for the few channels of an image, where it is slower. */
static bool window_rotates(const ConvProblem *p)
{
    const Window *v = &p->window;
    int32_t span_h = window_span(v->kh, v->dilate_h), span_w = window_span(v->kw, v->dilate_w);
    bool inside =
        v->pad_h < span_h && v->pad_w < span_w && v->pad_h + v->more_h < span_h && v->pad_w + v->more_w < span_w;
    return p->kind == OP_CONV_DX && v->stride_h == 1 && v->stride_w == 1 && inside && p->x->shape.c >= FEW_CHANNELS;
}

static Status offer_rotated(OnednnChoice *choice, Device *device, const ConvProblem *p, const Candidate *c, bool sum)
{
    (void)c;
    static const int8_t operand[ONEDNN_ROLES] = {0, 1, FROM_OUT, FROM_NOTHING};
    const Window *v = &p->window;
    OnednnSpec spec = {.kind = ONEDNN_CONV, .window = *v, .sum = sum};
    spec.window.pad_h = window_span(v->kh, v->dilate_h) - 1 - v->pad_h;
    spec.window.pad_w = window_span(v->kw, v->dilate_w) - 1 - v->pad_w;
    spec.window.more_h = -v->more_h, spec.window.more_w = -v->more_w;
    spec.held[ONEDNN_X] = view_of(p->y);
    spec.held[ONEDNN_Y] = view_of(p->x);
    spec.held[ONEDNN_W] = weights_exchanged(p);
    spec.fit[ONEDNN_X] = spec.fit[ONEDNN_Y] = ONEDNN_PACKED;
    spec.fit[ONEDNN_W] = ONEDNN_ANY;
    for (int role = 0; role < ONEDNN_BIAS; role++) spec.compute[role] = native(p);
    return choice_offer(choice, device, &spec, operand);
}

static Status offer_convolution(OnednnChoice *choice, Device *device, const ConvProblem *p, const Candidate *c,
                                bool sum)
{
    (void)sum;
    static const OnednnKind kinds[OP_COUNT] = {
        [OP_CONV] = ONEDNN_CONV, [OP_CONV_DX] = ONEDNN_CONV_DX, [OP_CONV_DW] = ONEDNN_CONV_DW};
    static const int8_t operand[][ONEDNN_ROLES] = {[ONEDNN_CONV] = {0, 1, FROM_OUT, 2},
                                                   [ONEDNN_CONV_DX] = {FROM_OUT, 1, 0, FROM_NOTHING},
                                                   [ONEDNN_CONV_DW] = {0, FROM_OUT, 1, FROM_NOTHING}};
    OnednnKind kind = kinds[p->kind];
    Dtype dtype = c->f32 ? DTYPE_F32 : native(p);
    OnednnSpec spec = {.kind = kind, .window = p->window, .relu = p->relu, .keeps_w = p->keeps_w};
    spec.held[ONEDNN_X] = view_of(p->x);
    spec.held[ONEDNN_W] = weights_view(p);
    spec.held[ONEDNN_Y] = view_of(p->y);
    if (p->bias)
        spec.held[ONEDNN_BIAS] = (OnednnView){.rank = 1, .dims = {p->y->shape.c}, .strides = {1}, .dtype = DTYPE_F32};
    spec.fit[ONEDNN_X] = spec.fit[ONEDNN_Y] = c->fit;
    spec.fit[ONEDNN_W] = ONEDNN_ANY;
    spec.compute[ONEDNN_X] = spec.compute[ONEDNN_Y] = dtype;
    spec.compute[ONEDNN_W] = p->kind == OP_CONV_DW ? DTYPE_F32 : dtype;
    spec.compute[ONEDNN_BIAS] = DTYPE_F32;
    return choice_offer(choice, device, &spec, operand[kind]);
}

/* ---- candidates */

/* Packed 1x1 weight gradients are up to twice as fast as convolutions. */
static bool fits_product(const ConvProblem *p)
{
    bool point = window_is_point(&p->window) && (p->kind != OP_CONV_DW || !p->packed);
    return p->groups == 1 && (point || window_is_image(p));
}

static bool fits_rotated(const ConvProblem *p)
{
    return window_rotates(p) && !fits_product(p);
}

/* Weight gradients of a column in f32: NHWC costs 1.4 times as much there, more than the conversions. */
static bool fits_column(const ConvProblem *p)
{
    return p->kind == OP_CONV_DW && p->window.kw == 1 && p->window.kh > 1 && native(p) == DTYPE_F32;
}

/* If windows leave pixels between them, oneDNN 2.6.3 with AMX sometimes computes a wrong result in bf16. */
static bool fits_native(const ConvProblem *p)
{
    const Window *v = &p->window;
    bool leaps = (v->stride_h > v->kh || v->stride_w > v->kw) && (v->kh > 1 || v->kw > 1);
    return !(leaps && native(p) == DTYPE_BF16 && cpu_isa() >= CPU_AMX);
}

static bool fits_16_bits(const ConvProblem *p)
{
    return native(p) != DTYPE_F32;
}

static const Candidate candidates[ONEDNN_CANDIDATES] = {
    {"product", fits_product, offer_product, .sums = true},
    {"rotated weights", fits_rotated, offer_rotated, .sums = true, .rotates = true},
    {"own layout", fits_column, offer_convolution, ONEDNN_ANY},
    {"packed NHWC", fits_native, offer_convolution, ONEDNN_PACKED},
    {"own layout", fits_native, offer_convolution, ONEDNN_ANY},
    {"packed NHWC in f32", fits_16_bits, offer_convolution, ONEDNN_PACKED, .f32 = true},
    {"own layout in f32", fits_16_bits, offer_convolution, ONEDNN_ANY, .f32 = true},
};

/* Offers a candidate, with the sum of acc in the task if it can be there, else without. */
static Status candidate_offer(OnednnConv *conv, Device *device, const ConvProblem *p, const Candidate *c)
{
    OnednnChoice *choice = &conv->choice;
    if (c->sums && p->acc) {
        TRY(c->offer(choice, device, p, c, true));
        conv->sums = choice->task != NULL;
        if (!conv->sums) choice_free(choice); /* a reference that sums must not pass for one that does not */
    }
    TRY(c->offer(choice, device, p, c, false));
    conv->rotates = choice->task && c->rotates;
    if (!choice->task && c->rotates) choice_free(choice); /* nor one that reads rotated weights */
    return OK;
}

Status onednn_conv_choose(OnednnConv *conv, Device *device, const ConvProblem *p)
{
    OnednnChoice *choice = &conv->choice;
    for (int k = 0; k < ONEDNN_CANDIDATES && !choice->task; k++) {
        const bool wrong = choice->wrong;
        const OnednnParts *reference = choice->reference;
        if (!candidates[k].fits(p)) continue;
        choice->wrong = false;
        TRY(candidate_offer(conv, device, p, &candidates[k]));
        if (choice->task || choice->reference != reference) conv->taken = k;
        conv->declined[k] = choice->wrong                    ? "oneDNN computes it wrongly"
                            : choice->reference != reference ? "oneDNN has only slow reference code"
                                                             : "oneDNN has no code";
        choice->wrong |= wrong;
    }
    return choice_settle(choice, device, p->call);
}

void onednn_conv_explain(const OnednnConv *conv, KernelChoice *choice)
{
    for (int k = 0; k < conv->taken; k++)
        if (conv->declined[k]) kernel_choice_pass(choice, candidates[k].name, conv->declined[k]);
    snprintf(choice->name, sizeof choice->name, "oneDNN, %s (%s)", candidates[conv->taken].name,
             choice_impl(&conv->choice));
    if (conv->choice.slices.batch) {
        Text name = text_behind(choice->name, sizeof choice->name);
        text_add(&name, " in %d parts", conv->choice.slices.images * conv->choice.slices.outs);
    }
}

/* ---- the row of the list */

typedef struct OnednnConvState {
    OnednnConv conv;
    bool adds;             /* acc is added afterwards to dx in workspace */
    size_t result_offset;  /* of that dx */
    size_t rotated_offset; /* of the rotated weights */
    size_t workspace_bytes;
} OnednnConvState;

static const char *onednn_takes(const Device *device, const ConvProblem *p)
{
    (void)device, (void)p;
    return NULL;
}

static void onednn_conv_destroy(void *plan)
{
    OnednnConvState *state = plan;
    choice_free(&state->conv.choice);
    free(state);
}

/* A slice of images costs one more pass over dw; a slice of outputs reads x once more and copies its part of dy. So a small
 * dw is cut by images and a large one by outputs. The limits are measured over Inception v3. */
static OnednnSlices slices_of(const ConvProblem *p)
{
    enum { SMALL_DW = 32 << 10, LARGE_DW = 160 << 10, MANY = 8, FEW = 4, VECTOR = 16 }; /* elements; slices */
    int64_t count = shape_count(p->w->shape), vectors = (p->y->shape.c + VECTOR - 1) / VECTOR;
    int parts = count <= SMALL_DW ? MANY : FEW;
    OnednnSlices slices = {.batch = p->x->shape.n, .outs = 1};
    slices.images = count <= LARGE_DW ? (int)smaller(parts, p->x->shape.n) : 1;
    if (p->groups == 1) slices.outs = (int)smaller(parts / slices.images, vectors);
    return slices;
}

/* oneDNN 3.7 adds up the gradient with respect to an image in an order that depends on the number of threads, so one
 * thread computes it. Workspace: the task's own, dx before acc is added, rotated weights. */
static Status onednn_conv_create(Device *device, const ConvProblem *p, void **plan)
{
    Status st = OK;
    OnednnConvState *state = calloc(1, sizeof *state);
    if (!state) return FAIL(ERR_MEMORY, "no memory for the state of the convolution '%s'", p->call->name);
    state->conv.choice.one_thread = p->kind == OP_CONV_DX && p->x->shape.c < FEW_CHANNELS;
    if (p->kind == OP_CONV_DW) state->conv.choice.slices = slices_of(p);
    TRY_OUT(onednn_conv_choose(&state->conv, device, p));
    state->adds = p->acc && !state->conv.sums;
    size_t dx_bytes = (size_t)(shape_pixels(p->x->shape) * p->x->pitch) * dtype_bytes(p->x->dtype);
    size_t w_bytes = (size_t)shape_count(p->w->shape) * sizeof(float);
    state->result_offset = choice_workspace_bytes(&state->conv.choice);
    state->rotated_offset = state->result_offset + (state->adds ? align_up(dx_bytes, CPU_ALIGNMENT) : 0);
    state->workspace_bytes = state->rotated_offset + (state->conv.rotates ? w_bytes : 0);
    *plan = state;
    state = NULL;
out:
    if (state) onednn_conv_destroy(state);
    return st;
}

static size_t onednn_conv_workspace(const void *plan)
{
    return ((const OnednnConvState *)plan)->workspace_bytes;
}

CPU_CLONES static void add_f32(float *to, const float *a, const float *b, int64_t count)
{
    for (int64_t i = 0; i < count; i++) to[i] = a[i] + b[i];
}

CPU_CLONES void add_bf16(uint16_t *to, const uint16_t *a, const uint16_t *b, int64_t count)
{
    for (int64_t i = 0; i < count; i++) to[i] = bf16_from_f32(bf16_to_f32(a[i]) + bf16_to_f32(b[i]));
}

/* Contiguous pixels of both tensors: rows of an image if they are packed, pixels otherwise. */
static int64_t contiguous_pixels(const Tensor *a, const Tensor *b)
{
    return tensor_is_packed(a) && tensor_is_packed(b) ? a->shape.w : 1;
}

/* `a` has the pitch of `to`. */
static void add_pixels(const Tensor *to, const void *a, const Tensor *b)
{
    int64_t step = contiguous_pixels(to, b), count = step * to->shape.c, pixels = shape_pixels(to->shape);
#pragma omp parallel for schedule(static)
    for (int64_t p = 0; p < pixels; p += step) {
        int64_t at = p * to->pitch, from = p * b->pitch;
        if (to->dtype == DTYPE_F32)
            add_f32((float *)to->data + at, (const float *)a + at, (const float *)b->data + from, count);
        else
            add_bf16((uint16_t *)to->data + at, (const uint16_t *)a + at, (const uint16_t *)b->data + from, count);
    }
}

static void copy_pixels(const Tensor *to, const Tensor *from)
{
    int64_t step = contiguous_pixels(to, from), pixels = shape_pixels(to->shape);
    size_t item = dtype_bytes(to->dtype), bytes = (size_t)(step * to->shape.c) * item;
#pragma omp parallel for schedule(static)
    for (int64_t p = 0; p < pixels; p += step)
        memcpy((char *)to->data + (size_t)(p * to->pitch) * item,
               (const char *)from->data + (size_t)(p * from->pitch) * item, bytes);
}

/* Reverses the order of the window's taps. The task's view of the result exchanges the channels. */
static void rotate_weights(const Tensor *w, float *rotated)
{
    int64_t taps = (int64_t)w->shape.h * w->shape.w, channels = w->shape.c;
#pragma omp parallel for schedule(static)
    for (int32_t n = 0; n < w->shape.n; n++)
        for (int64_t k = 0; k < taps; k++)
            memcpy(rotated + (n * taps + taps - 1 - k) * channels, (const float *)w->data + (n * taps + k) * channels,
                   (size_t)channels * sizeof(float));
}

static Status onednn_conv_run(const void *plan, Device *device, OpCall *call)
{
    const OnednnConvState *state = plan;
    OpCall bound = *call;
    const Tensor *out = &call->out[0], *acc = &call->in[2];
    void *result = state->adds ? (char *)call->workspace + state->result_offset : out->data;
    if (state->conv.rotates) {
        bound.in[1].data = (char *)call->workspace + state->rotated_offset;
        rotate_weights(&call->in[1], bound.in[1].data);
    }
    if (state->conv.sums && acc->data != out->data) copy_pixels(out, acc);
    TRY(choice_run(&state->conv.choice, device, &bound, result));
    if (state->adds) add_pixels(out, result, acc);
    return OK;
}

static void explain(const void *plan, KernelChoice *choice)
{
    onednn_conv_explain(&((const OnednnConvState *)plan)->conv, choice);
}

const ConvImpl conv_onednn = {.name = "oneDNN",
                              .takes = onednn_takes,
                              .create = onednn_conv_create,
                              .workspace = onednn_conv_workspace,
                              .run = onednn_conv_run,
                              .destroy = onednn_conv_destroy,
                              .explain = explain,
                              .takes_groups = true,
                              .takes_dilation = true,
                              .adds_bias = true,
                              .adds_relu = true};
