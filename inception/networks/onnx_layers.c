/* Nodes that become layers with weights: convolutions, and products with a matrix. A bias or a ReLU that alone reads the result is part of the
 * layer, as in the networks of inception/models/. */
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

/* What enters the product of the classes: with a dropout that was asked for, if the file has none of its own. */
static Value head_input(OnnxWalk *w, const OnnxNode *node, Value x)
{
    bool head = onnx_head_of(w->head, (int)(node - w->file->node)) == 0;
    return head && !w->drops.built && w->options->dropout > 0 ? dropout(w->g, x, w->options->dropout) : x;
}

/* What a convolution reads beside its image. */
typedef struct ConvOperands {
    const Fixed *weights, *bias; /* bias NULL: none */
    const OnnxNode *last;        /* the node that adds the bias, or the convolution itself */
    bool computed;               /* the file standardizes the weights */
    Standardized standardized;
} ConvOperands;

/* False: weights that are not computed here, which was refused. Others are looked at with the image (conv_is_known). */
static bool conv_weights_find(OnnxWalk *w, const OnnxNode *node, ConvOperands *of)
{
    const OnnxItem *item = walk_in(w, node, 1);
    of->weights = walk_fixed(w, node, 1);
    of->computed = item && weights_standardized(w, node->in[1], &of->standardized);
    if (of->computed) of->weights = &of->standardized.weights;
    if (of->weights || !item || item->known != KNOWN_LATER) return true;
    walk_refuse_late(w, node);
    return false;
}

/* The bias of the node, or of an Add behind it; false: refused. */
static bool conv_bias_find(OnnxWalk *w, const OnnxNode *node, ConvOperands *of)
{
    int64_t outputs = of->weights->dims[0];
    of->bias = walk_fixed(w, node, 2);
    of->last = node;
    if (walk_in(w, node, 2) && !of->bias) {
        walk_refuse(w, node, "expected a bias of the file");
        return false;
    }
    if (is_nothing(of->bias)) of->bias = NULL;
    const OnnxNode *adds = of->bias ? NULL : bias_after(w, node, 4, 1, outputs, &of->bias);
    if (adds) of->last = adds;
    if (!of->bias || of->bias->count == outputs) return true;
    walk_refuse(w, node, "expected as many biases as outputs");
    return false;
}

/* The parameters of a convolution, of which in[1] and, with a bias, in[2] are made. False: refused. */
static bool conv_params_make(OnnxWalk *w, const OnnxNode *node, const ConvOperands *of, const Window *window,
                             Value in[3])
{
    int32_t outputs = (int32_t)walk_classes(w, node, of->weights->dims[0]);
    Wanted wanted = {.shape = {outputs, (int32_t)of->weights->dims[1], window->kh, window->kw},
                     .rank = 4,
                     .init = {INIT_HE_NORMAL},
                     .decay = true};
    in[1] = walk_param(w, node, of->weights, wanted);
    if (of->bias) in[2] = walk_vector(w, node, of->bias, outputs, (Init){INIT_ZERO});
    if (in[1].id && of->computed) in[1] = weights_standardize(w, node, &of->standardized, in[1]);
    return in[1].id && (!of->bias || in[2].id);
}

void build_conv(OnnxWalk *w, const OnnxNode *node)
{
    ConvOperands of;
    OpAttr attr = {0};
    Window *window = &attr.conv.window;
    Border border;
    if (blur(w, node) || conv_of_channels(w, node) || !conv_weights_find(w, node, &of)) return;
    Value x = walk_windowed(w, node, is_zero, &border), in[3] = {{0}};
    if (!x.id || !conv_is_known(w, node, of.weights, graph_shape(w->g, x))) return;
    window->kh = (int32_t)of.weights->dims[2], window->kw = (int32_t)of.weights->dims[3];
    if (!node_window(w, node, graph_shape(w->g, x), &border, window) || !conv_bias_find(w, node, &of) ||
        !conv_params_make(w, node, &of, window, in))
        return;
    in[0] = head_input(w, node, x);
    const OnnxNode *relu = relu_after(w, of.last);
    attr.conv.relu = relu;
    const char *name = layer_name(w, node, of.weights);
    walk_give_image(w, node, graph_op(w->g, OP_CONV, name, in, of.bias ? 3 : 2, &attr, NULL));
    if (of.last != node) walk_skip(w, node, of.last);
    if (relu) walk_skip(w, node, relu);
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
    if (p.bias) b = walk_vector(w, node, p.bias, shape.n, (Init){INIT_ZERO});
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

void build_matmul(OnnxWalk *w, const OnnxNode *node)
{
    if (weighted_sum(w, node)) return;
    build_product(w, node, (OnnxProduct){walk_fixed(w, node, 1), NULL, true});
}

void build_gemm(OnnxWalk *w, const OnnxNode *node)
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
