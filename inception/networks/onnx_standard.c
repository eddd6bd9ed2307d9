/* Weights that the nodes of a file standardize before a convolution reads them (Qiao et al. 2019, arXiv:1903.10520; with a gain for each
 * output, Brock et al. 2021, arXiv:2101.08692): (w - mean) / sqrt(var + eps) over all weights of an output. PyTorch has it as a batch
 * norm of the weights seen as {1, out, in * kh * kw}, whose mean and variance exporters write as nodes. What is trained are the weights
 * and the gain, through the norm. */
#include "inception/networks/onnx_walk.h"

/* ---- the nodes, from the last one back */

/* A node of this type with as many operands at least. */
static const OnnxNode *writer_of(const OnnxWalk *w, int id, const char *type)
{
    int writer = id ? w->file->value[id].writer : -1, operands = strcmp(type, "Sub") && strcmp(type, "Mul") ? 1 : 2;
    const OnnxNode *node = writer >= 0 ? &w->file->node[writer] : NULL;
    return node && !node->foreign && !strcmp(node->type, type) && node->in_count >= operands ? node : NULL;
}

static const Fixed *fixed_of(const OnnxWalk *w, int id)
{
    return id && w->item[id].known == KNOWN_FIXED ? &w->item[id].fixed : NULL;
}

/* The weights as {1, out, rest}, or with the last two axes changed: the axis of the outputs; 0: the value is something else. */
static int axis_of_outputs(const OnnxWalk *w, int id, const Fixed *weights)
{
    const OnnxNode *transposed = writer_of(w, id, "Transpose");
    const Onnx__AttributeProto *a = transposed ? onnx_attribute(transposed, "perm") : NULL;
    bool turned = a && a->n_ints == 3 && a->ints[0] == 0 && a->ints[1] == 2 && a->ints[2] == 1;
    const Fixed *f = fixed_of(w, turned ? transposed->in[0] : id);
    bool same =
        f && f->from.proto == weights->from.proto && f->rank == 3 && f->dims[0] == 1 && f->dims[1] == weights->dims[0];
    return !same ? 0 : turned ? 2 : 1;
}

/* Whether a mean is over all axes but this one, and keeps them or not. */
static bool is_mean(OnnxWalk *w, const OnnxNode *node, int axis, bool keeps)
{
    int64_t axes[NET_FILE_RANK];
    int count = node && axis ? node_axes_listed(w, node, axes) : 0;
    for (int i = 0; i < count; i++) axes[i] = axis_among(axes[i], 3);
    return count == 2 && axes_have(axes, count, 0) && axes_have(axes, count, 3 - axis) &&
           (onnx_int(node, "keepdims", 1) != 0) == keeps;
}

static bool is_mean_of_weights(OnnxWalk *w, int id, const Fixed *weights, bool keeps)
{
    const OnnxNode *mean = writer_of(w, id, "ReduceMean");
    return mean && is_mean(w, mean, axis_of_outputs(w, mean->in[0], weights), keeps);
}

static bool is_variance_of_weights(OnnxWalk *w, int id, const Fixed *weights)
{
    const OnnxNode *mean = writer_of(w, id, "ReduceMean"), *square = mean ? writer_of(w, mean->in[0], "Mul") : NULL,
                   *difference = square ? writer_of(w, square->in[0], "Sub") : NULL;
    if (!difference || square->in_count != 2 || square->in[0] != square->in[1] || difference->in_count != 2)
        return false;
    int axis = axis_of_outputs(w, difference->in[0], weights);
    return is_mean(w, mean, axis, false) && is_mean_of_weights(w, difference->in[1], weights, true) &&
           axis_of_outputs(w, writer_of(w, difference->in[1], "ReduceMean")->in[0], weights) == axis;
}

static bool all_are(const Fixed *f, int64_t count, double value)
{
    return f && f->count == count && fixed_all_are(f, value);
}

/* The gain of each output, by a number that all have in common; or 1. */
static bool gain_of(OnnxWalk *w, int id, Standardized *s)
{
    int64_t outputs = s->weights.dims[0];
    const OnnxNode *view, *product;
    s->scale = 1;
    s->gain = (Fixed){.count = 0};
    int writer = id ? w->file->value[id].writer : -1;
    bool constant = writer >= 0 && !strcmp(w->file->node[writer].type, "Constant");
    const Fixed *f = fixed_of(w, id);
    if (all_are(f, outputs, 1) && (constant || !f->from.proto)) return true;
    while ((view = writer_of(w, id, "Reshape"))) id = view->in[0];
    if ((product = writer_of(w, id, "Mul")) && product->in_count == 2) {
        bool second = fixed_of(w, product->in[0]) && fixed_of(w, product->in[0])->count == 1;
        f = fixed_of(w, product->in[!second]);
        if (!f || f->count != 1 || f->from.absent || !scalar_stays(w, product, f)) return false;
        s->scale = fixed_at(f, 0);
        id = product->in[second];
    }
    f = fixed_of(w, id);
    if (!f || !f->from.proto || f->integer || f->rank != 4 || f->count != outputs || f->dims[0] != outputs)
        return false;
    s->gain = *f;
    return true;
}

bool weights_standardized(OnnxWalk *w, int id, Standardized *s)
{
    int64_t dims[NET_FILE_RANK];
    const OnnxNode *view = writer_of(w, id, "Reshape"),
                   *norm = view ? writer_of(w, view->in[0], "BatchNormalization") : NULL;
    const Fixed *weights = norm && norm->in_count == 5 ? fixed_of(w, norm->in[0]) : NULL;
    if (!weights || !weights->from.proto || weights->integer || weights->turned || weights->from.rank != 4)
        return false;
    s->weights = *weights;
    s->weights.rank = 4;
    memcpy(s->weights.dims, weights->from.dims, sizeof s->weights.dims);
    s->norm = norm;
    bool whole = fixed_ints(walk_fixed(w, view, 1), dims, NET_FILE_RANK) == 4 &&
                 !memcmp(dims, s->weights.dims, 4 * sizeof *dims);
    return whole && axis_of_outputs(w, norm->in[0], &s->weights) == 1 && s->weights.count > s->weights.dims[0] &&
           s->weights.count <= INT32_MAX && all_are(fixed_of(w, norm->in[2]), s->weights.dims[0], 0) &&
           is_mean_of_weights(w, norm->in[3], &s->weights, false) &&
           is_variance_of_weights(w, norm->in[4], &s->weights) && gain_of(w, norm->in[1], s) &&
           walk_stays(w, norm, fixed_of(w, norm->in[2]));
}

/* ---- the ops */

/* Layer norm over the weights of an output, which lie one after another. Its own factors and biases are 1 and 0: they are made of a row of
 * which the border has taken everything away, so that they are that whatever the weights are, even where one is infinite or NaN. */
Value weights_standardize(OnnxWalk *w, const OnnxNode *node, const Standardized *s, Value weights)
{
    Graph *g = w->g;
    Shape shape = graph_shape(g, weights), all = {1, (int32_t)shape_count(shape), 1, 1},
          rows = {shape.n, all.c / shape.n, 1, 1};
    OpAttr attr = {0};
    if (!norm_epsilon(w, s->norm, &attr.norm.epsilon)) return (Value){0};
    Value x = reshape(g, weights, rows), row = slice(g, reshape(g, x, all), 0, rows.c),
          nothing = pad(g, row, -1, 1, 0, 0), ones = affine(g, nothing, 0, 1), zeros = affine(g, nothing, 0, 0);
    Value y = graph_op(g, OP_LAYERNORM, layer_name(w, node, &s->weights), (Value[]){x, zeros, ones}, 3, &attr, NULL);
    if (s->gain.count) {
        Wanted wanted = {.shape = {shape.n, 1, 1, 1}, .rank = 4, .init = {INIT_CONSTANT, 1}};
        Value gain = walk_param(w, node, &s->gain, wanted);
        if (!gain.id) return gain;
        if (s->scale != 1) gain = affine(g, gain, (float)s->scale, 0);
        y = mul(g, y, spread_to(g, gain, rows));
    }
    return reshape(g, y, shape);
}
