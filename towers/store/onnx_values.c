/* Values of the graph as inputs and outputs of nodes: by what name, and with eight bits or without. */
#include "towers/store/onnx_nodes.h"

static const char *value_name(const Writer *w, Value v, char text[ONNX_NAME])
{
    const ValueInfo *info = graph_value(w->graph, v);
    if (info->role == ROLE_PARAM || info->role == ROLE_RUNNING) return info->name;
    if (v.id == w->result.id) return w->result_name;
    if (v.id == w->input.id) return "z";
    snprintf(text, ONNX_NAME, "v%d", v.id);
    return text;
}

void reads_value(const Writer *w, Node *node, Value v)
{
    char *text = node->text[node->proto.n_input];
    bool rounded = int8_rounds(w, v);
    if (rounded) snprintf(text, ONNX_NAME, ONNX_INT8_VALUE, v.id);
    node_reads(node, rounded ? text : value_name(w, v, text));
}

void writes_value(Writer *w, Node *node, const char *layer, Value v, bool relu)
{
    Node *last = node;
    if (relu) {
        char *linear = node->text[OP_MAX_IN];
        snprintf(linear, ONNX_NAME, "v%d_linear", v.id);
        node_writes(node, linear);
        last = node_add(w, "Relu", layer);
        node_reads(last, linear);
    }
    const char *name = value_name(w, v, last->text[OP_MAX_IN]);
    node_writes(last, name);
    if (int8_rounds(w, v)) (void)int8_round(w, layer, v, name);
}
