/* The model that a word names; see named_model.h. */
#include "inception/job/named_model.h"

#include "inception/job/facts.h"
#include "inception/models/models.h"
#include "towers/store/onnx.h"

#include <ctype.h>
#include <pthread.h>

enum { NAME_MOST = 60 /* a capsule has room for so many */ };

/* ---- networks that are open */

typedef struct OpenNetwork {
    struct OpenNetwork *next;
    NetFile *network;
    Model model; /* as of the network, with the name and the input that are used here */
    bool knows_input;
    struct OpenNetwork *restored; /* with norms; NULL: none were asked for, or lack */
    const NetFile *before;        /* of such a one: without */
    struct stat state;            /* of the file */
    char name[NAME_MOST + 1], path[PATH_BYTES];
} OpenNetwork;

static OpenNetwork *open_networks;
static pthread_mutex_t open_networks_lock = PTHREAD_MUTEX_INITIALIZER; /* libtowers opens classifiers in any thread */

/* The name goes into those of folders, and into files that are printed. */
static void name_take(const char *name, char to[NAME_MOST + 1])
{
    size_t length = strlen(name), skipped = length > NAME_MOST ? length - NAME_MOST : 0; /* keeps ".onnx" */
    snprintf(to, NAME_MOST + 1, "%s", name + skipped);
    for (char *c = to; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._-+", *c)) *c = '_';
    if (*to == '.') *to = '_';
}

/* Mean and standard deviation of the metadata, as this program's own files have them. */
static Status metadata_take(OpenNetwork *o)
{
    OnnxAbout *about;
    const char *mean = NULL, *std = NULL;
    o->knows_input = net_file_facts(o->network).normalizes;
    if (o->knows_input) return OK;
    TRY(onnx_about_open(o->path, &about));
    for (int i = 0; i < onnx_about_count(about); i++) {
        StPair pair = onnx_about_at(about, i);
        if (!strcmp(pair.key, "mean")) mean = pair.value;
        if (!strcmp(pair.key, "std")) std = pair.value;
    }
    Status st = OK;
    o->knows_input = mean && std;
    if (o->knows_input) st = channels_parse("the metadata mean", mean, -10, o->model.mean);
    if (o->knows_input && st == OK) st = channels_parse("the metadata std", std, 1e-6, o->model.std);
    onnx_about_close(about);
    return st;
}

static bool is_unchanged(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* `before`: with norms restored; NULL: as the file has it. */
static Status network_load(const char *path, const char *name, const struct stat *state, const NetFile *before,
                           OpenNetwork **made)
{
    OpenNetwork *o = calloc(1, sizeof *o);
    if (!o) return FAIL(ERR_MEMORY, "no memory for the network of '%s'", path);
    Status st = OK;
    if (snprintf(o->path, sizeof o->path, "%s", path) >= (int)sizeof o->path)
        TRY_OUT(FAIL(ERR_ARG, "the path '%.64s...' is longer than %d bytes", path, PATH_BYTES - 1));
    TRY_OUT(before ? net_file_restore(before, &o->network) : net_file_open(path, &o->network));
    o->before = before;
    o->state = *state;
    name_take(name, o->name);
    o->model = *net_file_model(o->network);
    TRY_OUT(metadata_take(o));
    o->model.name = o->name;
    o->model.file = o->path;
    o->model.digest = net_file_digest(o->network);
    *made = o;
out:
    if (st != OK) {
        net_file_close(o->network);
        free(o);
    }
    return st;
}

/* Opened before under this name, or with NULL under any. */
static OpenNetwork *network_find(const char *path, const char *name, const struct stat *state)
{
    char short_name[NAME_MOST + 1];
    if (name) name_take(name, short_name);
    for (OpenNetwork *o = open_networks; o; o = o->next)
        if (!strcmp(o->path, path) && is_unchanged(&o->state, state) && (!name || !strcmp(o->name, short_name)))
            return o;
    return NULL;
}

static const char *last_of(const char *path)
{
    const char *last = strrchr(path, '/');
    return last ? last + 1 : path;
}

/* The network of a file: opened before, or now. `name` NULL: under which it was opened last, else the file's own. */
static Status network_take(const char *path, const char *name, const Model **model)
{
    struct stat state;
    if (stat(path, &state) != 0) return FAIL(ERR_ARG, "cannot open the network '%s': %s", path, strerror(errno));
    pthread_mutex_lock(&open_networks_lock);
    Status st = OK;
    OpenNetwork *o = network_find(path, name, &state);
    if (!o) {
        st = network_load(path, name ? name : last_of(path), &state, NULL, &o);
        if (st == OK) {
            o->next = open_networks;
            open_networks = o;
        }
    }
    if (st == OK) *model = &o->model;
    pthread_mutex_unlock(&open_networks_lock);
    return st;
}

static const OpenNetwork *opened(const Model *model)
{
    return (const OpenNetwork *)((const char *)model - offsetof(OpenNetwork, model));
}

/* ---- words */

Status model_named(const char *word, const Model **model)
{
    struct stat state;
    if (network_is_named(word)) return network_take(word, NULL, model);
    Status st = model_find(word, model);
    if (st == OK) return OK;
    if (stat(word, &state) != 0 || !S_ISREG(state.st_mode)) {
        char unknown[STATUS_MESSAGE_BYTES];
        snprintf(unknown, sizeof unknown, "%s", status_message());
        return FAIL(st, "%s, and a network of your own is FILE.onnx", unknown);
    }
    return FAIL(ERR_ARG,
                "'%s' is neither a model of this program nor the file of a network, which ends in .onnx; PyTorch "
                "writes one by torch.onnx.export(net, (image,), 'net.onnx', dynamo=True, optimize=False), and "
                "--pretrained begins with weights",
                word);
}

Status model_kept(const char *name, const char *folder, const Model **model)
{
    char path[PATH_BYTES];
    if (!network_is_named(name)) return model_find(name, model);
    TRY(path_join(path, folder, NETWORK_FILE));
    if (access(path, F_OK) == 0) return network_take(path, name, model);
    return FAIL(ERR_ARG,
                "the network '%s' came from a file, and its structure is not in '%s': expected %s there, as a run has "
                "it; copy it from the run, or give %s itself",
                name, folder, NETWORK_FILE, name);
}

Status model_of_weights(const char *name, const char *weights, const Model **model)
{
    char folder[PATH_BYTES], run[PATH_BYTES], path[PATH_BYTES];
    if (!network_is_named(name)) return model_find(name, model);
    snprintf(folder, sizeof folder, "%.*s", (int)(last_of(weights) - weights), weights);
    if (!*folder) snprintf(folder, sizeof folder, ".");
    TRY(path_join(run, folder, "../.."));
    TRY(path_join(path, run, NETWORK_FILE));
    bool in_checkpoint = access(path, F_OK) == 0;
    TRY(path_join(path, folder, NETWORK_FILE));
    if (access(path, F_OK) == 0 || in_checkpoint)
        return model_kept(name, access(path, F_OK) == 0 ? folder : run, model);
    return FAIL(ERR_ARG,
                "'%s' holds weights of the network '%s', which came from a file; weights alone do not describe it: "
                "lay the run's %s beside them, or use %s --weights %s",
                weights, name, NETWORK_FILE, name, weights);
}

bool model_same(const Model *a, const Model *b)
{
    return a == b || (a->digest && b->digest && !strcmp(a->digest, b->digest));
}

const char *model_text(const char *name, const char *digest, char text[MODEL_TEXT])
{
    snprintf(text, MODEL_TEXT, digest ? "%.60s, network %.12s" : "%.60s", name, digest);
    return text;
}

/* ---- of a model with a file */

bool network_has_values(const Model *model)
{
    int count;
    const NetTensor *tensor = net_file_tensors(model->networks, &count);
    return count > 0 && tensor[0].data;
}

bool network_knows_input(const Model *model)
{
    return opened(model)->knows_input;
}

Status network_restore(const Model *model, const Model **restored)
{
    OpenNetwork *o = open_networks;
    Status st = OK;
    pthread_mutex_lock(&open_networks_lock);
    while (&o->model != model) o = o->next;
    if (!o->restored) st = network_load(o->path, o->name, &o->state, o->network, &o->restored);
    if (st == OK) *restored = net_file_facts(o->restored->network).restored ? &o->restored->model : NULL;
    pthread_mutex_unlock(&open_networks_lock);
    return st;
}

Status network_is_kept(const Model *model, const Model *then, bool *same)
{
    const Model *restored;
    *same = false;
    if (!then->file) return OK;
    TRY(net_file_is_kept(model->networks, then->networks, same));
    if (*same) return OK;
    TRY(network_restore(model, &restored));
    return restored ? net_file_is_kept(restored->networks, then->networks, same) : OK;
}

bool network_has_restored(const Model *restored, const char *parameter)
{
    int count;
    const NetFile *before = opened(restored)->before;
    const NetTensor *tensor = before ? net_file_tensors(before, &count) : NULL;
    for (int i = 0; tensor && i < count; i++)
        if (!strcmp(tensor[i].name, parameter)) return false;
    return tensor;
}

Status network_norm_set(const Model *restored, const NormNames *names, int64_t channels, const double *mean,
                        const double *variance)
{
    return net_file_norm_set(opened(restored)->network, names, channels, mean, variance);
}

Status network_keep(const Model *model, const char *run_dir)
{
    char path[PATH_BYTES];
    TRY(path_join(path, run_dir, NETWORK_FILE));
    if (is_same_file(path, model->file)) return OK;
    return net_file_structure_write(model->networks, path);
}

NetFacts network_facts(const Model *model)
{
    return net_file_facts(model->networks);
}

static const float *value_of(const void *context, const char *name)
{
    const WeightList *weights = context;
    for (int i = 0; i < weights->count; i++)
        if (!strcmp(weights->tensor[i].name, name)) return weights->tensor[i].data;
    return NULL;
}

Status network_write(const Model *model, const WeightList *weights, int classes, const StPair *about, int pairs,
                     const char *path)
{
    return net_file_export(model->networks, value_of, weights, classes, about, pairs, path);
}

/* ---- its values as weights */

static Status values_copy(const NetTensor *from, StTensor *to)
{
    size_t count = 1;
    *to = (StTensor){.dtype = ST_F32, .rank = from->rank};
    for (int k = 0; k < from->rank; k++) {
        to->dims[k] = from->dims[k];
        count *= (size_t)from->dims[k];
    }
    to->bytes = count * sizeof(float);
    char *memory = malloc(to->bytes + strlen(from->name) + 1);
    if (!memory) return FAIL(ERR_MEMORY, "no memory for the values of %s (%zu bytes)", from->name, to->bytes);
    memcpy(memory, from->data, to->bytes);
    to->data = memory;
    to->name = strcpy(memory + to->bytes, from->name);
    return OK;
}

Status network_values_open(const char *path, SafeTensors **made)
{
    Status st = OK;
    const Model *model;
    int count, copied = 0;
    TRY(network_take(path, NULL, &model));
    if (opened(model)->restored) model = &opened(model)->restored->model;
    const NetTensor *value = net_file_tensors(model->networks, &count);
    if (!network_has_values(model))
        return FAIL(ERR_CHECKPOINT, "'%s' is the structure of a network without weights", path);
    StTensor *tensors = calloc((size_t)count, sizeof *tensors);
    void **owned = calloc((size_t)count, sizeof *owned);
    if (!tensors || !owned) TRY_OUT(FAIL(ERR_MEMORY, "no memory for a list of %d tensors", count));
    for (; copied < count; copied++) {
        TRY_OUT(values_copy(&value[copied], &tensors[copied]));
        owned[copied] = (void *)tensors[copied].data;
    }
    TRY_OUT(safetensors_wrap(path, tensors, count, owned, count, made));
    return OK;
out:
    for (int i = 0; i < copied; i++) free(owned[i]);
    free(owned);
    free(tensors);
    return st;
}
