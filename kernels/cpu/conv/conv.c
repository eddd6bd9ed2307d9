/* CONV, CONV_DX, CONV_DW over oneDNN.
 *
 * Candidates, best first, by measurement: a matrix product where the window is one pixel or covers the whole image; for
 * dx of stride 1 a forward convolution with turned weights; the convolution on packed NHWC, which is as fast as
 * oneDNN's own layouts; the convolution in whatever layout oneDNN likes; the same in f32. Slices are packed into
 * workspace, except by products, which take them as they are. The sum dx + acc is part of the task, or one
 * more pass. */
#include "kernels/cpu/choice.h"
#include "kernels/cpu/conv/wgrad.h"
#include "kernels/cpu/conv/winograd.h"
#include "kernels/cpu/conv/winograd_dw.h"
#include "kernels/cpu/conv/winograd_line.h"
#include "kernels/cpu/conv/winograd_line_dw.h"

#include "kernels/cpu/vector.h"

#include <stdlib.h>

/* A weight gradient by oneDNN, cut into parts by shape alone: `images` slices of the batch times `outs` slices of the
 * outputs. oneDNN would deal the sum to as many threads as there are, and round differently for every number of them.
 * Here each part is a task that oneDNN has made for one thread. The sums of image slices are added in order. */
typedef struct DwSlices {
    int images, outs;
    Choice *choice;    /* [images][outs] */
    size_t part_bytes; /* of workspace, for one thread */
    size_t sums_bytes; /* of one slice's dw; slice 0 writes to dw itself */
} DwSlices;

enum { IMAGE_CHANNELS = 16 }; /* fewer inputs are those of an image, whose gradient no training asks for */

typedef struct ConvState {
    Wgrad *wgrad;       /* owned: our own kernel, in place of a task */
    Winograd *winograd; /* owned: likewise */
    WinogradLine *winograd_line;
    WinogradDw *winograd_dw;
    WinogradLineDw *winograd_line_dw;
    DwSlices *dw_slices;
    Choice choice;
    bool sums;            /* the task adds to what dx holds */
    bool adds;            /* acc is added afterwards to dx in workspace */
    bool turns;           /* the task is a forward convolution with turned weights */
    size_t result_offset; /* of that dx */
    size_t turned_offset; /* of those weights */
} ConvState;

/* The three tensors of a convolution, whichever of them the call computes. */
typedef struct Operands {
    OnednnKind kind;
    const Tensor *x, *w, *y, *bias, *acc; /* the last two may be NULL */
    Window window;
    bool relu;
    bool part_of_packed; /* slices of packed tensors */
} Operands;

static const Tensor *optional(const OpCall *call, int k)
{
    return k < call->in_count && call->in[k].data ? &call->in[k] : NULL;
}

static Operands operands_of(const OpCall *call)
{
    const Tensor *in = call->in, *out = call->out;
    Operands o = {.window = call->attr.conv.window};
    switch (call->kind) {
    case OP_CONV_DX:
        o.kind = ONEDNN_CONV_DX, o.x = &out[0], o.w = &in[1], o.y = &in[0], o.acc = optional(call, 2);
        break;
    case OP_CONV_DW: o.kind = ONEDNN_CONV_DW, o.x = &in[0], o.w = &out[0], o.y = &in[1]; break;
    default:
        o.kind = ONEDNN_CONV, o.x = &in[0], o.w = &in[1], o.y = &out[0], o.bias = optional(call, 2);
        o.relu = call->attr.conv.relu;
    }
    return o;
}

static Status conv_check(const OpCall *call, const Operands *o)
{
    const Window *v = &o->window;
    Shape x = o->x->shape;
    Shape w = {o->y->shape.c, x.c, v->kh, v->kw};
    Shape y = {x.n, o->w->shape.n, window_out(x.h, v->kh, v->stride_h, v->pad_h, v->ceil),
               window_out(x.w, v->kw, v->stride_w, v->pad_w, v->ceil)};
    if (!shape_equal(o->w->shape, w) || !shape_equal(o->y->shape, y))
        return FAIL(ERR_SHAPE,
                    "'%s' (%s): x %s, w %s and y %s do not fit a %dx%d window of stride %dx%d, padding %dx%d",
                    call->name, op_name(call->kind), shape_text(x), shape_text(o->w->shape), shape_text(o->y->shape),
                    v->kh, v->kw, v->stride_h, v->stride_w, v->pad_h, v->pad_w);
    if (o->w->dtype != DTYPE_F32 || !tensor_is_packed(o->w))
        return FAIL(ERR_UNSUPPORTED, "'%s' (%s): weights are %s with pitch %lld, only packed f32 is supported",
                    call->name, op_name(call->kind), dtype_name(o->w->dtype), (long long)o->w->pitch);
    if (o->bias && (o->bias->dtype != DTYPE_F32 || shape_count(o->bias->shape) != y.c))
        return FAIL(ERR_SHAPE, "'%s' (conv): the bias is %s %s, expected f32 1x%dx1x1", call->name,
                    dtype_name(o->bias->dtype), shape_text(o->bias->shape), y.c);
    if (o->acc && (o->acc->dtype != o->x->dtype || !shape_equal(o->acc->shape, x)))
        return FAIL(ERR_SHAPE, "'%s' (conv_dx): acc is %s %s, expected %s %s like dx", call->name,
                    dtype_name(o->acc->dtype), shape_text(o->acc->shape), dtype_name(o->x->dtype), shape_text(x));
    return OK;
}

/* ---- candidates */

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

static bool window_is_pixel(const Window *v)
{
    return v->kh == 1 && v->kw == 1 && v->stride_h == 1 && v->stride_w == 1 && !v->pad_h && !v->pad_w;
}

static bool window_is_image(const Operands *o)
{
    const Window *v = &o->window;
    return v->kh == o->x->shape.h && v->kw == o->x->shape.w && !v->pad_h && !v->pad_w && tensor_is_packed(o->x);
}

static Status offer_product(Choice *choice, Device *device, const Operands *o, bool sum)
{
    static const ProductKind kinds[] = {
        [ONEDNN_CONV] = PRODUCT_Y, [ONEDNN_CONV_DX] = PRODUCT_DX, [ONEDNN_CONV_DW] = PRODUCT_DW};
    int64_t ins = shape_count(o->w->shape) / o->w->shape.n;
    Product product = {.kind = kinds[o->kind],
                       .rows = shape_pixels(o->y->shape),
                       .ins = ins,
                       .outs = o->w->shape.n,
                       .x_pitch = window_is_pixel(&o->window) ? o->x->pitch : ins,
                       .y_pitch = o->y->pitch,
                       .x = o->x->dtype,
                       .y = o->y->dtype,
                       .bias = o->bias != NULL,
                       .sum = sum};
    return choice_offer_product(choice, device, &product);
}

/* The gradient by a convolution of stride 1 is a convolution of stride 1 with the weights turned by 180 degrees and the
 * roles of their channels exchanged; oneDNN's forward code is the better tuned: 1.4 times as fast for 80 input channels
 * in f32, equal elsewhere. Not for the few channels of an image, where it is slower. */
static bool window_turns(const Operands *o)
{
    const Window *v = &o->window;
    return o->kind == ONEDNN_CONV_DX && v->stride_h == 1 && v->stride_w == 1 && v->pad_h < v->kh && v->pad_w < v->kw &&
           o->x->shape.c >= IMAGE_CHANNELS;
}

static Status offer_turned(Choice *choice, Device *device, const Operands *o, bool sum)
{
    static const int8_t operand[ONEDNN_ROLES] = {0, 1, FROM_OUT, FROM_NOTHING};
    const Window *v = &o->window;
    OnednnView w = view_of(o->w);
    Dtype dtype = o->x->dtype == o->y->dtype ? o->x->dtype : DTYPE_F32;
    OnednnSpec spec = {.kind = ONEDNN_CONV, .window = *v, .sum = sum};
    spec.window.pad_h = v->kh - 1 - v->pad_h;
    spec.window.pad_w = v->kw - 1 - v->pad_w;
    spec.held[ONEDNN_X] = view_of(o->y);
    spec.held[ONEDNN_Y] = view_of(o->x);
    spec.held[ONEDNN_W] = (OnednnView){.rank = 4,
                                       .dims = {w.dims[1], w.dims[0], w.dims[2], w.dims[3]},
                                       .strides = {w.strides[1], w.strides[0], w.strides[2], w.strides[3]},
                                       .dtype = w.dtype};
    spec.fit[ONEDNN_X] = spec.fit[ONEDNN_Y] = ONEDNN_PACKED;
    spec.fit[ONEDNN_W] = ONEDNN_ANY;
    for (int role = 0; role < ONEDNN_BIAS; role++) spec.compute[role] = dtype;
    return choice_offer(choice, device, &spec, operand);
}

static Status offer_convolution(Choice *choice, Device *device, const Operands *o, OnednnFit fit, Dtype dtype,
                                bool winograd)
{
    static const int8_t operand[][ONEDNN_ROLES] = {[ONEDNN_CONV] = {0, 1, FROM_OUT, 2},
                                                   [ONEDNN_CONV_DX] = {FROM_OUT, 1, 0, FROM_NOTHING},
                                                   [ONEDNN_CONV_DW] = {0, FROM_OUT, 1, FROM_NOTHING}};
    OnednnSpec spec = {.kind = o->kind, .window = o->window, .winograd = winograd};
    spec.held[ONEDNN_X] = view_of(o->x);
    spec.held[ONEDNN_W] = view_of(o->w);
    spec.held[ONEDNN_Y] = view_of(o->y);
    if (o->bias)
        spec.held[ONEDNN_BIAS] = (OnednnView){.rank = 1, .dims = {o->y->shape.c}, .strides = {1}, .dtype = DTYPE_F32};
    spec.fit[ONEDNN_X] = spec.fit[ONEDNN_Y] = fit;
    spec.fit[ONEDNN_W] = ONEDNN_ANY;
    spec.compute[ONEDNN_X] = spec.compute[ONEDNN_Y] = dtype;
    spec.compute[ONEDNN_W] = o->kind == ONEDNN_CONV_DW ? DTYPE_F32 : dtype;
    spec.compute[ONEDNN_BIAS] = DTYPE_F32;
    return choice_offer(choice, device, &spec, operand[o->kind]);
}

static Status offer_convolutions(Choice *choice, Device *device, const Operands *o)
{
    Dtype native = o->x->dtype == o->y->dtype ? o->x->dtype : DTYPE_F32;
    /* Weight gradients of a column in f32: NHWC costs 1.4 times as much there, more than the conversions. */
    bool column = o->kind == ONEDNN_CONV_DW && o->window.kw == 1 && o->window.kh > 1 && native == DTYPE_F32;
    OnednnFit first = column ? ONEDNN_ANY : ONEDNN_PACKED, second = column ? ONEDNN_PACKED : ONEDNN_ANY;
    TRY(offer_convolution(choice, device, o, first, native, false));
    TRY(offer_convolution(choice, device, o, second, native, false));
    TRY(offer_convolution(choice, device, o, ONEDNN_PACKED, DTYPE_F32, false));
    return offer_convolution(choice, device, o, ONEDNN_ANY, DTYPE_F32, false);
}

typedef Status Offer(Choice *choice, Device *device, const Operands *o, bool sum);

/* Offer with the sum of acc in the task, then without. */
static Status offer_with_acc(ConvState *state, Device *device, const Operands *o, Offer *offer)
{
    if (o->acc) TRY(offer(&state->choice, device, o, true));
    state->sums = state->choice.task && o->acc;
    if (!state->sums) choice_free(&state->choice); /* a reference that sums must not pass for one that does not */
    return offer(&state->choice, device, o, false);
}

/* Lavin and Gray (arXiv:1509.09308): 36 products where the convolution has 144. Measured with the conversions to
 * oneDNN's layouts, that is twice as fast, but slower for few channels, where the transforms outweigh the products. */
static bool window_is_winograd(const Device *device, const Operands *o)
{
    enum { FEW_CHANNELS = 32 };
    const Window *v = &o->window;
    bool f32 = o->x->dtype == DTYPE_F32 && o->y->dtype == DTYPE_F32;
    bool many = o->x->shape.c >= FEW_CHANNELS && o->y->shape.c >= FEW_CHANNELS;
    return device->config.winograd && f32 && many && v->kh == 3 && v->kw == 3 && v->stride_h == 1 && v->stride_w == 1;
}

static Status conv_choose(ConvState *state, Device *device, const Operands *o)
{
    Choice *choice = &state->choice;
    bool packed = o->part_of_packed || (tensor_is_packed(o->x) && tensor_is_packed(o->y));
    bool pixel = window_is_pixel(&o->window);
    if (window_is_winograd(device, o)) TRY(offer_convolution(choice, device, o, ONEDNN_ANY, DTYPE_F32, true));
    /* Packed 1x1 weight gradients are up to twice as fast as convolutions. */
    if ((pixel && (o->kind != ONEDNN_CONV_DW || !packed)) || window_is_image(o)) {
        TRY(offer_with_acc(state, device, o, offer_product));
    } else if (!choice->task && window_turns(o)) {
        TRY(offer_with_acc(state, device, o, offer_turned));
        state->turns = choice->task != NULL;
        if (!state->turns) choice_free(choice);
    }
    TRY(offer_convolutions(choice, device, o));
    state->adds = o->acc && !state->sums;
    return OK;
}

/* ---- slices of a weight gradient */

enum { LANES = 16 };

/* A slice of images costs one more pass over dw; a slice of outputs reads x once more and copies its part of dy. So a
 * small dw is cut by images and a large one by outputs. The limits are measured over Inception v3's layers. */
static void slices_count(DwSlices *slices, const Operands *o)
{
    enum { SMALL_DW = 32 << 10, LARGE_DW = 160 << 10, MANY = 8, FEW = 4 }; /* elements; slices */
    int64_t count = shape_count(o->w->shape), vectors = (o->y->shape.c + LANES - 1) / LANES;
    int parts = count <= SMALL_DW ? MANY : FEW;
    slices->images = count <= LARGE_DW ? (int)smaller(parts, o->x->shape.n) : 1;
    slices->outs = (int)smaller(parts / slices->images, vectors);
}

/* Slices of about equal size: the first place of slice `k` of `slices` of `whole`, cut between multiples of `step`. */
static int32_t slice_begin(int32_t whole, int slices, int k, int step)
{
    int32_t steps = (whole + step - 1) / step;
    return (int32_t)smaller(whole, (int64_t)steps * k / slices * step);
}

static void *place(const Tensor *t, int64_t element)
{
    return t->data ? (char *)t->data + (size_t)element * dtype_bytes(t->dtype) : NULL;
}

/* The tensors of one part; w points into `sums`, which holds a whole dw. */
typedef struct DwPart {
    Tensor x, w, y;
} DwPart;

static DwPart part_of(const DwSlices *slices, const Operands *o, int image, int out, void *sums)
{
    int32_t n = o->x->shape.n, c = o->y->shape.c;
    int32_t first = slice_begin(n, slices->images, image, 1), end = slice_begin(n, slices->images, image + 1, 1);
    int32_t from = slice_begin(c, slices->outs, out, LANES), to = slice_begin(c, slices->outs, out + 1, LANES);
    DwPart part = {*o->x, *o->w, *o->y};
    part.x.shape.n = part.y.shape.n = end - first;
    part.y.shape.c = part.w.shape.n = to - from;
    part.x.data = place(o->x, (int64_t)first * o->x->shape.h * o->x->shape.w * o->x->pitch);
    part.y.data = place(o->y, (int64_t)first * o->y->shape.h * o->y->shape.w * o->y->pitch + from);
    part.w.data = sums ? (float *)sums + from * (shape_count(o->w->shape) / c) : NULL;
    return part;
}

static void slices_destroy(DwSlices *slices)
{
    if (!slices) return;
    for (int k = 0; slices->choice && k < slices->images * slices->outs; k++) choice_free(&slices->choice[k]);
    free(slices->choice);
    free(slices);
}

static Status slices_create(Device *device, const OpCall *call, const Operands *o, DwSlices **made)
{
    Status st = OK;
    DwSlices *slices = calloc(1, sizeof *slices);
    if (!slices) return FAIL(ERR_MEMORY, "no memory for the weight-gradient slices of '%s'", call->name);
    slices_count(slices, o);
    slices->choice = calloc((size_t)(slices->images * slices->outs), sizeof *slices->choice);
    if (!slices->choice) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the weight-gradient slices of '%s'", call->name));
    slices->sums_bytes = ((size_t)shape_count(o->w->shape) * sizeof(float) + 63) / 64 * 64;
    for (int k = 0; k < slices->images * slices->outs; k++) {
        DwPart part = part_of(slices, o, k / slices->outs, k % slices->outs, NULL);
        Operands cut = *o;
        cut.part_of_packed = tensor_is_packed(o->x) && tensor_is_packed(o->y);
        cut.x = &part.x, cut.w = &part.w, cut.y = &part.y;
        ConvState state = {.choice = {.one_thread = true}};
        st = conv_choose(&state, device, &cut);
        slices->choice[k] = state.choice;
        TRY_OUT(st);
        TRY_OUT(choice_settle(&slices->choice[k], device, call));
        size_t bytes = (onednn_workspace_bytes(slices->choice[k].task) + 63) / 64 * 64;
        if (bytes > slices->part_bytes) slices->part_bytes = bytes;
    }
    *made = slices;
    slices = NULL;
out:
    slices_destroy(slices);
    return st;
}

static size_t slices_workspace_bytes(const DwSlices *slices, const Device *device)
{
    int64_t busy = smaller(cpu_threads(device), slices->images * slices->outs);
    return (size_t)busy * slices->part_bytes + (size_t)(slices->images - 1) * slices->sums_bytes;
}

static bool is_own(const ConvState *state)
{
    return state->wgrad || state->winograd || state->winograd_line || state->winograd_dw || state->winograd_line_dw;
}

static size_t own_workspace_bytes(const ConvState *state)
{
    if (state->wgrad) return wgrad_workspace_bytes(state->wgrad);
    if (state->winograd_line_dw) return winograd_line_dw_workspace_bytes(state->winograd_line_dw);
    if (state->winograd_line) return winograd_line_workspace_bytes(state->winograd_line);
    return state->winograd ? winograd_workspace_bytes(state->winograd)
                           : winograd_dw_workspace_bytes(state->winograd_dw);
}

/* Workspace: the task's own, dx before acc is added, turned weights. */
static void conv_layout(ConvState *state, const Device *device, OpCall *call, const Operands *o)
{
    if (state->dw_slices) {
        call->workspace_bytes = slices_workspace_bytes(state->dw_slices, device);
        return;
    }
    if (is_own(state)) {
        call->workspace_bytes = own_workspace_bytes(state);
        return;
    }
    size_t dx_bytes = (size_t)(shape_pixels(o->x->shape) * o->x->pitch) * dtype_bytes(o->x->dtype);
    size_t w_bytes = (size_t)shape_count(o->w->shape) * sizeof(float);
    state->result_offset = onednn_workspace_bytes(state->choice.task);
    state->turned_offset = state->result_offset + (state->adds ? (dx_bytes + 63) / 64 * 64 : 0);
    call->workspace_bytes = state->turned_offset + (state->turns ? w_bytes : 0);
}

static void state_destroy(ConvState *state)
{
    if (!state) return;
    slices_destroy(state->dw_slices);
    wgrad_destroy(state->wgrad);
    winograd_destroy(state->winograd);
    winograd_line_destroy(state->winograd_line);
    winograd_dw_destroy(state->winograd_dw);
    winograd_line_dw_destroy(state->winograd_line_dw);
    choice_free(&state->choice);
    free(state);
}

static bool own_winograd_allowed(const Device *device, const Operands *o)
{
    if (o->x->dtype == DTYPE_BF16) return device->config.winograd_bf16;
    return device->config.winograd_f32 && !window_is_winograd(device, o);
}

/* Kernels of our own, where one is faster than every candidate. */
static Status own_choose(ConvState *state, Device *device, const Operands *o)
{
    const WgradCode *code = o->kind == ONEDNN_CONV_DW ? wgrad_code() : NULL;
    bool turned = o->kind == ONEDNN_CONV_DX;
    const Tensor *from = turned ? o->y : o->x, *to = turned ? o->x : o->y;
    bool winograd = own_winograd_allowed(device, o);
    if (winograd && o->kind == ONEDNN_CONV_DW && winograd_dw_takes(o->x, o->y, &o->window))
        return winograd_dw_create(o->x, o->y, &o->window, cpu_threads(device), &state->winograd_dw);
    if (winograd && o->kind == ONEDNN_CONV_DW && winograd_line_dw_takes(o->x, o->y, &o->window))
        return winograd_line_dw_create(o->x, o->y, &o->window, &state->winograd_line_dw);
    if (wgrad_takes(code, o->x, o->y))
        return wgrad_create(code, o->x, o->y, &o->window, cpu_threads(device), &state->wgrad);
    bool plain = !o->bias && !o->relu; /* in bf16 oneDNN adds a bias before it rounds */
    if (!winograd || o->kind == ONEDNN_CONV_DW || !(plain || o->y->dtype == DTYPE_F32)) return OK;
    if (winograd_takes(from, to, &o->window))
        return winograd_create(from, to, &o->window, turned, cpu_threads(device), &state->winograd);
    if (winograd_line_takes(from, to, &o->window))
        return winograd_line_create(from, to, &o->window, turned, cpu_threads(device), &state->winograd_line);
    return OK;
}

/* Multiplications of Winograd's algorithms against those of the definition: 16 for 36, in a line 14 for 28. */
static float own_product_share(const ConvState *state)
{
    if (state->winograd || state->winograd_dw) return 16.0f / 36;
    return state->winograd_line || state->winograd_line_dw ? 14.0f / 28 : 0;
}

/* oneDNN 3.7 adds up the gradient with respect to an image in an order that depends on the number of threads, so one
 * thread computes it. */
static Status conv_prepare(Device *device, OpCall *call)
{
    Status st = OK;
    Operands o = operands_of(call);
    TRY(conv_check(call, &o));
    ConvState *state = calloc(1, sizeof *state);
    if (!state) return FAIL(ERR_MEMORY, "no memory for the state of the convolution '%s'", call->name);
    TRY_OUT(own_choose(state, device, &o));
    if (!is_own(state) && o.kind == ONEDNN_CONV_DW) {
        TRY_OUT(slices_create(device, call, &o, &state->dw_slices));
    } else if (!is_own(state)) {
        state->choice.one_thread = o.kind == ONEDNN_CONV_DX && o.x->shape.c < IMAGE_CHANNELS;
        TRY_OUT(conv_choose(state, device, &o));
        TRY_OUT(choice_settle(&state->choice, device, call));
    }
    conv_layout(state, device, call, &o);
    call->product_share = own_product_share(state);
    call->state = state;
    state = NULL;
out:
    state_destroy(state);
    return st;
}

/* ---- dx + acc */

CPU_CLONES static void add_f32(float *to, const float *a, const float *b, int64_t count)
{
    for (int64_t i = 0; i < count; i++) to[i] = a[i] + b[i];
}

CPU_CLONES static void add_bf16(uint16_t *to, const uint16_t *a, const uint16_t *b, int64_t count)
{
    for (int64_t i = 0; i < count; i++) to[i] = bf16_from_f32(bf16_to_f32(a[i]) + bf16_to_f32(b[i]));
}

/* Stretches without gaps in both tensors: rows of an image if they are packed, pixels otherwise. */
static int64_t stretch_pixels(const Tensor *a, const Tensor *b)
{
    return tensor_is_packed(a) && tensor_is_packed(b) ? a->shape.w : 1;
}

/* `a` has the pitch of `to`. */
static void add_pixels(const Tensor *to, const void *a, const Tensor *b)
{
    int64_t step = stretch_pixels(to, b), count = step * to->shape.c, pixels = shape_pixels(to->shape);
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
    int64_t step = stretch_pixels(to, from), pixels = shape_pixels(to->shape);
    size_t item = dtype_bytes(to->dtype), bytes = (size_t)(step * to->shape.c) * item;
#pragma omp parallel for schedule(static)
    for (int64_t p = 0; p < pixels; p += step)
        memcpy((char *)to->data + (size_t)(p * to->pitch) * item,
               (const char *)from->data + (size_t)(p * from->pitch) * item, bytes);
}

/* The order of the window's places reversed; the exchange of channels is left to the view that the task has of it. */
static void turn_weights(const Tensor *w, float *turned)
{
    int64_t places = (int64_t)w->shape.h * w->shape.w, channels = w->shape.c;
#pragma omp parallel for schedule(static)
    for (int32_t n = 0; n < w->shape.n; n++)
        for (int64_t k = 0; k < places; k++)
            memcpy(turned + (n * places + places - 1 - k) * channels,
                   (const float *)w->data + (n * places + k) * channels, (size_t)channels * sizeof(float));
}

static void own_run(const ConvState *state, const Device *device, const OpCall *call)
{
    const Tensor *in = call->in, *acc = call->kind == OP_CONV_DX ? optional(call, 2) : NULL;
    void *out = call->out[0].data;
    if (state->wgrad)
        wgrad_run(state->wgrad, device, in[0].data, in[1].data, out, call->workspace);
    else if (state->winograd_dw)
        winograd_dw_run(state->winograd_dw, device, in[0].data, in[1].data, out, call->workspace);
    else if (state->winograd_line_dw)
        winograd_line_dw_run(state->winograd_line_dw, device, in[0].data, in[1].data, out, call->workspace);
    else if (state->winograd_line)
        winograd_line_run(state->winograd_line, device, in[0].data, in[1].data, acc, out, call->workspace);
    else
        winograd_run(state->winograd, device, in[0].data, in[1].data, acc, out, call->workspace);
}

typedef struct SlicesRun {
    const DwSlices *slices;
    const OpCall *call;
    Operands operands;
    char *sums, *parts; /* in workspace */
} SlicesRun;

static Status part_run(const SlicesRun *run, int index, int thread)
{
    const DwSlices *slices = run->slices;
    int image = index / slices->outs;
    void *sums = image ? run->sums + (size_t)(image - 1) * slices->sums_bytes : run->operands.w->data;
    DwPart part = part_of(slices, &run->operands, image, index % slices->outs, sums);
    OpCall bound = *run->call;
    bound.in[0] = part.x;
    bound.in[1] = part.y;
    bound.workspace = run->parts + (size_t)thread * slices->part_bytes;
    return choice_run(&slices->choice[index], &bound, part.w.data);
}

CPU_CLONES static void sums_add(float *to, const float *from, int64_t count)
{
    VECTOR_LOOP
    for (int64_t i = 0; i < count; i++) to[i] += from[i];
}

static void sums_chunk(void *context, int64_t first, int64_t end, int thread)
{
    (void)thread;
    const SlicesRun *run = context;
    for (int k = 0; k < run->slices->images - 1; k++)
        sums_add((float *)run->operands.w->data + first,
                 (const float *)(const void *)(run->sums + (size_t)k * run->slices->sums_bytes) + first, end - first);
}

/* Always in a parallel region, also with one part: inside, oneDNN keeps to the one thread that its tasks were made
 * for. */
static Status slices_run(const DwSlices *slices, const Device *device, OpCall *call)
{
    enum { SUMS_CHUNK = 2048 };
    Status st = OK;
    SlicesRun run = {.slices = slices, .call = call, .operands = operands_of(call), .sums = call->workspace};
    run.parts = run.sums + (size_t)(slices->images - 1) * slices->sums_bytes;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(device))
    for (int k = 0; k < slices->images * slices->outs; k++) {
        Status part = part_run(&run, k, team_member());
        if (part != OK) {
#pragma omp atomic write
            st = part;
        }
    }
    if (st == OK) chunks_run(device, shape_count(run.operands.w->shape), SUMS_CHUNK, sums_chunk, &run);
    return st;
}

static Status library_run(const ConvState *state, OpCall *call)
{
    OpCall bound = *call;
    const Tensor *out = &call->out[0], *acc = &call->in[2];
    void *result = state->adds ? (char *)call->workspace + state->result_offset : out->data;
    if (state->turns) {
        bound.in[1].data = (char *)call->workspace + state->turned_offset;
        turn_weights(&call->in[1], bound.in[1].data);
    }
    if (state->sums && acc->data != out->data) copy_pixels(out, acc);
    TRY(choice_run(&state->choice, &bound, result));
    if (state->adds) add_pixels(out, result, acc);
    return OK;
}

static Status conv_launch(Device *device, OpCall *call)
{
    const ConvState *state = call->state;
    bool forward = call->kind == OP_CONV, relu = forward && call->attr.conv.relu;
    const Tensor *bias = forward && is_own(state) ? optional(call, 2) : NULL;
    if (is_own(state))
        own_run(state, device, call);
    else if (state->dw_slices)
        TRY(slices_run(state->dw_slices, device, call));
    else
        TRY(library_run(state, call));
    cpu_bias_relu(device, &call->out[0], bias ? bias->data : NULL, relu);
    return OK;
}

static void conv_discard(Device *device, OpCall *call)
{
    (void)device;
    state_destroy(call->state);
    call->state = NULL;
}

const OpKernel cpu_conv = {
    .prepare = conv_prepare, .launch = conv_launch, .discard = conv_discard, .strided_in = 1, .strided_out = 1};
const OpKernel cpu_conv_dx = {.prepare = conv_prepare,
                              .launch = conv_launch,
                              .discard = conv_discard,
                              .strided_in = 1 | 4,
                              .strided_out = 1,
                              .in_place = 4};
const OpKernel cpu_conv_dw = {
    .prepare = conv_prepare, .launch = conv_launch, .discard = conv_discard, .strided_in = 1 | 2};
