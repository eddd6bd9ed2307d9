/* Running a graph with the reference; see interpret.h. */
#include "tests/support/interpret.h"

#include "kernels/philox.h"

Interpreter interpreter_create(const Graph *graph)
{
    Interpreter it = {graph, NULL, graph_value_count(graph)};
    it.values = calloc((size_t)it.count + 1, sizeof *it.values);
    if (!it.values) abort();
    for (int id = 1; id <= it.count; id++) it.values[id] = ref_create(graph_shape(graph, (Value){id}));
    return it;
}

void interpreter_destroy(Interpreter *it)
{
    for (int id = 1; id <= it->count; id++) ref_destroy(&it->values[id]);
    free(it->values);
    it->values = NULL;
}

double *interpreter_data(Interpreter *it, Value v)
{
    return it->values[v.id].data;
}

static void fill_packs(Interpreter *it)
{
    for (int id = 1; id <= it->count; id++) {
        const ValueInfo *info = graph_value(it->graph, (Value){id});
        double *to = it->values[id].data;
        for (int k = 0; info->role == ROLE_PACK && k < info->member_count; k++) {
            const RefTensor *from = &it->values[info->members[k].id];
            memcpy(to, from->data, (size_t)shape_count(from->shape) * sizeof(double));
            to += shape_count(from->shape);
        }
    }
}

void interpreter_run(Interpreter *it)
{
    fill_packs(it);
    for (int i = 0; i < graph_op_count(it->graph); i++) {
        const Op *op = graph_op_at(it->graph, i);
        RefTensor in[OP_MAX_IN] = {0}, out[OP_MAX_OUT] = {0};
        for (int k = 0; k < op->in_count; k++) in[k] = it->values[op->in[k].id];
        for (int k = 0; k < OP_MAX_OUT; k++) out[k] = it->values[op->out[k].id];
        reference_run(op->kind, &op->attr, in, out);
    }
}

double *interpreter_gradient(Interpreter *it, Value param)
{
    const Graph *g = it->graph;
    for (int32_t id = 1; id <= it->count; id++) {
        const ValueInfo *info = graph_value(g, (Value){id});
        if (info->role != ROLE_GRAD) continue;
        double *data = interpreter_data(it, (Value){id});
        if (info->of.id == param.id) return data;
        const ValueInfo *of = graph_value(g, info->of);
        for (int k = 0; k < of->member_count; k++) {
            if (of->members[k].id == param.id) return data;
            data += shape_count(graph_shape(g, of->members[k]));
        }
    }
    return NULL;
}

void fill_uniform(double *data, int64_t count, uint64_t seed, double low, double high)
{
    for (int64_t i = 0; i < count; i++) {
        Philox bits = philox(seed, (uint32_t)(i / 4), 0x7e57u, 0, 0);
        data[i] = low + (high - low) * (double)philox_unit(bits.v[i % 4]);
    }
}
