/* Read an ONNX file; see onnx_read.h. protobuf-c copies what it unpacks, into memory that this file counts. External data is read from
 * files in the folder of the ONNX file alone: a name may lead neither upwards nor, by a link, out of that folder. */
#include <google/protobuf-c/protobuf-c.h>

#include "inception/networks/onnx_read.h"
#include "kernels/tensor.h"
#include "towers/files/files.h"

#include <sys/mman.h>

/* A message of two bytes becomes a struct of about a hundred, so memory beyond the file's own size is limited. */
enum {
    FILE_BYTES = INT32_MAX,
    NODES_MAX = 1 << 16,
    VALUES_MAX = 1 << 18,
    TIMES = 2,
    MORE_BYTES = 64 << 20,
    OPSET_LEAST = 7,
    OPSET_MOST = 24
};
static const uint64_t external_most = (uint64_t)1 << 33; /* bytes of all tensors together */

const char onnx_structure_key[] = "towers_structure";

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

/* ---- tensors */

static size_t element_bytes(OnnxElement type)
{
    switch (type) {
    case ELEMENT_UINT8:
    case ELEMENT_INT8:
    case ELEMENT_BOOL: return 1;
    case ELEMENT_UINT16:
    case ELEMENT_INT16:
    case ELEMENT_FLOAT16:
    case ELEMENT_BFLOAT16: return 2;
    case ELEMENT_FLOAT:
    case ELEMENT_INT32: return 4;
    case ELEMENT_INT64:
    case ELEMENT_DOUBLE: return 8;
    }
    return 0;
}

/* The elements in the typed field of its type. */
static size_t typed_count(const Onnx__TensorProto *p, OnnxElement type)
{
    switch (type) {
    case ELEMENT_FLOAT: return p->n_float_data;
    case ELEMENT_DOUBLE: return p->n_double_data;
    case ELEMENT_INT64: return p->n_int64_data;
    default: return p->n_int32_data;
    }
}

static const char *tensor_name(const Onnx__TensorProto *p)
{
    return p->name ? p->name : "";
}

static Status dims_read(const OnnxFile *file, const Onnx__TensorProto *p, OnnxTensor *t)
{
    if (p->n_dims > NET_FILE_RANK)
        return FAIL(ERR_FORMAT, "'%s': tensor '%s' has %zu dimensions; expected at most %d", file->path, tensor_name(p),
                    p->n_dims, NET_FILE_RANK);
    t->rank = (int)p->n_dims;
    t->count = 1;
    for (int i = 0; i < t->rank; i++) {
        t->dims[i] = p->dims[i];
        if (p->dims[i] < 0 || p->dims[i] > INT32_MAX || __builtin_mul_overflow(t->count, p->dims[i], &t->count) ||
            t->count > FILE_BYTES)
            return FAIL(ERR_FORMAT, "'%s': tensor '%s' has more elements than a file holds, or a negative size",
                        file->path, tensor_name(p));
    }
    return OK;
}

Status onnx_tensor(const OnnxFile *file, Onnx__TensorProto *p, OnnxTensor *t)
{
    *t = (OnnxTensor){.proto = p, .type = (OnnxElement)p->data_type};
    TRY(dims_read(file, p, t));
    size_t bytes = element_bytes(t->type), typed = typed_count(p, t->type);
    if (!bytes)
        return FAIL(ERR_FORMAT, "'%s': tensor '%s' has elements of type %d, which no network of floats needs",
                    file->path, tensor_name(p), p->data_type);
    if (p->has_raw_data) t->raw = p->raw_data.data;
    if (p->has_raw_data ? p->raw_data.len == (size_t)t->count * bytes : typed == (size_t)t->count) return OK;
    t->absent = file->structure && !p->has_raw_data && !typed;
    if (t->absent) return OK;
    return FAIL(ERR_FORMAT, "'%s': tensor '%s' has dimensions for %" PRId64 " elements and data for %zu", file->path,
                tensor_name(p), t->count, p->has_raw_data ? p->raw_data.len / bytes : typed);
}

double onnx_element(const OnnxTensor *t, int64_t at)
{
    const Onnx__TensorProto *p = t->proto;
    const unsigned char *raw = t->raw ? (const unsigned char *)t->raw + (size_t)at * element_bytes(t->type) : NULL;
    int32_t small = 0;
    int64_t large = 0;
    double real = 0;
    if (t->absent) return 0;
    switch (t->type) {
    case ELEMENT_FLOAT: return (double)element_read(DTYPE_F32, raw ? t->raw : p->float_data, at);
    case ELEMENT_DOUBLE: memcpy(&real, raw ? raw : (const void *)&p->double_data[at], sizeof real); return real;
    case ELEMENT_INT64:
        memcpy(&large, raw ? raw : (const void *)&p->int64_data[at], sizeof large);
        return (double)large;
    default: break;
    }
    if (raw)
        memcpy(&small, raw, element_bytes(t->type));
    else
        small = p->int32_data[at];
    switch (t->type) {
    case ELEMENT_INT8: return (int8_t)small;
    case ELEMENT_INT16: return (int16_t)small;
    case ELEMENT_FLOAT16: return (double)element_read(DTYPE_F16, &small, 0);
    case ELEMENT_BFLOAT16: return (double)element_read(DTYPE_BF16, &small, 0);
    default: return small;
    }
}

/* ---- external data */

static const char *pair_value(const Onnx__TensorProto *p, const char *key)
{
    for (size_t i = 0; i < p->n_external_data; i++)
        if (p->external_data[i]->key && !strcmp(p->external_data[i]->key, key)) return p->external_data[i]->value;
    return NULL;
}

static bool number_read(const char *text, uint64_t otherwise, uint64_t *number)
{
    char *end = NULL;
    *number = otherwise;
    if (!text) return true;
    errno = 0;
    *number = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno;
}

static bool leads_upward(const char *location)
{
    for (const char *part = location; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL)
        if (!strncmp(part, "..", 2) && (!part[2] || part[2] == '/')) return true;
    return *location == '/' || !*location;
}

/* Whether `path` lies in the folder of `beside`, after all links. */
static bool is_beside(const char *path, const char *beside)
{
    char *real = realpath(path, NULL), *folder = realpath(beside, NULL);
    char *end = folder ? strrchr(folder, '/') : NULL;
    bool is = real && end && !strncmp(real, folder, (size_t)(end - folder) + 1);
    free(real);
    free(folder);
    return is;
}

static Status external_path(const OnnxFile *file, const Onnx__TensorProto *p, char path[PATH_BYTES])
{
    const char *location = pair_value(p, "location"), *end = strrchr(file->path, '/');
    char folder[PATH_BYTES];
    if (!location || leads_upward(location))
        return FAIL(ERR_FORMAT,
                    "'%s': the data of tensor '%s' is said to be in '%s'; expected a file in the folder of the ONNX "
                    "file",
                    file->path, tensor_name(p), location ? location : "");
    snprintf(folder, sizeof folder, "%.*s", end ? (int)(end - file->path) : 1, end ? file->path : ".");
    TRY(path_join(path, *folder ? folder : "/", location));
    if (access(path, F_OK) != 0)
        return FAIL(ERR_FORMAT, "'%s': the data of tensor '%s' is missing: there is no '%s'", file->path,
                    tensor_name(p), path);
    if (!is_beside(path, file->path))
        return FAIL(ERR_FORMAT, "'%s': the data of tensor '%s' is a link out of the folder of the ONNX file: '%s'",
                    file->path, tensor_name(p), path);
    return OK;
}

/* Moves the data into the message, as if it had always been there. */
static Status external_read(OnnxFile *file, Onnx__TensorProto *p)
{
    char path[PATH_BYTES];
    OnnxTensor t = {.type = (OnnxElement)p->data_type};
    uint64_t offset, length, size = 0;
    int fd = -1;
    TRY(dims_read(file, p, &t));
    uint64_t bytes = (uint64_t)t.count * element_bytes(t.type);
    if (file->alone || bytes > external_most - file->external)
        return FAIL(ERR_FORMAT, "'%s': the data of tensor '%s' is outside of the file, %s", file->path, tensor_name(p),
                    file->alone ? "which has no folder" : "and too large");
    file->external += bytes;
    TRY(external_path(file, p, path));
    if (!number_read(pair_value(p, "offset"), 0, &offset) || !number_read(pair_value(p, "length"), bytes, &length))
        return FAIL(ERR_FORMAT, "'%s': tensor '%s': the place of its data is no number", file->path, tensor_name(p));
    TRY(file_open(path, OF_USER, ERR_FORMAT, (uint64_t)1 << 40, &fd, &size));
    Status st = OK;
    void *data = NULL;
    if (length != bytes || offset > size || length > size - offset)
        st = FAIL(ERR_FORMAT,
                  "'%s': tensor '%s' needs %" PRIu64 " bytes; expected them at %" PRIu64 " of '%s', of %" PRIu64,
                  file->path, tensor_name(p), bytes, offset, path, size);
    if (st == OK && !(data = malloc(bytes ? bytes : 1)))
        st = FAIL(ERR_MEMORY, "no memory for %" PRIu64 " bytes of tensor '%s'", bytes, tensor_name(p));
    if (st == OK) st = file_pread(fd, path, offset, data, bytes);
    close(fd);
    if (st != OK) {
        free(data);
        return st;
    }
    for (size_t i = 0; i < p->n_external_data; i++)
        onnx__string_string_entry_proto__free_unpacked(p->external_data[i], NULL);
    free(p->external_data);
    p->external_data = NULL;
    p->n_external_data = 0;
    free(p->raw_data.data);
    p->has_raw_data = true;
    p->raw_data = (ProtobufCBinaryData){bytes, data};
    p->has_data_location = false;
    return OK;
}

static Status tensors_read(OnnxFile *file)
{
    const Onnx__GraphProto *graph = file->model->graph;
    file->tensor = calloc(graph->n_initializer + 1, sizeof *file->tensor);
    if (!file->tensor) return FAIL(ERR_MEMORY, "no memory for the tensors of '%s'", file->path);
    for (size_t i = 0; i < graph->n_initializer; i++) {
        Onnx__TensorProto *p = graph->initializer[i];
        if (p->has_data_location && p->data_location == 1) TRY(external_read(file, p));
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
    for (size_t i = 0; i < graph->n_initializer; i++) value_add(file, tensor_name(graph->initializer[i]), (int)i, -1);
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
    for (size_t i = 0; i < model->n_metadata_props; i++)
        file->structure |= model->metadata_props[i]->key && !strcmp(model->metadata_props[i]->key, onnx_structure_key);
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
    TRY(file_map(path, ERR_FORMAT, FILE_BYTES, &map, &count));
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
