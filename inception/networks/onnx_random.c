/* Nodes that draw random numbers: stochastic depth and dropout, as exporters write networks in training (uniform numbers below the part that
 * stays, divided by it), and the residual sums, whose branches get stochastic depth if that is asked for. Sources: Huang et al. 2016,
 * arXiv:1603.09382; timm's DropPath and torchvision's StochasticDepth, which drop whole images of a branch. */
#include "inception/networks/onnx_walk.h"
#include "kernels/base/array.h"

/* ---- rates */

static Value branch_drop(OnnxWalk *w, Value x, double rate)
{
    const OnnxDrops *d = &w->drops;
    if (rate <= 0) return x;
    bool own = w->options->drop_path < 0 || w->options->drop_path == d->path;
    if (w->first) w->survey->drop_path = fmaxf(w->survey->drop_path, (float)rate);
    return stochastic_depth(w->g, x, own ? (float)rate : (float)rate * w->options->drop_path / d->path);
}

Value elements_drop(OnnxWalk *w, Value x, double rate)
{
    bool own = w->options->dropout < 0 || w->options->dropout == w->drops.rate;
    w->drops.built = true;
    if (w->first) w->survey->dropout = (float)rate;
    return dropout(w->g, x, own ? (float)rate : w->options->dropout);
}

/* ---- numbers that are drawn */

static const Drawn *drawn_of(OnnxWalk *w, const OnnxNode *node, int k)
{
    const OnnxItem *item = walk_in(w, node, k);
    return item && item->known == KNOWN_DRAWN ? &item->drawn : NULL;
}

static void drawn_give(OnnxWalk *w, const OnnxNode *node, Drawn drawn)
{
    w->item[node->out[0]] = (OnnxItem){.known = KNOWN_DRAWN, .drawn = drawn};
}

/* Of the shape of a constant, whose numbers need not be known, or of a value that the network computes. */
static void uniform_draw(OnnxWalk *w, const OnnxNode *node)
{
    const OnnxItem *item = walk_in(w, node, 0);
    const Fixed *like = item && (item->known == KNOWN_FIXED || item->known == KNOWN_LATER) ? &item->fixed : NULL;
    const Active *value = walk_active(w, node, 0);
    int rank = like ? like->rank : value ? value->order.rank : 0;
    Drawn drawn = {.rank = rank, .image = 1, .keep = -1, .scale = 1};
    for (int axis = 1; axis < rank; axis++)
        if (__builtin_mul_overflow(drawn.image, like ? like->dims[axis] : order_dim(&value->order, axis), &drawn.image))
            rank = 0;
    if (like && rank > 1 && like->dims[0] == 1 && w->survey->batch > 1)
        walk_refuse(w, node, "one number for all images of a batch has no counterpart here");
    else if (rank < 2 || onnx_float(node, "low", 0) != 0 || onnx_float(node, "high", 1) != 1)
        walk_refuse(w, node, "expected numbers between 0 and 1 for each image of a batch");
    else
        drawn_give(w, node, drawn);
}

/* In an export for inference it does nothing. */
static void masked_note(OnnxWalk *w, const OnnxNode *node, int of)
{
    OnnxSurvey *s = w->survey;
    const MaskedNode masked = {(int)(node - w->file->node), of};
    if (w->first && w->status == OK)
        w->status = ARRAY_ADD(s->masked, s->masked_count, "the nodes of a network", masked);
}

/* x, operand k, times what was drawn. */
static void drawn_multiply(OnnxWalk *w, const OnnxNode *node, int k, const Drawn *d)
{
    const AxisOrder order = walk_active(w, node, k)->order;
    int64_t elements = 1;
    if (w->file->value[node->in[1 - k]].reads != 1) {
        walk_refuse(w, node, "its random numbers have another reader, which would get other ones");
        return;
    }
    for (int axis = 1; axis < order.rank; axis++) elements *= order_dim(&order, axis);
    Value x = walk_value(w, node->in[k]);
    if (!x.id) return;
    if (!(fabs(d->keep * d->scale - 1) < 1e-3) || d->rank != order.rank || (d->image != 1 && d->image != elements) ||
        !order.count || order.part[0].of != AXIS_BATCH || order.part[0].axis)
        walk_refuse(w, node, "expected images or elements of which a part stays, divided by that part");
    else {
        masked_note(w, node, k);
        walk_give(w, node, d->image == 1 ? branch_drop(w, x, 1 - d->keep) : elements_drop(w, x, 1 - d->keep), &order);
    }
}

/* What a node makes of drawn numbers and of one number, operand k; false: nothing that is known. */
static bool drawn_change(OnnxWalk *w, const OnnxNode *node, int k, Drawn *d)
{
    static const char *const passes[] = {"Cast", "CastLike", NULL};
    const Fixed *f = walk_fixed(w, node, k);
    double number = f && f->count == 1 ? fixed_at(f, 0) : NAN;
    bool mul = !strcmp(node->type, "Mul"), div = k == 1 && !strcmp(node->type, "Div");
    if (k == 1 && !strcmp(node->type, "Less") && d->keep < 0 && number > 0 && number <= 1)
        d->keep = number;
    else if ((mul || div) && d->keep > 0 && number > 0)
        d->scale *= mul ? number : 1 / number;
    else
        return onnx_type_is(node, passes);
    return true;
}

/* Of the second operand of CastLike only the type is read. */
static int drawn_operand(OnnxWalk *w, const OnnxNode *node)
{
    if (drawn_of(w, node, 0)) return 0;
    return strcmp(node->type, "CastLike") != 0 && drawn_of(w, node, 1) ? 1 : -1;
}

bool random_node(OnnxWalk *w, const OnnxNode *node)
{
    bool draws = !strcmp(node->type, "RandomUniformLike");
    int k = draws ? -1 : drawn_operand(w, node);
    if (draws) uniform_draw(w, node);
    if (k < 0) return draws;
    Drawn d = *drawn_of(w, node, k);
    if (!strcmp(node->type, "Mul") && d.keep > 0 && walk_active(w, node, 1 - k))
        drawn_multiply(w, node, 1 - k, &d);
    else if (drawn_change(w, node, 1 - k, &d))
        drawn_give(w, node, d);
    else
        walk_refuse(w, node, "random numbers are known in dropout and in stochastic depth, and nowhere else");
    return true;
}

/* ---- residual sums */

/* Whether value `id` is computed of value `of`, by a layer at least: a norm that adds its operand to the result is no residual block.
 * Writers of a file's values stand in front of their readers. */
static bool is_computed_of(OnnxWalk *w, int id, int of)
{
    static const char *const layers[] = {"Conv", "MatMul", "Gemm", "MaxPool", "AveragePool", NULL};
    bool layer = false;
    const OnnxValue *value = w->file->value;
    bool *on_way = calloc((size_t)w->file->value_count + 1, sizeof *on_way);
    if (!on_way) {
        walk_fail(w, ERR_MEMORY, "no memory for the values of a network");
        return false;
    }
    on_way[id] = true;
    for (int i = value[id].writer; i > value[of].writer; i--) {
        const OnnxNode *node = &w->file->node[i];
        bool found = false;
        for (int k = 0; k < node->out_count; k++) found |= node->out[k] && on_way[node->out[k]];
        for (int k = 0; k < node->in_count && found; k++) on_way[node->in[k]] = true;
        layer |= found && onnx_type_is(node, layers);
    }
    bool computed = layer && on_way[of];
    free(on_way);
    return computed;
}

void residual_sum(OnnxWalk *w, const OnnxNode *node, Value term[2])
{
    OnnxDrops *d = &w->drops;
    int a = node->in[0], b = node->in[1];
    int branch = is_computed_of(w, b, a) ? 1 : is_computed_of(w, a, b) ? 0 : -1;
    if (branch < 0 || !(node->needed & 1)) return; /* rates are those of the way to the logits */
    if (w->first) w->survey->residuals++;
    if (!w->first && d->path == 0 && w->options->drop_path > 0) {
        float last = (float)(d->residuals > 1 ? d->residuals - 1 : 1), at = d->residuals > 1 ? (float)d->residual : 1;
        term[branch] = stochastic_depth(w->g, term[branch], w->options->drop_path * at / last);
    }
    d->residual++;
}
