/* A network's file as it came, with other values, and for inference. */
#include "inception/networks/net_internal.h"
#include "towers/files/files.h"

/* The numbers of a parameter as the file has them. Other classes change one dimension of the head. */
static Status numbers_put(const NetFile *n, const Binding *b, const float *values, int classes, int64_t *dims,
                          Onnx__TensorProto *p)
{
    int64_t count = 1, in_file = n->model.classes, out = b->head ? classes : b->dims[0];
    for (size_t i = 0; i < p->n_dims; i++) {
        bool is_out = b->rank > 1 ? (int)i == (b->turned ? 1 : 0) : p->dims[i] == in_file;
        dims[i] = b->head && is_out ? classes : p->dims[i];
        count *= dims[i];
    }
    if (b->tensor.type != ELEMENT_FLOAT)
        return FAIL(ERR_UNSUPPORTED, "'%s': '%s' is no tensor of float32, and only these are written", n->file->path,
                    b->name);
    if (count / out != b->tensor.count / b->dims[0] || count % out)
        return FAIL(ERR_UNSUPPORTED, "'%s': '%s' gets its shape from another node, which is for %d classes",
                    n->file->path, b->name, n->model.classes);
    float *made = malloc((size_t)count * sizeof *made + 1);
    if (!made) return FAIL(ERR_MEMORY, "no memory for %" PRId64 " values of '%s'", count, b->name);
    int64_t rows = b->turned ? out : 1, columns = count / (rows ? rows : 1);
    for (int64_t k = 0; k < count; k++) made[k % columns * rows + k / columns] = values[k];
    p->has_raw_data = true;
    p->raw_data = (ProtobufCBinaryData){(size_t)count * sizeof *made, (uint8_t *)made};
    p->dims = dims;
    return OK;
}

typedef Onnx__TensorShapeProto__Dimension *ClassSizes[HEADS_MAX];

/* The size of each output of the graph that is the number of classes, of several equal ones the first behind the batch; NULL: the file
 * does not say it. */
static void class_sizes_find(const NetFile *n, ClassSizes size)
{
    const Onnx__GraphProto *graph = n->file->model->graph;
    for (size_t i = 0; i < HEADS_MAX; i++) {
        const Onnx__TypeProto *type = i < graph->n_output ? graph->output[i]->type : NULL;
        const Onnx__TensorShapeProto *shape = type && type->tensor_type ? type->tensor_type->shape : NULL;
        size[i] = NULL;
        for (size_t k = 1; shape && k < shape->n_dim && !size[i]; k++)
            if (shape->dim[k]->has_dim_value && shape->dim[k]->dim_value == n->model.classes) size[i] = shape->dim[k];
    }
}

static void classes_put(const ClassSizes size, int classes)
{
    for (int i = 0; i < HEADS_MAX; i++)
        if (size[i]) size[i]->dim_value = classes;
}

/* A constant may hold the number of classes, too, such as the shape that a Reshape gives to the logits. */
static Status classes_check(const NetFile *n, const unsigned char *bytes, size_t count, int classes)
{
    NetFile *again;
    Status st = net_file_parse(bytes, count, n->file->path, &again);
    bool right = st == OK && again->model.classes == classes;
    if (st == OK) net_file_close(again);
    if (right || st == ERR_MEMORY) return st;
    return FAIL(ERR_UNSUPPORTED,
                "'%s' cannot be written with %d classes instead of %d: its nodes hold that number in a constant, too; "
                "towers export --preprocess writes a graph of this program's own",
                n->file->path, classes, n->model.classes);
}

/* Moves the notes on the shapes of values between nodes, which nobody needs and other classes make wrong, behind the other fields that
 * onnx.proto does not name; returns the number of these. */
static unsigned notes_behind(ProtobufCMessage *graph)
{
    enum { FIELD_VALUE_INFO = 13 };
    unsigned kept = 0;
    for (unsigned i = 0; i < graph->n_unknown_fields; i++) {
        ProtobufCMessageUnknownField field = graph->unknown_fields[i];
        if (field.tag == FIELD_VALUE_INFO) continue;
        graph->unknown_fields[i] = graph->unknown_fields[kept];
        graph->unknown_fields[kept++] = field;
    }
    return kept;
}

static bool is_among(const char *key, const StPair *about, int pairs)
{
    for (int i = 0; key && i < pairs; i++)
        if (!strcmp(key, about[i].key)) return true;
    return false;
}

/* The model's metadata, without what `about` replaces and without the mark of a structure, and then `about`. The list and its new
 * entries are one block of memory. */
static Status metadata_join(Onnx__ModelProto *model, const StPair *about, int pairs)
{
    size_t before = model->n_metadata_props, count = 0, room = before + (size_t)pairs;
    Onnx__StringStringEntryProto **list = calloc(1, (room + 1) * sizeof *list + (size_t)pairs * sizeof **list), *entry;
    if (!list) return FAIL(ERR_MEMORY, "no memory for %zu metadata", room);
    entry = (void *)(list + room + 1);
    for (size_t i = 0; i < before; i++) {
        Onnx__StringStringEntryProto *old = model->metadata_props[i];
        bool mark = old->key && !strcmp(old->key, onnx_structure_key);
        if (!mark && !is_among(old->key, about, pairs)) list[count++] = old;
    }
    for (int i = 0; i < pairs; i++) {
        onnx__string_string_entry_proto__init(&entry[i]);
        entry[i].key = (char *)about[i].key;
        entry[i].value = (char *)about[i].value;
        list[count++] = &entry[i];
    }
    model->metadata_props = list;
    model->n_metadata_props = count;
    return OK;
}

/* The Identity by which a parameter shares its numbers with another one in the file, or -1. */
static int share_of(const NetFile *n, const Binding *b)
{
    int writer = n->file->value[onnx_value(n->file, b->name)].writer;
    return writer >= 0 && !strcmp(n->file->node[writer].type, "Identity") ? writer : -1;
}

/* A tensor of its own for such a parameter; NULL: it has one. */
static Status share_make(const NetFile *n, const Binding *b, Onnx__TensorProto **own)
{
    if (share_of(n, b) < 0) return OK;
    if (!(*own = malloc(sizeof(**own)))) return FAIL(ERR_MEMORY, "no memory for the values of '%s'", b->name);
    **own = *b->tensor.proto;
    (*own)->name = (char *)b->name;
    (*own)->raw_data.data = NULL;
    (*own)->n_float_data = 0;
    return OK;
}

/* Puts those in the places of the Identities. */
static Status shares_part(const NetFile *n, Onnx__TensorProto *const *own, Onnx__GraphProto *graph)
{
    const Onnx__GraphProto *from = n->file->model->graph;
    *graph = *from;
    graph->n_node = 0;
    graph->node = calloc(from->n_node + 1, sizeof(*graph->node));
    graph->initializer = calloc(from->n_initializer + (size_t)n->survey.binding_count + 1, sizeof(*graph->initializer));
    if (!graph->node || !graph->initializer) return FAIL(ERR_MEMORY, "no memory for the nodes of '%s'", n->file->path);
    graph->n_initializer = 0;
    for (size_t i = 0; i < from->n_initializer; i++)
        if (!n->file->tensor[i].absent || from->initializer[i]->has_raw_data)
            graph->initializer[graph->n_initializer++] = from->initializer[i];
    for (size_t i = 0; i < from->n_node; i++) graph->node[i] = from->node[i];
    for (int i = 0; i < n->survey.binding_count; i++)
        if (own[i]) {
            graph->initializer[graph->n_initializer++] = own[i];
            graph->node[share_of(n, &n->survey.binding[i])] = NULL;
        }
    for (size_t i = 0; i < from->n_node; i++)
        if (graph->node[i]) graph->node[graph->n_node++] = graph->node[i];
    return OK;
}

typedef struct NetExport {
    const NetFile *n;
    int classes;
    int count;                      /* of parameters whose tensors have other numbers now */
    TensorNumbers *taken;           /* [binding_count] */
    int64_t (*dims)[NET_FILE_RANK]; /* [binding_count] */
    Onnx__TensorProto **own; /* [binding_count]: of parameters that shared their numbers; NULL: the file's tensor */
    Onnx__GraphProto graph;
    Onnx__ValueInfoProto **inputs;
    Onnx__NodeProto *settled; /* [settled_count]: nodes that are other ones in inference */
    int settled_count;
} NetExport;

static Status export_open(const NetFile *n, int classes, NetExport *e)
{
    size_t bindings = (size_t)n->survey.binding_count + 1;
    *e = (NetExport){.n = n,
                     .classes = classes,
                     .taken = calloc(bindings, sizeof *e->taken),
                     .dims = calloc(bindings, sizeof *e->dims),
                     .own = calloc(bindings, sizeof(*e->own))};
    if (e->taken && e->dims && e->own) return OK;
    return FAIL(ERR_MEMORY, "no memory for the tensors of '%s'", n->file->path);
}

/* The image, and the tensors that old files have among their inputs: what no node reads, a runtime would ask for. */
static Status inputs_part(NetExport *e)
{
    const OnnxFile *file = e->n->file;
    const Onnx__GraphProto *from = file->model->graph;
    e->inputs = calloc(from->n_input + 1, sizeof(*e->inputs));
    if (!e->inputs) return FAIL(ERR_MEMORY, "no memory for the inputs of '%s'", file->path);
    e->graph.input = e->inputs;
    e->graph.n_input = 0;
    for (size_t i = 0; i < from->n_input; i++) {
        int id = from->input[i]->name ? onnx_value(file, from->input[i]->name) : 0;
        bool part = id == file->image || file->value[id].tensor >= 0;
        if (part) e->inputs[e->graph.n_input++] = from->input[i];
    }
    return OK;
}

static Onnx__TensorProto *tensor_of(const NetExport *e, int i)
{
    return e->own[i] ? e->own[i] : e->n->survey.binding[i].tensor.proto;
}

static void tensor_return(NetExport *e, int i)
{
    if (!e->own[i]) net_numbers_return(tensor_of(e, i), &e->taken[i]);
    free(e->own[i]);
}

/* ---- inference */

static Onnx__AttributeProto *training_mode_of(const Onnx__NodeProto *p)
{
    for (size_t i = 0; i < p->n_attribute; i++)
        if (p->attribute[i]->name && !strcmp(p->attribute[i]->name, "training_mode")) return p->attribute[i];
    return NULL;
}

/* The operand that a Mul by random numbers leaves as it is; -1 of other nodes. */
static int masked_operand(const NetFile *n, const Onnx__NodeProto *p)
{
    for (int i = 0; i < n->survey.masked_count; i++)
        if (n->file->node[n->survey.masked[i].node].proto == p) return n->survey.masked[i].of;
    return -1;
}

/* Makes a copy of a node what it is in inference; false: it is that already. The attribute of a norm is the file's, until
 * training_put_back. */
static bool node_settle(const NetFile *n, Onnx__NodeProto *copy, const Onnx__NodeProto *p)
{
    int operand = masked_operand(n, p);
    const char *type = p->op_type ? p->op_type : "";
    Onnx__AttributeProto *mode = !strcmp(type, "BatchNormalization") ? training_mode_of(p) : NULL;
    *copy = *p;
    if (operand >= 0) {
        copy->op_type = (char *)"Identity";
        copy->input = p->input + operand;
        copy->n_input = 1;
    } else if (mode && mode->i) {
        mode->i = 0;
        copy->n_output = 1;
    } else if (!strcmp(type, "Dropout") && p->n_input > 2) {
        copy->n_input = 2; /* the third one is whether it trains */
    } else {
        return false;
    }
    return true;
}

/* Files that were exported in training answer at random and by the batch: here they are written for inference. */
static Status nodes_settle(NetExport *e)
{
    e->settled = calloc(e->graph.n_node + 1, sizeof *e->settled);
    if (!e->settled) return FAIL(ERR_MEMORY, "no memory for the nodes of '%s'", e->n->file->path);
    for (size_t i = 0; i < e->graph.n_node; i++) {
        Onnx__NodeProto *copy = &e->settled[e->settled_count];
        if (!node_settle(e->n, copy, e->graph.node[i])) continue;
        e->graph.node[i] = copy;
        e->settled_count++;
    }
    return OK;
}

static void training_put_back(const NetExport *e)
{
    for (int i = 0; i < e->settled_count; i++) {
        Onnx__AttributeProto *mode = training_mode_of(&e->settled[i]);
        if (mode) mode->i = 1;
    }
}

/* ---- the whole */

static void export_close(NetExport *e)
{
    while (e->count-- > 0) {
        free(tensor_of(e, e->count)->raw_data.data);
        tensor_return(e, e->count);
    }
    training_put_back(e);
    free(e->settled);
    free(e->graph.node);
    free(e->graph.initializer);
    free(e->inputs);
    free(e->own);
    free(e->taken);
    free(e->dims);
}

/* The numbers of the next parameter. */
static Status tensor_put(NetExport *e, NetValues *value, const void *context)
{
    const NetFile *n = e->n;
    int i = e->count;
    const Binding *b = &n->survey.binding[i];
    const float *values = value(context, b->name);
    if (!values && (b->tensor.absent || (b->head && e->classes != n->model.classes)))
        return FAIL(ERR_ARG, "'%s' has no values of '%s' to write", n->file->path, b->name);
    TRY(share_make(n, b, &e->own[i]));
    if (!e->own[i]) e->taken[i] = net_numbers_take(b->tensor.proto);
    Status st = numbers_put(n, b, values ? values : n->tensor[i].data, e->classes, e->dims[i], tensor_of(e, i));
    if (st == OK)
        e->count++;
    else
        tensor_return(e, i);
    return st;
}

/* The whole file, once all numbers are in their places. */
static Status export_pack(NetExport *e, const StPair *about, int pairs, unsigned char **bytes, size_t *count)
{
    const NetFile *n = e->n;
    Onnx__ModelProto model = *n->file->model;
    ClassSizes size;
    bool other = e->classes != n->model.classes;
    TRY(shares_part(n, e->own, &e->graph));
    TRY(inputs_part(e));
    TRY(nodes_settle(e));
    if (other) e->graph.base.n_unknown_fields = notes_behind(&e->graph.base);
    model.graph = &e->graph;
    TRY(metadata_join(&model, about, pairs));
    class_sizes_find(n, size);
    classes_put(size, e->classes);
    Status st = net_file_pack(&model, bytes, count);
    classes_put(size, n->model.classes);
    free(model.metadata_props);
    return st == OK && other ? classes_check(n, *bytes, *count, e->classes) : st;
}

Status net_file_export(const NetFile *n, NetValues *value, const void *context, int classes, const StPair *about,
                       int pairs, const char *path)
{
    Status st = OK;
    unsigned char *bytes = NULL;
    size_t count = 0;
    NetExport e;
    TRY_OUT(export_open(n, classes, &e));
    while (e.count < n->survey.binding_count) TRY_OUT(tensor_put(&e, value, context));
    TRY_OUT(export_pack(&e, about, pairs, &bytes, &count));
    TRY_OUT(file_replace(path, bytes, count));
out:
    export_close(&e);
    free(bytes);
    return st;
}
