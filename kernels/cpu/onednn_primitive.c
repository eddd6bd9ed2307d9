/* oneDNN's primitives; see onednn_primitive.h. */
#include "kernels/cpu/onednn_primitive.h"

#include <float.h>

/* oneDNN's ReLU makes NaN 0, unless it has a slope for x < 0. This one is not 0 when code is made for it, but 0 for the
 * team, which takes denormals for 0 (onednn.c). */
#define RELU_SLOPE FLT_TRUE_MIN

Status onednn_fail(dnnl_status_t code, const char *call)
{
    switch (code) {
    case dnnl_out_of_memory: return FAIL(ERR_MEMORY, "oneDNN ran out of memory in %s", call);
    case dnnl_unimplemented: return FAIL(ERR_UNSUPPORTED, "oneDNN has no implementation for %s", call);
    case dnnl_invalid_arguments: return FAIL(ERR_INTERNAL, "oneDNN rejects the arguments of %s", call);
    default: return FAIL(ERR_DEVICE, "oneDNN: %s failed with code %d", call, (int)code);
    }
}

/* ---- differences of 2.x and 3.x */

#if DNNL_VERSION_MAJOR >= 3
void layout_free(Layout *layout)
{
    if (*layout) dnnl_memory_desc_destroy(*layout);
    *layout = NULL;
}

static dnnl_status_t layout_strided(Layout *layout, int rank, const dnnl_dims_t dims, dnnl_data_type_t type,
                                    const dnnl_dims_t strides)
{
    return dnnl_memory_desc_create_with_strides(layout, rank, dims, type, strides);
}

static dnnl_status_t layout_any(Layout *layout, int rank, const dnnl_dims_t dims, dnnl_data_type_t type)
{
    return dnnl_memory_desc_create_with_tag(layout, rank, dims, type, dnnl_format_tag_any);
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
}

static dnnl_status_t append_relu(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_relu, RELU_SLOPE, 0.0f);
}

static dnnl_status_t describe_conv(dnnl_primitive_desc_t *made, dnnl_engine_t engine, OnednnKind kind, const Layout *l,
                                   bool bias, dnnl_dims_t pads[4], const_dnnl_primitive_attr_t attr,
                                   const_dnnl_primitive_desc_t hint)
{
    if (kind == ONEDNN_CONV_DX)
        return dnnl_convolution_backward_data_primitive_desc_create(made, engine, dnnl_convolution_direct, l[ONEDNN_X],
                                                                    l[ONEDNN_W], l[ONEDNN_Y], pads[0], pads[1], pads[2],
                                                                    pads[3], hint, attr);
    if (kind == ONEDNN_CONV_DW)
        return dnnl_convolution_backward_weights_primitive_desc_create(made, engine, dnnl_convolution_direct,
                                                                       l[ONEDNN_X], l[ONEDNN_W], NULL, l[ONEDNN_Y],
                                                                       pads[0], pads[1], pads[2], pads[3], hint, attr);
    return dnnl_convolution_forward_primitive_desc_create(made, engine, dnnl_forward_training, dnnl_convolution_direct,
                                                          l[ONEDNN_X], l[ONEDNN_W], bias ? l[ONEDNN_BIAS] : NULL,
                                                          l[ONEDNN_Y], pads[0], pads[1], pads[2], pads[3], attr);
}

static dnnl_status_t describe_matmul(dnnl_primitive_desc_t *made, dnnl_engine_t engine, const Layout *l, bool bias,
                                     const_dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(made, engine, l[ONEDNN_X], l[ONEDNN_W], bias ? l[ONEDNN_BIAS] : NULL,
                                             l[ONEDNN_Y], attr);
}
#else
void layout_free(Layout *layout)
{
    (void)layout;
}

static dnnl_status_t layout_strided(Layout *layout, int rank, const dnnl_dims_t dims, dnnl_data_type_t type,
                                    const dnnl_dims_t strides)
{
    return dnnl_memory_desc_init_by_strides(layout, rank, dims, type, strides);
}

static dnnl_status_t layout_any(Layout *layout, int rank, const dnnl_dims_t dims, dnnl_data_type_t type)
{
    return dnnl_memory_desc_init_by_tag(layout, rank, dims, type, dnnl_format_tag_any);
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0f);
}

static dnnl_status_t append_relu(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_eltwise(ops, 1.0f, dnnl_eltwise_relu, RELU_SLOPE, 0.0f);
}

static dnnl_status_t describe_conv(dnnl_primitive_desc_t *made, dnnl_engine_t engine, OnednnKind kind, const Layout *l,
                                   bool bias, dnnl_dims_t pads[4], const_dnnl_primitive_attr_t attr,
                                   const_dnnl_primitive_desc_t hint)
{
    dnnl_convolution_desc_t desc;
    dnnl_status_t code;
    if (kind == ONEDNN_CONV_DX)
        code =
            dnnl_dilated_convolution_backward_data_desc_init(&desc, dnnl_convolution_direct, &l[ONEDNN_X], &l[ONEDNN_W],
                                                             &l[ONEDNN_Y], pads[0], pads[1], pads[2], pads[3]);
    else if (kind == ONEDNN_CONV_DW)
        code = dnnl_dilated_convolution_backward_weights_desc_init(&desc, dnnl_convolution_direct, &l[ONEDNN_X],
                                                                   &l[ONEDNN_W], NULL, &l[ONEDNN_Y], pads[0], pads[1],
                                                                   pads[2], pads[3]);
    else
        code = dnnl_dilated_convolution_forward_desc_init(&desc, dnnl_forward_training, dnnl_convolution_direct,
                                                          &l[ONEDNN_X], &l[ONEDNN_W], bias ? &l[ONEDNN_BIAS] : NULL,
                                                          &l[ONEDNN_Y], pads[0], pads[1], pads[2], pads[3]);
    return code == dnnl_success ? dnnl_primitive_desc_create(made, &desc, attr, engine, hint) : code;
}

static dnnl_status_t describe_matmul(dnnl_primitive_desc_t *made, dnnl_engine_t engine, const Layout *l, bool bias,
                                     const_dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t desc;
    dnnl_status_t code =
        dnnl_matmul_desc_init(&desc, &l[ONEDNN_X], &l[ONEDNN_W], bias ? &l[ONEDNN_BIAS] : NULL, &l[ONEDNN_Y]);
    return code == dnnl_success ? dnnl_primitive_desc_create(made, &desc, attr, engine, NULL) : code;
}
#endif

/* ---- what both have */

static bool dtype_to_dnnl(Dtype dtype, dnnl_data_type_t *type)
{
    switch (dtype) {
    case DTYPE_F32: *type = dnnl_f32; return true;
    case DTYPE_BF16: *type = dnnl_bf16; return true;
    case DTYPE_F16: *type = dnnl_f16; return true;
    default: return false;
    }
}

/* Gaps in a copy would only cost memory, and oneDNN 3.7 with AMX computes products wrongly whose weights have some. */
static OnednnFit fit_of(const OnednnSpec *spec, int role)
{
    bool copied = spec->held[role].dtype != spec->compute[role];
    return copied && spec->fit[role] == ONEDNN_AS_HELD ? ONEDNN_PACKED : spec->fit[role];
}

Status layout_make(const OnednnView *view, OnednnFit fit, Dtype dtype, Layout *layout)
{
    Status st = OK;
    dnnl_dims_t dims = {0}, strides = {0};
    dnnl_data_type_t type;
    if (!dtype_to_dnnl(dtype, &type))
        return FAIL(ERR_UNSUPPORTED, "oneDNN kernels do not support %s", dtype_name(dtype));
    for (int axis = 0; axis < view->rank; axis++) {
        dims[axis] = view->dims[axis];
        strides[axis] = view->strides[axis];
    }
    if (fit == ONEDNN_PACKED) {
        /* The strides of `view` with the gaps taken out, its order of axes kept. */
        bool done[4] = {false};
        int64_t stride = 1;
        for (int turn = 0; turn < view->rank; turn++) {
            int next = -1;
            for (int axis = view->rank - 1; axis >= 0; axis--)
                if (!done[axis] && (next < 0 || view->strides[axis] < view->strides[next])) next = axis;
            done[next] = true;
            strides[next] = stride;
            stride *= view->dims[next];
        }
    }
    if (fit == ONEDNN_ANY)
        TRY_DNNL_OUT(layout_any(layout, view->rank, dims, type));
    else
        TRY_DNNL_OUT(layout_strided(layout, view->rank, dims, type, strides));
out:
    return st;
}

static dnnl_status_t attr_create(bool sum, bool relu, dnnl_primitive_attr_t *made)
{
    dnnl_post_ops_t ops = NULL;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_status_t code = dnnl_primitive_attr_create(&attr);
    if (code == dnnl_success) code = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (code == dnnl_success) code = dnnl_post_ops_create(&ops);
    if (code == dnnl_success && sum) code = append_sum(ops);
    if (code == dnnl_success && relu) code = append_relu(ops);
    if (code == dnnl_success) code = dnnl_primitive_attr_set_post_ops(attr, ops);
    if (ops) dnnl_post_ops_destroy(ops);
    if (code == dnnl_success)
        *made = attr;
    else if (attr)
        dnnl_primitive_attr_destroy(attr);
    return code;
}

/* Strides, dilations, left and right padding, as describe_conv takes them. The right padding is what makes the last
 * window of a rounded-up output fit; it is as large as the left one where windows leave pixels over. */
static void window_to_dnnl(const OnednnSpec *spec, dnnl_dims_t pads[4])
{
    const Window *window = &spec->window;
    const int64_t k[2] = {window->kh, window->kw}, stride[2] = {window->stride_h, window->stride_w};
    const int64_t pad[2] = {window->pad_h, window->pad_w};
    memset(pads, 0, 4 * sizeof(dnnl_dims_t));
    for (int axis = 0; axis < 2; axis++) {
        int64_t in = spec->held[ONEDNN_X].dims[2 + axis], out = spec->held[ONEDNN_Y].dims[2 + axis];
        int64_t reach = (out - 1) * stride[axis] + k[axis] - in - pad[axis];
        pads[0][axis] = stride[axis];
        pads[2][axis] = pad[axis];
        pads[3][axis] = reach > pad[axis] || stride[axis] == 1 ? reach : pad[axis];
    }
}

/* 2.x and 3.x choose a backward implementation beside a forward one, which must be valid in itself: one dtype
 * throughout, that of the operand that is not a gradient. */
static OnednnSpec hint_of(const OnednnSpec *spec)
{
    OnednnSpec hint = *spec;
    hint.kind = ONEDNN_CONV;
    hint.relu = hint.sum = false;
    hint.held[ONEDNN_BIAS].rank = 0;
    for (int role = 0; role < ONEDNN_BIAS; role++) {
        hint.fit[role] = fit_of(spec, role);
        hint.compute[role] = hint.held[role].dtype = spec->compute[spec->kind == ONEDNN_CONV_DX ? ONEDNN_W : ONEDNN_X];
    }
    return hint;
}

Status onednn_primitive(dnnl_engine_t engine, const OnednnSpec *spec, dnnl_primitive_desc_t *made)
{
    Status st = OK;
    Layout layouts[ONEDNN_ROLES];
    bool bias = spec->held[ONEDNN_BIAS].rank > 0;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t hint = NULL;
    dnnl_dims_t pads[4];
    memset(layouts, 0, sizeof layouts);
    for (int role = 0; role < ONEDNN_ROLES; role++)
        if (spec->held[role].rank)
            TRY_OUT(layout_make(&spec->held[role], fit_of(spec, role), spec->compute[role], &layouts[role]));
    TRY_DNNL_OUT(attr_create(spec->sum, spec->relu, &attr));
    if (spec->kind == ONEDNN_MATMUL) {
        TRY_DNNL_OUT(describe_matmul(made, engine, layouts, bias, attr));
        goto out;
    }
    window_to_dnnl(spec, pads);
    if (spec->kind != ONEDNN_CONV) {
        OnednnSpec forward = hint_of(spec);
        TRY_OUT(onednn_primitive(engine, &forward, &hint));
    }
    TRY_DNNL_OUT(describe_conv(made, engine, spec->kind, layouts, bias, pads, attr, hint));
out:
    if (hint) dnnl_primitive_desc_destroy(hint);
    if (attr) dnnl_primitive_attr_destroy(attr);
    for (int role = 0; role < ONEDNN_ROLES; role++) layout_free(&layouts[role]);
    return st;
}

Status onednn_reorder(dnnl_engine_t engine, LayoutRef from, LayoutRef to, dnnl_primitive_desc_t *made)
{
    Status st = OK;
    dnnl_primitive_attr_t attr = NULL;
    TRY_DNNL_OUT(attr_create(false, false, &attr));
    TRY_DNNL_OUT(dnnl_reorder_primitive_desc_create(made, from, engine, to, engine, attr));
out:
    if (attr) dnnl_primitive_attr_destroy(attr);
    return st;
}
