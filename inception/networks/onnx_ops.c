/* Nodes that become ops with parameters, and pools. A bias or a ReLU that alone reads the result is part of the op, as in the networks
 * of inception/models/. */
#include "inception/networks/onnx_walk.h"

static const OnnxNode *relu_after(OnnxWalk *w, const OnnxNode *last)
{
    return walk_next(w, last, "Relu");
}

/* An Add of one number for each output, which are on this axis of so many, right behind the node. */
static const OnnxNode *bias_after(OnnxWalk *w, const OnnxNode *node, int rank, int axis, int64_t count,
                                  const Fixed **bias)
{
    const OnnxNode *next = walk_next(w, node, "Add");
    AxisOrder order = {.rank = rank, .count = 1, .part = {{axis, AXIS_CHANNEL, 0, count}}};
    for (int k = 0; next && next->in_count == 2 && k < 2; k++) {
        *bias = walk_fixed(w, next, k);
        if (*bias && count > 1 && fixed_is_of_channels(*bias, &order) && (*bias)->from.proto && !(*bias)->integer)
            return next;
    }
    *bias = NULL;
    return NULL;
}

/* A bias that is no parameter of the file but zeros, which an exporter has made for an operand that must be there. */
static bool is_nothing(const Fixed *bias)
{
    return bias && !bias->from.proto && fixed_all_are(bias, 0);
}

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

/* The node's window over x, whose border is part of the padding. */
static bool window_of(OnnxWalk *w, const OnnxNode *node, Shape x, const Border *border, Window *window)
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

/* The image that a window goes over, and the border that becomes padding of it if its value is one that padding has. */
static Value windowed(OnnxWalk *w, const OnnxNode *node, bool (*pads)(double), Border *border)
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

static void give_image(OnnxWalk *w, const OnnxNode *node, Value v)
{
    AxisOrder order = order_make("NCHW", graph_shape(w->g, v));
    walk_give(w, node, v, &order);
}

/* ---- convolutions */

static bool is_zero(double value)
{
    return value == 0;
}

static bool conv_is_known(OnnxWalk *w, const OnnxNode *node, const Fixed *weights, Shape x)
{
    if (!weights || weights->rank != 4 || weights->count < 1) {
        walk_refuse(w, node, "expected weights {out, in, height, width} of the file");
        return false;
    }
    int64_t groups = onnx_int(node, "group", 1), in = weights->dims[1];
    if (groups >= 1 && groups <= x.c && in * groups == x.c && weights->dims[0] % groups == 0) return true;
    walk_refuse(w, node,
                "%d channels enter it; its weights are for %" PRId64 " channels in each of %" PRId64
                " groups, and %" PRId64 " outputs",
                x.c, in, groups, weights->dims[0]);
    return false;
}

static Value vector_param(OnnxWalk *w, const OnnxNode *node, const Fixed *f, int64_t count, Init init)
{
    return walk_param(w, node, f, (Wanted){.shape = {1, (int32_t)count, 1, 1}, .rank = 1, .init = init});
}

/* What enters the product of the classes: with a dropout that was asked for, if the file has none of its own. */
static Value head_input(OnnxWalk *w, const OnnxNode *node, Value x)
{
    bool head = onnx_head_of(w->head, (int)(node - w->file->node)) == 0;
    return head && !w->drops.built && w->options->dropout > 0 ? dropout(w->g, x, w->options->dropout) : x;
}

static void build_conv(OnnxWalk *w, const OnnxNode *node)
{
    const Fixed *weights = walk_fixed(w, node, 1), *bias = walk_fixed(w, node, 2);
    const OnnxNode *last = node, *next;
    OpAttr attr = {0};
    Border border;
    Standardized standardized;
    if (blur(w, node) || conv_of_channels(w, node)) return;
    bool computed = node->in_count > 1 && weights_standardized(w, node->in[1], &standardized);
    if (computed) weights = &standardized.weights;
    if (!weights && walk_in(w, node, 1) && walk_in(w, node, 1)->known == KNOWN_LATER) {
        walk_refuse_late(w, node);
        return;
    }
    Value x = windowed(w, node, is_zero, &border), b = {0};
    if (!x.id || !conv_is_known(w, node, weights, graph_shape(w->g, x))) return;
    attr.conv.window.kh = (int32_t)weights->dims[2], attr.conv.window.kw = (int32_t)weights->dims[3];
    if (!window_of(w, node, graph_shape(w->g, x), &border, &attr.conv.window)) return;
    if (walk_in(w, node, 2) && !bias) {
        walk_refuse(w, node, "expected a bias of the file");
        return;
    }
    int64_t out = walk_classes(w, node, weights->dims[0]);
    if (is_nothing(bias)) bias = NULL;
    if (!bias && (next = bias_after(w, node, 4, 1, weights->dims[0], &bias))) last = next;
    if (bias && bias->count != weights->dims[0]) {
        walk_refuse(w, node, "expected as many biases as outputs");
        return;
    }
    Shape shape = {(int32_t)out, (int32_t)weights->dims[1], attr.conv.window.kh, attr.conv.window.kw};
    Value p =
        walk_param(w, node, weights, (Wanted){.shape = shape, .rank = 4, .init = {INIT_HE_NORMAL}, .decay = true});
    if (bias) b = vector_param(w, node, bias, out, (Init){INIT_ZERO});
    if (p.id && computed) p = weights_standardize(w, node, &standardized, p);
    if (!p.id || (bias && !b.id)) return;
    next = relu_after(w, last);
    attr.conv.relu = next;
    give_image(w, node,
               graph_op(w->g, OP_CONV, layer_name(w, node, weights), (Value[]){head_input(w, node, x), p, b},
                        bias ? 3 : 2, &attr, NULL));
    if (last != node) walk_skip(w, node, last);
    if (next) walk_skip(w, node, next);
}

/* ---- norms */

static void build_batch_norm(OnnxWalk *w, const OnnxNode *node)
{
    const Fixed *vector[4]; /* gamma, beta, mean, variance */
    const OnnxNode *next;
    Active *a = walk_active(w, node, 0);
    Value x = a ? walk_value(w, node->in[0]) : (Value){0};
    if (!x.id || a->order.rank < 2 || !order_has_channels(&a->order, 1)) {
        walk_refuse(w, node, "expected a value with its channels on the second axis");
        return;
    }
    AxisOrder order = a->order;
    Wanted wanted = {.shape = {1, graph_shape(w->g, x).c, 1, 1}, .rank = 1};
    for (int k = 0; k < 4; k++) {
        vector[k] = walk_fixed(w, node, k + 1);
        bool free = vector[k] && !graph_find(w->g, vector[k]->name).id;
        for (int i = 0; i < k && free; i++) free = strcmp(vector[i]->name, vector[k]->name) != 0;
        if (free && vector[k]->count == wanted.shape.c && walk_bind(w, node, vector[k], &wanted)) continue;
        walk_refuse(w, node, "expected scale, bias, mean and variance of its own, one for each channel");
        return;
    }
    float epsilon;
    if (!norm_epsilon(w, node, &epsilon)) return;
    next = relu_after(w, node);
    const NormNames names = {vector[0]->name, vector[1]->name, vector[2]->name, vector[3]->name};
    float momentum = (float)onnx_float(node, "momentum", 0.9);
    if (!(momentum >= 0 && momentum < 1)) {
        walk_refuse(w, node, "its averages keep %g of themselves; expected 0 to less than 1", (double)momentum);
        return;
    }
    if (w->first) {
        w->survey->momenta |= w->survey->norms && w->survey->momentum >= 0 && w->survey->momentum != momentum;
        w->survey->momentum = momentum;
        w->survey->norms = true;
    }
    walk_give(w, node, batch_norm_by_names(w->g, x, layer_name(w, node, vector[2]), &names, epsilon, next), &order);
    if (next) walk_skip(w, node, next);
}

static void build_layer_norm(OnnxWalk *w, const OnnxNode *node)
{
    const Fixed *scale = walk_fixed(w, node, 1), *bias = walk_fixed(w, node, 2);
    Active *a = walk_active(w, node, 0);
    int axis = a ? node_axis(w, node, onnx_int(node, "axis", -1), a->order.rank) : 0;
    if (axis < 0) return;
    Value x = a ? walk_value(w, node->in[0]) : (Value){0};
    if (!x.id || axis != a->order.rank - 1 || !order_has_channels(&a->order, axis)) {
        walk_refuse(w, node, "expected a norm over the channels alone, on the last axis");
        return;
    }
    int32_t channels = graph_shape(w->g, x).c;
    AxisOrder order = a->order;
    if (!scale || !bias || scale->count != channels || bias->count != channels) {
        walk_refuse(w, node, "expected scale and bias of the file, one for each channel");
        return;
    }
    OpAttr attr = {0};
    if (!norm_epsilon(w, node, &attr.norm.epsilon)) return;
    if (w->first) w->survey->norms = true;
    Value gamma = vector_param(w, node, scale, channels, (Init){INIT_CONSTANT, 1}),
          beta = vector_param(w, node, bias, channels, (Init){INIT_ZERO});
    if (!gamma.id || !beta.id) return;
    walk_give(w, node,
              graph_op(w->g, OP_LAYERNORM, layer_name(w, node, scale), (Value[]){x, beta, gamma}, 3, &attr, NULL),
              &order);
}

/* ---- products */

/* Whether the elements of each sample, on axis 1, are those of this order, of which sizes of 1 are absent. */
static bool is_flat(const AxisOrder *order, const char *axes)
{
    static const char letters[] = "NCHW";
    if (order->rank != 2) return false;
    for (int i = 0; i < order->count; i++) {
        const AxisPart *part = &order->part[i];
        if (part->place || (part->of == AXIS_BATCH) != (part->axis == 0)) return false;
        if (part->of == AXIS_BATCH) continue;
        const char *at = strchr(axes, letters[part->of]);
        if (!at) return false;
        axes = at + 1;
    }
    return true;
}

typedef struct OnnxProduct {
    const Fixed *weights, *bias;
    bool turned; /* weights are {in, out} */
} OnnxProduct;

/* The operand as the graph's dense layer takes it: all of a sample, or the channels of each pixel. Value 0: refused. */
static Value factors(OnnxWalk *w, const OnnxNode *node, bool *pixels)
{
    Active *a = walk_active(w, node, 0);
    Value x = a ? walk_value(w, node->in[0]) : (Value){0};
    if (!x.id) {
        walk_refuse(w, node, "expected a value that the network computes");
        return x;
    }
    Shape s = graph_shape(w->g, x);
    *pixels = false;
    if (is_flat(&a->order, "CHW")) return x;
    if (is_flat(&a->order, "HWC")) return reshape(w->g, x, (Shape){s.n, s.c * s.h * s.w, 1, 1});
    *pixels = s.h * s.w > 1;
    if (order_has_channels(&a->order, a->order.rank - 1)) return x;
    walk_refuse(w, node, "its operand's last axis is not that of the channels, or of all of a sample");
    return (Value){0};
}

static void build_product(OnnxWalk *w, const OnnxNode *node, OnnxProduct p)
{
    const OnnxNode *last = node, *next;
    bool pixels;
    if (!p.weights || p.weights->rank != 2) {
        walk_refuse(w, node, "expected a matrix of the file as its second operand");
        return;
    }
    int64_t in = p.weights->dims[!p.turned], out_in_file = p.weights->dims[p.turned];
    Value x = factors(w, node, &pixels), b = {0};
    if (!x.id) return;
    AxisOrder order = walk_active(w, node, 0)->order;
    Shape s = graph_shape(w->g, x),
          shape = {(int32_t)walk_classes(w, node, out_in_file), s.c, pixels ? 1 : s.h, pixels ? 1 : s.w};
    if (in != (int64_t)shape.c * shape.h * shape.w) {
        walk_refuse(w, node, "%" PRId64 " numbers enter it; its weights are for %" PRId64,
                    (int64_t)shape.c * shape.h * shape.w, in);
        return;
    }
    if (!p.bias && (next = bias_after(w, node, order.rank, order.rank - 1, out_in_file, &p.bias))) last = next;
    Init init = {INIT_UNIFORM, 1 / sqrtf((float)in)};
    Wanted wanted = {.shape = shape, .rank = 2, .init = init, .decay = true, .turned = p.turned != p.weights->turned};
    Value weights = walk_param(w, node, p.weights, wanted);
    if (p.bias) b = vector_param(w, node, p.bias, shape.n, (Init){INIT_ZERO});
    if (!weights.id || (p.bias && !b.id)) return;
    if (pixels) graph_rank(w->g, weights, 2); /* of a dense layer it is by itself */
    OpAttr conv = {.conv.window = {.kh = 1, .kw = 1, .stride_h = 1, .stride_w = 1}}, dense = {0};
    next = relu_after(w, last);
    conv.conv.relu = dense.dense.relu = next;
    Value y = graph_op(w->g, pixels ? OP_CONV : OP_DENSE, layer_name(w, node, p.weights),
                       (Value[]){head_input(w, node, x), weights, b}, p.bias ? 3 : 2, pixels ? &conv : &dense, NULL);
    int axis = order.rank - 1;
    if (!pixels)
        for (int of = AXIS_ROW; of <= AXIS_COLUMN; of++) order_resize(&order, axis, (OnnxAxis)of, 1);
    order_resize(&order, axis, AXIS_CHANNEL, shape.n);
    walk_give(w, node, y, &order);
    if (last != node) walk_skip(w, node, last);
    if (next) walk_skip(w, node, next);
}

static void build_matmul(OnnxWalk *w, const OnnxNode *node)
{
    if (weighted_sum(w, node)) return;
    build_product(w, node, (OnnxProduct){walk_fixed(w, node, 1), NULL, true});
}

static void build_gemm(OnnxWalk *w, const OnnxNode *node)
{
    const Fixed *weights = walk_fixed(w, node, 1), *bias = walk_fixed(w, node, 2);
    bool turned = onnx_int(node, "transB", 0) == 0;
    bool plain = onnx_float(node, "alpha", 1) == 1 && onnx_float(node, "beta", 1) == 1 && !onnx_int(node, "transA", 0);
    if (!plain || (walk_in(w, node, 2) && !bias) ||
        (bias && weights && weights->rank == 2 &&
         (bias->count != weights->dims[turned] || (bias->rank && bias->dims[bias->rank - 1] != bias->count))))
        walk_refuse(w, node, "expected a product of the operand and weights of the file, and a bias for each output");
    else
        build_product(w, node, (OnnxProduct){weights, bias, turned});
}

/* ---- pools */

static bool is_least(double value)
{
    return value <= -1e30;
}

static void build_pool(OnnxWalk *w, const OnnxNode *node)
{
    bool largest = !strcmp(node->type, "MaxPool");
    OpAttr attr = {.pool.include_pad = onnx_int(node, "count_include_pad", 0) != 0};
    Border border;
    Value x = windowed(w, node, largest ? is_least : NULL, &border);
    if (!x.id || !window_of(w, node, graph_shape(w->g, x), &border, &attr.pool.window)) return;
    if (attr.pool.window.dilate_h || attr.pool.window.dilate_w || (node->out_count > 1 && node->out[1])) {
        walk_refuse(w, node, "a pool here has no dilation, and gives no indices");
        return;
    }
    attr.pool.window.ceil = onnx_int(node, "ceil_mode", 0) != 0;
    Shape s = graph_shape(w->g, x);
    if (!largest && s.h * s.w > 1 && attr.pool.window.kh >= s.h && attr.pool.window.kw >= s.w) means_note(w, node);
    give_image(w, node, graph_op(w->g, largest ? OP_MAX_POOL : OP_AVG_POOL, NULL, &x, 1, &attr, NULL));
}

static void build_global_pool(OnnxWalk *w, const OnnxNode *node)
{
    Active *a = walk_active(w, node, 0);
    Value x = walk_ordered(w, node, 0, "NCHW");
    if (!a || !x.id) return;
    means_note(w, node);
    Shape s = graph_shape(w->g, x);
    bool largest = !strcmp(node->type, "GlobalMaxPool") && s.h * s.w > 1;
    Window all = {.kh = s.h, .kw = s.w, .stride_h = 1, .stride_w = 1};
    give_image(w, node, largest ? max_pool_window(w->g, x, all) : global_avg_pool(w->g, x));
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
static void build_resize(OnnxWalk *w, const OnnxNode *node)
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
        give_image(w, node, times == 1 ? x : upsample(w->g, x, (int32_t)times));
}

/* ---- what training and the loss do */

static void build_identity(OnnxWalk *w, const OnnxNode *node)
{
    walk_alias(w, node->out[0], node->in[0]);
}

static void build_cast(OnnxWalk *w, const OnnxNode *node)
{
    int64_t to = onnx_int(node, "to", 0);
    if (to == ELEMENT_FLOAT || to == ELEMENT_FLOAT16 || to == ELEMENT_BFLOAT16 || to == ELEMENT_DOUBLE)
        build_identity(w, node);
    else
        walk_refuse(w, node, "it makes whole numbers of what the network computes");
}

/* The rate is an option, whose default is that of the file's last Dropout. */
static void build_dropout(OnnxWalk *w, const OnnxNode *node)
{
    const Fixed *ratio = walk_fixed(w, node, 1);
    double rate = ratio && ratio->count == 1 ? fixed_at(ratio, 0) : onnx_float(node, "ratio", 0.5);
    Active *a = walk_active(w, node, 0);
    Value x = a ? walk_value(w, node->in[0]) : (Value){0};
    if (!x.id || (walk_in(w, node, 1) && !(ratio && ratio->count == 1)) || !(rate >= 0 && rate < 1)) {
        walk_refuse(w, node, "expected a value that the network computes, and a rate below 1");
        return;
    }
    AxisOrder order = a->order;
    walk_give(w, node, elements_drop(w, x, rate), &order);
}

static bool is_output(OnnxWalk *w, const OnnxNode *node)
{
    const OnnxValue *value = &w->file->value[node->out[0]];
    return value->reader < 0 && value->reads > 0;
}

/* The axes `first` .. `end` - 1 that a softmax is over; false: it was refused. */
static bool softmax_axes(OnnxWalk *w, const OnnxNode *node, int *first, int *end)
{
    int rank = w->item[node->in[0]].active.order.rank;
    bool and_following = w->file->opset < 13;
    *first = node_axis(w, node, onnx_int(node, "axis", and_following ? 1 : -1), rank);
    *end = and_following ? rank : *first + 1;
    return *first >= 0;
}

/* Whether these axes have all numbers of a sample, which are the classes. */
static bool is_of_samples(const AxisOrder *order, int first, int end)
{
    for (int i = 0; i < order->count; i++) {
        bool is_over = order->part[i].axis >= first && order->part[i].axis < end;
        if (is_over == (order->part[i].of == AXIS_BATCH)) return false;
    }
    return true;
}

/* At the end it is part of the loss. */
static void build_end(OnnxWalk *w, const OnnxNode *node)
{
    int first, end;
    if (!softmax_axes(w, node, &first, &end)) return;
    if (is_output(w, node) && is_of_samples(&w->item[node->in[0]].active.order, first, end))
        build_identity(w, node);
    else if (strcmp(node->type, "Softmax") != 0 ||
             (!softmax_of_pixels(w, node, first, end) && (end > first + 1 || !softmax_of_groups(w, node, first))))
        walk_refuse(w, node,
                    "it is neither over the classes at the end of the network, where it is part of the loss, nor over "
                    "pixels or two groups of channels");
}

static void build_sigmoid(OnnxWalk *w, const OnnxNode *node)
{
    if (!is_output(w, node)) {
        build_unary(w, node);
        return;
    }
    if (w->first) w->survey->sigmoid = true;
    build_identity(w, node);
}

static void build_sum(OnnxWalk *w, const OnnxNode *node)
{
    Value x[OP_MAX_IN];
    Active *a = walk_active(w, node, 0);
    bool alike = a && node->in_count <= OP_MAX_IN;
    for (int k = 0; alike && k < node->in_count; k++) {
        Active *other = walk_active(w, node, k);
        alike = other && order_equal(&other->order, &a->order);
        if (alike) alike = (x[k] = walk_value(w, node->in[k])).id != 0;
    }
    if (!alike) {
        walk_refuse(w, node, "expected at most %d values of one shape that the network computes", OP_MAX_IN);
        return;
    }
    AxisOrder order = a->order;
    walk_give(w, node, graph_op(w->g, OP_ADD, node->name, x, node->in_count, NULL, NULL), &order);
}

/* ---- the table */

static const OnnxOp table[] = {
#define ONNX_OP(type, function, attributes) {#type, function, attributes},
#include "inception/networks/onnx_ops.def"
};

const OnnxOp *onnx_op(const char *type)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].type, type)) return &table[i];
    return NULL;
}
