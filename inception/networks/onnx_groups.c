/* Groups of channels that a file sees as an axis of their own: stacks of values, sums over them and weights of two that sum to 1 (Li et al.
 * 2019, arXiv:1903.06586; Zhang et al. 2020, arXiv:2004.08955), and norms of groups (Wu & He 2018, arXiv:1803.08494). */
#include "inception/networks/onnx_walk.h"

/* ---- an axis of groups */

/* How many groups of channels, one behind another in memory, this axis is; 0: it is something else. */
static int64_t groups_on(const AxisOrder *order, int axis)
{
    int64_t groups = 0;
    for (int i = 0; i < order->count; i++) {
        const AxisPart *part = &order->part[i];
        if (part->axis != axis) continue;
        if (groups || part->of != AXIS_CHANNEL || part->place) return 0;
        groups = part->size;
    }
    return groups > 1 && groups < order_size(order, AXIS_CHANNEL) ? groups : 0;
}

/* The groups, each as a value. False: they are too many. */
static bool groups_apart(OnnxWalk *w, const OnnxNode *node, int64_t groups, Value group[OP_MAX_IN])
{
    Value x = walk_value(w, node->in[0]);
    if (!x.id || groups > OP_MAX_IN) return false;
    int32_t each = graph_shape(w->g, x).c / (int32_t)groups;
    for (int32_t k = 0; k < groups; k++) group[k] = slice(w->g, x, k * each, each);
    return true;
}

/* The same order without its groups: the channels of one. */
static bool order_without(AxisOrder *order, int axis, bool keeps)
{
    int64_t dims[NET_FILE_RANK];
    int rank = 0;
    for (int i = 0; i < order->rank; i++)
        if (i != axis || keeps) dims[rank++] = i == axis ? 1 : order_dim(order, i);
    int kept = 0;
    for (int i = 0; i < order->count; i++) {
        AxisPart part = order->part[i];
        if (part.axis == axis) continue;
        if (part.of == AXIS_CHANNEL) part.place--;
        order->part[kept++] = part;
    }
    order->count = kept;
    return order_reshape(order, dims, rank);
}

bool reduce_groups(OnnxWalk *w, const OnnxNode *node, int axis)
{
    Value group[OP_MAX_IN];
    AxisOrder order = walk_active(w, node, 0)->order;
    int64_t groups = groups_on(&order, axis);
    bool sum = !strcmp(node->type, "ReduceSum"), mean = !strcmp(node->type, "ReduceMean");
    if (groups > OP_MAX_IN && (sum || mean)) {
        walk_refuse(w, node, "it sums %" PRId64 " groups of channels; expected at most %d", groups, OP_MAX_IN);
        return true;
    }
    if (!groups || !(sum || mean) || !order_without(&order, axis, onnx_int(node, "keepdims", 1) != 0) ||
        !groups_apart(w, node, groups, group))
        return false;
    Value y = graph_op(w->g, OP_ADD, node->name, group, (int)groups, NULL, NULL);
    walk_give(w, node, mean ? affine(w->g, y, 1 / (float)groups, 0) : y, &order);
    return true;
}

/* Of two numbers a and b: 1 / (1 + e^(b - a)) and 1 / (1 + e^(a - b)). */
bool softmax_of_groups(OnnxWalk *w, const OnnxNode *node, int axis)
{
    Value group[OP_MAX_IN];
    Active *a = walk_active(w, node, 0);
    if (!a || groups_on(&a->order, axis) != 2 || !groups_apart(w, node, 2, group)) return false;
    AxisOrder order = a->order;
    Value more = sub(w->g, group[0], group[1]);
    Value first = sigmoid(w->g, more), second = sigmoid(w->g, affine(w->g, more, -1, 0));
    walk_give(w, node, CONCAT(w->g, first, second), &order);
    return true;
}

bool stack_of_groups(OnnxWalk *w, const OnnxNode *node, int axis)
{
    Value x[OP_MAX_IN];
    Active *first = walk_active(w, node, 0);
    if (!first || node->in_count < 2 || order_size(&first->order, AXIS_CHANNEL) == 1) return false;
    AxisOrder order = first->order;
    if (order_dim(&order, axis) != 1 || order.count >= ORDER_PARTS - 3) return false;
    if (node->in_count > OP_MAX_IN) {
        walk_refuse(w, node, "it puts %d values on an axis of their own; expected at most %d", node->in_count,
                    OP_MAX_IN);
        return true;
    }
    for (int k = 0; k < node->in_count; k++) {
        Active *a = walk_active(w, node, k);
        if (!a || !order_equal(&a->order, &order) || !(x[k] = walk_value(w, node->in[k])).id) return false;
    }
    int at = 0;
    while (at < order.count && order.part[at].axis < axis) at++;
    for (int i = 0; i < order.count; i++)
        if (order.part[i].of == AXIS_CHANNEL) order.part[i].place++;
    memmove(&order.part[at + 1], &order.part[at], (size_t)(order.count++ - at) * sizeof *order.part);
    order.part[at] = (AxisPart){axis, AXIS_CHANNEL, 0, node->in_count};
    walk_give(w, node, concat(w->g, x, node->in_count), &order);
    return true;
}

/* ---- norms of groups */

/* The mean of each group's channels in the place of each of them; v is {n, c, 1, 1}. */
static Value mean_of_groups(Graph *g, Value v, int32_t groups)
{
    Shape s = graph_shape(g, v), matrix = {s.n, s.c / groups, groups, 1}, sums = {s.n, 1, groups, 1};
    if (groups == s.c) return v;
    Value mean = affine(g, sum_to(g, reshape(g, v, matrix), sums), 1 / (float)matrix.c, 0);
    return reshape(g, spread_to(g, mean, matrix), s);
}

static Value norm_of_groups(Graph *g, Value x, int32_t groups, float epsilon)
{
    Value mean = mean_of_groups(g, global_avg_pool(g, x), groups);
    Value centered = add(g, x, spread_to(g, affine(g, mean, -1, 0), graph_shape(g, x)));
    Value variance = mean_of_groups(g, global_avg_pool(g, mul(g, centered, centered)), groups);
    return mul(g, centered, power(g, affine(g, variance, 1, epsilon), -0.5f));
}

/* An initializer, which may be trained. Exporters write nodes for what is no parameter. */
static bool is_of_file(OnnxWalk *w, const OnnxNode *node, int k)
{
    int writer = w->file->value[node->in[k]].writer;
    return walk_fixed(w, node, k)->from.proto && (writer < 0 || strcmp(w->file->node[writer].type, "Constant") != 0);
}

/* y with a factor and a bias for each of its channels. Value 0: refused. */
static Value scaled(OnnxWalk *w, const OnnxNode *node, Value y, const Fixed *scale, const Fixed *bias)
{
    Wanted vector = {.shape = {1, graph_shape(w->g, y).c, 1, 1}, .rank = 1, .init = {INIT_CONSTANT, 1}};
    Shape like = graph_shape(w->g, y);
    Value gamma = walk_param(w, node, scale, vector);
    vector.init = (Init){INIT_ZERO};
    Value beta = walk_param(w, node, bias, vector);
    if (!gamma.id || !beta.id) return (Value){0};
    Value spread = graph_op(w->g, OP_CHANNEL_SPREAD, node->name, &beta, 1, NULL, &like);
    return add(w->g, mul(w->g, y, gamma), spread);
}

/* Of groups that the node's second axis has, or is divided among. */
static void group_norm(OnnxWalk *w, const OnnxNode *node, int64_t groups, bool whole)
{
    const Fixed *scale = walk_fixed(w, node, 1), *bias = walk_fixed(w, node, 2);
    Active *a = walk_active(w, node, 0);
    Value x = a ? walk_value(w, node->in[0]) : (Value){0};
    bool known = x.id && a->order.rank > 2 && scale && bias && groups > 0;
    for (int i = 0; known && i < a->order.count; i++) {
        const AxisPart *part = &a->order.part[i];
        known = (part->axis == 0) == (part->of == AXIS_BATCH);
        if (part->axis == 1) known &= part->of == AXIS_CHANNEL && part->place == 0;
        if (whole) known &= (part->axis == 1) == (part->of == AXIS_CHANNEL);
    }
    int64_t channels = known ? graph_shape(w->g, x).c : 0;
    if (!known || channels % groups) {
        walk_refuse(w, node,
                    "expected channels, or groups of them, on the second axis, and scale and bias of the file");
        return;
    }
    float epsilon;
    if (!norm_epsilon(w, node, &epsilon)) return;
    AxisOrder order = a->order;
    Value y = norm_of_groups(w->g, x, (int32_t)groups, epsilon);
    bool own = scale->count == channels && bias->count == channels && is_of_file(w, node, 1) && is_of_file(w, node, 2);
    if (w->first) w->survey->norms = true;
    if (own)
        y = scaled(w, node, y, scale, bias);
    else if (!fixed_all_are(scale, 1) || !fixed_all_are(bias, 0)) {
        walk_refuse(w, node, "expected a scale and a bias for each channel, or 1 and 0 for each group");
        return;
    } else if (!walk_stays(w, node, scale) || !walk_stays(w, node, bias)) {
        return;
    }
    if (y.id) walk_give(w, node, y, &order);
}

void build_instance_norm(OnnxWalk *w, const OnnxNode *node)
{
    const Active *a = walk_active(w, node, 0);
    group_norm(w, node, a && a->order.rank > 1 ? order_dim(&a->order, 1) : 0, false);
}

void build_group_norm(OnnxWalk *w, const OnnxNode *node)
{
    group_norm(w, node, onnx_int(node, "num_groups", 0), true);
}
