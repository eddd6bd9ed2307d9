/* A Model made of an ONNX file; see net_file.h. The file stays in memory: each graph that is built walks its nodes again. */
#include "inception/networks/net_internal.h"
#include "kernels/base/text.h"

/* ---- building */

/* All refusals as one message. */
static Status refusals_fail(const NetFile *n, const OnnxSurvey *s)
{
    char list[STATUS_MESSAGE_BYTES - TEXT_BYTES];
    Text text = text_start(list, sizeof list);
    if (!s->refusal_count) return OK;
    for (int i = 0; i < s->refusal_count; i++) {
        const NodeRefusal *r = &s->refusal[i];
        text_add(&text, "\n  %s '%s'", r->node->type, r->node->name);
        if (r->count > 1) text_add(&text, " and %d more", r->count - 1);
        text_add(&text, ": %s", r->reason);
    }
    if (s->more) text_add(&text, "\n  and %d more nodes", s->more);
    if (n->form.open)
        text_add(&text,
                 "\n  the file leaves the side of its image open, and %d was tried: if its layers are for another one, "
                 "export it with that",
                 n->form.side);
    return FAIL(ERR_ARG, "'%s' has nodes that this program cannot train:%s", n->file->path, list);
}

/* Walks the file once; `first` fills the survey. */
static Status network_walk(const NetFile *n, Graph *g, const ModelOptions *options, OnnxSurvey *survey, Value image,
                           ModelHeads *heads)
{
    Status st = OK;
    bool first = survey == &n->survey;
    unsigned outputs = first || options->aux ? ~0u : 1;
    OnnxWalk walk = {.file = n->file,
                     .g = g,
                     .options = options,
                     .survey = survey,
                     .head = n->head,
                     .first = first,
                     .outputs = outputs,
                     .drops = {.rate = n->model.dropout, .path = n->model.drop_path, .residuals = n->survey.residuals}};
    TRY_OUT(walk_open(&walk));
    walk_image(&walk, image, n->form.axes);
    walk_run(&walk);
    TRY_OUT(walk.status);
    if (!survey->refusal_count) onnx_logits(&walk, heads);
    TRY_OUT(refusals_fail(n, survey));
out:
    walk_close(&walk);
    return st;
}

static void build(Graph *g, const ModelOptions *options, const void *networks, Value image, ModelHeads *heads)
{
    const NetFile *n = networks;
    OnnxSurvey survey = {.batch = n->survey.batch, .scale = {0}};
    graph_canonical(g, n->form.side);
    if (n->head[0].node < 0 && options->classes != n->model.classes) {
        graph_fail(g, ERR_ARG, "'%s' has %d classes, and no product at its end that could be made for %d",
                   n->file->path, n->model.classes, options->classes);
        return;
    }
    Status st = network_walk(n, g, options, &survey, image, heads);
    if (st != OK && !graph_failed(g)) graph_fail(g, st, "%s", status_message());
}

/* Builds the network at a side; NULL survey: only to see whether it can be. */
static Status network_try(const NetFile *n, int32_t side, OnnxSurvey *survey, int *classes)
{
    Status st = OK;
    Graph *g = NULL;
    OnnxSurvey own = {.batch = n->form.batch};
    ModelHeads heads = {{0}};
    ModelOptions options = {.side = side, .channels = n->form.channels, .dropout = -1, .drop_path = -1, .aux = true};
    enum { IMAGES = 2 };
    TRY(graph_create(&(GraphOptions){.compute = DTYPE_F32}, &g));
    Value image = graph_input(g, "image", (Shape){IMAGES, n->form.channels, side, side}, DTYPE_F32);
    TRY_OUT(network_walk(n, g, &options, survey ? survey : &own, image, &heads));
    TRY_OUT(graph_finish(g));
    *classes = graph_shape(g, heads.logits).c;
    for (int h = 0; h < heads.aux_count && survey; h++)
        if (graph_shape(g, heads.aux[h]).c != *classes)
            TRY_OUT(FAIL(ERR_ARG, "'%s': its outputs have %d and %d numbers; expected logits of the same classes",
                         n->file->path, *classes, graph_shape(g, heads.aux[h]).c));
out:
    graph_destroy(g);
    return st;
}

/* ---- the model */

/* Of the path without folder and ending. */
static void name_make(NetFile *n)
{
    const char *path = n->file->path, *begin = strrchr(path, '/');
    begin = begin ? begin + 1 : path;
    size_t length = strlen(begin);
    if (ends_with(begin, ".onnx")) length -= strlen(".onnx");
    snprintf(n->name, sizeof n->name, "%.*s", (int)length, begin);
    const Onnx__ModelProto *m = n->file->model;
    snprintf(n->paper, sizeof n->paper, "an ONNX file of %s %s", m->producer_name ? m->producer_name : "a program",
             m->producer_version ? m->producer_version : "");
}

/* (pixel - mean) / std = scale pixel + shift. Files for bytes of 0 to 255 have means and deviations far above 1. */
static Status normalization_make(NetFile *n)
{
    static const float mean[] = {0.485f, 0.456f, 0.406f}, std[] = {0.229f, 0.224f, 0.225f};
    const OnnxSurvey *s = &n->survey;
    float *const to_mean = n->model.mean, *const to_std = n->model.std;
    bool bytes = n->form.bytes, known = true;
    for (int c = 0; c < 3; c++) {
        int from = n->form.channels == 1 ? 0 : c;
        to_std[c] = s->normalizes ? 1 / s->scale[from] : std[c];
        to_mean[c] = s->normalizes ? -s->shift[from] / s->scale[from] : mean[c];
        known &= isfinite(to_mean[c]) && isfinite(to_std[c]) && to_std[c] > 0;
        bytes |= to_std[c] > 16 || fabsf(to_mean[c]) > 2;
    }
    for (int c = 0; c < 3; c++) known &= bytes || to_std[c] <= 2;
    if (!known)
        return FAIL(ERR_ARG,
                    "'%s': its first nodes subtract %g from the image and divide it by %g; expected a mean and a "
                    "deviation of pixels from 0 to 1, or from 0 to 255",
                    n->file->path, (double)(to_mean[0] + 0), (double)to_std[0]);
    for (int c = 0; c < 3 && bytes; c++) to_mean[c] /= 255, to_std[c] /= 255;
    return OK;
}

/* The smallest side with which the network can be built, between 1 and the file's. */
static int32_t least_side(const NetFile *n)
{
    int32_t low = 0, high = n->form.side;
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        int classes;
        if (network_try(n, middle, NULL, &classes) == OK)
            high = middle;
        else
            low = middle;
    }
    return high;
}

static Status model_make(NetFile *n, int classes)
{
    const OnnxSurvey *s = &n->survey;
    for (int h = 0; h < HEADS_MAX; h++) n->head[h].classes = classes;
    if (s->momentum >= 0) snprintf(n->defaults, sizeof n->defaults, "bn-decay: %g\n", (double)s->momentum);
    n->model = (Model){.name = n->name,
                       .title = n->name,
                       .paper = n->paper,
                       .side = n->form.side,
                       .channels = n->form.channels,
                       .classes = classes,
                       .dropout = s->dropout > 0 ? s->dropout : 0,
                       .drop_path = s->drop_path,
                       .residuals = s->residuals,
                       .aux_weight = n->file->output_count > 1 ? 0.4f : 0,
                       .defaults = *n->defaults ? n->defaults : NULL,
                       .build = build,
                       .networks = n};
    n->model.min_side = n->model.aux_min_side = least_side(n);
    return normalization_make(n);
}

/* ---- trained values */

static Status tensor_make(NetFile *n, int i)
{
    const Binding *b = &n->survey.binding[i];
    NetTensor *t = &n->tensor[i];
    const OnnxTensor *from = &b->tensor;
    *t = (NetTensor){.name = b->name, .rank = b->rank};
    memcpy(t->dims, b->dims, sizeof t->dims);
    if (from->absent) return OK;
    if (from->type == ELEMENT_FLOAT && !b->turned) {
        t->data = from->raw ? from->raw : from->proto->float_data;
        return OK;
    }
    float *made = n->owned[i] = malloc((size_t)from->count * sizeof *made + 1);
    if (!made) return FAIL(ERR_MEMORY, "no memory for %" PRId64 " values of '%s'", from->count, b->name);
    int64_t columns = b->turned ? b->dims[0] : from->count, rows = from->count / (columns ? columns : 1);
    for (int64_t k = 0; k < from->count; k++) made[k % columns * rows + k / columns] = (float)onnx_element(from, k);
    t->data = made;
    return OK;
}

static Status tensors_make(NetFile *n)
{
    size_t count = (size_t)n->survey.binding_count;
    n->tensor = calloc(count + 1, sizeof *n->tensor);
    n->owned = calloc(count + 1, sizeof *n->owned);
    if (!n->tensor || !n->owned) return FAIL(ERR_MEMORY, "no memory for the tensors of '%s'", n->file->path);
    for (size_t i = 0; i < count; i++) TRY(tensor_make(n, (int)i));
    return OK;
}

const NetTensor *net_file_tensors(const NetFile *n, int *count)
{
    *count = n->survey.binding_count;
    return n->tensor;
}

bool net_file_is_head(const NetFile *n, const char *parameter)
{
    for (int i = 0; i < n->survey.binding_count; i++)
        if (n->survey.binding[i].head && !strcmp(n->survey.binding[i].name, parameter)) return true;
    return false;
}

/* ---- opening */

static Status network_make(OnnxFile *file, NetFile **made)
{
    Status st = OK;
    int classes = 0;
    NetFile *n = calloc(1, sizeof *n);
    if (!n) {
        onnx_close(file);
        return FAIL(ERR_MEMORY, "no memory for a network");
    }
    n->file = file;
    TRY_OUT(onnx_image(file, &n->form));
    n->survey = (OnnxSurvey){
        .dropout = -1, .momentum = -1, .batch = n->form.batch, .normalizes = n->form.bytes, .scale = {1, 1, 1}};
    n->survey.means = calloc((size_t)file->node_count + 1, sizeof *n->survey.means);
    n->survey.notes = calloc((size_t)file->value_count + 1, sizeof *n->survey.notes);
    if (!n->survey.means || !n->survey.notes) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the nodes of '%s'", file->path));
    onnx_heads(file, n->head);
    TRY_OUT(network_try(n, n->form.side, &n->survey, &classes));
    name_make(n);
    TRY_OUT(model_make(n, classes));
    TRY_OUT(tensors_make(n));
    TRY_OUT(net_digest_make(n));
    *made = n;
    n = NULL;
out:
    net_file_close(n);
    return st;
}

Status net_file_open(const char *path, NetFile **made)
{
    OnnxFile *file;
    TRY(onnx_open(path, &file));
    return network_make(file, made);
}

Status net_file_parse(const void *bytes, size_t count, const char *name, NetFile **made)
{
    OnnxFile *file;
    TRY(onnx_parse(bytes, count, name, true, &file));
    return network_make(file, made);
}

void net_file_close(NetFile *n)
{
    if (!n) return;
    for (int i = 0; n->owned && i < n->survey.binding_count; i++) free(n->owned[i]);
    free(n->owned);
    free(n->tensor);
    free(n->survey.binding);
    free(n->survey.notes);
    free(n->survey.held);
    free(n->survey.masked);
    free(n->survey.means);
    onnx_close(n->file);
    free(n);
}

const Model *net_file_model(const NetFile *n)
{
    return &n->model;
}

static void name_add(NetNames *names, const char *name)
{
    enum { MOST = 4 };
    Text text = text_behind(names->list, sizeof names->list);
    if (++names->count <= MOST) text_add(&text, "%s%s", names->count > 1 ? ", " : "", name);
    if (names->count == MOST + 1) text_add(&text, ", ...");
}

/* Parameters that a node writes, beside weights that none does: for a batch norm without parameters exporters write ones or zeros, and what
 * a formula multiplies or adds may be anything. */
static bool is_filled(const NetFile *n, int i)
{
    const OnnxFile *file = n->file;
    const Binding *b = &n->survey.binding[i];
    const OnnxNode *reader = &file->node[b->reader];
    int id = onnx_value(file, b->name), writer = file->value[id].writer;
    const float *data = n->tensor[i].data;
    bool norm = !strcmp(reader->type, "BatchNormalization"), scale = norm && reader->in[1] == id;
    bool is =
        data && writer >= 0 && !strcmp(file->node[writer].type, "Constant") && file->model->graph->n_initializer > 0;
    if (norm) is = is && (scale || reader->in[2] == id);
    for (int64_t k = 0; is && norm && k < b->tensor.count; k++) is = data[k] == scale;
    return is;
}

NetFacts net_file_facts(const NetFile *n)
{
    const OnnxSurvey *s = &n->survey;
    NetFacts facts = {.normalizes = s->normalizes,
                      .norms = s->norms,
                      .restored = n->restored,
                      .momenta = s->momenta,
                      .sigmoid = s->sigmoid,
                      .outputs = n->file->output_count};
    for (int i = 0; i < s->binding_count; i++) {
        facts.shared += s->binding[i].shared;
        if (s->binding[i].scalar) name_add(&facts.scalars, s->binding[i].name);
        if (is_filled(n, i)) name_add(&facts.filled, s->binding[i].name);
    }
    for (int i = 0; i < s->held_count; i++) name_add(&facts.held, s->held[i]);
    for (int i = 0; i < n->file->node_count; i++)
        facts.convolves |= n->file->node[i].needed && !strcmp(n->file->node[i].type, "Conv");
    return facts;
}
