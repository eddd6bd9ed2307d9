/* ONNX files for tests; see onnx_maker.h. */
#include "tests/support/onnx_maker.h"

static void *kept(OnnxMaker *m, size_t bytes)
{
    assert_true(m->memory_count < (int)(sizeof m->memory / sizeof *m->memory));
    void *memory = m->memory[m->memory_count++] = calloc(1, bytes + 1);
    assert_non_null(memory);
    return memory;
}

static char *text_kept(OnnxMaker *m, const char *text)
{
    char *copy = kept(m, strlen(text) + 1);
    strcpy(copy, text);
    return copy;
}

/* The words of a text. */
static size_t names_kept(OnnxMaker *m, const char *text, char ***names)
{
    size_t count = 0;
    char *rest = text_kept(m, text), *word;
    *names = kept(m, MAKER_NAMES * sizeof **names);
    while ((word = strsep(&rest, " "))) (*names)[count++] = strcmp(word, "-") != 0 ? word : text_kept(m, "");
    assert_true(count <= MAKER_NAMES);
    return count;
}

void maker_output(OnnxMaker *m, const char *name)
{
    Onnx__ValueInfoProto *output = &m->output[m->graph.n_output];
    onnx__value_info_proto__init(output);
    output->name = text_kept(m, name);
    m->outputs[m->graph.n_output++] = output;
}

OnnxMaker *maker_start(const int64_t sizes[4], const char *output)
{
    OnnxMaker *m = calloc(1, sizeof *m);
    assert_non_null(m);
    onnx__model_proto__init(&m->model);
    onnx__graph_proto__init(&m->graph);
    onnx__operator_set_id_proto__init(&m->opset);
    onnx__value_info_proto__init(&m->input);
    onnx__type_proto__init(&m->type);
    onnx__type_proto__tensor__init(&m->kind);
    onnx__tensor_shape_proto__init(&m->shape);
    for (int i = 0; i < 4; i++) {
        onnx__tensor_shape_proto__dimension__init(&m->size[i]);
        m->size[i].has_dim_value = sizes[i] > 0;
        m->size[i].dim_value = sizes[i];
        m->sizes[i] = &m->size[i];
    }
    m->shape.n_dim = 4, m->shape.dim = m->sizes;
    m->kind.shape = &m->shape;
    m->type.tensor_type = &m->kind;
    m->input.name = (char *)"x", m->input.type = &m->type;
    m->inputs[0] = &m->input;
    m->graph.n_input = 1, m->graph.input = m->inputs;
    m->graph.output = m->outputs;
    m->graph.node = m->nodes;
    m->graph.initializer = m->tensors;
    m->opset.has_version = true, m->opset.version = 17;
    m->opsets[0] = &m->opset;
    m->model.n_opset_import = 1, m->model.opset_import = m->opsets;
    m->model.graph = &m->graph;
    m->model.has_ir_version = true, m->model.ir_version = 8;
    maker_output(m, output);
    return m;
}

void maker_node(OnnxMaker *m, const char *type, const char *inputs, const char *outputs)
{
    assert_true(m->graph.n_node < MAKER_MOST);
    Onnx__NodeProto *node = &m->node[m->graph.n_node];
    onnx__node_proto__init(node);
    node->op_type = text_kept(m, type);
    node->n_input = *inputs ? names_kept(m, inputs, &node->input) : 0;
    node->n_output = names_kept(m, outputs, &node->output);
    node->attribute = &m->attributes[m->attribute_count];
    m->nodes[m->graph.n_node++] = node;
}

static Onnx__AttributeProto *attribute(OnnxMaker *m, const char *name)
{
    assert_true(m->attribute_count < MAKER_MOST);
    Onnx__AttributeProto *a = &m->attribute[m->attribute_count];
    onnx__attribute_proto__init(a);
    a->name = text_kept(m, name);
    m->attributes[m->attribute_count++] = a;
    m->nodes[m->graph.n_node - 1]->n_attribute++;
    return a;
}

void maker_int(OnnxMaker *m, const char *name, int64_t value)
{
    Onnx__AttributeProto *a = attribute(m, name);
    a->has_i = true, a->i = value;
}

void maker_float(OnnxMaker *m, const char *name, float value)
{
    Onnx__AttributeProto *a = attribute(m, name);
    a->has_f = true, a->f = value;
}

void maker_text(OnnxMaker *m, const char *name, const char *value)
{
    Onnx__AttributeProto *a = attribute(m, name);
    a->has_s = true;
    a->s = (ProtobufCBinaryData){strlen(value), (uint8_t *)text_kept(m, value)};
}

void maker_ints(OnnxMaker *m, const char *name, int count, const int64_t *values)
{
    Onnx__AttributeProto *a = attribute(m, name);
    a->n_ints = (size_t)count;
    a->ints = memcpy(kept(m, (size_t)count * sizeof *values), values, (size_t)count * sizeof *values);
}

/* A tensor without data. */
static Onnx__TensorProto *tensor(OnnxMaker *m, const char *name, int type, int rank, const int64_t *dims)
{
    assert_true(m->graph.n_initializer < MAKER_MOST);
    Onnx__TensorProto *t = &m->tensor[m->graph.n_initializer];
    onnx__tensor_proto__init(t);
    t->name = text_kept(m, name);
    t->has_data_type = true, t->data_type = type;
    t->n_dims = (size_t)rank;
    t->dims = kept(m, (size_t)rank * sizeof *dims);
    if (rank) memcpy(t->dims, dims, (size_t)rank * sizeof *dims);
    m->tensors[m->graph.n_initializer++] = t;
    return t;
}

Onnx__TensorProto *maker_floats(OnnxMaker *m, const char *name, int rank, const int64_t *dims)
{
    Onnx__TensorProto *t = tensor(m, name, 1, rank, dims);
    size_t count = 1;
    for (int i = 0; i < rank; i++) count *= (size_t)dims[i];
    float *values = kept(m, count * sizeof *values);
    for (size_t i = 0; i < count; i++) values[i] = (float)((i * 2654435761u) >> 16 & 1023) / 1023 - 0.5f;
    t->has_raw_data = true;
    t->raw_data = (ProtobufCBinaryData){count * sizeof *values, (uint8_t *)values};
    return t;
}

Onnx__TensorProto *maker_value(OnnxMaker *m, const char *name, float value)
{
    Onnx__TensorProto *t = tensor(m, name, 1, 0, NULL);
    t->n_float_data = 1;
    t->float_data = kept(m, sizeof value);
    *t->float_data = value;
    return t;
}

void maker_constant(OnnxMaker *m, const char *name, float value)
{
    Onnx__TensorProto *t = maker_value(m, name, value);
    m->graph.n_initializer--;
    Onnx__TensorProto *own = memcpy(kept(m, sizeof *t), t, sizeof *t);
    maker_node(m, "Constant", "", name);
    attribute(m, "value")->t = own;
}

void maker_whole_of(OnnxMaker *m, const char *name, int rank, const int64_t *dims, const int64_t *values)
{
    Onnx__TensorProto *t = tensor(m, name, 7, rank, dims);
    size_t count = 1;
    for (int i = 0; i < rank; i++) count *= (size_t)dims[i];
    t->n_int64_data = count;
    t->int64_data = memcpy(kept(m, count * sizeof *values), values, count * sizeof *values);
}

void maker_whole(OnnxMaker *m, const char *name, int count, const int64_t *values)
{
    maker_whole_of(m, name, 1, SIZES(count), values);
}

unsigned char *maker_bytes(OnnxMaker *m, size_t *count)
{
    *count = onnx__model_proto__get_packed_size(&m->model);
    unsigned char *bytes = malloc(*count + 1);
    assert_non_null(bytes);
    onnx__model_proto__pack(&m->model, bytes);
    return bytes;
}

void maker_end(OnnxMaker *m)
{
    for (int i = 0; i < m->memory_count; i++) free(m->memory[i]);
    free(m);
}
