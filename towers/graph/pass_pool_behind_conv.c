/* Average pooling followed by a 1x1 convolution -> the convolution followed by the pooling.
 *
 * Both are linear, one mixes channels and the other pixels: with divisors d(p) that depend on the place only,
 * W (sum_q x[q] / d(p)) = (sum_q W x[q]) / d(p). The pooling branches of Inception reduce channels (192 -> 32), so the
 * pooling then moves a sixth of the bytes, and its convolution reads the same input as its siblings
 * (pass_sibling_convs). Holds for stride 1 and equal sides; a convolution that adds channels, a bias or a ReLU stays
 * where it is. */
#include "towers/graph/list.h"
#include "towers/graph/rules.h"

static bool is_kept(Value v, const Value *keep, int count)
{
    for (int i = 0; i < count; i++)
        if (keep[i].id == v.id) return true;
    return false;
}

static bool keeps_sides(const Window *w)
{
    return w->stride_h == 1 && w->stride_w == 1 && 2 * w->pad_h + w->more_h == w->kh - 1 &&
           2 * w->pad_w + w->more_w == w->kw - 1;
}

/* The index of the pooling to move behind convolution `conv`, or -1. */
static int movable_pool(const Graph *g, int conv, const int *readers, const Value *keep, int count)
{
    const Op *op = &g->ops[conv];
    if (op->kind != OP_CONV || op->in_count != 2 || op->attr.conv.relu || !window_is_point(&op->attr.conv.window))
        return -1;
    const ValueInfo *pooled = graph_value(g, op->in[0]);
    if (pooled->op < 0 || pooled->role != ROLE_TEMP || readers[op->in[0].id] != 1 || is_kept(op->in[0], keep, count))
        return -1;
    const Op *pool = &g->ops[pooled->op];
    if (pool->kind != OP_AVG_POOL || !keeps_sides(&pool->attr.pool.window)) return -1;
    return graph_shape(g, op->in[1]).n <= pooled->shape.c ? pooled->op : -1;
}

/* Writes the new list, in which moved poolings follow their convolutions. */
static int write_list(Graph *g, const int *pool_of, const bool *moved, Op *ops)
{
    int made = 0;
    for (int index = 0; index < g->op_count; index++) {
        if (moved[index]) continue;
        ops[made++] = g->ops[index];
        if (pool_of[index] < 0) continue;
        ops[made++] = g->ops[pool_of[index]];
        /* The value between the two changes its meaning: it becomes the result of the convolution. */
        Op *conv = &ops[made - 2];
        Op *pool = &ops[made - 1];
        Value between = pool->out[0], last = conv->out[0];
        g->values[between.id].shape = graph_shape(g, last);
        g->values[between.id].name = conv->name;
        if (g->values[last.id].role == ROLE_TEMP) g->values[last.id].name = pool->name;
        conv->in[0] = pool->in[0];
        conv->out[0] = pool->in[0] = between;
        pool->out[0] = last;
    }
    return made;
}

static int find_pools(const Graph *g, const int *readers, const Value *keep, int count, int *pool_of, bool *moved)
{
    int found = 0;
    for (int index = 0; index < g->op_count; index++) {
        pool_of[index] = movable_pool(g, index, readers, keep, count);
        if (pool_of[index] < 0) continue;
        moved[pool_of[index]] = true;
        found++;
    }
    return found;
}

Status pass_pool_behind_conv(Graph *g, Value *keep, int count, int *changed)
{
    *changed = 0;
    if (graph_failed(g)) return graph_finish(g);
    int *readers = list_readers(g);
    int *pool_of = list_scratch(g, g->op_count, sizeof *pool_of);
    bool *moved = list_scratch(g, g->op_count, sizeof *moved);
    Op *ops = list_scratch(g, g->op_count, sizeof *ops);
    *changed = graph_failed(g) ? 0 : find_pools(g, readers, keep, count, pool_of, moved);
    if (*changed) list_replace(g, ops, write_list(g, pool_of, moved, ops));
    return graph_finish(g);
}
