/* Write a capsule from the process that ran the step; see capsule.h. */
#include "kernels/base/place.h"
#include "towers/guard/capsule.h"

#include "towers/files/json.h"
#include "towers/guard/capsule_files.h"
#include "towers/replica/hooks.h"
#include "towers/replica/ledger.h"
#include "towers/replica/snapshot.h"
#include "towers/store/manifest.h"
#include "towers/store/run_dir.h"

#include <dirent.h>
#include <fcntl.h>

enum { LEDGER_TAIL = 32 /* steps whose losses are kept */ };

/* ---- state.json */

static json_t *network_json(const TrainJob *job, int phase)
{
    const ProgramConfig trained = program_training(&job->program), *c = &trained;
    const ModelOptions *o = &c->options;
    const float *mean = model_mean(c->model, o), *std = model_std(c->model, o);
    return json_pack(
        "{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:b, s:i, s:i, s:f, s:f, s:s, s:b, s:b, s:b, s:b, "
        "s:b, s:s, s:b, s:b, s:b, s:b, s:b, s:b, s:[fff], s:[fff]}",
        "model", c->model->name, "phase", program_phase(c->model, phase)->name, "variant", o->variant ? o->variant : "",
        "classes", o->classes, "side", (int)o->side, "channels", (int)o->channels, "width", (int)o->width,
        "penalty_weight", (double)o->penalty_weight, "dropout", (double)o->dropout, "drop_path", (double)o->drop_path,
        "aux", o->aux, "data_channels", (int)c->data_channels, "canvas", (int)c->canvas, "smoothing",
        (double)c->smoothing, "aux_weight", (double)c->aux_weight, "compute", dtype_name(c->compute), "fuse_siblings",
        c->fuse_siblings, "pool_behind_conv", c->pool_behind_conv, "recompute", c->recompute, "norm_into_pool",
        c->norm_into_pool, "separate_storage", c->separate_storage, "freeze", c->freeze ? c->freeze : "", "mixes",
        c->mixes, "targets", c->targets, "weighted", c->weighted, "bce", c->loss == LOSS_BCE, "several", c->multi_label,
        "positive_weights", c->positive_weight != NULL, "mean", (double)mean[0], (double)mean[1], (double)mean[2],
        "std", (double)std[0], (double)std[1], (double)std[2]);
}

static json_t *device_json(const TrainJob *job)
{
    const DeviceConfig *d = &job->device;
    return json_pack("{s:s, s:b, s:b, s:b, s:b, s:b}", "backend", job->backend->name, "winograd", d->winograd,
                     "winograd_bf16", d->winograd_bf16, "winograd_f32", d->winograd_f32, "tf32", d->tf32,
                     "deterministic", d->deterministic);
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

/* Losses and counts of all towers in one step. */
static json_t *ledger_step(const Ledger *ledger, int64_t step)
{
    json_t *loss = json_array(), *count = json_array(), *norm = json_array();
    for (int t = 0; t < ledger->towers; t++) {
        const LedgerRow *row = &ledger->tower[t].rows[step % LEDGER_STEPS];
        bool known = row->step == step;
        json_array_append_new(loss, json_finite(known ? tower_loss_mean(&row->loss) : NAN));
        json_array_append_new(count, json_integer(known ? row->loss.count : 0));
        json_array_append_new(norm, json_finite(known ? row->loss.grad_norm : NAN));
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
    for (int32_t i = 0; batch->ids && i < batch->n; i++) {
        char where[512];
        source_where(job->train, batch->ids[i], where, sizeof where);
        json_t *sample = json_pack("{s:I, s:i, s:o}", "id", (json_int_t)batch->ids[i], "label", (int)batch->labels[i],
                                   "where", json_text(where));
        int32_t partner = batch->augment[i * IMAGE_RECORD + IMAGE_PARTNER] - 1;
        if (partner >= 0) {
            json_object_set_new(sample, "partner", json_integer(batch->ids[partner]));
            json_object_set_new(sample, "partner_label", json_integer(batch->labels[partner]));
            json_object_set_new(sample, "partner_share", json_real(batch->share));
        }
        json_array_append_new(all, sample);
    }
    return all;
}

static char *state_text(const TowerProcess *p, const CapsuleSource *source)
{
    const TrainJob *job = p->job;
    const Batch *batch = source->batch;
    const Finding *found = source->found;
    json_t *root = json_pack(
        "{s:s, s:I, s:I, s:i, s:i, s:I, s:I, s:I, s:f, s:i, s:I, s:o, s:s, s:o, s:o, s:o, s:o, s:o}", "format",
        CAPSULE_FORMAT, "step", (json_int_t)found->step, "weights_after_step", (json_int_t)source->weights_after,
        "tower", found->tower, "towers", p->ledger->towers, "seed", (json_int_t)job->seed, "batch",
        (json_int_t)batch->step, "first_sample", (json_int_t)job_random_key(job, found->step, batch).first, "scale",
        (double)source->scale, "n", (int)batch->n, "updates", (json_int_t)p->run.updates, "settings",
        job->settings ? json_deep_copy(job->settings) : json_object(), "fault",
        hooks_text_at(found->tower, found->step), "network", network_json(job, source->phase), "device",
        device_json(job), "found", finding_json(found), "ledger", ledger_json(p->ledger, found->step), "samples",
        samples_json(job, batch));
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(root);
    return text;
}

/* ---- the files */

static Status batch_write(const char *directory, const ProgramConfig *network, const Batch *b, const NormSums *sums,
                          Manifest *manifest)
{
    enum { TENSORS = 8 };
    const int32_t *labels = b->predicted ? b->predicted : b->labels;
    int64_t stored = b->n + network->mixes;
    size_t n = (size_t)b->n, classes = (size_t)network->options.classes,
           image = (size_t)b->canvas * (size_t)b->canvas * (size_t)b->c;
    bool images = b->pixels != NULL;
    const StTensor tensors[TENSORS] = {
        {"norm_sums", ST_F32, 1, {sums->count}, sums->values, (size_t)sums->count * sizeof *sums->values},
        {"images", ST_U8, 4, {stored, b->canvas, b->canvas, b->c}, b->pixels, (size_t)stored * image},
        {"labels", ST_I32, 1, {b->n}, labels, n * sizeof *labels},
        {"augment", ST_I32, 2, {stored, IMAGE_RECORD}, b->augment, (size_t)stored * IMAGE_RECORD * sizeof *b->augment},
        {"sample_ids", ST_I64, 1, {stored}, b->ids, (size_t)stored * sizeof *b->ids},
        {"weight", ST_F32, 1, {1}, &b->weight, sizeof b->weight},
        {"targets", ST_F32, 2, {b->n, network->options.classes}, b->targets, n * classes * sizeof *b->targets},
        {"positive_weight",
         ST_F32,
         1,
         {network->options.classes},
         network->positive_weight,
         classes * sizeof *network->positive_weight},
    };
    int count = !images      ? 1
                : b->targets ? TENSORS - !network->positive_weight
                             : TENSORS - 2,
        first = sums->count ? 0 : 1;
    return manifest_write_tensors(manifest, directory, CAPSULE_BATCH, tensors + first, count - first, NULL, 0);
}

static Status weights_pack_all(TowerProcess *p, int local, WeightList *model, WeightList *train)
{
    static const char *const prefixes[OPTIMIZER_STATES] = {"slot0.", "slot1."};
    Replica *r = p->replica;
    TRY(snapshot_pack(p, "", r->arena[ARENA_PARAM], SNAPSHOT_PARAMS, -1, model));
    if (r->layout->running_elements)
        TRY(snapshot_pack(p, "", r->running[local], SNAPSHOT_RUNNING, p->run.updates, model));
    for (int s = 0; s < OPTIMIZER_STATES; s++)
        if (r->optimizer_state[s])
            TRY(snapshot_pack(p, prefixes[s], r->optimizer_state[s], SNAPSHOT_TRAINED, -1, train));
    if (r->ema) TRY(snapshot_pack(p, "average.", r->ema, SNAPSHOT_PARAMS, -1, train));
    return OK;
}

/* The kernels of this device, so that a replay takes them, too. */
static Status choices_write(Device *device, const char *directory, Manifest *manifest)
{
    char *text;
    int chosen;
    if (!device->backend->choices_text) return OK;
    TRY(device->backend->choices_text(device, &text, &chosen));
    Status st = manifest_write_text(manifest, directory, CHOICES_FILE, text);
    free(text);
    return st;
}

/* The structure of a network from a file, which no program can make without it. */
static Status structure_copy(const TrainJob *job, const char *directory, Manifest *manifest)
{
    char from[PATH_BYTES], to[PATH_BYTES];
    FileSum sum;
    TRY(path_join(from, job->run_dir, NETWORK_FILE));
    if (place_access(from, F_OK) != 0) return OK; /* a network of this program, or a host where the run did not begin */
    TRY(path_join(to, directory, NETWORK_FILE));
    TRY(run_file_copy(from, to));
    TRY(file_sum(to, &sum));
    return manifest_add(manifest, NETWORK_FILE, &sum, NULL, 0);
}

/* The tensor lists must live as long as the manifest, which borrows their names. */
static Status files_write(TowerProcess *p, const CapsuleSource *source, const char *directory)
{
    Status st = OK;
    Manifest *manifest = NULL;
    WeightList model = {0}, train = {0};
    const Finding *found = source->found;
    char *state = state_text(p, source);
    if (!state) return FAIL(ERR_MEMORY, "no memory for the state of a capsule");
    TRY_OUT(manifest_create(found->step, &manifest));
    TRY_OUT(batch_write(directory, &p->job->program, source->batch, source->sums, manifest));
    TRY_OUT(weights_pack_all(p, found->tower - p->place.first_tower, &model, &train));
    TRY_OUT(manifest_write_tensors(manifest, directory, CAPSULE_MODEL, model.tensor, model.count, NULL, 0));
    if (train.count)
        TRY_OUT(manifest_write_tensors(manifest, directory, CAPSULE_TRAIN, train.tensor, train.count, NULL, 0));
    TRY_OUT(manifest_write_text(manifest, directory, CAPSULE_STATE, state));
    TRY_OUT(choices_write(&p->replica->device, directory, manifest));
    TRY_OUT(structure_copy(p->job, directory, manifest));
    TRY_OUT(manifest_finish(manifest, directory));
out:
    manifest_destroy(manifest);
    weight_list_clear(&model);
    weight_list_clear(&train);
    free(state);
    return st;
}

Status capsule_publish(const char *temporary, const char *path, const char *run_dir)
{
    if (place_rename(temporary, path, 0) != 0) {
        bool there = errno == ENOTEMPTY || errno == EEXIST;
        if (!there || place_rename(temporary, path, RENAME_EXCHANGE) != 0)
            return FAIL(ERR_IO, "cannot rename '%s' to '%s': %s", temporary, path, strerror(errno));
    }
    return directory_sync(run_dir);
}

static Status capsules_count(const char *run_dir, int *count)
{
    struct dirent *entry;
    DIR *listing = place_list(run_dir);
    if (!listing) return FAIL(ERR_IO, "cannot list '%s': %s", run_dir, strerror(errno));
    for (*count = 0; (entry = place_next(listing));) *count += !strncmp(entry->d_name, "nan-step-", 9);
    closedir(listing);
    return OK;
}

Status capsule_place(const char *run_dir, int64_t step, int tower, char path[PATH_BYTES])
{
    int there = 0;
    struct stat info;
    char name[64];
    snprintf(name, sizeof name, "nan-step-%" PRId64 "-tower-%d", step, tower);
    TRY(path_join(path, run_dir, name));
    TRY(capsules_count(run_dir, &there));
    if (there >= CAPSULES_MAX && place_stat(path, &info) != 0) path[0] = 0;
    return OK;
}

Status capsule_write(TowerProcess *p, const CapsuleSource *source, char path[PATH_BYTES])
{
    Status st = OK;
    char temporary[PATH_BYTES];
    const char *run_dir = p->job->run_dir;
    TRY(capsule_place(run_dir, source->found->step, source->found->tower, path));
    if (!*path) return OK;
    TRY(path_temporary(temporary, path));
    TRY(tree_remove(temporary));
    if (place_mkdir(temporary) != 0) return FAIL(ERR_IO, "cannot create '%s': %s", path, strerror(errno));
    TRY_OUT(files_write(p, source, temporary));
    TRY_OUT(capsule_publish(temporary, path, run_dir));
out:
    (void)!tree_remove(temporary);
    return st;
}
