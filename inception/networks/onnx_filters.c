/* Convolutions that are none of an image's channels: those along the channels themselves (efficient channel attention, Wang et al.
 * 2019, arXiv:1910.03151), and blurs (Zhang 2019, arXiv:1904.11486). */
#include "inception/networks/onnx_walk.h"

/* Whether a bias is absent, or zeros that nodes have made for an exporter which must write some. */
static bool has_no_bias(OnnxWalk *w, const OnnxNode *node)
{
    const Fixed *bias = walk_fixed(w, node, 2);
    if (!walk_in(w, node, 2)) return true;
    return w->file->value[node->in[2]].writer >= 0 && fixed_all_are(bias, 0);
}

/* ---- along the channels */

/* What an attribute says, one number: that of the only axis; or this. */
static int64_t one_of(const OnnxNode *node, const char *name, int64_t otherwise)
{
    const Onnx__AttributeProto *a = onnx_attribute(node, name);
    return !a ? otherwise : a->n_ints == 1 && a->ints[0] >= 0 && a->ints[0] <= INT16_MAX ? a->ints[0] : -1;
}

/* The window of one row over the channels, which lie along it. */
static bool window_along(const OnnxNode *node, const Fixed *weights, Window *window)
{
    const Onnx__AttributeProto *pads = onnx_attribute(node, "pads");
    int64_t size = weights->dims[2], before = pads && pads->n_ints == 2 ? pads->ints[0] : 0,
            behind = pads && pads->n_ints == 2 ? pads->ints[1] : 0, dilation = one_of(node, "dilations", 1);
    bool known = size <= INT16_MAX && one_of(node, "kernel_shape", size) == size && one_of(node, "strides", 1) == 1 &&
                 dilation >= 1 && before >= 0 && before <= INT16_MAX && behind >= 0 && behind <= INT16_MAX &&
                 (!pads || pads->n_ints == 2) && onnx_int(node, "group", 1) == 1 &&
                 (onnx_text_is(node, "auto_pad", "") || onnx_text_is(node, "auto_pad", "NOTSET"));
    if (!known) return false;
    *window = (Window){.kh = 1, .kw = (int32_t)size, .stride_h = 1, .stride_w = 1};
    window->pad_w = (int32_t)before;
    window->more_w = (int32_t)(behind - before);
    window->dilate_w = (int32_t)dilation - 1;
    return before + behind == (size - 1) * dilation; /* as many numbers as channels come out */
}

/* Whether this is {n, 1, c} of one number for each channel. */
static bool is_row_of_channels(const AxisOrder *order)
{
    if (order->rank != 3) return false;
    for (int i = 0; i < order->count; i++) {
        const AxisPart *part = &order->part[i];
        bool batch = part->of == AXIS_BATCH && part->axis == 0, channels = part->of == AXIS_CHANNEL && part->axis == 2;
        if (part->place || !(batch || channels)) return false;
    }
    return true;
}

bool conv_of_channels(OnnxWalk *w, const OnnxNode *node)
{
    Active *a = walk_active(w, node, 0);
    const Fixed *weights = walk_fixed(w, node, 1);
    OpAttr attr = {0};
    if (!a || !is_row_of_channels(&a->order) || !weights || weights->rank != 3) return false;
    bool one = weights->dims[0] == 1 && weights->dims[1] == 1 && has_no_bias(w, node);
    if (!one || !window_along(node, weights, &attr.conv.window)) return false;
    AxisOrder order = a->order;
    Value x = walk_value(w, node->in[0]);
    if (!x.id) return true;
    Shape s = graph_shape(w->g, x), row = {s.n, 1, 1, s.c}, shape = {1, 1, 1, attr.conv.window.kw};
    Value p =
        walk_param(w, node, weights, (Wanted){.shape = shape, .rank = 3, .init = {INIT_HE_NORMAL}, .decay = true});
    if (!p.id) return true;
    Value y =
        graph_op(w->g, OP_CONV, layer_name(w, node, weights), (Value[]){reshape(w->g, x, row), p}, 2, &attr, NULL);
    walk_give(w, node, reshape(w->g, y, s), &order);
    return true;
}

/* ---- blurs */

/* {c, 1, 3, 3} of (1 2 1) x (1 2 1) / 16, as a filter of each channel has them that nobody trains. */
static bool is_binomial(const Fixed *weights, int64_t channels)
{
    static const int side[] = {1, 2, 1};
    const int64_t dims[] = {channels, 1, 3, 3};
    if (!weights || weights->rank != 4 || memcmp(weights->dims, dims, sizeof dims) != 0 || weights->from.absent)
        return false;
    for (int64_t i = 0; i < weights->count; i++)
        if (fixed_at(weights, i) != side[i / 3 % 3] * side[i % 3] / 16.0) return false;
    return true;
}

static bool pair_is(const OnnxNode *node, const char *name, int64_t value)
{
    const Onnx__AttributeProto *a = onnx_attribute(node, name);
    bool is = true;
    for (size_t i = 0; a && i < a->n_ints; i++) is &= a->ints[i] == value;
    return is;
}

/* A border that mirrors the image, of one pixel, and the filter behind it. The filter is two means over 2 x 2 pixels, one after another;
 * of the first the mirrored ones are equal to those beside them, so the second leaves them out instead. */
bool blur(OnnxWalk *w, const OnnxNode *node)
{
    Active *a = walk_active(w, node, 0);
    const Fixed *weights = walk_fixed(w, node, 1);
    if (!a || !a->border.mirrored || a->order.rank != 4 || !order_is(&a->order, "NCHW")) return false;
    Value x = walk_inner(w, node->in[0]);
    if (!x.id) return true;
    Shape s = graph_shape(w->g, x);
    Border b = a->border;
    const Onnx__AttributeProto *strides = onnx_attribute(node, "strides");
    int64_t stride = strides && strides->n_ints == 2 ? strides->ints[0] : 1;
    bool around = b.top == 1 && b.bottom == 1 && b.left == 1 && b.right == 1 && s.h > 1 && s.w > 1,
         plain = pair_is(node, "pads", 0) && pair_is(node, "dilations", 1) && pair_is(node, "strides", stride) &&
                 pair_is(node, "kernel_shape", 3) && stride >= 1 && stride <= INT16_MAX &&
                 onnx_int(node, "group", 1) == s.c && !onnx_text_is(node, "auto_pad", "SAME_UPPER") &&
                 !onnx_text_is(node, "auto_pad", "SAME_LOWER");
    if (!around || !plain || !has_no_bias(w, node) || !is_binomial(weights, s.c)) return false;
    Window first = {.kh = 2, .kw = 2, .stride_h = 1, .stride_w = 1},
           second = {
               .kh = 2, .kw = 2, .stride_h = (int32_t)stride, .stride_w = (int32_t)stride, .pad_h = 1, .pad_w = 1};
    Value y = avg_pool_window(w->g, avg_pool_window(w->g, x, first, false), second, false);
    walk_give_image(w, node, y);
    return true;
}
