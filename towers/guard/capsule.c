/* Read a capsule, treating its content as untrusted, and run its step again; see capsule.h. */
#include "towers/guard/capsule.h"
#include "towers/files/json.h"

#include "towers/guard/capsule_files.h"
#include "towers/store/manifest.h"

#include <jansson.h>

enum { STATE_LIMIT = 64 << 20 /* bytes of state.json */ };

/* ---- state.json */

/* A JSON object being read; `status` keeps the first error. */
typedef struct Fields {
    const json_t *object;
    const char *path;
    Status status;
} Fields;

static const json_t *field(Fields *f, const char *key, bool right)
{
    const json_t *value = json_object_get(f->object, key);
    if (f->status == OK && (!value || !right))
        f->status = FAIL(ERR_CHECKPOINT, "%s/state.json: '%s' is missing or has an invalid value", f->path, key);
    return value;
}

static int64_t integer(Fields *f, const char *key, int64_t least, int64_t most)
{
    const json_t *value = json_object_get(f->object, key);
    int64_t value_read = json_integer_value(value);
    field(f, key, json_is_integer(value) && value_read >= least && value_read <= most);
    return f->status == OK ? value_read : least;
}

static float real(Fields *f, const char *key, double least, double most)
{
    const json_t *value = json_object_get(f->object, key);
    double value_read = json_number_value(value);
    field(f, key, json_is_number(value) && value_read >= least && value_read <= most);
    return (float)value_read;
}

static float channel(Fields *f, const char *key, int index, double least, double most)
{
    const json_t *list = json_object_get(f->object, key), *value = json_array_get(list, (size_t)index);
    double value_read = json_number_value(value);
    field(f, key, json_array_size(list) == 3 && json_is_number(value) && value_read >= least && value_read <= most);
    return (float)value_read;
}

static bool boolean(Fields *f, const char *key)
{
    const json_t *value = json_object_get(f->object, key);
    field(f, key, json_is_boolean(value));
    return json_is_true(value);
}

/* False in older capsules, which lack it. */
static bool newer_boolean(Fields *f, const char *key)
{
    return json_object_get(f->object, key) && boolean(f, key);
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
    if (json_object_get(f->object, "phase")) text(f, "phase", c->phase, sizeof c->phase); /* absent in older capsules */
    program->options = (ModelOptions){.classes = (int)integer(f, "classes", 1, CLASSES_MAX),
                                      .side = (int32_t)integer(f, "side", 1, SIDE_MAX),
                                      .channels = (int32_t)integer(f, "channels", 1, 3),
                                      .dropout = real(f, "dropout", 0, 0.999999),
                                      .drop_path = json_object_get(f->object, "drop_path") /* absent in older ones */
                                                       ? real(f, "drop_path", 0, 0.999999)
                                                       : 0,
                                      .aux = boolean(f, "aux"),
                                      .variant = c->variant};
    for (int i = 0; i < 3 && json_object_get(f->object, "std"); i++) { /* absent in older capsules */
        program->options.mean[i] = channel(f, "mean", i, -10, 10);
        program->options.std[i] = channel(f, "std", i, 1e-6, 1e6);
    }
    if (*c->phase) {
        program->options.width = (int32_t)integer(f, "width", 0, SIDE_MAX);
        program->options.penalty_weight = real(f, "penalty_weight", -1, 1e6);
    }
    program->data_channels = (int32_t)integer(f, "data_channels", 1, 3);
    program->canvas = (int32_t)integer(f, "canvas", program->options.side, 2 * SIDE_MAX);
    program->smoothing = real(f, "smoothing", 0, 1);
    program->aux_weight = real(f, "aux_weight", 0, 1e6);
    program->fuse_siblings = boolean(f, "fuse_siblings");
    program->pool_behind_conv = boolean(f, "pool_behind_conv");
    program->recompute = boolean(f, "recompute");
    program->separate_storage = boolean(f, "separate_storage");
    if (json_object_get(f->object, "freeze"))
        text(f, "freeze", c->freeze, sizeof c->freeze); /* absent in older capsules */
    if (*c->freeze) program->freeze = c->freeze;
    program->mixes = newer_boolean(f, "mixes");
    if (program->mixes) field(f, "mixes", c->record_words == IMAGE_RECORD); /* format 1 has no room for a partner */
    program->targets = newer_boolean(f, "targets");
    program->weighted = newer_boolean(f, "weighted");
    program->loss = newer_boolean(f, "bce") ? LOSS_BCE : LOSS_SOFTMAX;
    program->multi_label = newer_boolean(f, "several");
    c->positive_weights = newer_boolean(f, "positive_weights");
    if (program->loss == LOSS_BCE) field(f, "targets", program->targets);
    json_t *fuse = json_object_get(f->object, "fuse"); /* in older capsules: 0 and 3 fused pools, too */
    program->norm_into_pool = fuse ? json_integer_value(fuse) % 3 == 0 : newer_boolean(f, "norm_into_pool");
    program->training = true;
    program->compute = DTYPE_COUNT;
    for (int d = DTYPE_F32; d <= DTYPE_F16; d++)
        if (!strcmp(compute, dtype_name((Dtype)d))) program->compute = (Dtype)d;
    field(f, "compute", program->compute != DTYPE_COUNT);
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
    bool first = !strcmp(format, CAPSULE_FORMAT_1);
    if (f->status == OK && !first && strcmp(format, CAPSULE_FORMAT))
        return FAIL(ERR_CHECKPOINT, "%s/state.json: expected the format '%s' or '%s', found '%s'", c->path,
                    CAPSULE_FORMAT, CAPSULE_FORMAT_1, format);
    c->record_words = first ? CAPSULE_RECORD_1 : IMAGE_RECORD;
    c->step = integer(f, "step", 1, INT64_MAX);
    c->weights_after = json_object_get(f->object, "weights_after_step") /* absent in older capsules */
                           ? integer(f, "weights_after_step", c->step - 1, INT64_MAX)
                           : c->step - 1;
    c->towers = (int)integer(f, "towers", 1, TOWERS_MAX);
    c->tower = (int)integer(f, "tower", 0, c->towers - 1);
    c->key = (RandomKey){.seed = (uint64_t)integer(f, "seed", INT64_MIN, INT64_MAX), .step = c->step - 1};
    bool by_tower = !json_object_get(f->object, "first_sample"); /* how older versions drew the masks of dropout */
    if (!by_tower) c->key.first = integer(f, "first_sample", 0, UINT32_MAX);
    c->scale = real(f, "scale", 0, 1e30);
    c->batch.step = integer(f, "batch", 0, INT64_MAX);
    c->batch.n = (int32_t)integer(f, "n", 1, 65536);
    text(f, "fault", c->fault, sizeof c->fault);
    Fields network = part(f, "network"), device = part(f, "device"), found = part(f, "found");
    if (f->status == OK) network_read(&network, c);
    if (f->status == OK) {
        text(&device, "backend", c->backend, sizeof c->backend);
        bool older = !json_object_get(device.object, "winograd_f32"); /* before 0.1.0 the opposite was stored */
        bool no_f32 = older && (!json_object_get(device.object, "direct_f32") || boolean(&device, "direct_f32"));
        c->device = (DeviceConfig){
            .winograd = boolean(&device, "winograd"),
            .winograd_bf16 = older ? !boolean(&device, "direct_bf16") : boolean(&device, "winograd_bf16"),
            .winograd_f32 = older ? !no_f32 : boolean(&device, "winograd_f32"),
            .tf32 = boolean(&device, "tf32"),
            .deterministic = boolean(&device, "deterministic"),
        };
    }
    if (f->status == OK) finding_read(&found, &c->found);
    Status all[] = {f->status, network.status, device.status, found.status};
    for (int i = 0; i < 4; i++)
        if (all[i] != OK) return all[i];
    if (by_tower && c->program.options.dropout > 0 && (c->tower > 0 || c->batch.step != c->key.step))
        return FAIL(ERR_CHECKPOINT,
                    "%s: written by a version that drew the masks of dropout for each tower; this version cannot "
                    "draw them again, use the version that wrote it",
                    c->path);
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
    TRY(path_join(path, c->path, CAPSULE_STATE));
    TRY(file_read(path, STATE_LIMIT, &bytes, &count));
    TRY_OUT(json_parse(bytes, count, &root, &error));
    if (json_is_object(root)) {
        Fields fields = {.object = root, .path = c->path};
        st = fields_read(&fields, c);
    } else {
        st = FAIL(ERR_CHECKPOINT, "%s:%d: %s", path, root ? 1 : error.line, root ? "not an object" : error.text);
    }
out:
    json_decref(root);
    free(bytes);
    return st;
}

/* ---- the batch */

/* Copy a tensor after checking its type and dimensions. */
static Status tensor_copy(const Capsule *c, const SafeTensors *file, const char *name, StDtype dtype, int rank,
                          const int64_t *dims, void **made)
{
    const StTensor *t = safetensors_find(file, name);
    bool fits = t && t->dtype == dtype && t->rank == rank;
    for (int d = 0; fits && d < rank; d++) fits = t->dims[d] == dims[d];
    if (!fits)
        return FAIL(ERR_CHECKPOINT, "%s/%s: '%s' is missing, or not of the type and shape given by state.json", c->path,
                    CAPSULE_BATCH, name);
    *made = malloc(t->bytes ? t->bytes : 1);
    if (!*made) return FAIL(ERR_MEMORY, "no memory for the batch of '%s'", c->path);
    memcpy(*made, t->data, t->bytes);
    return OK;
}

/* Kernels do not check labels and crops. */
static Status batch_check(const Capsule *c)
{
    const ProgramConfig *p = &c->program;
    if (!c->pixels) return OK;
    int32_t room = p->canvas - p->options.side;
    int32_t stored = c->batch.n + p->mixes;
    for (int32_t i = 0; i < stored; i++) {
        const int32_t *crop = c->augment + IMAGE_RECORD * i;
        if (crop[IMAGE_PARTNER] < 0 || crop[IMAGE_PARTNER] > stored || crop[IMAGE_SHARE] < 0 ||
            crop[IMAGE_SHARE] > IMAGE_SHARE_ONE)
            return FAIL(ERR_CHECKPOINT, "%s/%s: image %d is mixed with image %d of %d", c->path, CAPSULE_BATCH, i,
                        crop[IMAGE_PARTNER] - 1, stored);
        if (i < c->batch.n && (c->labels[i] < LABEL_NONE || c->labels[i] >= p->options.classes))
            return FAIL(ERR_CHECKPOINT, "%s/%s: label %d is not below the number of classes, %d", c->path,
                        CAPSULE_BATCH, c->labels[i], p->options.classes);
        for (int k = IMAGE_ERASE_Y; k <= IMAGE_ERASE_W; k++)
            if (crop[k] < 0 || crop[k] > p->options.side)
                return FAIL(ERR_CHECKPOINT, "%s/%s: an erased rectangle lies outside of the %d pixels", c->path,
                            CAPSULE_BATCH, p->options.side);
        if (crop[0] < 0 || crop[0] > room || crop[1] < 0 || crop[1] > room)
            return FAIL(ERR_CHECKPOINT, "%s/%s: a crop at (%d, %d) exceeds the largest offset, %d", c->path,
                        CAPSULE_BATCH, crop[0], crop[1], room);
    }
    return OK;
}

/* Extend the augmentation records of format 1 to those of format 2; the added words are 0. */
static Status records_widen(const Capsule *c, void **augment)
{
    if (c->record_words == IMAGE_RECORD) return OK;
    int32_t *wide = calloc((size_t)c->batch.n * IMAGE_RECORD, sizeof *wide), words = c->record_words;
    if (!wide) return FAIL(ERR_MEMORY, "no memory for the batch of '%s'", c->path);
    for (int32_t i = 0; i < c->batch.n; i++)
        memcpy(wide + (size_t)i * IMAGE_RECORD, (int32_t *)*augment + (size_t)i * (size_t)words,
               (size_t)(words - 1) * sizeof *wide); /* the last word of format 1 was unused */
    free(*augment);
    *augment = wide;
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
    void *pixels = NULL, *labels = NULL, *augment = NULL, *ids = NULL, *targets = NULL, *weight = NULL,
         *positive = NULL;
    const int64_t n = c->batch.n, stored = n + c->program.mixes, one = 1, classes = c->program.options.classes,
                  shares[] = {n, classes},
                  images[] = {stored, c->program.canvas, c->program.canvas, c->program.data_channels},
                  crops[] = {stored, c->record_words};
    TRY(path_join(path, c->path, CAPSULE_BATCH));
    TRY(safetensors_open(path, &file));
    TRY_OUT(sums_read(c, file));
    if (*c->phase && !safetensors_find(file, "images")) goto out; /* capsule_replica knows if the phase takes none */
    TRY_OUT(tensor_copy(c, file, "images", ST_U8, 4, images, &pixels));
    TRY_OUT(tensor_copy(c, file, "labels", ST_I32, 1, &n, &labels));
    TRY_OUT(tensor_copy(c, file, "augment", ST_I32, 2, crops, &augment));
    TRY_OUT(records_widen(c, &augment));
    TRY_OUT(tensor_copy(c, file, "sample_ids", ST_I64, 1, &stored, &ids));
    if (c->program.targets) TRY_OUT(tensor_copy(c, file, "targets", ST_F32, 2, shares, &targets));
    if (c->program.weighted) TRY_OUT(tensor_copy(c, file, "weight", ST_F32, 1, &one, &weight));
    if (c->positive_weights) TRY_OUT(tensor_copy(c, file, "positive_weight", ST_F32, 1, &classes, &positive));
    if (weight) c->batch.weight = *(const float *)weight;
out:
    c->batch.pixels = c->pixels = pixels;
    c->batch.labels = c->labels = labels;
    c->batch.augment = c->augment = augment;
    c->batch.ids = c->ids = ids;
    c->batch.targets = c->targets = targets;
    c->program.positive_weight = c->positive_weight = positive;
    free(weight);
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
    size_t bytes;
    Manifest *manifest = NULL;
    const char *const names[] = {CAPSULE_BATCH, CAPSULE_MODEL, CAPSULE_STATE};
    TRY(manifest_open(c->path, &manifest));
    for (int i = 0; i < 3; i++) {
        if (manifest_find(manifest, names[i])) continue;
        st = FAIL(ERR_CHECKPOINT, "'%s' is not a capsule: its MANIFEST does not list %s", c->path, names[i]);
        goto out;
    }
    TRY_OUT(manifest_verify(manifest, c->path));
    TRY_OUT(path_join(path, c->path, CHOICES_FILE));
    if (manifest_find(manifest, CHOICES_FILE)) TRY_OUT(file_read(path, STATE_LIMIT, &c->choices, &bytes));
    TRY_OUT(state_read(c));
    TRY_OUT(batch_read(c));
    TRY_OUT(path_join(path, c->path, CAPSULE_MODEL));
    TRY_OUT(safetensors_open(path, &c->weights));
out:
    manifest_destroy(manifest);
    return st;
}

Status capsule_open(const char *path, Capsule **made)
{
    Capsule *capsule = calloc(1, sizeof *capsule);
    if (!capsule) return FAIL(ERR_MEMORY, "no memory for the capsule '%s'", path);
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
    free(capsule->choices);
    free(capsule->pixels);
    free(capsule->labels);
    free(capsule->augment);
    free(capsule->ids);
    free(capsule->targets);
    free(capsule->positive_weight);
    free(capsule->sums.values);
    free(capsule);
}

/* ---- running it again */

static Status weights_read(const Capsule *capsule, Replica *r)
{
    Status st = OK;
    size_t params = r->layout->param_elements, running = r->layout->running_elements;
    WeightMap map = weight_map(r->layout);
    float *host = calloc(params + running + 1, sizeof *host);
    if (!host)
        return FAIL(ERR_MEMORY, "no memory for the weights of '%s' (%zu MiB)", capsule->path,
                    params * sizeof *host >> 20);
    TRY_OUT(weights_unpack_exact(&map, "", capsule->weights, host, host + params));
    TRY_OUT(replica_values_set(r, host, host + params));
out:
    free(host);
    return st;
}

/* The number of the capsule's phase in its model. */
static Status phase_find(const Capsule *capsule, int *phase)
{
    const Model *model = capsule->program.model;
    *phase = 0;
    while (*phase < program_phases(model) && *capsule->phase &&
           strcmp(capsule->phase, program_phase(model, *phase)->name))
        ++*phase;
    if (*phase == program_phases(model))
        return FAIL(ERR_CHECKPOINT, "%s: %s has no phase '%s'", capsule->path, model->name, capsule->phase);
    if (program_phase(model, *phase)->takes_batch != (capsule->pixels != NULL))
        return FAIL(ERR_CHECKPOINT, "%s/%s: the phase '%s' of %s takes %s images", capsule->path, CAPSULE_BATCH,
                    capsule->phase, model->name, capsule->pixels ? "no" : "a batch of");
    return OK;
}

Status capsule_replica(const Capsule *capsule, const Backend *backend, const DeviceConfig *device, Replica **made)
{
    Replica *replica;
    int phase;
    TRY(phase_find(capsule, &phase));
    ReplicaConfig config = {.backend = backend,
                            .device = *device,
                            .program = capsule->program,
                            .local = 1,
                            .train_n = (const int32_t[]){capsule->batch.n, 0},
                            .optimizer = {.kind = OPTIMIZER_SGD},
                            .seed = capsule->key.seed,
                            .choices = capsule->choices};
    TRY(replica_create(&config, &replica));
    Status st = weights_read(capsule, replica);
    if (st == OK)
        *made = replica;
    else
        replica_destroy(replica);
    return st;
}

/* With --bn-stats sync the other towers' part of each sum comes from the capsule. */
typedef struct Playback {
    Device *device;
    const Capsule *capsule;
    int64_t used;
} Playback;

static Status sum_again(void *context, float *values, int count)
{
    Playback *playback = context;
    const NormSums *sums = &playback->capsule->sums;
    if (count < 0 || count > sums->count - playback->used)
        return FAIL(ERR_CHECKPOINT, "%s: the capsule has fewer batch-norm sums than this network needs",
                    playback->capsule->path);
    const float *kept = sums->values + playback->used;
    playback->used += count;
    return playback->device->backend->upload(playback->device, values, kept, (size_t)count * sizeof *values);
}

Status capsule_run(const Capsule *capsule, Replica *replica, void (*row)(void *context, const TraceRow *row),
                   void *context, Finding *found)
{
    Finding state;
    int phase;
    TRY(phase_find(capsule, &phase));
    Playback playback = {.device = &replica->device, .capsule = capsule};
    TraceJob job = {.replica = replica,
                    .tower = capsule->tower,
                    .step = capsule->step,
                    .phase = phase,
                    .key = capsule->key,
                    .scale = capsule->scale,
                    .batch = &capsule->batch,
                    .row = row,
                    .context = context};
    if (capsule->sums.count) {
        replica->device.allreduce = sum_again;
        replica->device.allreduce_context = &playback;
    }
    TRY(trace_state(replica, capsule->tower, 0, &state));
    *found = state;
    if (state.place != FOUND_WEIGHT) TRY(trace_run(&job, found));
    if (found->place == FOUND_NOTHING) *found = state;
    found->tower = capsule->tower;
    found->step = capsule->step;
    return OK;
}
