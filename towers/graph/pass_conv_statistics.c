/* A convolution followed by the statistics of batch normalization over its result -> one op that computes both.
 *
 * A batch norm reads its input twice, for the sums and to be applied. If the device has a convolution that also sums
 * its output, CONV becomes CONV_STATISTICS and BATCHNORM becomes BATCHNORM_SUMS, which reads its input once. A joined
 * convolution of siblings serves the batch norms behind all its slices: they read slices of its sums. Only plain
 * convolutions (no bias, no ReLU). Values that other ops read keep their ids, so the gradients, which are already in
 * the list, do not change. */
#include "towers/graph/list.h"
#include "towers/graph/rules.h"

typedef struct StatisticsSums { /* of one convolution */
    bool joined;
    Value sum, square_sum;
} StatisticsSums;

typedef struct StatisticsPass {
    Graph *g;
    const Joins *joins;
    int forward_end;
    StatisticsSums *sums; /* by op: those of a convolution */
    Op *ops;              /* the new list */
    int made, forward_made;
} StatisticsPass;

/* The op whose result, or a slice of it from channel *first on, `norm` normalizes; -1 if there is none. */
static int32_t origin_of(const Graph *g, const Op *norm, int32_t *first)
{
    int32_t writer = graph_value(g, norm->in[0])->op;
    *first = 0;
    if (writer < 0 || g->ops[writer].kind != OP_SLICE) return writer;
    *first = g->ops[writer].attr.slice.first;
    return graph_value(g, g->ops[writer].in[0])->op;
}

static bool can_join(const Op *op)
{
    bool bias = op->in_count > 2 && op->in[2].id;
    return op->kind == OP_CONV && !bias && !op->attr.conv.relu;
}

static bool has_kernel(const StatisticsPass *pass, Op conv)
{
    conv.kind = OP_CONV_STATISTICS;
    OpCall call = list_call(pass->g, &conv);
    return pass->joins->ask(pass->joins->context, &call);
}

static int find_convs(StatisticsPass *pass)
{
    const Graph *g = pass->g;
    int found = 0;
    int32_t first;
    for (int index = 0; index < pass->forward_end; index++) {
        if (g->ops[index].kind != OP_BATCHNORM) continue;
        int32_t conv = origin_of(g, &g->ops[index], &first);
        if (conv < 0 || pass->sums[conv].joined || !can_join(&g->ops[conv]) || !has_kernel(pass, g->ops[conv]))
            continue;
        pass->sums[conv].joined = true;
        found++;
    }
    return found;
}

/* ---- the new list */

static Value new_vector(Graph *g, const char *name, const char *suffix, int32_t channels)
{
    ValueInfo info = {.shape = shape_vector(channels), .dtype = DTYPE_F32, .role = ROLE_TEMP, .op = -1};
    info.name = list_text(g, "%s.%s", name, suffix);
    return list_value(g, &info);
}

static void write_conv(StatisticsPass *pass, Op op, StatisticsSums *sums)
{
    int32_t channels = graph_shape(pass->g, op.out[0]).c;
    sums->sum = new_vector(pass->g, op.name, "sum", channels);
    sums->square_sum = new_vector(pass->g, op.name, "square_sum", channels);
    op.kind = OP_CONV_STATISTICS;
    op.in_count = 2;
    op.out[1] = sums->sum;
    op.out[2] = sums->square_sum;
    pass->ops[pass->made++] = op;
}

/* Channels first .. first + channels of one of the sums. */
static Value cut(StatisticsPass *pass, Value sums, const Op *norm, const char *suffix, int32_t first, int32_t channels)
{
    if (graph_shape(pass->g, sums).c == channels) return sums;
    Value part = new_vector(pass->g, norm->name, suffix, channels);
    pass->ops[pass->made++] = (Op){.kind = OP_SLICE,
                                   .attr = {.slice.first = first},
                                   .name = graph_value(pass->g, part)->name,
                                   .in = {sums},
                                   .out = {part},
                                   .in_count = 1};
    return part;
}

/* x, beta, gamma -> x, beta, sum, square_sum, gamma */
static void write_norm(StatisticsPass *pass, Op op, const StatisticsSums *sums, int32_t first)
{
    int32_t channels = graph_shape(pass->g, op.in[0]).c;
    Value gamma = op.in_count > 2 ? op.in[2] : (Value){0};
    op.kind = OP_BATCHNORM_SUMS;
    op.in[2] = cut(pass, sums->sum, &op, "sum", first, channels);
    op.in[3] = cut(pass, sums->square_sum, &op, "square_sum", first, channels);
    op.in[4] = gamma;
    op.in_count = gamma.id ? 5 : 4;
    op.out[3] = new_vector(pass->g, op.name, "rstd", channels);
    pass->ops[pass->made++] = op;
}

Status pass_conv_statistics(Graph *g, const Joins *joins, int *forward_end, int *changed)
{
    *changed = 0;
    if (graph_failed(g)) return graph_finish(g);
    StatisticsPass pass = {.g = g, .joins = joins, .forward_end = *forward_end};
    pass.sums = list_scratch(g, g->op_count, sizeof *pass.sums);
    pass.ops = list_scratch(g, 3 * g->op_count, sizeof *pass.ops);
    int found = graph_failed(g) ? 0 : find_convs(&pass);
    if (found) {
        for (int index = 0; index < pass.g->op_count && !graph_failed(pass.g); index++) {
            if (index == pass.forward_end) pass.forward_made = pass.made;
            Op op = pass.g->ops[index];
            int32_t first, conv = op.kind == OP_BATCHNORM ? origin_of(pass.g, &op, &first) : -1;
            if (conv >= 0 && pass.sums[conv].joined)
                write_norm(&pass, op, &pass.sums[conv], first);
            else if (pass.sums[index].joined)
                write_conv(&pass, op, &pass.sums[index]);
            else
                pass.ops[pass.made++] = op;
        }
        if (pass.forward_end == pass.g->op_count) pass.forward_made = pass.made;
    }
    if (found && !graph_failed(g)) {
        list_replace(g, pass.ops, pass.made);
        *forward_end = pass.forward_made;
        *changed = found;
    }
    return graph_finish(g);
}
