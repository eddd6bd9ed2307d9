/* Moves batch norms into the max pools behind them, so that neither their results nor the gradients of these are
 * stored.
 *
 * Forward: BATCHNORM with ReLU, whose result a MAX_POOL alone reads, keeps making the statistics, and the pool becomes
 * MAX_POOL_NORM, which reads what the batch norm has read. Backward: MAX_POOL_DX whose result a BATCHNORM_DX alone
 * reads leaves the list, and that becomes MAX_POOL_NORM_DX. The two are independent of each other. On a GPU the
 * fused gradient adds up its sums in another order. Fused ops must be as fast as those that they replace, as far as the device knows their times. */
#include "kernels/backend.h"
#include "towers/graph/list.h"

typedef struct NormPoolPass {
    Graph *g;
    Device *device;
    int *readers; /* by value */
    bool *gone;   /* by op: leaves the list */
} NormPoolPass;

/* The time of an op, added to `sum`; false if the device does not know it. */
static bool time_add(const NormPoolPass *pass, const Op *op, bool result, double *sum)
{
    OpCall call = list_call(pass->g, op);
    if (!result) call.out[0] = (Tensor){0};
    double time = pass->device->backend->op_time(pass->device, &call);
    *sum += time;
    return time >= 0;
}

/* Whether the fused op, which replaces `last` and what it reads from `first`, is as fast. The first op stays for its
 * other results if it has any. */
static bool fused_is_better(const NormPoolPass *pass, const Op *first, bool stays, const Op *last, const Op *fused)
{
    double apart = 0, together = 0;
    bool known = time_add(pass, first, true, &apart) && time_add(pass, last, true, &apart) &&
                 time_add(pass, fused, true, &together) && (!stays || time_add(pass, first, false, &together));
    return !known || together <= apart;
}

/* The op that writes what `op` alone reads first; NULL if there is none. */
static const Op *source_of(const NormPoolPass *pass, const Op *op)
{
    const ValueInfo *in = graph_value(pass->g, op->in[0]);
    if (in->op < 0 || in->role != ROLE_TEMP || pass->readers[op->in[0].id] != 1) return NULL;
    return &pass->g->ops[in->op];
}

static bool join_forward(const NormPoolPass *pass, Op *pool)
{
    const Op *norm = source_of(pass, pool);
    if (!norm || norm->kind != OP_BATCHNORM || !norm->attr.norm.relu) return false;
    Op fused = *pool;
    fused.kind = OP_MAX_POOL_NORM;
    fused.attr.pool.epsilon = norm->attr.norm.epsilon;
    fused.in[0] = norm->in[0];
    fused.in[1] = norm->in[1];
    fused.in[2] = norm->out[1];
    fused.in[3] = norm->out[2];
    fused.in_count = 4;
    if (norm->in_count > 2) fused.in[fused.in_count++] = norm->in[2];
    if (!fused_is_better(pass, norm, true, pool, &fused)) return false;
    *pool = fused;
    return true;
}

static bool join_backward(const NormPoolPass *pass, Op *norm_dx)
{
    const Op *pool_dx = source_of(pass, norm_dx);
    if (!pool_dx || pool_dx->kind != OP_MAX_POOL_DX || pool_dx->in_count > 2 || !norm_dx->attr.norm.relu) return false;
    Op fused = *norm_dx;
    fused.kind = OP_MAX_POOL_NORM_DX;
    fused.attr = pool_dx->attr;
    fused.attr.pool.epsilon = norm_dx->attr.norm.epsilon;
    fused.in[0] = pool_dx->in[0];
    fused.in[1] = pool_dx->in[1];
    for (int k = 1; k < norm_dx->in_count; k++) fused.in[k + 1] = norm_dx->in[k];
    fused.in_count = norm_dx->in_count + 1;
    if (!fused_is_better(pass, pool_dx, false, norm_dx, &fused)) return false;
    pass->gone[pool_dx - pass->g->ops] = true;
    *norm_dx = fused;
    return true;
}

/* Without the ops that are gone, whose results nobody reads any more. */
static void list_shorten(Graph *g, const bool *gone, int *forward_end)
{
    int made = 0, forward_made = *forward_end;
    Op *ops = list_scratch(g, g->op_count, sizeof *ops);
    for (int i = 0; i < g->op_count && !graph_failed(g); i++) {
        if (!gone[i])
            ops[made++] = g->ops[i];
        else
            g->values[g->ops[i].out[0].id].op = -1;
        if (gone[i] && i < *forward_end) forward_made--;
    }
    list_replace(g, ops, made);
    *forward_end = forward_made;
}

Status pass_norm_into_pool(Graph *g, Device *device, int *forward_end, NormPools *made)
{
    *made = (NormPools){0};
    if (graph_failed(g)) return graph_finish(g);
    NormPoolPass pass = {.g = g, .device = device, .readers = list_readers(g)};
    pass.gone = list_scratch(g, g->op_count, sizeof *pass.gone);
    for (int i = 0; i < g->op_count && !graph_failed(g); i++) {
        Op *op = &g->ops[i];
        if (op->kind == OP_MAX_POOL) made->inputs += join_forward(&pass, op);
        if (op->kind == OP_BATCHNORM_DX) made->gradients += join_backward(&pass, op);
    }
    if (made->gradients && !graph_failed(g)) list_shorten(g, pass.gone, forward_end);
    return graph_finish(g);
}
