/* Capsules on disk; see capsule.h. */
#include "towers/capsule.h"

#include "towers/fault.h"
#include "towers/ledger.h"
#include "towers/record/manifest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LEDGER_TAIL = 32 /* steps */, STATE_LIMIT = 64 << 20 };
static const char batch_name[] = "batch.safetensors", model_name[] = "model.safetensors",
                  train_name[] = "train.safetensors", state_name[] = "state.json", format_name[] = "towers capsule 1";

/* ---- state.json, written */

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *network_json(const TrainJob *job)
{
    const ProgramConfig *c = &job->program;
    const ModelOptions *o = &c->options;
    return json_pack("{s:s, s:s, s:i, s:i, s:i, s:f, s:b, s:i, s:i, s:f, s:f, s:s, s:b, s:b, s:b, s:i, s:b}", "model",
                     c->model->name, "variant", o->variant ? o->variant : "", "classes", o->classes, "side",
                     (int)o->side, "channels", (int)o->channels, "dropout", (double)o->dropout, "aux", o->aux,
                     "data_channels", (int)c->data_channels, "canvas", (int)c->canvas, "smoothing",
                     (double)c->smoothing, "aux_weight", (double)c->aux_weight, "compute", dtype_name(c->compute),
                     "fuse_siblings", c->fuse_siblings, "pool_behind_conv", c->pool_behind_conv, "recompute",
                     c->recompute, "fuse", (int)c->fuse, "separate_storage", c->separate_storage);
}

static json_t *device_json(const TrainJob *job)
{
    return json_pack("{s:s, s:b, s:b, s:b, s:b}", "backend", job->backend->name, "winograd", job->winograd,
                     "direct_bf16", job->direct_bf16, "tf32", job->tf32, "deterministic", job->deterministic);
}

static json_t *finding_json(const Finding *found)
{
    char text[512], value[32];
    finding_text(found, text, sizeof text);
    snprintf(value, sizeof value, "%g", (double)found->value);
    return json_pack("{s:s, s:i, s:s, s:s, s:I, s:I, s:s, s:s}", "place", finding_place_name(found->place), "op",
                     found->op, "layer", found->layer, "tensor", found->tensor, "index", (json_int_t)found->index,
                     "count", (json_int_t)found->count, "value", value, "text", text);
}

/* The rows of one step, all towers. */
static json_t *ledger_step(const Ledger *ledger, int64_t step)
{
    json_t *loss = json_array(), *count = json_array(), *norm = json_array();
    for (int t = 0; t < ledger->towers; t++) {
        const LedgerRow *row = &ledger->tower[t].rows[step % LEDGER_STEPS];
        bool known = row->step == step;
        json_array_append_new(loss, number(known ? tower_loss_mean(&row->loss) : NAN));
        json_array_append_new(count, json_integer(known ? row->loss.count : 0));
        json_array_append_new(norm, number(known ? row->grad_norm : NAN));
    }
    return json_pack("{s:I, s:o, s:o, s:o}", "step", (json_int_t)step, "tower_loss", loss, "tower_count", count,
                     "tower_grad_norm", norm);
}

static json_t *ledger_json(const Ledger *ledger, int64_t last)
{
    json_t *tail = json_array();
    int64_t first = atomic_load(&ledger->run.first_step) + 1;
    if (first < last - LEDGER_TAIL + 1) first = last - LEDGER_TAIL + 1;
    for (int64_t step = first; step <= last; step++) json_array_append_new(tail, ledger_step(ledger, step));
    return tail;
}

static json_t *samples_json(const TrainJob *job, const Batch *batch)
{
    json_t *all = json_array();
    for (int32_t i = 0; i < batch->n; i++) {
        char where[512];
        dataset_where(job->train, batch->ids[i], where, sizeof where);
        json_array_append_new(all, json_pack("{s:I, s:i, s:s?}", "id", (json_int_t)batch->ids[i], "label",
                                             (int)batch->labels[i], "where", where));
    }
    return all;
}

static char *state_text(const TowerProcess *p, const Batch *batch, float scale, const Finding *found)
{
    const TrainJob *job = p->job;
    bool injected = fault_poison(found->tower, found->step) != NULL;
    json_t *root = json_pack("{s:s, s:I, s:i, s:i, s:I, s:I, s:f, s:i, s:I, s:s, s:s, s:o, s:o, s:o, s:o, s:o}",
                             "format", format_name, "step", (json_int_t)found->step, "tower", found->tower, "towers",
                             p->ledger->towers, "seed", (json_int_t)job->seed, "batch", (json_int_t)batch->step,
                             "scale", (double)scale, "n", (int)batch->n, "updates", (json_int_t)p->run.updates,
                             "settings", job->settings ? job->settings : "", "fault", injected ? faults_text() : "",
                             "network", network_json(job), "device", device_json(job), "found", finding_json(found),
                             "ledger", ledger_json(p->ledger, found->step), "samples", samples_json(job, batch));
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(root);
    return text;
}

/* ---- the files */

static Status batch_write(const char *directory, const Batch *b, const NormSums *sums, Manifest *manifest)
{
    size_t n = (size_t)b->n, image = (size_t)b->canvas * (size_t)b->canvas * (size_t)b->c;
    const StTensor tensors[] = {
        {"images", ST_U8, 4, {b->n, b->canvas, b->canvas, b->c}, b->pixels, n * image},
        {"labels", ST_I32, 1, {b->n}, b->labels, n * sizeof *b->labels},
        {"augment", ST_I32, 2, {b->n, 4}, b->augment, n * 4 * sizeof *b->augment},
        {"sample_ids", ST_I64, 1, {b->n}, b->ids, n * sizeof *b->ids},
        {"norm_sums", ST_F32, 1, {sums->count}, sums->values, (size_t)sums->count * sizeof *sums->values},
    };
    int count = (int)(sizeof tensors / sizeof *tensors);
    return manifest_write_tensors(manifest, directory, batch_name, tensors, sums->count ? count : count - 1, NULL, 0);
}

static Status weights_pack_all(TowerProcess *p, int slot, WeightList *model, WeightList *train)
{
    static const char *const prefixes[OPTIMIZER_SLOTS] = {"slot0.", "slot1."};
    Replica *r = p->replica;
    TRY(snapshot_pack(p, "", r->arena[ARENA_PARAM], false, -1, model));
    if (r->layout->state_elements) TRY(snapshot_pack(p, "", r->state[slot], true, p->run.updates, model));
    for (int s = 0; s < OPTIMIZER_SLOTS; s++)
        if (r->slot[s]) TRY(snapshot_pack(p, prefixes[s], r->slot[s], false, -1, train));
    if (r->ema) TRY(snapshot_pack(p, "average.", r->ema, false, -1, train));
    return OK;
}

/* The lists live as long as the manifest, which has their names. */
static Status files_write(TowerProcess *p, const Batch *batch, float scale, const NormSums *sums, const Finding *found,
                          const char *directory)
{
    Status st = OK;
    Manifest *manifest = NULL;
    WeightList model = {0}, train = {0};
    char *state = state_text(p, batch, scale, found);
    if (!state) return FAIL(ERR_MEMORY, "state of a capsule");
    TRY_OUT(manifest_create(found->step, &manifest));
    TRY_OUT(batch_write(directory, batch, sums, manifest));
    TRY_OUT(weights_pack_all(p, found->tower - p->first, &model, &train));
    TRY_OUT(manifest_write_tensors(manifest, directory, model_name, model.tensor, model.count, NULL, 0));
    if (train.count)
        TRY_OUT(manifest_write_tensors(manifest, directory, train_name, train.tensor, train.count, NULL, 0));
    TRY_OUT(manifest_write_text(manifest, directory, state_name, state));
    TRY_OUT(manifest_finish(manifest, directory));
out:
    manifest_destroy(manifest);
    weight_list_clear(&model);
    weight_list_clear(&train);
    free(state);
    return st;
}

/* A capsule of the same step that is there already (of a run that was resumed) changes places with the new one. */
static Status directory_publish(const char *temporary, const char *path, const char *run_dir)
{
    if (rename(temporary, path) != 0) {
        bool there = errno == ENOTEMPTY || errno == EEXIST;
        if (!there || renameat2(AT_FDCWD, temporary, AT_FDCWD, path, RENAME_EXCHANGE) != 0)
            return FAIL(ERR_IO, "cannot rename '%s' to '%s': %s", temporary, path, strerror(errno));
    }
    return directory_sync(run_dir);
}

static Status capsules_count(const char *run_dir, int *count)
{
    struct dirent *entry;
    DIR *listing = opendir(run_dir);
    if (!listing) return FAIL(ERR_IO, "cannot list '%s': %s", run_dir, strerror(errno));
    for (*count = 0; (entry = readdir(listing));) *count += !strncmp(entry->d_name, "nan-step-", 9);
    closedir(listing);
    return OK;
}

Status capsule_write(TowerProcess *p, const Batch *batch, float scale, const NormSums *sums, const Finding *found,
                     char path[PATH_BYTES])
{
    Status st = OK;
    int there = 0;
    struct stat info;
    char name[64], temporary[PATH_BYTES];
    const char *run_dir = p->job->run_dir;
    snprintf(name, sizeof name, "nan-step-%" PRId64 "-tower-%d", found->step, found->tower);
    TRY(path_join(path, run_dir, name));
    TRY(path_temporary(temporary, path));
    TRY(capsules_count(run_dir, &there));
    if (there >= CAPSULES_MAX && stat(path, &info) != 0) {
        path[0] = 0;
        return OK;
    }
    TRY(tree_remove(temporary));
    if (mkdir(temporary, 0777) != 0) return FAIL(ERR_IO, "cannot create '%s': %s", temporary, strerror(errno));
    TRY_OUT(files_write(p, batch, scale, sums, found, temporary));
    TRY_OUT(directory_publish(temporary, path, run_dir));
out:
    (void)!tree_remove(temporary);
    return st;
}

/* ---- state.json, read */

/* Fields of an object, with the first complaint kept. */
typedef struct Fields {
    const json_t *object;
    const char *path;
    Status status;
} Fields;

static const json_t *field(Fields *f, const char *key, bool right)
{
    const json_t *value = json_object_get(f->object, key);
    if (f->status == OK && (!value || !right))
        f->status = FAIL(ERR_CHECKPOINT, "%s/state.json: '%s' is missing or not what it should be", f->path, key);
    return value;
}

static int64_t integer(Fields *f, const char *key, int64_t least, int64_t most)
{
    const json_t *value = json_object_get(f->object, key);
    int64_t number_read = json_integer_value(value);
    field(f, key, json_is_integer(value) && number_read >= least && number_read <= most);
    return f->status == OK ? number_read : least;
}

static float real(Fields *f, const char *key, double least, double most)
{
    const json_t *value = json_object_get(f->object, key);
    double number_read = json_number_value(value);
    field(f, key, json_is_number(value) && number_read >= least && number_read <= most);
    return (float)number_read;
}

static bool boolean(Fields *f, const char *key)
{
    const json_t *value = json_object_get(f->object, key);
    field(f, key, json_is_boolean(value));
    return json_is_true(value);
}

static void text(Fields *f, const char *key, char *to, size_t bytes)
{
    const char *value = json_string_value(json_object_get(f->object, key));
    field(f, key, value && strlen(value) < bytes);
    snprintf(to, bytes, "%s", value && f->status == OK ? value : "");
}

static Fields part(Fields *f, const char *key)
{
    const json_t *value = json_object_get(f->object, key);
    field(f, key, json_is_object(value));
    return (Fields){value, f->path, f->status};
}

static void network_read(Fields *f, Capsule *c)
{
    enum { SIDE_MAX = 8192, CLASSES_MAX = 1 << 20 };
    ProgramConfig *program = &c->program;
    char compute[16];
    text(f, "model", c->model, sizeof c->model);
    text(f, "variant", c->variant, sizeof c->variant);
    text(f, "compute", compute, sizeof compute);
    program->options = (ModelOptions){.classes = (int)integer(f, "classes", 1, CLASSES_MAX),
                                      .side = (int32_t)integer(f, "side", 1, SIDE_MAX),
                                      .channels = (int32_t)integer(f, "channels", 1, 3),
                                      .dropout = real(f, "dropout", 0, 0.999999),
                                      .aux = boolean(f, "aux"),
                                      .variant = c->variant};
    program->data_channels = (int32_t)integer(f, "data_channels", 1, 3);
    program->canvas = (int32_t)integer(f, "canvas", program->options.side, 2 * SIDE_MAX);
    program->smoothing = real(f, "smoothing", 0, 1);
    program->aux_weight = real(f, "aux_weight", 0, 1e6);
    program->fuse_siblings = boolean(f, "fuse_siblings");
    program->pool_behind_conv = boolean(f, "pool_behind_conv");
    program->recompute = boolean(f, "recompute");
    program->separate_storage = boolean(f, "separate_storage");
    program->fuse = (FuseLevel)integer(f, "fuse", FUSE_AUTO, FUSE_II_S);
    program->training = true;
    program->compute = DTYPE_COUNT;
    for (int d = DTYPE_F32; d <= DTYPE_F16; d++)
        if (!strcmp(compute, dtype_name((Dtype)d))) program->compute = (Dtype)d;
    field(f, "compute", program->compute != DTYPE_COUNT);
}

static void device_read(Fields *f, Capsule *c)
{
    text(f, "backend", c->backend, sizeof c->backend);
    c->winograd = boolean(f, "winograd");
    c->direct_bf16 = boolean(f, "direct_bf16");
    c->tf32 = boolean(f, "tf32");
    c->deterministic = boolean(f, "deterministic");
}

static void finding_read(Fields *f, Finding *found)
{
    char place[64];
    *found = (Finding){.op = (int)integer(f, "op", -1, INT32_MAX),
                       .index = integer(f, "index", 0, INT64_MAX),
                       .count = integer(f, "count", 0, INT64_MAX)};
    text(f, "place", place, sizeof place);
    text(f, "layer", found->layer, sizeof found->layer);
    text(f, "tensor", found->tensor, sizeof found->tensor);
    for (int k = 0; k < FOUND_PLACES; k++)
        if (!strcmp(place, finding_place_name((FindingPlace)k))) found->place = (FindingPlace)k;
}

static Status fields_read(Fields *f, Capsule *c)
{
    char format[32];
    text(f, "format", format, sizeof format);
    if (f->status == OK && strcmp(format, format_name))
        return FAIL(ERR_CHECKPOINT, "%s/state.json: wanted the format '%s', found '%s'", c->path, format_name, format);
    c->step = integer(f, "step", 1, INT64_MAX);
    c->towers = (int)integer(f, "towers", 1, TOWERS_MAX);
    c->tower = (int)integer(f, "tower", 0, c->towers - 1);
    c->seed = (uint64_t)integer(f, "seed", INT64_MIN, INT64_MAX);
    c->scale = real(f, "scale", 0, 1e30);
    c->batch.step = integer(f, "batch", 0, INT64_MAX);
    c->batch.n = (int32_t)integer(f, "n", 1, 65536);
    text(f, "fault", c->fault, sizeof c->fault);
    Fields network = part(f, "network"), device = part(f, "device"), found = part(f, "found");
    if (f->status == OK) network_read(&network, c);
    if (f->status == OK) device_read(&device, c);
    if (f->status == OK) finding_read(&found, &c->found);
    Status all[] = {f->status, network.status, device.status, found.status};
    for (int i = 0; i < 4; i++)
        if (all[i] != OK) return all[i];
    c->batch.tower = c->found.tower = c->tower;
    c->found.step = c->step;
    return OK;
}

static Status state_read(Capsule *c)
{
    Status st = OK;
    char path[PATH_BYTES], *bytes = NULL;
    size_t count;
    json_error_t error;
    json_t *root = NULL;
    TRY(path_join(path, c->path, state_name));
    TRY(file_read(path, STATE_LIMIT, &bytes, &count));
    root = json_loadb(bytes, count, JSON_REJECT_DUPLICATES, &error);
    if (json_is_object(root)) {
        Fields fields = {.object = root, .path = c->path};
        st = fields_read(&fields, c);
    } else {
        st = FAIL(ERR_CHECKPOINT, "%s:%d: %s", path, root ? 1 : error.line, root ? "not an object" : error.text);
    }
    json_decref(root);
    free(bytes);
    return st;
}

/* ---- the batch, read */

/* A copy of a tensor that must be of this type and have these dimensions. */
static Status tensor_copy(const Capsule *c, const SafeTensors *file, const char *name, StDtype dtype, int rank,
                          const int64_t *dims, void **made)
{
    const StTensor *t = safetensors_find(file, name);
    bool fits = t && t->dtype == dtype && t->rank == rank;
    for (int d = 0; fits && d < rank; d++) fits = t->dims[d] == dims[d];
    if (!fits)
        return FAIL(ERR_CHECKPOINT, "%s/%s: '%s' is missing, or not of the type and shape that state.json asks for",
                    c->path, batch_name, name);
    *made = malloc(t->bytes ? t->bytes : 1);
    if (!*made) return FAIL(ERR_MEMORY, "the batch of '%s'", c->path);
    memcpy(*made, t->data, t->bytes);
    return OK;
}

/* Kernels take labels and crops for granted. */
static Status batch_check(const Capsule *c)
{
    const ProgramConfig *p = &c->program;
    int32_t room = p->canvas - p->options.side;
    for (int32_t i = 0; i < c->batch.n; i++) {
        const int32_t *crop = c->augment + 4 * i;
        if (c->labels[i] < 0 || c->labels[i] >= p->options.classes)
            return FAIL(ERR_CHECKPOINT, "%s/%s: label %d of %d classes", c->path, batch_name, c->labels[i],
                        p->options.classes);
        if (crop[0] < 0 || crop[0] > room || crop[1] < 0 || crop[1] > room)
            return FAIL(ERR_CHECKPOINT, "%s/%s: a crop at %d, %d of a canvas with room for %d", c->path, batch_name,
                        crop[0], crop[1], room);
    }
    return OK;
}

static Status sums_read(Capsule *c, const SafeTensors *file)
{
    const StTensor *t = safetensors_find(file, "norm_sums");
    void *values = NULL;
    if (!t) return OK;
    TRY(tensor_copy(c, file, "norm_sums", ST_F32, 1, t->dims, &values));
    c->sums = (NormSums){.values = values, .count = t->dims[0]};
    return OK;
}

static Status batch_read(Capsule *c)
{
    Status st = OK;
    char path[PATH_BYTES];
    SafeTensors *file = NULL;
    void *pixels = NULL, *labels = NULL, *augment = NULL, *ids = NULL;
    const int64_t n = c->batch.n, images[] = {n, c->program.canvas, c->program.canvas, c->program.data_channels},
                  crops[] = {n, 4};
    TRY(path_join(path, c->path, batch_name));
    TRY(safetensors_open(path, &file));
    TRY_OUT(tensor_copy(c, file, "images", ST_U8, 4, images, &pixels));
    TRY_OUT(tensor_copy(c, file, "labels", ST_I32, 1, &n, &labels));
    TRY_OUT(tensor_copy(c, file, "augment", ST_I32, 2, crops, &augment));
    TRY_OUT(tensor_copy(c, file, "sample_ids", ST_I64, 1, &n, &ids));
    TRY_OUT(sums_read(c, file));
out:
    c->batch.pixels = c->pixels = pixels;
    c->batch.labels = c->labels = labels;
    c->batch.augment = c->augment = augment;
    c->batch.ids = c->ids = ids;
    c->batch.canvas = c->program.canvas;
    c->batch.c = c->program.data_channels;
    safetensors_close(file);
    if (st != OK) return st;
    return batch_check(c);
}

static Status content_read(Capsule *c)
{
    Status st = OK;
    char path[PATH_BYTES];
    Manifest *manifest = NULL;
    const char *const names[] = {batch_name, model_name, state_name};
    TRY(manifest_open(c->path, &manifest));
    for (int i = 0; i < 3; i++) {
        if (manifest_find(manifest, names[i])) continue;
        st = FAIL(ERR_CHECKPOINT, "'%s' is no capsule: its MANIFEST does not list %s", c->path, names[i]);
        goto out;
    }
    TRY_OUT(manifest_verify(manifest, c->path));
    TRY_OUT(state_read(c));
    TRY_OUT(batch_read(c));
    TRY_OUT(path_join(path, c->path, model_name));
    TRY_OUT(safetensors_open(path, &c->weights));
out:
    manifest_destroy(manifest);
    return st;
}

Status capsule_open(const char *path, Capsule **made)
{
    Capsule *capsule = calloc(1, sizeof *capsule);
    if (!capsule) return FAIL(ERR_MEMORY, "the capsule '%s'", path);
    int used = snprintf(capsule->path, sizeof capsule->path, "%s", path);
    Status st = used < (int)sizeof capsule->path ? content_read(capsule)
                                                 : FAIL(ERR_ARG, "the path '%.64s...' is too long", path);
    if (st == OK)
        *made = capsule;
    else
        capsule_close(capsule);
    return st;
}

void capsule_close(Capsule *capsule)
{
    if (!capsule) return;
    safetensors_close(capsule->weights);
    free(capsule->pixels);
    free(capsule->labels);
    free(capsule->augment);
    free(capsule->ids);
    free(capsule->sums.values);
    free(capsule);
}

/* ---- running it again */

static Status weights_read(const Capsule *capsule, Replica *r)
{
    Status st = OK;
    const Backend *backend = r->device.backend;
    size_t params = r->layout->param_elements, states = r->layout->state_elements;
    WeightMap map = {0};
    float *host = calloc(params + states + 1, sizeof *host);
    if (!host) return FAIL(ERR_MEMORY, "weights of '%s' (%zu MiB)", capsule->path, params * sizeof *host >> 20);
    TRY_OUT(weight_map_create(r->layout, r->train[0].graph, &map));
    TRY_OUT(weights_unpack_exact(&map, "", capsule->weights, host, host + params));
    TRY_OUT(backend->upload(&r->device, r->arena[ARENA_PARAM], host, params * sizeof *host));
    TRY_OUT(backend->upload(&r->device, r->state[0], host + params, states * sizeof *host));
    TRY_OUT(backend->finish(&r->device, LANE_COMPUTE));
out:
    weight_map_destroy(&map);
    free(host);
    return st;
}

Status capsule_replica(const Capsule *capsule, const Backend *backend, const DeviceConfig *device, Replica **made)
{
    Replica *replica;
    ReplicaConfig config = {.backend = backend,
                            .device = *device,
                            .program = capsule->program,
                            .local = 1,
                            .train_n = {capsule->batch.n},
                            .optimizer = {.kind = OPTIMIZER_SGD},
                            .seed = capsule->seed};
    TRY(replica_create(&config, &replica));
    Status st = weights_read(capsule, replica);
    if (st == OK)
        *made = replica;
    else
        replica_destroy(replica);
    return st;
}

/* Where towers normalized together, the others' part comes from the run. */
typedef struct Playback {
    const Capsule *capsule;
    int64_t used;
} Playback;

static Status sum_again(void *context, float *values, int count)
{
    Playback *playback = context;
    const NormSums *sums = &playback->capsule->sums;
    if (count < 0 || count > sums->count - playback->used)
        return FAIL(ERR_CHECKPOINT, "%s: the run's batch norms made fewer sums than this network asks for",
                    playback->capsule->path);
    memcpy(values, sums->values + playback->used, (size_t)count * sizeof *values);
    playback->used += count;
    return OK;
}

Status capsule_run(const Capsule *capsule, Replica *replica, void (*row)(void *context, const TraceRow *row),
                   void *context, Finding *found)
{
    Finding state;
    Playback playback = {.capsule = capsule};
    TraceJob job = {.replica = replica,
                    .tower = capsule->tower,
                    .step = capsule->step,
                    .seed = capsule->seed,
                    .scale = capsule->scale,
                    .batch = &capsule->batch,
                    .row = row,
                    .context = context};
    if (capsule->sums.count) {
        replica->device.towers_sum = sum_again;
        replica->device.towers_context = &playback;
    }
    TRY(trace_state(replica, capsule->tower, 0, &state));
    *found = state;
    if (state.place != FOUND_WEIGHT) TRY(trace_run(&job, found));
    if (found->place == FOUND_NOTHING) *found = state;
    found->tower = capsule->tower;
    found->step = capsule->step;
    return OK;
}
