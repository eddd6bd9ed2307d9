/* Convert an op list to ONNX nodes; see onnx.h. A ReLU fused into an op becomes a node of its own. Only ops that the
 * result (logits or images) depends on are written. */
#include "towers/files/files.h"
#include "towers/store/onnx_nodes.h"

enum { NODES_PER_OP = 10, TENSORS_PER_OP = 8, OPSET = 17, IR_VERSION = 8 };

/* ---- ops: each function appends the nodes of one op */

/* A node that reads what `before`, another node of the op, writes. */
static Node *node_next(Writer *w, const Op *op, const char *type, Node *before)
{
    char *text = before->text[OP_MAX_IN];
    snprintf(text, ONNX_NAME, "v%d_part%d", op->out[0].id, w->node_count);
    node_writes(before, text);
    Node *node = node_add(w, type, op->name);
    node_reads(node, text);
    return node;
}

static Node *node_next_with(Writer *w, const Op *op, const char *type, Node *before, const char *operand)
{
    Node *node = node_next(w, op, type, before);
    node_reads(node, operand);
    return node;
}

static void write_image(Writer *w, const Op *op)
{
    int32_t channels = graph_shape(w->graph, op->out[0]).c;
    Node *center = node_add(w, "Sub", "center");
    node_reads(center, w->bytes ? "image_unit" : "image");
    node_reads(center, constant_make(w, "mean", 4, channels, op->attr.image.mean, 0));
    node_writes(center, "image_centered");
    Node *scale = node_add(w, "Div", "normalize");
    node_reads(scale, "image_centered");
    node_reads(scale, constant_make(w, "std", 4, channels, op->attr.image.std, 1));
    writes_value(w, scale, op->name, op->out[0], false);
}

static void attributes_window(Node *node, const Window *window)
{
    attribute_ints(node, "kernel_shape", 2, (const int64_t[]){window->kh, window->kw});
    attribute_ints(node, "strides", 2, (const int64_t[]){window->stride_h, window->stride_w});
    attribute_ints(node, "pads", 4,
                   (const int64_t[]){window->pad_h, window->pad_w, window->pad_h + window->more_h,
                                     window->pad_w + window->more_w});
    if (window->dilate_h || window->dilate_w)
        attribute_ints(node, "dilations", 2, (const int64_t[]){window->dilate_h + 1, window->dilate_w + 1});
}

/* The operands behind the first: those of `int8`, or if it is NULL those of the op. */
static void reads_weights(const Writer *w, Node *node, const Op *op, const char *const *int8)
{
    for (int k = 1; k < op->in_count && !int8; k++)
        if (op->in[k].id) reads_value(w, node, op->in[k]);
    for (int k = 0; k < 2 && int8; k++) node_reads(node, int8[k]);
}

static Status write_conv(Writer *w, const Op *op)
{
    const char *weights[2];
    bool int8 = int8_weighs(w, op);
    if (int8) TRY(int8_weights(w, op, weights));
    Node *node = node_add(w, "Conv", op->name);
    reads_value(w, node, op->in[0]);
    reads_weights(w, node, op, int8 ? weights : NULL);
    attributes_window(node, &op->attr.conv.window);
    attribute_int(node, "group", conv_groups(graph_shape(w->graph, op->in[0]), graph_shape(w->graph, op->in[1])));
    writes_value(w, node, op->name, op->out[0], op->attr.conv.relu);
    return w->status;
}

/* in: x, beta, mean, var, gamma; ONNX: x, scale, bias, mean, var */
static void write_batchnorm(Writer *w, const Op *op)
{
    Node *node = node_add(w, "BatchNormalization", op->name);
    bool gamma = op->in_count > 4 && op->in[4].id;
    reads_value(w, node, op->in[0]);
    if (gamma)
        reads_value(w, node, op->in[4]);
    else
        node_reads(node, constant_make(w, "ones", 1, graph_shape(w->graph, op->in[0]).c, NULL, 1));
    for (int k = 1; k < 4; k++) reads_value(w, node, op->in[k]);
    attribute_float(node, "epsilon", op->attr.norm.epsilon);
    writes_value(w, node, op->name, op->out[0], op->attr.norm.relu);
}

/* in: x, beta, gamma; ONNX: x, scale, bias, of which x has the normalized axis last. Vectors that are computed have four dimensions. */
static void write_layernorm(Writer *w, const Op *op)
{
    static const int64_t last[] = {0, 2, 3, 1}, second[] = {0, 3, 1, 2}, vector[] = {-1};
    Node *of[3] = {NULL};
    for (int k = 1; k < 3; k++) {
        if (graph_value(w->graph, op->in[k])->role == ROLE_PARAM) continue;
        of[k] = node_add(w, "Reshape", op->name);
        reads_value(w, of[k], op->in[k]);
        node_reads(of[k], constant_ints(w, "shape", 1, vector));
        snprintf(of[k]->text[OP_MAX_IN], ONNX_NAME, "v%d_vector%d", op->out[0].id, k);
        node_writes(of[k], of[k]->text[OP_MAX_IN]);
    }
    Node *node = node_add(w, "Transpose", op->name);
    reads_value(w, node, op->in[0]);
    attribute_ints(node, "perm", 4, last);
    node = node_next(w, op, "LayerNormalization", node);
    for (int k = 2; k > 0; k--) {
        if (of[k])
            node_reads(node, of[k]->text[OP_MAX_IN]);
        else
            reads_value(w, node, op->in[k]);
    }
    attribute_float(node, "epsilon", op->attr.norm.epsilon);
    node = node_next(w, op, "Transpose", node);
    attribute_ints(node, "perm", 4, second);
    writes_value(w, node, op->name, op->out[0], false);
}

static void write_pool(Writer *w, const Op *op)
{
    bool average = op->kind == OP_AVG_POOL;
    const Window *window = &op->attr.pool.window;
    Node *node = node_add(w, average ? "AveragePool" : "MaxPool", op->name);
    reads_value(w, node, op->in[0]);
    attributes_window(node, window);
    attribute_int(node, "ceil_mode", window->ceil);
    if (average) attribute_int(node, "count_include_pad", op->attr.pool.include_pad);
    writes_value(w, node, op->name, op->out[0], false);
}

/* Functions of one number, which any axes may have. */
static bool is_of_any_axes(const Op *op)
{
    static const OpKind kinds[] = {OP_RELU,       OP_RELU6, OP_LEAKY_RELU, OP_TANH,      OP_SIGMOID, OP_HARD_SIGMOID,
                                   OP_HARD_SWISH, OP_SILU,  OP_GELU,       OP_GELU_TANH, OP_AFFINE,  OP_POWER};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (op->kind == kinds[i]) return true;
    return false;
}

/* Whether what reads the outputs of a dense layer takes them as a matrix; all else has values of four axes. */
static bool is_read_as_matrix(const Writer *w, Value v)
{
    bool matrix = true;
    for (int i = 0; i < graph_op_count(w->graph) && v.id != w->result.id; i++) {
        const Op *op = graph_op_at(w->graph, i);
        for (int k = 0; k < op->in_count && matrix; k++)
            if (op->in[k].id == v.id && op->kind != OP_DENSE && op->kind != OP_RESHAPE)
                matrix = is_of_any_axes(op) && is_read_as_matrix(w, op->out[0]);
    }
    return matrix;
}

/* Weights are stored as {out, c * h * w} in the order of PyTorch's flatten, which is also ONNX's. */
static Status write_dense(Writer *w, const Op *op)
{
    const char *weights[2];
    bool int8 = int8_weighs(w, op);
    Node *flatten = node_add(w, "Flatten", op->name);
    char *flat = flatten->text[OP_MAX_IN];
    reads_value(w, flatten, op->in[0]);
    snprintf(flat, ONNX_NAME, "v%d_flat", op->out[0].id);
    node_writes(flatten, flat);
    if (int8) TRY(int8_weights(w, op, weights));
    const char *x = int8 ? int8_round(w, op->name, op->in[0], flat) : flat;
    Node *node = node_add(w, "Gemm", op->name);
    node_reads(node, x);
    reads_weights(w, node, op, int8 ? weights : NULL);
    attribute_int(node, "transB", 1);
    if (!is_read_as_matrix(w, op->out[0]))
        node = node_next_with(w, op, "Reshape", node, constant_ints(w, "shape", 4, (const int64_t[]){0, -1, 1, 1}));
    writes_value(w, node, op->name, op->out[0], op->attr.dense.relu);
    return w->status;
}

static void write_plain(Writer *w, const Op *op, const char *type, bool relu)
{
    Node *node = node_add(w, type, op->name);
    for (int k = 0; k < op->in_count; k++)
        if (op->in[k].id) reads_value(w, node, op->in[k]);
    if (op->kind == OP_CONCAT) attribute_int(node, "axis", 1);
    if (op->kind == OP_HARD_SIGMOID) attribute_float(node, "alpha", 1.0f / 6.0f); /* beta is 0.5 */
    if (op->kind == OP_LEAKY_RELU) attribute_float(node, "alpha", op->attr.leaky.alpha);
    writes_value(w, node, op->name, op->out[0], relu);
}

/* x * Sigmoid(x): ONNX has no name for it before opset 24. */
static void write_silu(Writer *w, const Op *op)
{
    Node *sigmoid = node_add(w, "Sigmoid", op->name);
    reads_value(w, sigmoid, op->in[0]);
    Node *node = node_next_with(w, op, "Mul", sigmoid, sigmoid->input[0]);
    writes_value(w, node, op->name, op->out[0], false);
}

static void write_relu6(Writer *w, const Op *op)
{
    Node *node = node_add(w, "Clip", op->name);
    reads_value(w, node, op->in[0]);
    node_reads(node, constant_scalar(w, "least", 0));
    node_reads(node, constant_scalar(w, "most", 6));
    writes_value(w, node, op->name, op->out[0], false);
}

static void write_affine(Writer *w, const Op *op)
{
    Node *scale = node_add(w, "Mul", op->name);
    reads_value(w, scale, op->in[0]);
    node_reads(scale, constant_make(w, "scale", 1, 1, NULL, op->attr.affine.scale));
    snprintf(scale->text[OP_MAX_IN], ONNX_NAME, "v%d_scaled", op->out[0].id);
    node_writes(scale, scale->text[OP_MAX_IN]);
    Node *shift = node_add(w, "Add", op->name);
    node_reads(shift, scale->text[OP_MAX_IN]);
    node_reads(shift, constant_make(w, "shift", 1, 1, NULL, op->attr.affine.shift));
    writes_value(w, shift, op->name, op->out[0], false);
}

/* Opset 20 has Gelu; runtimes know these nodes, too. */
static void write_gelu(Writer *w, const Op *op)
{
    bool by_tanh = op->kind == OP_GELU_TANH;
    Node *node = node_add(w, by_tanh ? "Mul" : "Div", op->name);
    reads_value(w, node, op->in[0]);
    const char *x = node->input[0];
    if (by_tanh) {
        const float root = 0.797884561f; /* of 2 / pi */
        node_reads(node, x);
        node = node_next_with(w, op, "Mul", node, constant_make(w, "cube", 1, 1, NULL, 0.044715f * root));
        node = node_next_with(w, op, "Add", node, constant_make(w, "root", 1, 1, NULL, root));
        node = node_next_with(w, op, "Mul", node, x);
        node = node_next(w, op, "Tanh", node);
    } else {
        node_reads(node, constant_make(w, "root", 1, 1, NULL, 1.41421356f));
        node = node_next(w, op, "Erf", node);
    }
    node = node_next_with(w, op, "Add", node, constant_make(w, "one", 1, 1, NULL, 1));
    node = node_next_with(w, op, "Mul", node, x);
    node = node_next_with(w, op, "Mul", node, constant_make(w, "half", 1, 1, NULL, 0.5f));
    writes_value(w, node, op->name, op->out[0], false);
}

/* The side of an output follows from that of the input but for the rest of a division, which is output_padding. */
static Status write_conv_transposed(Writer *w, const Op *op)
{
    const Window *window = &op->attr.conv.window;
    Shape x = graph_shape(w->graph, op->in[0]), y = graph_shape(w->graph, op->out[0]);
    int32_t span_h = window_span(window->kh, window->dilate_h), span_w = window_span(window->kw, window->dilate_w);
    int64_t rest[] = {y.h - ((x.h - 1) * window->stride_h + span_h - 2 * window->pad_h - window->more_h),
                      y.w - ((x.w - 1) * window->stride_w + span_w - 2 * window->pad_w - window->more_w)};
    if (op->in_count > 2 && op->in[2].id)
        return FAIL(ERR_UNSUPPORTED,
                    "%s: a transposed convolution that is added to another value cannot be written as ONNX", op->name);
    Node *node = node_add(w, "ConvTranspose", op->name);
    for (int k = 0; k < 2; k++) reads_value(w, node, op->in[k]);
    attributes_window(node, window);
    attribute_int(node, "group", conv_groups(y, graph_shape(w->graph, op->in[1])));
    attribute_ints(node, "output_padding", 2, rest);
    writes_value(w, node, op->name, op->out[0], false);
    return w->status;
}

/* Without overlap, the gradient of an average repeats each value over its window and divides it by the window's size.
 * Resize takes the nearest value by default. */
static Status write_repeat(Writer *w, const Op *op)
{
    const Window *window = &op->attr.pool.window;
    Shape x = graph_shape(w->graph, op->in[0]), y = graph_shape(w->graph, op->out[0]);
    bool plain = window->kh == window->stride_h && window->kw == window->stride_w && !window_is_padded(window) &&
                 y.h == x.h * window->kh && y.w == x.w * window->kw && !op->attr.pool.adaptive;
    if (!plain || (op->in_count > 1 && op->in[1].id))
        return FAIL(ERR_UNSUPPORTED, "%s: the gradient of this average pool cannot be written as ONNX", op->name);
    float scales[] = {1, 1, (float)window->kh, (float)window->kw};
    Node *node = node_add(w, "Resize", op->name);
    reads_value(w, node, op->in[0]);
    node_reads(node, "");
    node_reads(node, constant_make(w, "scales", 1, 4, scales, 0));
    char *text = node->text[OP_MAX_IN];
    snprintf(text, ONNX_NAME, "v%d_repeated", op->out[0].id);
    node_writes(node, text);
    Node *scale = node_add(w, "Mul", op->name);
    node_reads(scale, text);
    node_reads(scale, constant_make(w, "scale", 1, 1, NULL, 1 / (float)(window->kh * window->kw)));
    writes_value(w, scale, op->name, op->out[0], false);
    return w->status;
}

/* Reshaping keeps the order of NHWC, the memory's, so channels go last before it and return to their place after it. Outputs of a
 * layer that become a map have the channels first already, as the weights have (weights.h). */
static void write_reshape(Writer *w, const Op *op)
{
    static const int64_t last[] = {0, 2, 3, 1}, second[] = {0, 3, 1, 2};
    Shape x = graph_shape(w->graph, op->in[0]), y = graph_shape(w->graph, op->out[0]);
    int64_t shape[] = {x.n == y.n ? 0 : y.n, y.h, y.w, y.c}, map[] = {0, y.c, y.h, y.w};
    if (graph_value(w->graph, op->in[0])->pixels > 1) {
        Node *view = node_add(w, "Reshape", op->name);
        reads_value(w, view, op->in[0]);
        node_reads(view, constant_ints(w, "shape", 4, map));
        writes_value(w, view, op->name, op->out[0], false);
        return;
    }
    Node *before = x.h * x.w > 1 ? node_add(w, "Transpose", op->name) : NULL;
    Node *node = node_add(w, "Reshape", op->name), *behind = node_add(w, "Transpose", op->name);
    if (before) {
        reads_value(w, before, op->in[0]);
        attribute_ints(before, "perm", 4, last);
        snprintf(before->text[OP_MAX_IN], ONNX_NAME, "v%d_last", op->out[0].id);
        node_writes(before, before->text[OP_MAX_IN]);
        node_reads(node, before->text[OP_MAX_IN]);
    } else {
        reads_value(w, node, op->in[0]);
    }
    node_reads(node, constant_ints(w, "shape", 4, shape));
    snprintf(node->text[OP_MAX_IN], ONNX_NAME, "v%d_shaped", op->out[0].id);
    node_writes(node, node->text[OP_MAX_IN]);
    node_reads(behind, node->text[OP_MAX_IN]);
    attribute_ints(behind, "perm", 4, second);
    writes_value(w, behind, op->name, op->out[0], false);
}

/* Negative widths cut, here and there. */
static void write_pad(Writer *w, const Op *op)
{
    int64_t widths[] = {0, 0, op->attr.pad.top, op->attr.pad.left, 0, 0, op->attr.pad.bottom, op->attr.pad.right};
    Node *node = node_add(w, "Pad", op->name);
    reads_value(w, node, op->in[0]);
    node_reads(node, constant_ints(w, "pads", 8, widths));
    writes_value(w, node, op->name, op->out[0], false);
}

static void write_shuffle(Writer *w, const Op *op)
{
    static const int64_t turned[] = {0, 2, 1, 3};
    Shape s = graph_shape(w->graph, op->out[0]);
    int64_t matrix[] = {0, op->attr.shuffle.groups, s.c / op->attr.shuffle.groups, -1}, image[] = {0, s.c, s.h, s.w};
    Node *node = node_add(w, "Reshape", op->name);
    reads_value(w, node, op->in[0]);
    node_reads(node, constant_ints(w, "shape", 4, matrix));
    node = node_next(w, op, "Transpose", node);
    attribute_ints(node, "perm", 4, turned);
    node = node_next_with(w, op, "Reshape", node, constant_ints(w, "shape", 4, image));
    writes_value(w, node, op->name, op->out[0], false);
}

/* A vector of channels becomes {1, c, 1, 1}, which what reads it spreads by itself. */
static void write_channels(Writer *w, const Op *op)
{
    Node *node = node_add(w, "Reshape", op->name);
    reads_value(w, node, op->in[0]);
    node_reads(node, constant_ints(w, "shape", 4, (const int64_t[]){1, -1, 1, 1}));
    writes_value(w, node, op->name, op->out[0], false);
}

/* A vector would be spread along the width, not over the channels. */
static void write_mul(Writer *w, const Op *op)
{
    const ValueInfo *factor = graph_value(w->graph, op->in[1]);
    if (factor->role != ROLE_PARAM || factor->rank == 3) {
        write_plain(w, op, "Mul", false);
        return;
    }
    Node *node = node_add(w, "Reshape", op->name);
    reads_value(w, node, op->in[1]);
    node_reads(node, constant_ints(w, "shape", 4, (const int64_t[]){1, -1, 1, 1}));
    node = node_next(w, op, "Mul", node);
    reads_value(w, node, op->in[0]);
    writes_value(w, node, op->name, op->out[0], false);
}

static void write_slice(Writer *w, const Op *op)
{
    int64_t first = op->attr.slice.first, end = first + graph_shape(w->graph, op->out[0]).c, channels = 1;
    Node *node = node_add(w, "Slice", op->name);
    reads_value(w, node, op->in[0]);
    node_reads(node, constant_ints(w, "first", 1, &first));
    node_reads(node, constant_ints(w, "end", 1, &end));
    node_reads(node, constant_ints(w, "axis", 1, &channels));
    writes_value(w, node, op->name, op->out[0], false);
}

/* The batch stays what it is. */
static void write_sum_to(Writer *w, const Op *op)
{
    Shape x = graph_shape(w->graph, op->in[0]), y = graph_shape(w->graph, op->out[0]);
    const bool over[] = {false, y.c < x.c, y.h < x.h, y.w < x.w};
    int64_t axes[4];
    int count = 0;
    for (int i = 0; i < 4; i++)
        if (over[i]) axes[count++] = i;
    Node *node = node_add(w, "ReduceSum", op->name);
    reads_value(w, node, op->in[0]);
    node_reads(node, constant_ints(w, "axes", count, axes));
    attribute_int(node, "noop_with_empty_axes", 1);
    writes_value(w, node, op->name, op->out[0], false);
}

/* A single parameter stays one, which what reads it spreads: who reads the file sees that it is trained as one. */
static void write_spread_to(Writer *w, const Op *op)
{
    const ValueInfo *x = graph_value(w->graph, op->in[0]);
    bool one = x->role == ROLE_PARAM && shape_count(x->shape) == 1;
    Shape y = one ? x->shape : graph_shape(w->graph, op->out[0]);
    Node *node = node_add(w, one ? "Reshape" : "Expand", op->name);
    reads_value(w, node, op->in[0]);
    node_reads(node, constant_ints(w, "shape", 4, (const int64_t[]){1, y.c, y.h, y.w}));
    writes_value(w, node, op->name, op->out[0], false);
}

static void write_power(Writer *w, const Op *op)
{
    Node *node = node_add(w, "Pow", op->name);
    reads_value(w, node, op->in[0]);
    node_reads(node, constant_scalar(w, "exponent", op->attr.power.exponent));
    writes_value(w, node, op->name, op->out[0], false);
}

static Status write_op(Writer *w, const Op *op)
{
    bool adaptive = op->kind == OP_AVG_POOL && op->attr.pool.adaptive;
    switch (adaptive ? OP_NONE : op->kind) {
    case OP_IMAGE: write_image(w, op); break;
    case OP_CONV: return write_conv(w, op);
    case OP_BATCHNORM_APPLY: write_batchnorm(w, op); break;
    case OP_LAYERNORM: write_layernorm(w, op); break;
    case OP_MAX_POOL:
    case OP_AVG_POOL: write_pool(w, op); break;
    case OP_DENSE: return write_dense(w, op);
    case OP_CONCAT: write_plain(w, op, "Concat", false); break;
    case OP_SHUFFLE: write_shuffle(w, op); break;
    case OP_ADD: write_plain(w, op, op->in_count == 2 ? "Add" : "Sum", op->attr.add.relu); break;
    case OP_MUL: write_mul(w, op); break;
    case OP_SLICE: write_slice(w, op); break;
    case OP_SUM_TO: write_sum_to(w, op); break;
    case OP_SPREAD_TO: write_spread_to(w, op); break;
    case OP_POWER: write_power(w, op); break;
    case OP_RELU: write_plain(w, op, "Relu", false); break;
    case OP_LEAKY_RELU: write_plain(w, op, "LeakyRelu", false); break;
    case OP_TANH: write_plain(w, op, "Tanh", false); break;
    case OP_HARD_SIGMOID: write_plain(w, op, "HardSigmoid", false); break;
    case OP_HARD_SWISH: write_plain(w, op, "HardSwish", false); break;
    case OP_SIGMOID: write_plain(w, op, "Sigmoid", false); break;
    case OP_SILU: write_silu(w, op); break;
    case OP_RELU6: write_relu6(w, op); break;
    case OP_GELU:
    case OP_GELU_TANH: write_gelu(w, op); break;
    case OP_CONV_DX: return write_conv_transposed(w, op);
    case OP_AVG_POOL_DX: return write_repeat(w, op);
    case OP_RESHAPE: write_reshape(w, op); break;
    case OP_PAD: write_pad(w, op); break;
    case OP_CHANNEL_SPREAD: write_channels(w, op); break;
    case OP_AFFINE: write_affine(w, op); break;
    default: return FAIL(ERR_UNSUPPORTED, "%s: %s cannot be written as ONNX", op->name, op_name(op->kind));
    }
    return w->status;
}

/* ---- the file */

static void needed_mark(Writer *w)
{
    w->needed[w->result.id] = true;
    for (int i = graph_op_count(w->graph) - 1; i >= 0; i--) {
        const Op *op = graph_op_at(w->graph, i);
        bool needed = op->out[0].id && w->needed[op->out[0].id];
        int inputs = int8_weighs(w, op) ? 1 : op->in_count;
        for (int k = 0; needed && k < inputs; k++) w->needed[op->in[k].id] = true;
    }
}

/* The logits of what is no dense layer, which have the axes of an image. */
#define LOGITS_OF_ONE_PIXEL "logits_of_one_pixel"

static void write_logits(Writer *w)
{
    Node *node = node_add(w, "Flatten", "logits");
    node_reads(node, LOGITS_OF_ONE_PIXEL);
    node_writes(node, "logits");
}

static Status writer_open(Writer *w, const Graph *graph, const WeightList *weights)
{
    size_t ops = (size_t)graph_op_count(graph), nodes = NODES_PER_OP * (ops + 2),
           constants = (size_t)weights->count + TENSORS_PER_OP * (ops + 2); /* the last 4 of write_pixels */
    *w = (Writer){.graph = graph, .weights = weights};
    for (size_t i = 0; i < ops && !w->result.id; i++) {
        const Op *op = graph_op_at(graph, (int)i);
        if (op->kind == OP_SOFTMAX_LOSS || op->kind == OP_SIGMOID_LOSS) w->result = op->in[0];
    }
    int32_t writer = w->result.id ? graph_value(graph, w->result)->op : -1;
    w->result_name = writer >= 0 && graph_op_at(graph, writer)->kind == OP_DENSE ? "logits" : LOGITS_OF_ONE_PIXEL;
    if (!w->result.id) {
        w->result = graph_find(graph, "images");
        w->input = graph_find(graph, "z");
        w->result_name = "images";
    }
    if (!w->result.id) return FAIL(ERR_INTERNAL, "a graph without a loss or images has no result");
    w->needed = calloc((size_t)graph_value_count(graph) + 1, sizeof *w->needed);
    w->nodes = calloc(nodes, sizeof *w->nodes);
    w->node_list = calloc(nodes, sizeof(void *));
    w->constants = calloc(constants, sizeof *w->constants);
    w->constant_list = calloc(constants, sizeof(void *));
    bool whole = w->needed && w->nodes && w->node_list && w->constants && w->constant_list;
    return whole ? OK : FAIL(ERR_MEMORY, "no memory for ONNX nodes of %zu ops", ops);
}

/* The description of an input or output and the structs that it points to. */
typedef struct Port {
    Onnx__ValueInfoProto info;
    Onnx__TypeProto type;
    Onnx__TypeProto__Tensor tensor;
    Onnx__TensorShapeProto shape;
    Onnx__TensorShapeProto__Dimension dim[4], *dims[4];
} Port;

static Onnx__ValueInfoProto *port_fill(Port *port, const char *name, const char *text, int rank, const int64_t *dims)
{
    onnx__value_info_proto__init(&port->info);
    onnx__type_proto__init(&port->type);
    onnx__type_proto__tensor__init(&port->tensor);
    onnx__tensor_shape_proto__init(&port->shape);
    for (int d = 0; d < rank; d++) {
        onnx__tensor_shape_proto__dimension__init(port->dims[d] = &port->dim[d]);
        if (d == 0) port->dim[d].dim_param = borrowed("N");
        port->dim[d].has_dim_value = d > 0;
        port->dim[d].dim_value = dims[d];
    }
    port->shape.n_dim = (size_t)rank;
    port->shape.dim = port->dims;
    port->tensor.has_elem_type = 1;
    port->tensor.elem_type = ONNX_FLOAT;
    port->tensor.shape = &port->shape;
    port->type.tensor_type = &port->tensor;
    port->info.type = &port->type;
    port->info.name = borrowed(name);
    port->info.doc_string = borrowed(text);
    return &port->info;
}

/* From bytes in the order of decoded images to pixels in [0, 1]. */
static void write_bytes(Writer *w)
{
    static const int64_t channels_second[] = {0, 3, 1, 2};
    Node *order = node_add(w, "Transpose", "bytes"), *cast = node_add(w, "Cast", "bytes"),
         *scale = node_add(w, "Div", "bytes");
    node_reads(order, "image");
    attribute_ints(order, "perm", 4, channels_second);
    node_writes(order, "image_planes");
    node_reads(cast, "image_planes");
    attribute_int(cast, "to", ONNX_FLOAT);
    node_writes(cast, "image_float");
    node_reads(scale, "image_float");
    node_reads(scale, constant_scalar(w, "white", 255));
    node_writes(scale, "image_unit");
}

static void write_probabilities(Writer *w)
{
    Node *scale = node_add(w, "Div", "probabilities"),
         *last = node_add(w, w->bytes->sigmoid ? "Sigmoid" : "Softmax", "probabilities");
    node_reads(scale, "logits");
    node_reads(scale, constant_scalar(w, "temperature", w->bytes->temperature));
    node_writes(scale, "logits_scaled");
    node_reads(last, "logits_scaled");
    if (!w->bytes->sigmoid) attribute_int(last, "axis", 1);
    node_writes(last, "probabilities");
}

static Status model_write(Writer *w, const char *path, const char *name, const StPair *about, int pairs, Shape image)
{
    Port in, out;
    Onnx__ValueInfoProto *input, *output;
    Shape result = graph_shape(w->graph, w->result);
    int64_t in_dims[] = {0, image.c, image.h, image.w}, out_dims[] = {0, result.c, result.h, result.w};
    if (w->input.id) {
        in_dims[1] = graph_shape(w->graph, w->input).c;
        input = port_fill(&in, "z", "independent standard normal numbers", 2, in_dims);
        output = port_fill(&out, "image", "NCHW, pixels in [0, 1]", 4, out_dims);
    } else if (w->bytes) {
        input = port_fill(&in, "image", "NHWC, bytes", 4, (const int64_t[]){0, image.h, image.w, image.c});
        in.tensor.elem_type = ONNX_UINT8;
        output = port_fill(&out, "probabilities", w->bytes->sigmoid ? "of each class" : "their sum is 1", 2, out_dims);
    } else {
        input = port_fill(&in, "image", "NCHW, pixels in [0, 1]", 4, in_dims);
        output = port_fill(&out, "logits", "of each class, before softmax or sigmoid", 2, out_dims);
    }
    Onnx__OperatorSetIdProto opset = ONNX__OPERATOR_SET_ID_PROTO__INIT, *opsets = &opset;
    Onnx__GraphProto graph = ONNX__GRAPH_PROTO__INIT;
    Onnx__StringStringEntryProto entry[ONNX_PAIRS], *entries[ONNX_PAIRS];
    Onnx__ModelProto model = ONNX__MODEL_PROTO__INIT;
    opset.domain = borrowed("");
    opset.has_version = model.has_ir_version = 1;
    opset.version = OPSET;
    graph.name = borrowed(name);
    graph.n_node = (size_t)w->node_count;
    graph.node = w->node_list;
    graph.n_initializer = (size_t)w->constant_count;
    graph.initializer = w->constant_list;
    graph.n_input = graph.n_output = model.n_opset_import = 1;
    graph.input = &input;
    graph.output = &output;
    model.ir_version = IR_VERSION;
    model.producer_name = borrowed("towers");
    model.producer_version = borrowed(TOWERS_VERSION);
    for (int i = 0; i < pairs; i++) {
        onnx__string_string_entry_proto__init(&entry[i]);
        entry[i].key = borrowed(about[i].key);
        entry[i].value = borrowed(about[i].value);
        entries[i] = &entry[i];
    }
    model.metadata_props = entries;
    model.n_metadata_props = (size_t)pairs;
    model.graph = &graph;
    model.opset_import = &opsets;
    size_t bytes = onnx__model_proto__get_packed_size(&model);
    if (bytes > INT32_MAX)
        return FAIL(ERR_UNSUPPORTED, "%s: %zu bytes, but ONNX files are limited to 2 GiB", path, bytes);
    uint8_t *packed = malloc(bytes);
    if (!packed) return FAIL(ERR_MEMORY, "no memory for %s (%zu MiB)", path, bytes >> 20);
    onnx__model_proto__pack(&model, packed);
    Status st = file_replace(path, packed, bytes);
    free(packed);
    return st;
}

/* From the normalized range of the images to pixels in [0, 1], and no further. */
static void write_pixels(Writer *w, const OnnxPixels *pixels)
{
    int32_t channels = graph_shape(w->graph, w->result).c;
    Node *scale = node_add(w, "Mul", "pixels"), *shift = node_add(w, "Add", "pixels"),
         *clip = node_add(w, "Clip", "pixels");
    node_reads(scale, "images");
    node_reads(scale, constant_make(w, "std", 4, channels, pixels->std, 1));
    node_writes(scale, "images_scaled");
    node_reads(shift, "images_scaled");
    node_reads(shift, constant_make(w, "mean", 4, channels, pixels->mean, 0));
    node_writes(shift, "images_shifted");
    node_reads(clip, "images_shifted");
    node_reads(clip, constant_scalar(w, "least", 0));
    node_reads(clip, constant_scalar(w, "most", 1));
    node_writes(clip, "image");
}

Status onnx_write(const char *path, const char *name, const Graph *evaluation, const WeightList *weights,
                  const StPair *about, int pairs, const OnnxPixels *pixels, const OnnxBytes *bytes,
                  const OnnxRange *ranges)
{
    Status st = OK;
    Writer w;
    Shape image = {0};
    if (pairs > ONNX_PAIRS) return FAIL(ERR_INTERNAL, "%d entries of metadata, of at most %d", pairs, ONNX_PAIRS);
    TRY_OUT(writer_open(&w, evaluation, weights));
    w.bytes = bytes;
    w.ranges = ranges;
    needed_mark(&w);
    if (bytes) write_bytes(&w);
    for (int i = 0; i < w.weights->count; i++) {
        const StTensor *t = &w.weights->tensor[i];
        Value v = graph_find(w.graph, t->name);
        if (!v.id || !w.needed[v.id]) continue;
        int64_t dims[ST_MAX_RANK];
        int rank = parameter_dims(&w, t, dims);
        constant_add(&w, t->name, ONNX_FLOAT, rank, dims, t->data, t->bytes);
    }
    for (int i = 0; i < graph_op_count(evaluation); i++) {
        const Op *op = graph_op_at(evaluation, i);
        if (op->kind == OP_IMAGE) image = graph_shape(evaluation, op->out[0]);
        if (op->out[0].id && w.needed[op->out[0].id]) TRY_OUT(write_op(&w, op));
    }
    if (!strcmp(w.result_name, LOGITS_OF_ONE_PIXEL)) write_logits(&w);
    if (pixels) write_pixels(&w, pixels);
    if (bytes) write_probabilities(&w);
    TRY_OUT(w.status);
    TRY_OUT(model_write(&w, path, name, about, pairs, image));
out:
    for (int i = 0; i < w.constant_count; i++) free(w.constants[i].made);
    free(w.needed);
    free(w.nodes);
    free(w.node_list);
    free(w.constants);
    free(w.constant_list);
    return st;
}
