/* 1x1 convolutions that read one value -> one convolution with their weights stacked (a PACK), and a SLICE for each.
 *
 * A 1x1 convolution is a matrix product. The 2 to 4 that open the branches of an Inception block are narrow (16 to 192
 * channels): together they read their input once and make full use of the machine. The slices cost nothing
 * if the planner lets their readers read in place. Only plain convolutions (no bias, no ReLU) are fused,
 * whose weights nobody else reads; frozen ones are fused with frozen ones only, as a PACK has one gradient. */
#include "towers/graph/list.h"
#include "towers/graph/rules.h"

typedef struct Group { /* indices of ops that become one, the first of them the leader */
    int members[OP_MAX_IN];
    int count;
} Group;

static bool can_join(const Graph *g, const Op *op, const int *readers)
{
    if (op->kind != OP_CONV || op->in_count != 2 || op->attr.conv.relu || !window_is_point(&op->attr.conv.window))
        return false;
    Value w = op->in[1];
    if (conv_groups(graph_shape(g, op->in[0]), graph_shape(g, w)) > 1) return false;
    return readers[op->out[0].id] && graph_value(g, w)->role == ROLE_PARAM && readers[w.id] == 1 && !list_packed(g, w);
}

static bool is_frozen(const Graph *g, const Op *conv)
{
    return names_match(g->options.freeze, graph_value(g, conv->in[1])->name);
}

/* The convolutions that join the one at `leader`, in list order; `taken` marks those that belong to a group. */
static Group find_group(const Graph *g, int leader, const int *readers, bool *taken)
{
    Group group = {.count = 0};
    if (taken[leader] || !can_join(g, &g->ops[leader], readers)) return group;
    for (int index = leader; index < g->op_count && group.count < OP_MAX_IN; index++) {
        const Op *op = &g->ops[index];
        if (taken[index] || op->in[0].id != g->ops[leader].in[0].id || !can_join(g, op, readers)) continue;
        if (is_frozen(g, op) != is_frozen(g, &g->ops[leader])) continue;
        group.members[group.count++] = index;
    }
    if (group.count < 2) return (Group){.count = 0};
    for (int i = 0; i < group.count; i++) taken[group.members[i]] = true;
    return group;
}

/* The fused convolution, and slices in place of the results of its members, with their names. */
static int write_group(Graph *g, const Group *group, Op *ops)
{
    Op conv = g->ops[group->members[0]];
    Value weights[OP_MAX_IN];
    for (int i = 0; i < group->count; i++) weights[i] = g->ops[group->members[i]].in[1];
    conv.name = list_text(g, "%s+%d", conv.name, group->count - 1);
    conv.in[1] = graph_pack(g, weights, group->count);
    ValueInfo all = *graph_value(g, conv.out[0]);
    all.shape.c = graph_shape(g, conv.in[1]).n;
    all.role = ROLE_TEMP;
    all.name = conv.name;
    conv.out[0] = list_value(g, &all);
    ops[0] = conv;
    int32_t first = 0;
    for (int i = 0; i < group->count; i++) {
        const Op *member = &g->ops[group->members[i]];
        ops[1 + i] = (Op){.kind = OP_SLICE,
                          .attr = {.slice.first = first},
                          .name = member->name,
                          .in = {ops[0].out[0]},
                          .out = {member->out[0]},
                          .in_count = 1};
        first += graph_shape(g, member->out[0]).c;
    }
    return 1 + group->count;
}

static int write_list(Graph *g, const int *readers, bool *taken, Op *ops, int *fused)
{
    int made = 0;
    for (int index = 0; index < g->op_count && !graph_failed(g); index++) {
        Group group = find_group(g, index, readers, taken);
        if (group.count)
            made += write_group(g, &group, &ops[made]);
        else if (!taken[index])
            ops[made++] = g->ops[index];
        *fused += group.count > 0;
    }
    return made;
}

Status pass_sibling_convs(Graph *g, Value *keep, int count, int *changed)
{
    (void)keep; /* no value changes its meaning here */
    (void)count;
    *changed = 0;
    if (graph_failed(g)) return graph_finish(g);
    int *readers = list_readers(g);
    bool *taken = list_scratch(g, g->op_count, sizeof *taken);
    Op *ops = list_scratch(g, 2 * g->op_count, sizeof *ops);
    int made = write_list(g, readers, taken, ops, changed);
    if (*changed) list_replace(g, ops, made);
    return graph_finish(g);
}
