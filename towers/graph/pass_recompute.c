/* Recomputes cheap activations for the backward pass, so that they need no memory in between.
 *
 * After graph_train: if a gradient op reads the result of a batch norm of the forward pass, a copy of that op (as
 * BATCHNORM_APPLY, with the mean and variance of this step) is inserted before the first such reader, and the readers in
 * the backward pass read the copy. Pools, ReLUs and concats of such values are copied, too. The input of a batch norm is
 * kept for its own gradient anyway; ops with other inputs are not recomputed, because those inputs would have to be kept.
 * Copies compute the same as the originals, so results are equal bit for bit. */
#include "towers/graph/list.h"
#include "towers/graph/rules.h"

typedef struct Recompute {
    Graph *g;
    int forward_end;
    bool *cheap; /* by value id: written by an op that is recomputed */
    Value *copy; /* by value id */
    Op *ops;
    int made; /* ops in the new list */
    int copies;
} Recompute;

/* ---- which ops are recomputed */

static bool op_is_cheap(const Recompute *r, const Op *op)
{
    bool follows = op->kind == OP_RELU || op->kind == OP_MAX_POOL || op->kind == OP_AVG_POOL || op->kind == OP_CONCAT;
    for (int i = 0; follows && i < op->in_count; i++) follows = r->cheap[op->in[i].id];
    return follows || op->kind == OP_BATCHNORM;
}

/* ---- copies */

static Value copy_value(Recompute *r, Value v)
{
    if (!v.id) return v;
    ValueInfo info = *graph_value(r->g, v);
    info.name = list_text(r->g, "%s.again", info.name);
    return list_value(r->g, &info);
}

/* Append the copy of the op that wrote `v`, after those of its operands. */
static Value make_again(Recompute *r, Value v)
{
    if (r->copy[v.id].id || graph_failed(r->g)) return r->copy[v.id];
    Op original = r->g->ops[r->g->values[v.id].op], again = original;
    for (int i = 0; i < original.in_count; i++)
        if (original.kind != OP_BATCHNORM) again.in[i] = make_again(r, original.in[i]);
    for (int o = 0; o < op_outputs(original.kind); o++) again.out[o] = (Value){0};
    again.name = list_text(r->g, "%s.again", original.name);
    again.out[0] = copy_value(r, v);
    if (original.kind == OP_BATCHNORM) {
        /* x, beta, gamma -> x, beta, mean, var, gamma */
        Value gamma = original.in_count > 2 ? original.in[2] : (Value){0};
        again.kind = OP_BATCHNORM_APPLY;
        again.in[2] = original.out[1];
        again.in[3] = original.out[2];
        again.in[4] = gamma;
        again.in_count = gamma.id ? 5 : 4;
        again.out[1] = again.out[2] = (Value){0};
    }
    if (original.kind == OP_MAX_POOL) again.out[1] = copy_value(r, original.out[1]);
    r->ops[r->made++] = again;
    r->copies++;
    return r->copy[v.id] = again.out[0];
}

static void write_list(Recompute *r)
{
    int count = r->g->op_count;
    for (int index = 0; index < count && !graph_failed(r->g); index++) {
        Op op = r->g->ops[index];
        for (int i = 0; index >= r->forward_end && i < op.in_count; i++)
            if (r->cheap[op.in[i].id]) op.in[i] = make_again(r, op.in[i]);
        r->ops[r->made++] = op;
    }
}

Status pass_recompute(Graph *g, int forward_end, int *changed)
{
    *changed = 0;
    if (graph_failed(g)) return graph_finish(g);
    Recompute r = {.g = g, .forward_end = forward_end};
    r.cheap = list_scratch(g, g->value_count, sizeof *r.cheap);
    r.copy = list_scratch(g, g->value_count, sizeof *r.copy);
    r.ops = list_scratch(g, 2 * g->op_count, sizeof *r.ops);
    for (int index = 0; index < r.forward_end && !graph_failed(g); index++) {
        const Op *op = &r.g->ops[index];
        Value y = op->out[0];
        r.cheap[y.id] = r.g->values[y.id].role == ROLE_TEMP && op_is_cheap(&r, op);
    }
    write_list(&r);
    if (r.copies) list_replace(g, r.ops, r.made);
    *changed = r.copies;
    return graph_finish(g);
}
