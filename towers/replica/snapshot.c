/* Checkpoints of a run: from the arenas of all towers to files, and back.
 *
 * model.safetensors contains what evaluation uses (the weight average if there is one) with the exported batch-norm
 * statistics; train.safetensors contains what an exact resume also needs: slots, raw weights if they differ, every
 * tower's statistics, which rank 0 gathers. It copies all of this and writes it in a thread beside training, one
 * checkpoint at a time. Rank 0 also reads and verifies, and broadcasts what it read: other hosts need not see the
 * files. */

#include "towers/replica/snapshot.h"
#include "towers/files/json.h"
#include "towers/replica/about.h"
#include "towers/replica/norm_states.h"
#include "towers/store/checkpoint.h"
#include "towers/store/pretrained.h"

#include <pthread.h>
#include <signal.h>

/* ---- arenas to lists */

static size_t elements_of(const Layout *layout, SnapshotPart part)
{
    return part == SNAPSHOT_STATES    ? layout->state_elements
           : part == SNAPSHOT_TRAINED ? layout->trained_elements
                                      : layout->param_elements;
}

static WeightMap map_of(const TowerProcess *p, SnapshotPart part)
{
    WeightMap map = p->map;
    if (part == SNAPSHOT_TRAINED) map.count = map.layout->trained_count;
    return map;
}

Status snapshot_pack(TowerProcess *p, const char *prefix, const float *arena, SnapshotPart part, int64_t tracked,
                     WeightList *list)
{
    Replica *r = p->replica;
    WeightMap map = map_of(p, part);
    TRY(r->device.backend->download(&r->device, p->scratch, arena, elements_of(r->layout, part) * sizeof(float)));
    TRY(r->device.backend->finish(&r->device, STREAM_COMPUTE));
    return part == SNAPSHOT_STATES ? states_pack(&map, prefix, p->scratch, tracked, list)
                                   : weights_pack(&map, prefix, p->scratch, list);
}

/* `file`: known on rank 0 only. `arena`: NULL if this process only takes part. */
static Status arena_unpack(TowerProcess *p, const char *prefix, const SafeTensors *file, float *arena,
                           SnapshotPart part)
{
    Replica *r = p->replica;
    WeightMap map = map_of(p, part);
    bool states = part == SNAPSHOT_STATES;
    size_t count = elements_of(r->layout, part);
    memset(p->scratch, 0, count * sizeof(float)); /* padding between parameters */
    if (is_root(&p->place))
        TRY(weights_unpack_exact(&map, prefix, file, states ? NULL : p->scratch, states ? p->scratch : NULL));
    TRY(comm_broadcast(p->comm, p->scratch, count * sizeof(float), 0));
    if (!arena) return OK;
    TRY(r->device.backend->upload(&r->device, arena, p->scratch, count * sizeof(float)));
    return r->device.backend->finish(&r->device, STREAM_COMPUTE);
}

static Status model_pack(TowerProcess *p, WeightList *list)
{
    Replica *r = p->replica;
    TRY(snapshot_pack(p, "", r->ema ? r->ema : r->arena[ARENA_PARAM], SNAPSHOT_PARAMS, -1, list));
    if (r->layout->state_elements) TRY(snapshot_pack(p, "", r->eval_state, SNAPSHOT_STATES, p->run.updates, list));
    return OK;
}

/* Every tower's statistics, on rank 0. Collective. */
static Status tower_states_pack(TowerProcess *p, WeightList *list)
{
    Status st = OK;
    Replica *r = p->replica;
    size_t elements = r->layout->state_elements;
    float *states = NULL, *averaged = NULL;
    if (!elements) return OK;
    TRY_OUT(states_gather(p, r->state, &states));
    if (r->ema) TRY_OUT(states_gather(p, r->ema_state, &averaged));
    for (int t = 0; is_root(&p->place) && t < p->ledger->towers; t++) {
        char prefix[64];
        snprintf(prefix, sizeof prefix, "tower%d.", t);
        TRY_OUT(states_pack(&p->map, prefix, states + (size_t)t * elements, -1, list));
        snprintf(prefix, sizeof prefix, "tower%d.ema.", t);
        if (r->ema) TRY_OUT(states_pack(&p->map, prefix, averaged + (size_t)t * elements, -1, list));
    }
out:
    free(states);
    free(averaged);
    return st;
}

/* ---- state.json */

/* The numbers of a RunState. A real that is not finite is written as null, because JSON has no NaN. */
typedef struct StateField {
    const char *name;
    size_t offset;
    bool real;
    enum { NEEDED, LATER } missing; /* run_state.def */
} StateField;

static const StateField state_fields[] = {
#define RUN_MEMBER(member, key, real, missing) {key, offsetof(RunState, member), real, missing},
#include "towers/replica/run_state.def"
};
enum { STATE_FIELDS = sizeof state_fields / sizeof *state_fields };

/* Fields of a phase. A classifier's only phase has them above, where older checkpoints have them. */
static const StateField phase_fields[] = {
    {"updates", offsetof(RunPhase, updates), false, NEEDED},
    {"loss_scale", offsetof(RunPhase, loss_scale), true, LATER},
    {"scale_good", offsetof(RunPhase, scale_good), false, LATER},
};
enum { PHASE_FIELDS = sizeof phase_fields / sizeof *phase_fields };

static json_t *field_json(const void *state, const StateField *field)
{
    const char *at = (const char *)state + field->offset;
    if (!field->real) return json_integer(*(const int64_t *)at);
    return json_finite(*(const double *)at);
}

static Status field_read(void *state, const StateField *field, const json_t *value, const char *path)
{
    char *at = (char *)state + field->offset;
    if (!value && field->missing == LATER) return OK;
    if (!field->real && json_is_integer(value))
        *(int64_t *)at = json_integer_value(value);
    else if (field->real && (json_is_number(value) || json_is_null(value)))
        *(double *)at = json_is_null(value) ? NAN : json_number_value(value);
    else
        return FAIL(ERR_CHECKPOINT, "%s/state.json: '%s' is missing or not a number", path, field->name);
    return OK;
}

static int phase_add(json_t *to, const RunPhase *phase)
{
    int failed = 0;
    for (int i = 0; i < PHASE_FIELDS; i++)
        failed |= json_object_set_new(to, phase_fields[i].name, field_json(phase, &phase_fields[i]));
    return failed;
}

/* "phases": {"critic": {...}, ...}, or the fields of the only phase. */
static int phases_add(const TowerProcess *p, json_t *root)
{
    int failed = 0;
    json_t *all = json_object();
    if (p->replica->phases == 1) {
        json_decref(all);
        return phase_add(root, &p->run.phase[0]);
    }
    for (int i = 0; i < p->replica->phases; i++) {
        json_t *one = json_object();
        failed |= phase_add(one, &p->run.phase[i]);
        failed |= json_object_set_new(all, job_phase(p->job, i)->name, one);
    }
    return failed | json_object_set_new(root, "phases", all);
}

/* The line of `text` with the key of `line`; *bytes 0: there is none. */
static const char *setting_find(const char *text, const char *line, int *bytes)
{
    size_t key = strcspn(line, ":");
    while (*text && (strncmp(text, line, key) != 0 || text[key] != ':')) {
        text += strcspn(text, "\n");
        text += *text == '\n';
    }
    *bytes = (int)strcspn(text, "\n");
    return text;
}

/* The settings of the job; a restart on fewer devices (--max-restarts) has changed the number of processes since. */
static char *settings_text(const TrainJob *job)
{
    int bytes;
    char *text = NULL;
    const char *line = setting_find(job->settings, "processes:", &bytes);
    if (!bytes) return strdup(job->settings);
    int made = asprintf(&text, "%.*sprocesses: %d%s", (int)(line - job->settings), job->settings, job->processes,
                        line + bytes);
    return made < 0 ? NULL : text;
}

static char *state_text(const TowerProcess *p)
{
    char *settings = settings_text(p->job);
    json_t *root = settings ? json_pack("{s:s, s:s, s:i, s:I, s:s}", "format", "towers checkpoint 1", "model",
                                        p->job->program.model->name, "towers", p->ledger->towers, "steps_per_epoch",
                                        (json_int_t)p->steps_per_epoch, "settings", settings)
                            : NULL;
    free(settings);
    for (int i = 0; root && i < STATE_FIELDS; i++) {
        if (json_object_set_new(root, state_fields[i].name, field_json(&p->run, &state_fields[i])) == 0) continue;
        json_decref(root);
        root = NULL;
    }
    json_t *left_out = json_array();
    int failed = phases_add(p, root);
    for (int64_t i = 0; i < p->run.rollbacks; i++)
        failed |= json_array_append_new(left_out, json_integer(p->run.left_out[i]));
    failed |= json_object_set_new(root, "left_out", left_out);
    char *text = root && !failed ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(root);
    return text;
}

/* The steps skipped by rollbacks; missing in checkpoints of runs without a rollback. */
static Status left_out_read(RunState *run, const json_t *list, const char *path)
{
    if (!list) return OK;
    if (!json_is_array(list) || json_array_size(list) > ROLLBACKS_MAX)
        return FAIL(ERR_CHECKPOINT, "%s/state.json: 'left_out' is not a list of at most %d steps", path, ROLLBACKS_MAX);
    for (size_t i = 0; i < json_array_size(list); i++)
        run->left_out[run->rollbacks++] = json_integer_value(json_array_get(list, i));
    return OK;
}

/* The value of a line "key: value" for messages; `bytes` 0: there is no line. Unset values are empty or -1. */
static void setting_text(const char *line, int bytes, char *text, size_t room)
{
    int colon = (int)strcspn(line, ":");
    bool unset = bytes > colon && (bytes == colon + 2 || (bytes == colon + 4 && !strncmp(line + colon, ": -1", 4)));
    if (bytes == 0)
        snprintf(text, room, "nothing");
    else
        snprintf(text, room, "%.*s%s", unset ? colon + 2 : bytes, line, unset ? "not set" : "");
}

static void change_add(Text *table, const char *then, int then_bytes, const char *now, int now_bytes)
{
    char old[256], new[256];
    if (then_bytes == now_bytes && strncmp(then, now, (size_t)then_bytes) == 0) return;
    setting_text(then, then_bytes, old, sizeof old);
    setting_text(now, now_bytes, new, sizeof new);
    text_add(table, "\n  then %s, now %s", old, new);
}

/* OK if the settings of this run are those of the checkpoint. One that the checkpoint lacks has come with a later version
 * of the program; it passes with its default, which is what older versions do. So does the number of processes after a
 * restart, which takes the devices that are left. Otherwise every setting that differs is named, including those that only
 * the checkpoint has. */
static Status settings_compare(const TrainJob *job, const char *path, const char *then)
{
    char text[2048];
    Text table = text_start(text, sizeof text);
    int before, after, usual;
    for (const char *line = job->settings; *line; line += after, line += *line == '\n') {
        const char *found = setting_find(then, line, &before),
                   *common = setting_find(job->setting_defaults, line, &usual);
        after = (int)strcspn(line, "\n");
        bool later = before == 0 && after == usual && strncmp(line, common, (size_t)after) == 0,
             restarted = job->restarts > 0 && !strncmp(line, "processes:", strlen("processes:"));
        if (!later && !restarted) change_add(&table, found, before, line, after);
    }
    for (const char *line = then; *line; line += before, line += *line == '\n') {
        const char *found = setting_find(job->settings, line, &after);
        before = (int)strcspn(line, "\n");
        if (after == 0) change_add(&table, line, before, found, 0);
    }
    if (!*text) return OK;
    return FAIL(ERR_ARG,
                "%s was written with other settings, so a resumed run would differ:%s\n  (use the old values, or "
                "start a new run from these weights with --pretrained)",
                path, text);
}

static Status state_parse(TowerProcess *p, const char *text, const char *path)
{
    Status st = OK;
    json_error_t error;
    RunState run;
    json_t *root;
    run_state_clear(&run);
    TRY(json_parse(text, strlen(text), &root, &error));
    if (!root) return FAIL(ERR_CHECKPOINT, "%s/state.json:%d: %s", path, error.line, error.text);
    /* The settings come first, because the other fields depend on the model. */
    const char *settings = json_string_value(json_object_get(root, "settings"));
    if (!settings) TRY_OUT(FAIL(ERR_CHECKPOINT, "%s/state.json: 'settings' is missing or not a text", path));
    TRY_OUT(settings_compare(p->job, path, settings));
    for (int i = 0; i < STATE_FIELDS; i++)
        TRY_OUT(field_read(&run, &state_fields[i], json_object_get(root, state_fields[i].name), path));
    /* Older checkpoints lack these; the last step of an epoch may be short. */
    int64_t full = shares_global(&p->job->shares) * p->job->accumulate;
    if (run.best[SCORE_ACCURACY] < 0) run.best[SCORE_ACCURACY] = NAN; /* as older versions wrote it */
    if (!json_object_get(root, "epoch_weight")) run.epoch_weight = (double)run.epoch_count;
    if (!json_object_get(root, "epoch_steps")) run.epoch_steps = (run.epoch_count + full - 1) / full;
    const json_t *all = json_object_get(root, "phases");
    for (int i = 0; i < p->replica->phases; i++) {
        const json_t *one = p->replica->phases == 1 ? root : json_object_get(all, job_phase(p->job, i)->name);
        for (int k = 0; k < PHASE_FIELDS; k++)
            TRY_OUT(field_read(&run.phase[i], &phase_fields[k], json_object_get(one, phase_fields[k].name), path));
    }
    TRY_OUT(left_out_read(&run, json_object_get(root, "left_out"), path));
    p->run = run;
out:
    json_decref(root);
    return st;
}

/* ---- saving */

enum { SAVES_FAILED_MAX = 3 /* failed saves in a row before the run ends */ };

/* A copy of everything that is saved, and the thread that writes it. */
struct Saving {
    WeightList model, train; /* owned, as the next two */
    About about;
    char *state;
    CheckpointContent content; /* borrows from the others */
    const char *run_dir;       /* borrowed from the job */
    int keep;
    int64_t best_step; /* whose checkpoint is kept; -1: none */
    bool best;
    pthread_t thread;
    bool threaded;
    ProgressSlot progress; /* of the thread */
    Status status, best_status;
    StatusText words, best_words;
    _Atomic bool ended;
};

static void saving_free(Saving *s)
{
    if (!s) return;
    about_close(&s->about);
    free(s->state);
    weight_list_clear(&s->model);
    weight_list_clear(&s->train);
    free(s);
}

/* best.safetensors follows the checkpoint, so that a run that has results can be resumed; also one that failed, which
 * was tried. */
static void *saving_run(void *context)
{
    Saving *s = context;
    char path[PATH_BYTES];
    if (s->threaded) progress_of_thread(&s->progress);
    s->status = checkpoint_save(s->run_dir, &s->content, s->keep, s->best_step);
    if (s->status != OK) status_keep(&s->words);
    if (s->best) {
        s->best_status = path_join(path, s->run_dir, "best.safetensors");
        if (s->best_status == OK)
            s->best_status = safetensors_replace(path, s->model.tensor, s->model.count, s->about.pair, s->about.count);
        if (s->best_status != OK) status_keep(&s->best_words);
    }
    atomic_store(&s->ended, true);
    return NULL;
}

/* Signals are for the main thread: the one that asks for the call stack of a process that hangs means that. */
static void saving_start(Saving *s)
{
    sigset_t all, before;
    sigfillset(&all);
    s->threaded = true;
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&s->thread, NULL, saving_run, s) != 0) s->threaded = false;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!s->threaded) saving_run(s);
}

/* Its progress is a sign of life only while this process waits for it. */
static void saving_wait(Saving *s)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    int64_t seen = 0;
    while (s->threaded && !atomic_load(&s->ended)) {
        int64_t now = atomic_load(&s->progress.at_ns);
        if (now != seen) progress_made("the checkpoint");
        seen = now;
        nanosleep(&pause, NULL);
    }
    if (s->threaded) pthread_join(s->thread, NULL);
    s->threaded = false;
}

static Status content_copy(TowerProcess *p, Saving *s)
{
    Replica *r = p->replica;
    static const char *const slot_prefix[OPTIMIZER_SLOTS] = {"slot0.", "slot1."};
    for (int i = 0; i < OPTIMIZER_SLOTS; i++)
        if (r->slot[i]) TRY(snapshot_pack(p, slot_prefix[i], r->slot[i], SNAPSHOT_TRAINED, -1, &s->train));
    if (r->ema) TRY(snapshot_pack(p, "raw.", r->arena[ARENA_PARAM], SNAPSHOT_PARAMS, -1, &s->train));
    return model_pack(p, &s->model);
}

static Status content_describe(TowerProcess *p, Saving *s)
{
    s->state = state_text(p);
    if (!s->state)
        return FAIL(ERR_MEMORY, "no memory for the state of the checkpoint of step %lld", (long long)p->run.step);
    TRY(about_job(p->job, &s->about));
    s->content = (CheckpointContent){.step = p->run.step,
                                     .model = s->model.tensor,
                                     .model_count = s->model.count,
                                     .train = s->train.tensor,
                                     .train_count = s->train.count,
                                     .state_json = s->state,
                                     .metadata = s->about.pair,
                                     .metadata_count = s->about.count};
    s->run_dir = p->job->run_dir;
    s->keep = p->job->checkpoint.keep;
    s->best_step = p->run.best_step > 0 ? p->run.best_step : -1;
    return OK;
}

Status snapshot_save(TowerProcess *p, bool best)
{
    Status st = OK;
    Saving *s = calloc(1, sizeof *s);
    if (!s) return FAIL(ERR_MEMORY, "no memory for the checkpoint of step %lld", (long long)p->run.step);
    s->best = best;
    process_activity(p, p->run.step, ACTIVITY_SAVE);
    TRY_OUT(statistics_export(p));
    if (is_root(&p->place)) TRY_OUT(content_copy(p, s));
    TRY_OUT(tower_states_pack(p, &s->train));
    if (!is_root(&p->place)) goto out;
    TRY_OUT(content_describe(p, s));
    metrics_flush(p->metrics);
    p->saving = s;
    saving_start(s);
    return OK;
out:
    saving_free(s);
    return st;
}

bool snapshot_ended(const TowerProcess *p)
{
    return p->saving && atomic_load(&p->saving->ended);
}

Status snapshot_settle(TowerProcess *p, bool last)
{
    Saving *s = p->saving;
    if (!s) return OK;
    if (!snapshot_ended(p)) process_activity(p, p->run.step, ACTIVITY_SAVE);
    saving_wait(s);
    p->saving = NULL;
    Status st = s->status, best = s->best_status;
    int64_t step = s->content.step;
    if (best != OK) (void)!status_restore(best, &s->best_words);
    if (best == ERR_IO) storage_note(p, "best.safetensors", step);
    if (st != OK) (void)!status_restore(st, &s->words);
    saving_free(s);
    if (st == OK) {
        p->saves_failed = 0;
        p->good_step = step;
        return best == ERR_IO ? OK : best;
    }
    if (st != ERR_IO || last || ++p->saves_failed == SAVES_FAILED_MAX) return st;
    storage_note(p, "the checkpoint", step);
    return OK;
}

void snapshot_close(TowerProcess *p)
{
    if (p->saving) saving_wait(p->saving);
    saving_free(p->saving);
    p->saving = NULL;
}

Status snapshot_export(TowerProcess *p, const char *name)
{
    Status st = OK;
    char path[PATH_BYTES];
    WeightList model = {0};
    About about = {0};
    TRY(statistics_export(p));
    if (!is_root(&p->place)) return OK;
    TRY(path_join(path, p->job->run_dir, name));
    TRY_OUT(model_pack(p, &model));
    TRY_OUT(about_job(p->job, &about));
    TRY_OUT(safetensors_replace(path, model.tensor, model.count, about.pair, about.count));
out:
    about_close(&about);
    weight_list_clear(&model);
    return st;
}

/* ---- loading */

static Status tower_states_unpack(TowerProcess *p, const SafeTensors *file)
{
    Replica *r = p->replica;
    for (int t = 0; r->layout->state_elements && t < p->ledger->towers; t++) {
        char prefix[64];
        int slot = t - p->place.first_tower;
        bool mine = is_local_tower(&p->place, t);
        snprintf(prefix, sizeof prefix, "tower%d.", t);
        TRY(arena_unpack(p, prefix, file, mine ? r->state[slot] : NULL, SNAPSHOT_STATES));
        if (!r->ema) continue;
        snprintf(prefix, sizeof prefix, "tower%d.ema.", t);
        TRY(arena_unpack(p, prefix, file, mine ? r->ema_state[slot] : NULL, SNAPSHOT_STATES));
    }
    return OK;
}

/* On rank 0: a slot of the optimizer, to p->scratch. Parameters that join after the step of this checkpoint have none in
 * it, and begin with a fresh one. */
static Status slot_read(TowerProcess *p, const char *prefix, const SafeTensors *file, float fresh)
{
    const Layout *layout = p->replica->layout;
    WeightMap map = map_of(p, SNAPSHOT_TRAINED);
    WeightMatch match;
    int joining = 0;
    bool here = p->job->joined && p->run.step == unfreeze_step(p);
    for (int i = 0; here && i < map.count; i++) joining += names_match(p->job->joined, layout->params[i].name);
    for (size_t i = 0; here && i < layout->trained_elements; i++) p->scratch[i] = fresh;
    if (joining) TRY(weights_unpack(&map, prefix, file, NULL, p->scratch, NULL, &match));
    if (joining && match.missing == joining && !match.mismatched) return OK;
    return weights_unpack_exact(&map, prefix, file, p->scratch, NULL);
}

/* `file`: known on rank 0 only. Collective. */
static Status slot_restore(TowerProcess *p, int slot, const SafeTensors *file)
{
    static const char *const prefix[OPTIMIZER_SLOTS] = {"slot0.", "slot1."};
    Replica *r = p->replica;
    size_t bytes = r->layout->trained_elements * sizeof(float);
    memset(p->scratch, 0, bytes); /* padding between parameters */
    if (is_root(&p->place)) TRY(slot_read(p, prefix[slot], file, optimizer_slot_start(&r->config.optimizer, slot)));
    TRY(comm_broadcast(p->comm, p->scratch, bytes, 0));
    TRY(r->device.backend->upload(&r->device, r->slot[slot], p->scratch, bytes));
    return r->device.backend->finish(&r->device, STREAM_COMPUTE);
}

/* `checkpoint`: NULL on all ranks but 0. Collective. */
static Status content_restore(TowerProcess *p, const Checkpoint *checkpoint)
{
    Replica *r = p->replica;
    const SafeTensors *model = checkpoint ? checkpoint->model : NULL, *train = checkpoint ? checkpoint->train : NULL;
    if (checkpoint) TRY(state_parse(p, checkpoint->state_json, checkpoint->path));
    TRY(comm_broadcast(p->comm, &p->run, sizeof p->run, 0));
    if (p->job->joined && p->run.step == unfreeze_step(p)) p->run.joined_updates = p->run.phase[0].updates;
    r->joined = (float)p->run.joined_updates;
    TRY(arena_unpack(p, r->ema ? "raw." : "", r->ema ? train : model, r->arena[ARENA_PARAM], SNAPSHOT_PARAMS));
    if (r->ema) TRY(arena_unpack(p, "", model, r->ema, SNAPSHOT_PARAMS));
    replica_weights_changed(r);
    for (int s = 0; s < OPTIMIZER_SLOTS; s++)
        if (r->slot[s]) TRY(slot_restore(p, s, train));
    return tower_states_unpack(p, train);
}

/* A branch takes over the best weights of its run only if they were saved with a checkpoint that still exists;
 * otherwise its next ones become the best. The best weights of the current step are exported by epochs_run. */
static Status best_branch(TowerProcess *p)
{
    char from[PATH_BYTES], to[PATH_BYTES], step[64];
    Checkpoint *best = NULL;
    if (p->run.best_step <= 0 || p->run.best_step == p->run.step) return OK;
    snprintf(step, sizeof step, "../step-%010lld", (long long)p->run.best_step);
    TRY(path_join(from, p->job->resume_path, step));
    if (access(from, F_OK) != 0 || checkpoint_open(from, &best) != OK) {
        p->run.best_step = 0;
        for (int i = 0; i < SCORES; i++) p->run.best[i] = NAN;
        return OK;
    }
    checkpoint_close(best);
    TRY(path_join(to, p->job->run_dir, "best.safetensors"));
    snprintf(step, sizeof step, "../step-%010lld/model.safetensors", (long long)p->run.best_step);
    TRY(path_join(from, p->job->resume_path, step));
    return run_file_copy(from, to);
}

Status snapshot_restore(TowerProcess *p, bool *restored)
{
    Status st = OK;
    Checkpoint *checkpoint = NULL;
    char note[1024] = "";
    *restored = false;
    if (!p->job->resume_path && !p->job->resume) return OK;
    if (is_root(&p->place) && p->job->resume_path)
        TRY_OUT(checkpoint_open(p->job->resume_path, &checkpoint));
    else if (is_root(&p->place))
        TRY_OUT(checkpoint_open_latest(p->job->run_dir, true, &checkpoint, note, sizeof note));
    char found = checkpoint != NULL;
    TRY_OUT(comm_broadcast(p->comm, &found, sizeof found, 0));
    if (!found) goto out;
    TRY_OUT(content_restore(p, checkpoint));
    if (p->job->resume_path) {
        if (is_root(&p->place)) TRY_OUT(best_branch(p));
        TRY_OUT(comm_broadcast(p->comm, &p->run, sizeof p->run, 0));
    }
    *restored = true;
    if (*note && is_root(&p->place)) ledger_note(p->ledger, "%s", note);
out:
    checkpoint_close(checkpoint);
    return st;
}

Status snapshot_return(TowerProcess *p, int64_t step)
{
    char name[64], path[PATH_BYTES];
    Checkpoint *checkpoint = NULL;
    snprintf(name, sizeof name, "ckpt/step-%010lld", (long long)step);
    TRY(path_join(path, p->job->run_dir, name));
    if (is_root(&p->place)) TRY(checkpoint_open(path, &checkpoint));
    Status st = content_restore(p, checkpoint);
    checkpoint_close(checkpoint);
    return st;
}

/* Values that the file does not have stay unchanged. */
Status snapshot_load_weights(TowerProcess *p, const char *path)
{
    Status st = OK;
    Replica *r = p->replica;
    const Backend *backend = r->device.backend;
    size_t params = r->layout->param_elements * sizeof(float), states = r->layout->state_elements;
    char absent[256];
    float *host = calloc(states + 1, sizeof *host);
    if (!host) return FAIL(ERR_MEMORY, "no memory for the statistics (%zu floats)", states);
    TRY_OUT(backend->download(&r->device, p->scratch, r->arena[ARENA_PARAM], params));
    TRY_OUT(backend->download(&r->device, host, r->state[0], states * sizeof *host));
    TRY_OUT(backend->finish(&r->device, STREAM_COMPUTE));
    if (is_root(&p->place))
        TRY_OUT(pretrained_read(&p->map, &p->job->program, path, p->job->reset_head ? HEAD_RESET : HEAD_READ,
                                p->scratch, host, absent, sizeof absent));
    TRY_OUT(comm_broadcast(p->comm, p->scratch, params, 0));
    TRY_OUT(comm_broadcast(p->comm, host, states * sizeof *host, 0));
    TRY_OUT(backend->upload(&r->device, r->arena[ARENA_PARAM], p->scratch, params));
    replica_weights_changed(r);
    if (r->ema) TRY_OUT(backend->upload(&r->device, r->ema, p->scratch, params));
    for (int t = 0; states && t < p->place.local_towers; t++) {
        TRY_OUT(backend->upload(&r->device, r->state[t], host, states * sizeof *host));
        if (r->ema_state[t]) TRY_OUT(backend->upload(&r->device, r->ema_state[t], host, states * sizeof *host));
    }
    TRY_OUT(backend->finish(&r->device, STREAM_COMPUTE));
out:
    free(host);
    return st;
}
