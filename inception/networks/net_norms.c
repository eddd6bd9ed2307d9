/* A network's file with batch norms where an exporter has folded them away; see net_file.h. Folding makes of a norm directly behind a
 * convolution, which nothing else reads, w gamma / sqrt(var + epsilon) and a bias. So a convolution without a bias had no norm, but the
 * norms of a network that was not trained leave nothing behind; and one that is read by a norm, and by something else, still has its own.
 * A norm behind an activation cannot be folded, and says nothing about the convolution. The bias goes on as that of the norm; the norm's
 * other vectors are new. TensorFlow folds a norm behind a depthwise convolution into a Mul and an Add, which tf2onnx leaves there: the
 * factors go into the weights, and what is added is the bias. */
#include "inception/networks/net_internal.h"
#include "towers/files/files.h"

/* ---- which convolutions */

/* What a value is computed from. What is made of means alone, as the factors of squeeze and excitation, had no norm: it is one number
 * for each image and channel, and networks have a bias there. */
typedef enum Origin { OF_CONSTANTS, OF_MEANS, OF_PIXELS } Origin;

/* What stands around a value. */
typedef struct Around {
    Origin origin;
    bool normed; /* a norm reads it, whatever moves it on the way */
    bool read;   /* with the norms, too: a convolution's bias may be read no more */
    bool scaled; /* weights that are others with the norms */
    bool gone;   /* the node that writes it is part of a norm */
} Around;

static void origins_find(const NetFile *n, Around *around)
{
    const OnnxFile *file = n->file;
    around[file->image].origin = OF_PIXELS;
    for (int i = 0; i < file->node_count; i++) {
        const OnnxNode *node = &file->node[i];
        Origin of = OF_CONSTANTS;
        for (int k = 0; k < node->in_count && strcmp(node->type, "Shape") != 0; k++)
            if (around[node->in[k]].origin > of) of = around[node->in[k]].origin;
        if (of == OF_PIXELS && n->survey.means[i]) of = OF_MEANS;
        for (int k = 0; k < node->out_count; k++)
            if (node->out[k]) around[node->out[k]].origin = of;
    }
}

static void norms_find(const OnnxFile *file, Around *around)
{
    static const char *const norms[] = {"BatchNormalization", "LayerNormalization", "InstanceNormalization",
                                        "GroupNormalization", NULL};
    static const char *const moves[] = {"Transpose", "Reshape", "Identity", "Cast", NULL};
    for (int i = file->node_count - 1; i >= 0; i--) {
        const OnnxNode *node = &file->node[i];
        bool moved = onnx_type_is(node, moves) && around[node->out[0]].normed;
        if (node->needed && node->in_count && (moved || onnx_type_is(node, norms))) around[node->in[0]].normed = true;
    }
}

/* The parameter that is operand k, also through nodes that only pass it on, or -1. */
static int parameter_of(const NetFile *n, const OnnxNode *node, int k)
{
    static const char *const passes[] = {"Identity", "Reshape", "Cast", "Squeeze", "Unsqueeze", NULL};
    int id = k < node->in_count ? node->in[k] : 0;
    while (id) {
        for (int i = 0; i < n->survey.binding_count; i++)
            if (!strcmp(n->survey.binding[i].name, n->file->value[id].name)) return i;
        int writer = n->file->value[id].writer;
        id = writer >= 0 && onnx_type_is(&n->file->node[writer], passes) ? n->file->node[writer].in[0] : 0;
    }
    return -1;
}

/* What is left of a norm behind a convolution, node by node; NULL and -1: nothing. */
typedef struct Rest {
    const OnnxNode *times, *plus;
    int factors, bias; /* parameters */
} Rest;

/* The only reader of a node's output, if it is of this type and its other operand a number of the file for each channel. */
static const OnnxNode *reader_of(const NetFile *n, const OnnxNode *node, const char *type, int64_t channels, int *which)
{
    const OnnxValue *value = &n->file->value[node->out[0]];
    const OnnxNode *next = value->reads == 1 && value->reader >= 0 ? &n->file->node[value->reader] : NULL;
    *which = -1;
    if (!next || next->foreign || next->in_count != 2 || strcmp(next->type, type) != 0) return NULL;
    *which = parameter_of(n, next, next->in[0] == node->out[0]);
    const Binding *b = *which >= 0 ? &n->survey.binding[*which] : NULL;
    return b && !b->head && !b->scalar && b->tensor.count == channels ? next : NULL;
}

static Rest rest_of(const NetFile *n, const OnnxNode *conv)
{
    Rest rest = {.factors = -1, .bias = -1};
    int weights = parameter_of(n, conv, 1);
    const Binding *b = weights >= 0 ? &n->survey.binding[weights] : NULL;
    bool own = b && !b->shared && n->file->value[conv->in[1]].tensor >= 0 && conv->in_count == 2;
    if (own) rest.times = reader_of(n, conv, "Mul", b->dims[0], &rest.factors);
    if (rest.times) rest.plus = reader_of(n, rest.times, "Add", b->dims[0], &rest.bias);
    return rest;
}

static bool lacks_norm(const NetFile *n, int i, const Around *around, bool untrained)
{
    const OnnxNode *node = &n->file->node[i];
    bool head = onnx_head_of(n->head, i) >= 0;
    if (strcmp(node->type, "Conv") != 0 || node->foreign || !node->needed || head) return false;
    Rest rest = rest_of(n, node);
    const OnnxNode *last = rest.plus ? rest.plus : rest.times ? rest.times : node;
    return (untrained || rest.plus || parameter_of(n, node, 2) >= 0) && parameter_of(n, node, 1) >= 0 &&
           around[node->in[0]].origin == OF_PIXELS && !around[last->out[0]].normed;
}

/* ---- their norms */

#define RESTORED_EPSILON 1e-5f /* the default of ONNX and of PyTorch */

enum {
    SCALE,
    MEAN,
    VARIANCE,
    SHIFT /* if there is no bias, or several convolutions have it */,
    VECTORS,
    NAME_MOST = 512,
    NAME_END = 40 /* of it: ".norm12.running_mean" */
};

typedef struct NewNorm {
    Onnx__NodeProto conv, norm;
    Onnx__AttributeProto momentum, *attribute[1]; /* that of the file's own norms */
    Rest rest;
    char *conv_in[2], *between, *in[5];
    Onnx__TensorProto vector[VECTORS], weights; /* without a name: they are those of the file */
    int64_t channels;
    float *numbers, *scaled; /* owned; the vectors, and the weights with their factors */
    char name[VECTORS + 1][NAME_MOST];
} NewNorm;

typedef struct Restoring {
    Onnx__GraphProto graph;
    int count;
    Onnx__ValueInfoProto *image[1];
    NewNorm *norm; /* owned, as are the next two; what they point to is not */
    Onnx__NodeProto **node;
    Onnx__TensorProto **tensor;
} Restoring;

/* By "layer1.0.conv1" of "layer1.0.conv1.weight"; else by what the node writes, as no other does; by its number if that is long. */
static void names_make(const NetFile *n, const OnnxNode *conv, NewNorm *m)
{
    static const char *const part[] = {"weight", "running_mean", "running_var", "bias", "input"};
    char node[NAME_END];
    const Binding *weights = &n->survey.binding[parameter_of(n, conv, 1)];
    bool named = !weights->shared && ends_with(weights->name, ".weight");
    const char *layer = named ? weights->name : n->file->value[conv->out[0]].name;
    size_t length = strlen(layer) - (named ? strlen(".weight") : 0);
    if (length >= NAME_MOST - NAME_END) {
        length = (size_t)snprintf(node, sizeof node, "node%d", (int)(conv - n->file->node));
        layer = node;
    }
    bool taken = true;
    for (int number = 1; taken; number++) {
        char more[16] = "";
        taken = false;
        if (number > 1) snprintf(more, sizeof more, "%d", number);
        for (int k = 0; k <= VECTORS; k++) {
            snprintf(m->name[k], NAME_MOST, "%.*s.norm%s.%s", (int)length, layer, more, part[k]);
            taken |= onnx_value(n->file, m->name[k]) > 0;
        }
    }
    m->between = m->name[VECTORS];
}

static void tensor_make(Onnx__TensorProto *t, char *name, size_t rank, int64_t *dims, const float *numbers,
                        size_t count)
{
    onnx__tensor_proto__init(t);
    t->name = name;
    t->n_dims = rank;
    t->dims = dims;
    t->has_data_type = true;
    t->data_type = ELEMENT_FLOAT;
    t->has_raw_data = numbers != NULL;
    if (numbers) t->raw_data = (ProtobufCBinaryData){count * sizeof *numbers, (uint8_t *)numbers};
}

/* `numbers` NULL: a structure without values. */
static void vector_make(NewNorm *m, int k, const float *numbers)
{
    tensor_make(&m->vector[k], m->name[k], 1, &m->channels, numbers, (size_t)m->channels);
}

/* The weights times the factors of a Mul that is no more. */
static Status weights_make(const NetFile *n, const OnnxNode *conv, NewNorm *m)
{
    int from = parameter_of(n, conv, 1);
    Onnx__TensorProto *p = n->survey.binding[from].tensor.proto;
    const float *factors = n->tensor[m->rest.factors].data, *weights = n->tensor[from].data;
    size_t count = (size_t)n->survey.binding[from].tensor.count, each = count / (size_t)m->channels;
    if (factors && weights) {
        m->scaled = malloc(count * sizeof *m->scaled);
        if (!m->scaled) return FAIL(ERR_MEMORY, "no memory for the weights '%s'", p->name);
        for (size_t i = 0; i < count; i++) m->scaled[i] = weights[i] * factors[i / each];
    }
    tensor_make(&m->weights, p->name, p->n_dims, p->dims, m->scaled, count);
    return OK;
}

/* For now it changes nothing. */
static Status norm_make(const NetFile *n, const OnnxNode *conv, NewNorm *m)
{
    static const float start[] = {[SCALE] = 1, [MEAN] = 0, [VARIANCE] = 1 - RESTORED_EPSILON, [SHIFT] = 0};
    m->rest = rest_of(n, conv);
    int bias = m->rest.times ? m->rest.bias : parameter_of(n, conv, 2);
    bool own = bias < 0 || m->rest.times || n->survey.binding[bias].shared;
    const OnnxNode *last = m->rest.plus ? m->rest.plus : m->rest.times ? m->rest.times : conv;
    m->channels = n->survey.binding[parameter_of(n, conv, 1)].dims[0];
    m->numbers = calloc(VECTORS * (size_t)m->channels + 1, sizeof *m->numbers);
    if (!m->numbers) return FAIL(ERR_MEMORY, "no memory for the norms of '%s'", n->file->path);
    for (int64_t i = 0; i < VECTORS * m->channels; i++) m->numbers[i] = start[i / m->channels];
    names_make(n, conv, m);
    for (int k = SCALE; k < SHIFT; k++) vector_make(m, k, m->numbers + k * m->channels);
    if (own) vector_make(m, SHIFT, bias < 0 ? m->numbers + SHIFT * m->channels : n->tensor[bias].data);
    char **const in = conv->proto->input, *shift = own ? m->name[SHIFT] : in[2];
    memcpy(m->conv_in, in, sizeof m->conv_in);
    memcpy(m->in, (char *[]){m->between, m->name[SCALE], shift, m->name[MEAN], m->name[VARIANCE]}, sizeof m->in);
    m->conv = *conv->proto;
    m->conv.n_input = 2, m->conv.input = m->conv_in, m->conv.output = &m->between;
    onnx__node_proto__init(&m->norm);
    m->norm.op_type = (char *)"BatchNormalization";
    m->norm.n_input = 5, m->norm.input = m->in;
    m->norm.n_output = 1, m->norm.output = last->proto->output;
    if (m->rest.times) TRY(weights_make(n, conv, m));
    if (n->survey.momentum < 0) return OK;
    onnx__attribute_proto__init(&m->momentum);
    m->momentum.name = (char *)"momentum";
    m->momentum.has_type = m->momentum.has_f = true;
    m->momentum.type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
    m->momentum.f = n->survey.momentum;
    m->attribute[0] = &m->momentum;
    m->norm.n_attribute = 1, m->norm.attribute = m->attribute;
    return OK;
}

/* ---- the file with them */

/* The tensors that the nodes read. One without a name is read by none. */
static void tensors_take(const OnnxFile *file, Around *around, Restoring *r)
{
    const Onnx__GraphProto *from = file->model->graph;
    for (size_t i = 0; i < r->graph.n_node; i++)
        for (size_t k = 0; k < r->node[i]->n_input; k++) around[onnx_value(file, r->node[i]->input[k])].read = true;
    for (size_t i = 0; i < from->n_initializer; i++) {
        const char *name = from->initializer[i]->name;
        Around *value = &around[name && *name ? onnx_value(file, name) : 0];
        if (name && *name && value->read && !value->scaled) r->tensor[r->graph.n_initializer++] = from->initializer[i];
    }
    for (NewNorm *m = r->norm; m < r->norm + r->count; m++) {
        if (m->rest.times) r->tensor[r->graph.n_initializer++] = &m->weights;
        for (int k = 0; k < VECTORS && m->vector[k].name; k++) r->tensor[r->graph.n_initializer++] = &m->vector[k];
    }
}

/* All nodes in their order, and the tensors that they read. */
static Status graph_make(const NetFile *n, Around *around, Restoring *r)
{
    const Onnx__GraphProto *from = n->file->model->graph;
    bool untrained = false;
    for (int i = 0; i < n->file->node_count; i++) r->count += lacks_norm(n, i, around, untrained);
    untrained = !r->count && !n->survey.norms;
    for (int i = 0; untrained && i < n->file->node_count; i++) r->count += lacks_norm(n, i, around, untrained);
    size_t norms = (size_t)r->count;
    r->norm = calloc(norms + 1, sizeof *r->norm);
    r->node = calloc(from->n_node + norms + 1, sizeof(*r->node));
    r->tensor = calloc(from->n_initializer + (VECTORS + 1) * norms + 1, sizeof(*r->tensor));
    if (!r->norm || !r->node || !r->tensor) return FAIL(ERR_MEMORY, "no memory for the norms of '%s'", n->file->path);
    r->graph = *from;
    r->graph.node = r->node, r->graph.initializer = r->tensor;
    r->graph.n_node = r->graph.n_initializer = 0;
    NewNorm *m = r->norm;
    for (int i = 0; i < n->file->node_count; i++) {
        const OnnxNode *node = &n->file->node[i];
        bool lacks = lacks_norm(n, i, around, untrained);
        if (node->out_count && around[node->out[0]].gone) continue;
        if (lacks) TRY(norm_make(n, node, m));
        r->node[r->graph.n_node++] = lacks ? &m->conv : from->node[i];
        if (!lacks) continue;
        if (m->rest.times) around[m->rest.times->out[0]].gone = around[node->in[1]].scaled = true;
        if (m->rest.plus) around[m->rest.plus->out[0]].gone = true;
        r->node[r->graph.n_node++] = &m++->norm;
    }
    for (size_t i = 0; i < from->n_input; i++) { /* in old files tensors were inputs, too */
        const char *name = from->input[i]->name;
        if (name && !strcmp(name, n->file->value[n->file->image].name)) r->image[0] = from->input[i];
    }
    r->graph.n_input = 1, r->graph.input = r->image;
    tensors_take(n->file, around, r);
    return OK;
}

Status net_file_restore(const NetFile *n, NetFile **made)
{
    Status st = OK;
    Restoring r = {.count = 0};
    unsigned char *bytes = NULL;
    size_t count = 0;
    Onnx__ModelProto model = *n->file->model;
    Around *around = calloc((size_t)n->file->value_count + 1, sizeof *around);
    if (!around) return FAIL(ERR_MEMORY, "no memory for the norms of '%s'", n->file->path);
    origins_find(n, around);
    norms_find(n->file, around);
    TRY_OUT(graph_make(n, around, &r));
    model.graph = &r.graph;
    if (model.ir_version < 4) model.ir_version = 4; /* the image is the only input */
    TRY_OUT(net_file_pack(&model, &bytes, &count));
    TRY_OUT(net_file_parse(bytes, count, n->file->path, made));
    (*made)->restored = r.count;
out:
    for (int i = 0; r.norm && i < r.count; i++) free(r.norm[i].numbers), free(r.norm[i].scaled);
    free(r.norm);
    free(r.node);
    free(r.tensor);
    free(around);
    free(bytes);
    return st;
}

/* The present values of a parameter, in memory of the network's own. */
static Status values_own(NetFile *n, const char *parameter, float **values)
{
    int i = 0;
    while (i < n->survey.binding_count && strcmp(n->tensor[i].name, parameter) != 0) i++;
    size_t bytes = i < n->survey.binding_count ? (size_t)n->survey.binding[i].tensor.count * sizeof **values : 0;
    if (!bytes) return FAIL(ERR_INTERNAL, "'%s' has no parameter '%s'", n->file->path, parameter);
    if (!n->owned[i] && !(n->owned[i] = malloc(bytes)))
        return FAIL(ERR_MEMORY, "no memory for the values of '%s'", parameter);
    if (n->tensor[i].data != n->owned[i]) memcpy(n->owned[i], n->tensor[i].data, bytes);
    n->tensor[i].data = *values = n->owned[i];
    return OK;
}

Status net_file_norm_set(NetFile *n, const NormNames *names, int64_t channels, const double *mean,
                         const double *variance)
{
    float *scale, *shift, *mean_to, *variance_to;
    TRY(values_own(n, names->gamma, &scale));
    TRY(values_own(n, names->beta, &shift));
    TRY(values_own(n, names->mean, &mean_to));
    TRY(values_own(n, names->var, &variance_to));
    for (int64_t c = 0; c < channels; c++) {
        shift[c] += (float)mean[c] - mean_to[c]; /* which the shift has been given before, if it was set */
        mean_to[c] = (float)mean[c];
        variance_to[c] = (float)variance[c];
        scale[c] = sqrtf(variance_to[c] + RESTORED_EPSILON);
    }
    return OK;
}
