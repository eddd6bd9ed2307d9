/* Windows over an image: their sizes and borders, pools, and pixels that become several (onnx_walk.h). */
#include "inception/networks/onnx_walk.h"

/* ---- windows */

/* Two sizes of an attribute, or these. */
static bool pair_of(const OnnxNode *node, const char *name, int64_t otherwise, int32_t *h, int32_t *w)
{
    const Onnx__AttributeProto *a = onnx_attribute(node, name);
    if (!a) {
        *h = *w = (int32_t)otherwise;
        return true;
    }
    if (a->n_ints != 2) return false;
    for (int i = 0; i < 2; i++)
        if (a->ints[i] < 1 || a->ints[i] > INT16_MAX) return false;
    *h = (int32_t)a->ints[0], *w = (int32_t)a->ints[1];
    return true;
}

/* As much padding as keeps a side that the stride divides; the odd pixel is behind, or before. */
static void pads_same(int32_t side, int32_t span, int32_t stride, bool lower, int64_t *before, int64_t *after)
{
    int64_t lacks = (int64_t)(side - 1) / stride * stride + span - side;
    if (lacks < 0) lacks = 0;
    *before = lower ? lacks - lacks / 2 : lacks / 2;
    *after = lacks - *before;
}

bool node_window(OnnxWalk *w, const OnnxNode *node, Shape x, const Border *border, Window *window)
{
    const Onnx__AttributeProto *pads = onnx_attribute(node, "pads");
    int64_t pad[4] = {0};
    int32_t h, v;
    bool same = onnx_text_is(node, "auto_pad", "SAME_UPPER"), lower = onnx_text_is(node, "auto_pad", "SAME_LOWER");
    bool is_explicit = onnx_text_is(node, "auto_pad", "") || onnx_text_is(node, "auto_pad", "NOTSET");
    bool known = pair_of(node, "kernel_shape", 0, &h, &v);
    if (known && h && window->kh) known = h == window->kh && v == window->kw; /* that of the weights */
    if (known && h) window->kh = h, window->kw = v;
    known = known && window->kh && (is_explicit || same || lower || onnx_text_is(node, "auto_pad", "VALID")) &&
            pair_of(node, "strides", 1, &window->stride_h, &window->stride_w) &&
            pair_of(node, "dilations", 1, &window->dilate_h, &window->dilate_w) && (!pads || pads->n_ints == 4);
    if (!known) {
        walk_refuse(w, node, "expected a window of rows and columns, that of its weights if it has any");
        return false;
    }
    window->dilate_h--, window->dilate_w--;
    for (int i = 0; i < 4 && pads && is_explicit; i++)
        pad[i] = pads->ints[i] >= 0 && pads->ints[i] <= INT16_MAX ? pads->ints[i] : INT32_MIN;
    if (same || lower) {
        pads_same(x.h + border->top + border->bottom, window_span(window->kh, window->dilate_h), window->stride_h,
                  lower, &pad[0], &pad[2]);
        pads_same(x.w + border->left + border->right, window_span(window->kw, window->dilate_w), window->stride_w,
                  lower, &pad[1], &pad[3]);
    }
    pad[0] += border->top, pad[1] += border->left, pad[2] += border->bottom, pad[3] += border->right;
    for (int i = 0; i < 4; i++)
        if (pad[i] < 0 || pad[i] > INT16_MAX) {
            walk_refuse(w, node, "expected a padding of 0 to %d", INT16_MAX);
            return false;
        }
    window->pad_h = (int32_t)pad[0], window->pad_w = (int32_t)pad[1];
    window->more_h = (int32_t)(pad[2] - pad[0]), window->more_w = (int32_t)(pad[3] - pad[1]);
    return true;
}

Value walk_windowed(OnnxWalk *w, const OnnxNode *node, bool (*pads)(double value), Border *border)
{
    Active *a = walk_active(w, node, 0);
    *border = (Border){0};
    if (!a || a->order.rank != 4) {
        walk_refuse(w, node, "expected an image of four axes");
        return (Value){0};
    }
    bool kept = pads && !a->border.mirrored && pads(a->border.value) && a->border.top >= 0 && a->border.bottom >= 0 &&
                a->border.left >= 0 && a->border.right >= 0;
    if (kept && order_is(&a->order, "NCHW")) {
        *border = a->border;
        return walk_inner(w, node->in[0]);
    }
    return walk_ordered(w, node, 0, "NCHW");
}

/* ---- pools, and the reverse */

static bool is_least(double value)
{
    return value <= -1e30;
}

void build_pool(OnnxWalk *w, const OnnxNode *node)
{
    bool largest = !strcmp(node->type, "MaxPool");
    OpAttr attr = {.pool.include_pad = onnx_int(node, "count_include_pad", 0) != 0};
    Border border;
    Value x = walk_windowed(w, node, largest ? is_least : NULL, &border);
    if (!x.id || !node_window(w, node, graph_shape(w->g, x), &border, &attr.pool.window)) return;
    if (attr.pool.window.dilate_h || attr.pool.window.dilate_w || (node->out_count > 1 && node->out[1])) {
        walk_refuse(w, node, "a pool here has no dilation, and gives no indices");
        return;
    }
    attr.pool.window.ceil = onnx_int(node, "ceil_mode", 0) != 0;
    Shape s = graph_shape(w->g, x), one = {s.n, s.c, 1, 1};
    const Window *window = &attr.pool.window;
    bool all = window->kh == s.h && window->kw == s.w && !window_is_padded(window) && s.h * s.w > LARGEST_OF;
    if (!largest && s.h * s.w > 1 && window->kh >= s.h && window->kw >= s.w) means_note(w, node);
    walk_give_image(w, node,
                    largest && all ? largest_pixel(w->g, x, one)
                                   : graph_op(w->g, largest ? OP_MAX_POOL : OP_AVG_POOL, NULL, &x, 1, &attr, NULL));
}

void build_global_pool(OnnxWalk *w, const OnnxNode *node)
{
    Active *a = walk_active(w, node, 0);
    Value x = walk_ordered(w, node, 0, "NCHW");
    if (!a || !x.id) return;
    means_note(w, node);
    Shape s = graph_shape(w->g, x), one = {s.n, s.c, 1, 1};
    bool largest = !strcmp(node->type, "GlobalMaxPool");
    walk_give_image(w, node, largest ? largest_pixel(w->g, x, one) : global_avg_pool(w->g, x));
}

/* Operand k as what an axis is multiplied by: 0 if it is no whole number. */
static int64_t times_of(OnnxWalk *w, const OnnxNode *node, const AxisOrder *order, int axis)
{
    const Fixed *scales = walk_fixed(w, node, 2), *sizes = walk_fixed(w, node, 3);
    double size = (double)order_dim(order, axis), times = 0;
    if (sizes && sizes->count == order->rank) times = fixed_at(sizes, axis) / size;
    if (scales && scales->count == order->rank) times = fixed_at(scales, axis);
    return times >= 1 && times <= INT16_MAX && floor(times) == times ? (int64_t)times : 0;
}

/* Every pixel becomes as many equal ones, as the nearest neighbour does it for whole factors with either of these conventions. */
void build_resize(OnnxWalk *w, const OnnxNode *node)
{
    bool floors = onnx_text_is(node, "coordinate_transformation_mode", "asymmetric") &&
                  onnx_text_is(node, "nearest_mode", "floor"),
         nearest = onnx_text_is(node, "mode", "nearest") || onnx_text_is(node, "mode", ""),
         rounds = (onnx_text_is(node, "coordinate_transformation_mode", "half_pixel") ||
                   onnx_text_is(node, "coordinate_transformation_mode", "")) &&
                  (onnx_text_is(node, "nearest_mode", "round_prefer_floor") || onnx_text_is(node, "nearest_mode", ""));
    Value x = walk_ordered(w, node, 0, "NCHW");
    if (!x.id) return;
    const AxisOrder *order = &walk_active(w, node, 0)->order;
    int64_t times = times_of(w, node, order, 2);
    bool whole =
        times_of(w, node, order, 0) == 1 && times_of(w, node, order, 1) == 1 && times == times_of(w, node, order, 3);
    if (!nearest || !(floors || rounds) || !whole || !times)
        walk_refuse(w, node, "expected the nearest pixels, as many times in each row and column");
    else
        walk_give_image(w, node, times == 1 ? x : upsample(w->g, x, (int32_t)times));
}
