/* Nodes and constants; see onnx_nodes.h. */
#include "towers/store/onnx_nodes.h"

/* ---- pieces */

Node *node_add(Writer *w, const char *type, const char *layer)
{
    Node *node = &w->nodes[w->node_count];
    w->node_list[w->node_count++] = &node->proto;
    onnx__node_proto__init(&node->proto);
    node->proto.op_type = borrowed(type);
    snprintf(node->label, sizeof node->label, "%s.%s.%d", layer, type, w->node_count); /* unique */
    node->proto.name = node->label;
    node->proto.input = node->input;
    node->proto.output = node->output;
    node->proto.attribute = node->attributes;
    return node;
}

void node_reads(Node *node, const char *name)
{
    node->input[node->proto.n_input++] = borrowed(name);
}

void node_writes(Node *node, const char *name)
{
    node->output[node->proto.n_output++] = borrowed(name);
}

static Onnx__AttributeProto *attribute_add(Node *node, const char *name, Onnx__AttributeProto__AttributeType type)
{
    size_t k = node->proto.n_attribute++;
    Onnx__AttributeProto *attribute = node->attributes[k] = &node->attribute[k];
    onnx__attribute_proto__init(attribute);
    attribute->name = borrowed(name);
    attribute->has_type = 1;
    attribute->type = type;
    attribute->ints = node->ints[k];
    return attribute;
}

void attribute_int(Node *node, const char *name, int64_t value)
{
    Onnx__AttributeProto *attribute = attribute_add(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
    attribute->has_i = 1;
    attribute->i = value;
}

void attribute_float(Node *node, const char *name, float value)
{
    Onnx__AttributeProto *attribute = attribute_add(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);
    attribute->has_f = 1;
    attribute->f = value;
}

void attribute_ints(Node *node, const char *name, int count, const int64_t *values)
{
    Onnx__AttributeProto *attribute = attribute_add(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
    attribute->n_ints = (size_t)count;
    memcpy(attribute->ints, values, (size_t)count * sizeof *values);
}

/* ---- constants */

Constant *constant_add(Writer *w, const char *name, OnnxType type, int rank, const int64_t *dims, const void *data,
                       size_t bytes)
{
    Constant *constant = &w->constants[w->constant_count];
    Onnx__TensorProto *proto = w->constant_list[w->constant_count++] = &constant->proto;
    onnx__tensor_proto__init(proto);
    memcpy(constant->dims, dims, (size_t)rank * sizeof *dims);
    proto->n_dims = (size_t)rank;
    proto->dims = constant->dims;
    proto->has_data_type = proto->has_raw_data = 1;
    proto->data_type = (int32_t)type;
    proto->raw_data = (ProtobufCBinaryData){bytes, (uint8_t *)data};
    proto->name = borrowed(name);
    return constant;
}

/* "ones_7", or "_ones_7" if a parameter is called so, as it may be in a network from a file. A single number is "towers::scale_7", so that
 * who reads the file does not take it for one that was trained. */
static void name_make(Writer *w, const char *what, bool single, char name[ONNX_NAME])
{
    char before[8] = "";
    const char *mark = single ? ONNX_CONSTANT : "";
    snprintf(name, ONNX_NAME, "%s%.12s_%d", mark, what, w->constant_count);
    while (graph_find(w->graph, name).id && strlen(before) + 1 < sizeof before) {
        strcat(before, "_");
        snprintf(name, ONNX_NAME, "%s%s%.12s_%d", before, mark, what, w->constant_count);
    }
    if (graph_find(w->graph, name).id)
        w->status = FAIL(ERR_UNSUPPORTED, "no name is left for a constant of the ONNX file beside '%s'", name);
}

const char *constant_own(Writer *w, const char *what, OnnxType type, int rank, const int64_t *dims, void *made,
                         size_t bytes)
{
    if (!made) {
        w->status = FAIL(ERR_MEMORY, "no memory for a constant of the ONNX file");
        return "";
    }
    Constant *constant = constant_add(w, NULL, type, rank, dims, made, bytes);
    constant->made = made;
    name_make(w, what, type == ONNX_FLOAT && bytes == sizeof(float), constant->name);
    constant->proto.name = constant->name;
    return constant->name;
}

const char *constant_make(Writer *w, const char *what, int rank, int64_t count, const float *values, float fill)
{
    float *made = malloc((size_t)count * sizeof *made);
    int64_t vector[] = {count}, image[] = {1, count, 1, 1};
    for (int64_t i = 0; made && i < count; i++) made[i] = values ? values[i] : fill;
    return constant_own(w, what, ONNX_FLOAT, rank, rank == 4 ? image : vector, made, (size_t)count * sizeof *made);
}

int parameter_dims(const Writer *w, const StTensor *t, int64_t dims[ST_MAX_RANK])
{
    const ValueInfo *info = graph_value(w->graph, graph_find(w->graph, t->name));
    memcpy(dims, t->dims, sizeof t->dims);
    if (info->rank == 3 && info->shape.w > 1) {
        memcpy(dims, (int64_t[]){1, t->dims[0], t->dims[1], t->dims[2]}, 4 * sizeof *dims);
        return 4;
    }
    if (info->rank != 2) return t->rank;
    dims[2] = dims[3] = 1;
    return 4;
}

const char *constant_scalar(Writer *w, const char *what, float value)
{
    return constant_make(w, what, 0, 1, NULL, value);
}

const char *constant_ints(Writer *w, const char *what, int count, const int64_t *values)
{
    size_t bytes = (size_t)count * sizeof *values;
    int64_t dims[] = {count}, *made = malloc(bytes);
    if (made) memcpy(made, values, bytes);
    return constant_own(w, what, ONNX_INT64, 1, dims, made, bytes);
}
