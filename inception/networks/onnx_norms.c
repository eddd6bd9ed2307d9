/* Batch and layer norms (onnx_walk.h); those of groups of channels are in onnx_groups.c. */
#include "inception/networks/onnx_walk.h"

bool norm_epsilon(OnnxWalk *w, const OnnxNode *node, float *epsilon)
{
    *epsilon = (float)onnx_float(node, "epsilon", 1e-5);
    if (*epsilon > 0 && isfinite(*epsilon)) return true;
    walk_refuse(w, node, "its epsilon is %g; expected one above 0, without which equal numbers are divided by 0",
                (double)*epsilon);
    return false;
}

void build_batch_norm(OnnxWalk *w, const OnnxNode *node)
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
    next = walk_next(w, node, "Relu");
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

/* (x - mean) / sqrt(var + epsilon) over the channels of each pixel. */
static Value norm_of_channels(Graph *g, Value x, float epsilon)
{
    Shape s = graph_shape(g, x), one = {s.n, 1, s.h, s.w};
    float each = 1 / (float)s.c;
    Value centered = add(g, x, spread_to(g, affine(g, sum_to(g, x, one), -each, 0), s));
    Value variance = affine(g, sum_to(g, mul(g, centered, centered), one), each, epsilon);
    return mul(g, centered, spread_to(g, power(g, variance, -0.5f), s));
}

/* A layer norm that lacks a scale or a bias, or both (NULL). Value 0: refused. */
static Value bare_norm(OnnxWalk *w, const OnnxNode *node, Value x, float epsilon, const Fixed *scale, const Fixed *bias)
{
    Shape s = graph_shape(w->g, x);
    Value y = norm_of_channels(w->g, x, epsilon), p;
    if (scale) {
        if (!(p = walk_vector(w, node, scale, s.c, (Init){INIT_CONSTANT, 1})).id) return p;
        y = mul(w->g, y, p);
    }
    if (bias) {
        if (!(p = walk_vector(w, node, bias, s.c, (Init){INIT_ZERO})).id) return p;
        y = add(w->g, y, graph_op(w->g, OP_CHANNEL_SPREAD, node->name, &p, 1, NULL, &s));
    }
    return y;
}

/* One number for each channel that is trained; or NULL for what is not there, or changes nothing. False: it is something else. */
static bool vector_found(OnnxWalk *w, const OnnxNode *node, int k, int32_t channels, double nothing,
                         const Fixed **found)
{
    const Fixed *f = walk_fixed(w, node, k);
    bool trained = f && f->from.proto && walk_is_trained(w, node, k, nothing);
    *found = trained ? f : NULL;
    if (!f || f->count != channels) return !walk_in(w, node, k) && k > 1;
    return trained || (fixed_all_are(f, nothing) && walk_stays(w, node, f));
}

void build_layer_norm(OnnxWalk *w, const OnnxNode *node)
{
    const Fixed *scale, *bias;
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
    if (!vector_found(w, node, 1, channels, 1, &scale) || !vector_found(w, node, 2, channels, 0, &bias)) {
        walk_refuse(w, node, "expected scale and bias of the file, one for each channel");
        return;
    }
    OpAttr attr = {0};
    if (!norm_epsilon(w, node, &attr.norm.epsilon)) return;
    if (w->first) w->survey->norms = true;
    if (!scale || !bias) {
        Value y = bare_norm(w, node, x, attr.norm.epsilon, scale, bias);
        if (y.id) walk_give(w, node, y, &order);
        return;
    }
    Value gamma = walk_vector(w, node, scale, channels, (Init){INIT_CONSTANT, 1}),
          beta = walk_vector(w, node, bias, channels, (Init){INIT_ZERO});
    if (!gamma.id || !beta.id) return;
    walk_give(w, node,
              graph_op(w->g, OP_LAYERNORM, layer_name(w, node, scale), (Value[]){x, beta, gamma}, 3, &attr, NULL),
              &order);
}
