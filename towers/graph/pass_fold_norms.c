/* Batch norms with fixed averages -> the convolutions before them.
 *
 * In an evaluation a batch norm is s x + t for each channel, with s = gamma / sqrt(var + eps) and t = beta - s mean. A
 * convolution with weights s w and bias t computes the same, and then the ReLU of the batch norm. NORM_FOLD makes s w and
 * t, which stay the same until the weights change. Only plain convolutions (no bias, no ReLU) are changed, whose result
 * the batch norm alone reads: what is between the two (a pooling, the slices of fused siblings) keeps them apart. */
#include "towers/graph/list.h"

static bool is_leaf(const Graph *g, Value v)
{
    return !v.id || graph_value(g, v)->op < 0;
}

/* The convolution that can include batch norm `norm`, or -1. */
static int32_t conv_before(const Graph *g, const Op *norm, const int *readers)
{
    const ValueInfo *x = graph_value(g, norm->in[0]);
    if (norm->kind != OP_BATCHNORM_APPLY || x->op < 0 || x->role != ROLE_TEMP || readers[norm->in[0].id] != 1)
        return -1;
    const Op *conv = &g->ops[x->op];
    bool plain = conv->kind == OP_CONV && conv->in_count == 2 && !conv->attr.conv.relu && is_leaf(g, conv->in[1]);
    for (int i = 1; i < norm->in_count; i++) plain &= is_leaf(g, norm->in[i]);
    return plain ? x->op : -1;
}

static ValueInfo folded_value(Graph *g, const char *name, const char *suffix, Shape shape)
{
    const char *full = list_text(g, "%s.%s", name, suffix);
    return (ValueInfo){.shape = shape, .dtype = DTYPE_F32, .role = ROLE_FOLDED, .name = full, .op = -1};
}

/* w, beta, mean, var, gamma -> the operands of the convolution that includes the batch norm. The value between the two
 * becomes its weights. */
static Op write_fold(Graph *g, Op *conv, const Op *norm)
{
    Op fold = {.kind = OP_NORM_FOLD, .attr = norm->attr, .name = norm->name, .in_count = norm->in_count};
    fold.attr.norm.relu = false;
    memcpy(fold.in, norm->in, sizeof fold.in);
    fold.in[0] = conv->in[1];
    fold.out[0] = conv->out[0];
    ValueInfo shift = folded_value(g, conv->name, "shift", graph_shape(g, norm->in[1]));
    g->values[fold.out[0].id] = folded_value(g, conv->name, "folded", graph_shape(g, conv->in[1]));
    fold.out[1] = list_value(g, &shift);
    conv->in[1] = fold.out[0];
    conv->in[2] = fold.out[1];
    conv->in_count = 3;
    conv->attr.conv.relu = norm->attr.norm.relu;
    conv->out[0] = norm->out[0];
    return fold;
}

/* The list in which the folds come first, and convolutions stay where they are. */
static int write_list(Graph *g, const int *readers, bool *folded, Op *ops)
{
    int folds = 0, count = g->op_count;
    for (int i = 0; i < count && !graph_failed(g); i++) {
        int32_t conv = conv_before(g, &g->ops[i], readers);
        folded[i] = conv >= 0;
        if (folded[i]) ops[folds++] = write_fold(g, &g->ops[conv], &g->ops[i]);
    }
    for (int i = 0, made = folds; i < count; i++)
        if (!folded[i]) ops[made++] = g->ops[i];
    return folds;
}

Status pass_fold_norms(Graph *g, int *changed)
{
    *changed = 0;
    if (graph_failed(g)) return graph_finish(g);
    int *readers = list_readers(g);
    bool *folded = list_scratch(g, g->op_count, sizeof *folded);
    Op *ops = list_scratch(g, g->op_count, sizeof *ops);
    if (!graph_failed(g)) *changed = write_list(g, readers, folded, ops);
    list_replace(g, ops, g->op_count); /* a fold for each batch norm */
    return graph_finish(g);
}
