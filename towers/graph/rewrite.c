/* Shared by passes over the list: counting readers, querying an op, and replacing the list. */
#include "towers/graph/list.h"

int *list_readers(Graph *g)
{
    int *readers = list_scratch(g, g->value_count, sizeof *readers);
    for (int index = 0; readers && index < g->op_count; index++)
        for (int i = 0; i < g->ops[index].in_count; i++) readers[g->ops[index].in[i].id]++;
    return readers;
}

void list_replace(Graph *g, Op *ops, int op_count)
{
    if (graph_failed(g)) return;
    for (int i = 0; i < g->scratch_count; i++)
        if (g->scratch[i] == ops) g->scratch[i] = g->ops;
    g->ops = ops;
    g->op_count = op_count;
    g->op_room = (size_t)op_count;
    for (int index = 0; index < op_count; index++)
        for (int o = 0; o < op_outputs(ops[index].kind); o++) {
            g->values[ops[index].out[o].id].op = index;
            g->values[ops[index].out[o].id].out = o;
        }
}

/* The pitch that the planner gives a slice of another value, if all its readers take slices. */
static int64_t likely_pitch(const Graph *g, Value v)
{
    const ValueInfo *info = graph_value(g, v);
    bool cut = info->op >= 0 && g->ops[info->op].kind == OP_SLICE;
    return cut ? graph_shape(g, g->ops[info->op].in[0]).c : info->shape.c;
}

static Tensor likely_tensor(const Graph *g, Value v)
{
    const ValueInfo *info = graph_value(g, v);
    void *somewhere = (void *)64;
    if (!v.id) return (Tensor){0};
    return (Tensor){.data = somewhere, .shape = info->shape, .dtype = info->dtype, .pitch = likely_pitch(g, v)};
}

OpCall list_call(const Graph *g, const Op *op)
{
    OpCall call = {.kind = op->kind, .attr = op->attr, .name = op->name, .in_count = op->in_count};
    call.out_count = op_outputs(op->kind);
    for (int i = 0; i < op->in_count; i++) call.in[i] = likely_tensor(g, op->in[i]);
    for (int o = 0; o < call.out_count; o++) call.out[o] = likely_tensor(g, op->out[o]);
    return call;
}
