/* The table of all nodes, and those that change nothing in training, or are part of the loss. */
#include "inception/networks/onnx_walk.h"

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
