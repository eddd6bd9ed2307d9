/* Read an ONNX file; see onnx_read.h. protobuf-c copies what it unpacks, into memory that this file counts. */
#include "inception/networks/onnx_read.h"

#include <google/protobuf-c/protobuf-c.h>
#include <sys/mman.h>

#include "towers/files/files.h"

/* A message of two bytes becomes a struct of about a hundred, so memory beyond the file's own size is limited. */
enum { NODES_MAX = 1 << 16, VALUES_MAX = 1 << 18, TIMES = 2, MORE_BYTES = 64 << 20, OPSET_LEAST = 7, OPSET_MOST = 24 };

const char onnx_structure_key[] = "towers_structure",
           onnx_structure_mark[] = "2: its trained values are in another file";

/* ---- memory of protobuf-c */

typedef struct Allowance {
    size_t left;
    bool exceeded;
} Allowance;

static void *allowed(void *context, size_t bytes)
{
    Allowance *allowance = context;
    if (bytes > allowance->left) {
        allowance->exceeded = true;
        return NULL;
    }
    allowance->left -= bytes;
    return malloc(bytes ? bytes : 1);
}

static void allowed_free(void *context, void *memory)
{
    (void)context;
    free(memory);
}

static Status unpack(const void *bytes, size_t count, const char *name, OnnxFile *file)
{
    Allowance allowance = {TIMES * count + MORE_BYTES, false};
    ProtobufCAllocator allocator = {allowed, allowed_free, &allowance};
    file->model = onnx__model_proto__unpack(&allocator, count, bytes);
    if (allowance.exceeded)
        return FAIL(ERR_FORMAT, "'%s' would take more than %zu bytes of memory, for a file of %zu", name,
                    TIMES * count + MORE_BYTES, count);
    if (!file->model || !file->model->graph || !file->model->n_opset_import)
        return FAIL(ERR_FORMAT, "'%s' is not an ONNX file: expected a graph and a version of its operators", name);
    return OK;
}

static Status tensors_read(OnnxFile *file)
{
    const Onnx__GraphProto *graph = file->model->graph;
    file->tensor = calloc(graph->n_initializer + 1, sizeof *file->tensor);
    if (!file->tensor) return FAIL(ERR_MEMORY, "no memory for the tensors of '%s'", file->path);
    for (size_t i = 0; i < graph->n_initializer; i++) {
        Onnx__TensorProto *p = graph->initializer[i];
        if (p->has_data_location && p->data_location == 1) TRY(onnx_external_read(file, p));
        TRY(onnx_tensor(file, p, &file->tensor[file->tensor_count++]));
    }
    return OK;
}

/* ---- names */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const OnnxValue *)a)->name, ((const OnnxValue *)b)->name);
}

static int value_among(const OnnxFile *file, const char *name, int count)
{
    OnnxValue key = {.name = name};
    const OnnxValue *found = bsearch(&key, file->value + 1, (size_t)count, sizeof *file->value, by_name);
    return found ? (int)(found - file->value) : 0;
}

int onnx_value(const OnnxFile *file, const char *name)
{
    return value_among(file, name, file->value_count);
}

static void value_add(OnnxFile *file, const char *name, int tensor, int writer)
{
    file->value[++file->value_count] = (OnnxValue){.name = name, .tensor = tensor, .writer = writer, .reader = -1};
}

/* The input that nodes read, or the only one. Keras' exporter leaves those in a file whose constants it has folded. */
static Status image_find(OnnxFile *file)
{
    const Onnx__GraphProto *graph = file->model->graph;
    bool *read = calloc((size_t)file->value_count + 1, sizeof *read);
    int second = 0;
    if (!read) return FAIL(ERR_MEMORY, "no memory for the names of '%s'", file->path);
    for (size_t i = 0; i < graph->n_node; i++)
        for (size_t k = 0; k < graph->node[i]->n_input; k++) read[onnx_value(file, graph->node[i]->input[k])] = true;
    for (size_t i = 0; i < graph->n_input && !second; i++) {
        int id = graph->input[i]->name ? onnx_value(file, graph->input[i]->name) : 0;
        if (!id || file->value[id].tensor >= 0) continue;
        if (!file->image || (read[id] && !read[file->image]))
            file->image = id;
        else if (read[id])
            second = id;
    }
    free(read);
    if (!second) return OK;
    return FAIL(ERR_ARG, "'%s' has the inputs '%s' and '%s'; expected a network of one image", file->path,
                file->value[file->image].name, file->value[second].name);
}

/* Inputs may name initializers, too (before IR version 4). */
static Status names_read(OnnxFile *file)
{
    const Onnx__GraphProto *graph = file->model->graph;
    size_t room = graph->n_input + graph->n_initializer + 2;
    for (size_t i = 0; i < graph->n_node; i++) room += graph->node[i]->n_output;
    if (graph->n_node > NODES_MAX || room > VALUES_MAX)
        return FAIL(ERR_FORMAT, "'%s' has %zu nodes and %zu values; expected at most %d and %d", file->path,
                    graph->n_node, room, NODES_MAX, VALUES_MAX);
    file->value = calloc(room, sizeof *file->value);
    if (!file->value) return FAIL(ERR_MEMORY, "no memory for the names of '%s'", file->path);
    for (size_t i = 0; i < graph->n_initializer; i++)
        value_add(file, onnx_tensor_name(graph->initializer[i]), (int)i, -1);
    int tensors = file->value_count;
    qsort(file->value + 1, (size_t)tensors, sizeof *file->value, by_name);
    for (size_t i = 0; i < graph->n_input; i++) {
        const char *name = graph->input[i]->name;
        if (name && !value_among(file, name, tensors)) value_add(file, name, -1, -1);
    }
    if (file->value_count == tensors) return FAIL(ERR_FORMAT, "'%s' has no input", file->path);
    for (size_t i = 0; i < graph->n_node; i++)
        for (size_t k = 0; k < graph->node[i]->n_output; k++)
            if (*graph->node[i]->output[k]) value_add(file, graph->node[i]->output[k], -1, (int)i);
    qsort(file->value + 1, (size_t)file->value_count, sizeof *file->value, by_name);
    for (int i = 1; i < file->value_count; i++)
        if (!strcmp(file->value[i].name, file->value[i + 1].name))
            return FAIL(ERR_FORMAT, "'%s': the name '%s' is given twice", file->path, file->value[i].name);
    return image_find(file);
}

static Status node_read(OnnxFile *file, int index, Onnx__NodeProto *p, int **numbers)
{
    OnnxNode *node = &file->node[index];
    *node = (OnnxNode){.proto = p, .type = p->op_type ? p->op_type : "", .in = *numbers};
    node->foreign = p->domain && *p->domain && strcmp(p->domain, "ai.onnx") != 0;
    for (size_t k = 0; k < p->n_input; k++) {
        int id = *p->input[k] ? onnx_value(file, p->input[k]) : 0;
        if (*p->input[k] && (!id || file->value[id].writer >= index))
            return FAIL(ERR_FORMAT,
                        "'%s': node %d (%s) reads '%s', which no earlier node writes: the nodes are out of order or in "
                        "a circle",
                        file->path, index, node->type, p->input[k]);
        node->in[node->in_count++] = id;
    }
    node->out = node->in + node->in_count;
    for (size_t k = 0; k < p->n_output; k++)
        node->out[node->out_count++] = *p->output[k] ? onnx_value(file, p->output[k]) : 0;
    *numbers = node->out + node->out_count;
    node->name = p->name && *p->name ? p->name : p->n_output ? p->output[0] : "";
    return OK;
}

static void node_need(OnnxFile *file, const OnnxNode *node, int index)
{
    for (int k = 0; k < node->in_count; k++) {
        OnnxValue *value = &file->value[node->in[k]];
        if (!node->in[k]) continue;
        if (value->writer >= 0) file->node[value->writer].needed |= node->needed;
        value->operands += strcmp(node->type, "Shape") != 0 && !(k == 1 && !strcmp(node->type, "CastLike"));
        if (!value->reads++ || value->reader < 0) value->reader = index; /* the last, as nodes come from behind */
    }
}

static Status outputs_read(OnnxFile *file)
{
    const Onnx__GraphProto *graph = file->model->graph;
    if (graph->n_output < 1 || graph->n_output > MODEL_HEADS)
        return FAIL(ERR_ARG,
                    "'%s' has %zu outputs; expected those of a classifier: logits, and at most %d auxiliary ones",
                    file->path, graph->n_output, MODEL_AUX_HEADS);
    for (size_t i = 0; i < graph->n_output; i++) {
        const char *name = graph->output[i]->name ? graph->output[i]->name : "";
        int id = onnx_value(file, name);
        if (!id || file->value[id].writer < 0)
            return FAIL(ERR_FORMAT, "'%s': no node writes the output '%s'", file->path, name);
        file->value[id].reads++;
        file->value[id].operands++;
        file->node[file->value[id].writer].needed |= 1u << i;
        file->output[file->output_count++] = id;
    }
    return OK;
}

static Status nodes_read(OnnxFile *file)
{
    const Onnx__GraphProto *graph = file->model->graph;
    size_t room = 1;
    for (size_t i = 0; i < graph->n_node; i++) room += graph->node[i]->n_input + graph->node[i]->n_output;
    file->node = calloc(graph->n_node + 1, sizeof *file->node);
    int *numbers = file->numbers = calloc(room, sizeof *numbers);
    if (!file->node || !numbers) return FAIL(ERR_MEMORY, "no memory for the nodes of '%s'", file->path);
    for (size_t i = 0; i < graph->n_node; i++) TRY(node_read(file, file->node_count++, graph->node[i], &numbers));
    TRY(outputs_read(file));
    for (int i = file->node_count - 1; i >= 0; i--)
        if (file->node[i].needed) node_need(file, &file->node[i], i);
    return OK;
}

/* ---- the file */

static Status opset_read(OnnxFile *file)
{
    const Onnx__ModelProto *model = file->model;
    for (size_t i = 0; i < model->n_opset_import; i++) {
        const char *domain = model->opset_import[i]->domain;
        if (!domain || !*domain || !strcmp(domain, "ai.onnx")) file->opset = model->opset_import[i]->version;
    }
    for (size_t i = 0; i < model->n_metadata_props; i++) {
        const Onnx__StringStringEntryProto *pair = model->metadata_props[i];
        if (!pair->key || strcmp(pair->key, onnx_structure_key) != 0) continue;
        file->structure = true;
        file->counts_all_reads = !pair->value || strcmp(pair->value, onnx_structure_mark) != 0;
    }
    file->unmarked = model->producer_name && !strcmp(model->producer_name, "towers");
    for (size_t i = 0; i < model->graph->n_initializer && file->unmarked; i++) {
        const char *name = model->graph->initializer[i]->name;
        file->unmarked = !name || strncmp(name, ONNX_CONSTANT, strlen(ONNX_CONSTANT)) != 0;
    }
    if (file->opset >= OPSET_LEAST && file->opset <= OPSET_MOST) return OK;
    return FAIL(ERR_ARG, "'%s' has version %" PRId64 " of ONNX's operators; this program reads %d to %d", file->path,
                file->opset, OPSET_LEAST, OPSET_MOST);
}

Status onnx_parse(const void *bytes, size_t count, const char *name, bool alone, OnnxFile **made)
{
    Status st = OK;
    OnnxFile *file = calloc(1, sizeof *file);
    if (!file) return FAIL(ERR_MEMORY, "no memory for '%s'", name);
    file->alone = alone;
    if (!(file->path = strdup(name))) TRY_OUT(FAIL(ERR_MEMORY, "no memory for '%s'", name));
    TRY_OUT(unpack(bytes, count, name, file));
    TRY_OUT(opset_read(file));
    TRY_OUT(tensors_read(file));
    TRY_OUT(names_read(file));
    TRY_OUT(nodes_read(file));
    *made = file;
    file = NULL;
out:
    onnx_close(file);
    return st;
}

Status onnx_open(const char *path, OnnxFile **made)
{
    void *map = NULL;
    size_t count = 0;
    TRY(file_map(path, ERR_FORMAT, ONNX_FILE_BYTES, &map, &count));
    Status st = onnx_parse(map, count, path, false, made);
    munmap(map, count);
    return st;
}

void onnx_close(OnnxFile *file)
{
    if (!file) return;
    if (file->model) onnx__model_proto__free_unpacked(file->model, NULL);
    free(file->path);
    free(file->node);
    free(file->numbers);
    free(file->tensor);
    free(file->value);
    free(file);
}

/* ---- nodes */

bool onnx_type_is(const OnnxNode *node, const char *const *types)
{
    while (*types && strcmp(*types, node->type) != 0) types++;
    return *types;
}

const Onnx__AttributeProto *onnx_attribute(const OnnxNode *node, const char *name)
{
    for (size_t i = 0; i < node->proto->n_attribute; i++) {
        const Onnx__AttributeProto *a = node->proto->attribute[i];
        if (a->name && !strcmp(a->name, name)) return a;
    }
    return NULL;
}

int64_t onnx_int(const OnnxNode *node, const char *name, int64_t otherwise)
{
    const Onnx__AttributeProto *a = onnx_attribute(node, name);
    return a && a->has_i ? a->i : otherwise;
}

double onnx_float(const OnnxNode *node, const char *name, double otherwise)
{
    const Onnx__AttributeProto *a = onnx_attribute(node, name);
    return a && a->has_f ? (double)a->f : otherwise;
}

bool onnx_text_is(const OnnxNode *node, const char *name, const char *text)
{
    const Onnx__AttributeProto *a = onnx_attribute(node, name);
    size_t length = a && a->has_s ? a->s.len : 0;
    return length == strlen(text) && (!length || !memcmp(a->s.data, text, length));
}
