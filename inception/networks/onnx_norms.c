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

void build_layer_norm(OnnxWalk *w, const OnnxNode *node)
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
    Value gamma = walk_vector(w, node, scale, channels, (Init){INIT_CONSTANT, 1}),
          beta = walk_vector(w, node, bias, channels, (Init){INIT_ZERO});
    if (!gamma.id || !beta.id) return;
    walk_give(w, node,
              graph_op(w->g, OP_LAYERNORM, layer_name(w, node, scale), (Value[]){x, beta, gamma}, 3, &attr, NULL),
              &order);
}
