/* Moves batch norms into the convolutions around them, so that their results are never stored.
 *
 * Forward: if every reader of a batch norm's result is a convolution (or a weight gradient) that can normalize its
 * input, BATCHNORM_SUMS becomes BATCHNORM_FINISH, which computes two coefficients per channel, and the readers read its
 * input and the coefficients. Backward: CONV_DX followed by BATCHNORM_DX, whose first half masks and sums the output of
 * CONV_DX, becomes CONV_DX_SUMS and BATCHNORM_DX_APPLY. The two are independent of each other.
 *
 * A kernel that normalizes its input may be slower than one that does not, and each reader repeats the normalization,
 * forward and backward. If the device knows times, the sum over all joined readers is compared with the batch norm and
 * its readers before, and the two ops of a gradient with those that they become. Runs after pass_conv_statistics; the list keeps its length and order. */
#include "towers/graph/list.h"
#include "towers/graph/rules.h"

typedef struct NormConvPass {
    Graph *g;
    const Joins *joins;
    int *readers; /* by value */
    Op *ops;      /* the new list */
    NormJoins *made;
} NormConvPass;

static bool ask(const NormConvPass *pass, const OpCall *call)
{
    return pass->joins->ask(pass->joins->context, call);
}

/* ---- forward: the normalized value is not made */

/* `op` reads `a`, the normalization of `z`. Returns the op that normalizes `z` by itself. */
static bool absorbs(const NormConvPass *pass, const Op *op, Value z, Value a, Op *joined)
{
    bool forward = op->kind == OP_CONV_STATISTICS && op->in_count == 2;
    if ((!forward && op->kind != OP_CONV_DW) || op->in[0].id != a.id || op->in[1].id == a.id) return false;
    *joined = *op;
    joined->kind = forward ? OP_CONV_STATISTICS : OP_CONV_DW_APPLY;
    joined->in[0] = z;
    joined->in[2] = a; /* which becomes the coefficients */
    joined->in_count = 3;
    OpCall call = list_call(pass->g, joined);
    return ask(pass, &call);
}

static bool reads(const Op *op, Value v)
{
    for (int i = 0; i < op->in_count; i++)
        if (op->in[i].id == v.id) return true;
    return false;
}

static bool all_absorb(const NormConvPass *pass, const Op *norm)
{
    Value a = norm->out[0];
    Op joined;
    if (!norm->attr.norm.relu || !pass->readers[a.id] || graph_value(pass->g, a)->role != ROLE_TEMP) return false;
    for (int i = 0; i < pass->g->op_count; i++)
        if (reads(&pass->ops[i], a) && !absorbs(pass, &pass->ops[i], norm->in[0], a, &joined)) return false;
    return true;
}

/* The time of a call, added to `sum`; false if the device does not know it. */
static bool call_time_add(const NormConvPass *pass, const OpCall *call, double *sum)
{
    double time = pass->joins->time(pass->joins->context, call);
    *sum += time;
    return time >= 0;
}

static bool time_add(const NormConvPass *pass, const Op *op, double *sum)
{
    OpCall call = list_call(pass->g, op);
    return call_time_add(pass, &call, sum);
}

/* Whether readers that normalize by themselves are faster than a result computed once. */
static bool dissolved_is_faster(const NormConvPass *pass, const Op *norm)
{
    double once = 0, dissolved = 0;
    Value a = norm->out[0];
    Op joined;
    if (!pass->joins->time) return true;
    bool known = time_add(pass, norm, &once);
    for (int i = 0; known && i < pass->g->op_count; i++) {
        if (!reads(&pass->ops[i], a) || !absorbs(pass, &pass->ops[i], norm->in[0], a, &joined)) continue;
        known = time_add(pass, &pass->ops[i], &once) && time_add(pass, &joined, &dissolved);
    }
    return !known || dissolved < once;
}

/* The value changes its meaning from the result to the coefficients. */
static void dissolve(NormConvPass *pass, Op *norm)
{
    Value a = norm->out[0];
    ValueInfo *info = &pass->g->values[a.id];
    Op joined;
    for (int i = 0; i < pass->g->op_count; i++) {
        if (!reads(&pass->ops[i], a) || !absorbs(pass, &pass->ops[i], norm->in[0], a, &joined)) continue;
        pass->ops[i] = joined;
        pass->made->inputs += joined.kind == OP_CONV_STATISTICS;
    }
    norm->kind = OP_BATCHNORM_FINISH;
    info->shape = (Shape){2, info->shape.c, 1, 1};
    info->name = list_text(pass->g, "%s.coefficients", norm->name);
}

/* ---- backward: mask and sum while computing the gradient */

/* The op that writes the input of `norm_dx`, if it is a plain CONV_DX without other readers; else NULL. */
static Op *source_of(const NormConvPass *pass, const Op *norm_dx)
{
    const ValueInfo *dy = graph_value(pass->g, norm_dx->in[0]);
    if (dy->op < 0 || dy->role != ROLE_TEMP || pass->readers[norm_dx->in[0].id] != 1) return NULL;
    Op *conv = &pass->ops[dy->op];
    bool adds = conv->in_count > 2 && conv->in[2].id;
    return conv->kind == OP_CONV_DX && !adds ? conv : NULL;
}

/* The gradient lies where its sum with those of sibling slices will be. */
static int64_t gradient_pitch(const NormConvPass *pass, Value dx)
{
    for (int i = 0; i < pass->g->op_count; i++)
        if (pass->ops[i].kind == OP_CONCAT && reads(&pass->ops[i], dx))
            return graph_shape(pass->g, pass->ops[i].out[0]).c;
    return graph_shape(pass->g, dx).c;
}

/* dy, x, beta, mean, var, gamma behind dy, w; and rstd, if the op that made var has made it, too */
static Op with_sums(const NormConvPass *pass, const Op *conv, const Op *norm_dx)
{
    Op op = *conv;
    int norm = graph_value(pass->g, norm_dx->in[4])->op;
    OpKind made_by = norm < 0 ? OP_NONE : pass->ops[norm].kind;
    op.kind = OP_CONV_DX_SUMS;
    op.attr.conv.epsilon = norm_dx->attr.norm.epsilon;
    for (int i = 1; i < norm_dx->in_count; i++) op.in[1 + i] = norm_dx->in[i];
    op.in_count = 1 + norm_dx->in_count;
    if (made_by == OP_BATCHNORM_SUMS || made_by == OP_BATCHNORM_FINISH) {
        op.in[7] = pass->ops[norm].out[3];
        op.in_count = 8;
    }
    op.out[1] = norm_dx->out[1];
    op.out[2] = norm_dx->out[2];
    return op;
}

static Op without_sums(const Op *norm_dx)
{
    Value gamma = norm_dx->in_count > 5 ? norm_dx->in[5] : (Value){0};
    Op op = {.kind = OP_BATCHNORM_DX_APPLY, .attr = norm_dx->attr, .name = norm_dx->name, .in_count = 6};
    const Value in[] = {norm_dx->in[0],  norm_dx->in[1],  norm_dx->in[3], norm_dx->in[4],
                        norm_dx->out[1], norm_dx->out[2], gamma};
    memcpy(op.in, in, sizeof in);
    if (gamma.id) op.in_count = 7;
    op.out[0] = norm_dx->out[0];
    return op;
}

/* Whether the joined op and the other half of the batch norm are at least as fast as the two ops before. All of them have
 * the gradient in the same memory. */
static bool joined_gradient_is_faster(const NormConvPass *pass, const Op *conv, const Op *norm_dx, const OpCall *joined)
{
    double apart = 0, together = 0;
    Op half = without_sums(norm_dx);
    if (!pass->joins->time) return true;
    OpCall dx = list_call(pass->g, conv), norm = list_call(pass->g, norm_dx), apply = list_call(pass->g, &half);
    dx.out[0].pitch = norm.in[0].pitch = norm.out[0].pitch = joined->out[0].pitch;
    apply.in[0].pitch = apply.out[0].pitch = joined->out[0].pitch;
    bool known = call_time_add(pass, &dx, &apart) && call_time_add(pass, &norm, &apart) &&
                 call_time_add(pass, joined, &together) && call_time_add(pass, &apply, &together);
    return !known || together <= apart;
}

static void join_gradient(NormConvPass *pass, Op *norm_dx)
{
    Op *conv = norm_dx->attr.norm.relu ? source_of(pass, norm_dx) : NULL;
    if (!conv) return;
    Op joined = with_sums(pass, conv, norm_dx);
    OpCall call = list_call(pass->g, &joined);
    call.out[0].pitch = gradient_pitch(pass, norm_dx->out[0]);
    if (!ask(pass, &call) || !joined_gradient_is_faster(pass, conv, norm_dx, &call)) return;
    *conv = joined;
    *norm_dx = without_sums(norm_dx);
    pass->made->gradients++;
}

Status pass_norm_into_conv(Graph *g, const Joins *joins, NormJoins *made)
{
    *made = (NormJoins){0};
    if (graph_failed(g)) return graph_finish(g);
    NormConvPass pass = {.g = g, .joins = joins, .made = made};
    pass.readers = list_readers(g);
    pass.ops = list_scratch(g, g->op_count, sizeof *pass.ops);
    if (!graph_failed(g)) memcpy(pass.ops, g->ops, (size_t)g->op_count * sizeof *pass.ops);
    for (int i = 0; i < g->op_count && !graph_failed(g); i++) {
        Op *op = &pass.ops[i];
        if (op->kind == OP_BATCHNORM_SUMS && all_absorb(&pass, op) && dissolved_is_faster(&pass, op))
            dissolve(&pass, op);
        if (op->kind == OP_BATCHNORM_DX) join_gradient(&pass, op);
    }
    list_replace(g, pass.ops, g->op_count);
    return graph_finish(g);
}
