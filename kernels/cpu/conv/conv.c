/* CONV, CONV_DX and CONV_DW: the lists of implementations, and the choice for a call.
 *
 * Each list is ordered best first, by measurement; the first implementation that takes the problem runs it. oneDNN is
 * last and takes everything. All of them accept slices (pitch > c). */
#include "kernels/cpu/conv/conv_impl.h"

static const ConvImpl *const data_list[] = {
#ifdef CPU_HAS_LANES
    &conv_winograd_f4_3, &conv_winograd_f2_5, &conv_winograd_f2_3, &conv_winograd_f4_7, &conv_position_gemm,
    &conv_pointwise,
#endif
    &conv_depthwise,     &conv_col2im_dx,     &conv_phases_dx,     &conv_onednn,        NULL,
};
static const ConvImpl *const weights_list[] = {
#ifdef CPU_HAS_LANES
    &conv_winograd_dw_f4_3, &conv_winograd_dw_f2_5, &conv_winograd_dw_f2_3,
    &conv_winograd_dw_f4_7,
#if defined(__x86_64__)
    &conv_wgrad_amx,        &conv_wgrad_avx512,
#endif
    &conv_wgrad_f32,        &conv_image_dw,
#endif
    &conv_depthwise_dw,     &conv_onednn,           NULL,
};

typedef struct ChosenConv {
    const ConvImpl *impl;
    void *plan; /* owned */
} ChosenConv;

const ConvImpl *const *conv_list(OpKind kind)
{
    return kind == OP_CONV_DW ? weights_list : data_list;
}

/* ---- the problem */

const Tensor *conv_optional(const OpCall *call, int k)
{
    return k < call->in_count && call->in[k].data ? &call->in[k] : NULL;
}

static ConvProblem operands_of(const OpCall *call)
{
    const Tensor *in = call->in, *out = call->out;
    ConvProblem p = {.kind = call->kind, .call = call, .window = call->attr.conv.window};
    switch (call->kind) {
    case OP_CONV_DX: p.x = &out[0], p.w = &in[1], p.y = &in[0], p.acc = conv_optional(call, 2); break;
    case OP_CONV_DW: p.x = &in[0], p.w = &out[0], p.y = &in[1]; break;
    default:
        p.x = &in[0], p.w = &in[1], p.y = &out[0], p.bias = conv_optional(call, 2);
        p.relu = call->attr.conv.relu, p.keeps_w = call->kept_in >> 1 & 1;
    }
    p.groups = conv_groups(p.x->shape, p.w->shape);
    p.packed = tensor_is_packed(p.x) && tensor_is_packed(p.y);
    return p;
}

/* ---- the kernel */

static void state_destroy(ChosenConv *state)
{
    if (state && state->plan) state->impl->destroy(state->plan);
    free(state);
}

/* Why a row does not take the problem; NULL if it does. */
static const char *declines(const Device *device, const ConvImpl *row, const ConvProblem *problem)
{
    const char *without = device->config.without;
    if (without && strncmp(without, row->name, strlen(row->name)) == 0) return "left out";
    if (problem->groups > 1 && !row->takes_groups) return "several groups";
    bool dilated = problem->window.dilate_h || problem->window.dilate_w;
    if (dilated && !row->takes_dilation) return "the window is dilated";
    return row->takes(device, problem);
}

static Status conv_prepare(Device *device, OpCall *call)
{
    Status st = OK;
    ConvProblem problem = operands_of(call);
    ChosenConv *state = calloc(1, sizeof *state);
    if (!state) return FAIL(ERR_MEMORY, "no memory for the state of the convolution '%s'", call->name);
    const ConvImpl *const *row = conv_list(call->kind);
    while (row[1] && declines(device, *row, &problem)) row++;
    state->impl = *row;
    TRY_OUT(state->impl->create(device, &problem, &state->plan));
    call->workspace_bytes = state->impl->workspace(state->plan);
    call->product_share = state->impl->product_share;
    call->state = state;
    state = NULL;
out:
    state_destroy(state);
    return st;
}

static Status conv_launch(Device *device, OpCall *call)
{
    const ChosenConv *state = call->state;
    bool forward = call->kind == OP_CONV, relu = forward && call->attr.conv.relu && !state->impl->adds_relu;
    const Tensor *bias = forward && !state->impl->adds_bias ? conv_optional(call, 2) : NULL;
    TRY(state->impl->run(state->plan, device, call));
    cpu_bias_relu(device, &call->out[0], bias ? bias->data : NULL, relu);
    return OK;
}

static void conv_explain(Device *device, const OpCall *call, KernelChoice *choice)
{
    const ChosenConv *state = call->state;
    ConvProblem problem = operands_of(call);
    for (const ConvImpl *const *row = conv_list(call->kind); *row != state->impl; row++)
        kernel_choice_pass(choice, (*row)->name, declines(device, *row, &problem));
    snprintf(choice->name, sizeof choice->name, "%s", state->impl->name);
    if (state->impl->explain) state->impl->explain(state->plan, choice);
}

static void conv_discard(Device *device, OpCall *call)
{
    (void)device;
    state_destroy(call->state);
    call->state = NULL;
}

#define CONV_KERNEL .prepare = conv_prepare, .launch = conv_launch, .discard = conv_discard, .explain = conv_explain
const OpKernel cpu_conv = {CONV_KERNEL}, cpu_conv_dx = {CONV_KERNEL}, cpu_conv_dw = {CONV_KERNEL};
