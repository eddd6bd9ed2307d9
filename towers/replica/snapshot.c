/* Checkpoints of a run: from the arenas of all towers to files, and back.
 *
 * model.safetensors contains what evaluation uses (the weight average if there is one) with the exported batch-norm
 * statistics; train.safetensors contains what an exact resume also needs: optimizer states, raw weights if they differ, every
 * tower's statistics, which rank 0 gathers. It copies all of this and writes it in a thread beside training, one
 * checkpoint at a time. Rank 0 also reads and verifies, and broadcasts what it read: other hosts need not see the
 * files. */

#include "towers/replica/snapshot.h"
#include "kernels/base/pause.h"
#include "kernels/base/place.h"
#include "kernels/base/progress.h"
#include "kernels/base/thread.h"
#include "towers/replica/about.h"
#include "towers/replica/norm_running.h"
#include "towers/replica/run_state.h"
#include "towers/store/checkpoint.h"
#include "towers/store/pretrained.h"

/* ---- arenas to lists */

static size_t elements_of(const Layout *layout, SnapshotPart part)
{
    return part == SNAPSHOT_RUNNING   ? layout->running_elements
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
    TRY(replica_download(r, p->scratch, arena, elements_of(r->layout, part) * sizeof(float)));
    return part == SNAPSHOT_RUNNING ? running_pack(&map, prefix, p->scratch, tracked, list)
                                    : weights_pack(&map, prefix, p->scratch, list);
}

/* `file`: known on rank 0 only. `arena`: NULL if this process only takes part. */
static Status arena_unpack(TowerProcess *p, const char *prefix, const SafeTensors *file, float *arena,
                           SnapshotPart part)
{
    Replica *r = p->replica;
    WeightMap map = map_of(p, part);
    bool running = part == SNAPSHOT_RUNNING;
    size_t count = elements_of(r->layout, part);
    memset(p->scratch, 0, count * sizeof(float)); /* padding between parameters */
    if (is_root(&p->place))
        TRY(weights_unpack_exact(&map, prefix, file, running ? NULL : p->scratch, running ? p->scratch : NULL));
    TRY(comm_broadcast(p->comm, p->scratch, count * sizeof(float), 0));
    return arena ? replica_upload(r, arena, p->scratch, count * sizeof(float)) : OK;
}

static Status model_pack(TowerProcess *p, WeightList *list)
{
    Replica *r = p->replica;
    TRY(snapshot_pack(p, "", r->ema ? r->ema : r->arena[ARENA_PARAM], SNAPSHOT_PARAMS, -1, list));
    if (r->layout->running_elements) TRY(snapshot_pack(p, "", r->eval_running, SNAPSHOT_RUNNING, p->run.updates, list));
    return OK;
}

/* Every tower's statistics, on rank 0. Collective. */
static Status tower_states_pack(TowerProcess *p, WeightList *list)
{
    Status st = OK;
    Replica *r = p->replica;
    size_t elements = r->layout->running_elements;
    float *running = NULL, *averaged = NULL;
    if (!elements) return OK;
    TRY_OUT(running_gather(p, r->running, &running));
    if (r->ema) TRY_OUT(running_gather(p, r->ema_running, &averaged));
    for (int t = 0; is_root(&p->place) && t < p->ledger->towers; t++) {
        char prefix[64];
        snprintf(prefix, sizeof prefix, "tower%d.", t);
        TRY_OUT(running_pack(&p->map, prefix, running + (size_t)t * elements, -1, list));
        snprintf(prefix, sizeof prefix, "tower%d.ema.", t);
        if (r->ema) TRY_OUT(running_pack(&p->map, prefix, averaged + (size_t)t * elements, -1, list));
    }
out:
    free(running);
    free(averaged);
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
    const Metrics *metrics;    /* borrowed */
    int keep;
    int64_t best_step; /* whose checkpoint is kept; -1: none */
    Offers *offers;    /* borrowed from the job; NULL */
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

/* The records come first, so that none is missing behind a checkpoint. best.safetensors follows it, so that a run that has
 * results can be resumed; also one that failed, which was tried. */
static void *saving_run(void *context)
{
    Saving *s = context;
    char path[PATH_BYTES];
    int64_t held[3] = {s->best_step};
    if (s->threaded) progress_of_thread(&s->progress);
    s->status = metrics_sync(s->metrics);
    offers_held(s->offers, held + 1);
    if (s->status == OK) s->status = checkpoint_save(s->run_dir, &s->content, s->keep, held, 3);
    if (s->status != OK) status_keep(&s->words);
    if (s->best) {
        s->best_status = path_join(path, s->run_dir, "best.safetensors");
        if (s->best_status == OK)
            s->best_status = safetensors_replace(path, s->model.tensor, s->model.count, s->about.pair, s->about.count);
        if (s->best_status != OK) status_keep(&s->best_words);
    }
    if (s->status == OK) offers_put(s->offers, s->content.step); /* whoever takes it finds the best weights, too */
    atomic_store(&s->ended, true);
    return NULL;
}

static void saving_start(Saving *s)
{
    s->threaded = true;
    if (thread_start(&s->thread, saving_run, s) != 0) s->threaded = false;
    if (!s->threaded) saving_run(s);
}

/* Its progress is that of this process only while this one waits for it. */
static void saving_wait(Saving *s)
{
    int64_t seen = 0;
    progress_storage_begin();
    while (s->threaded && !atomic_load(&s->ended)) {
        int64_t now = atomic_load(&s->progress.at_ns);
        if (now != seen) progress_made("the checkpoint");
        seen = now;
        pause_ms(SAVE_LOOK_MS);
    }
    if (s->threaded) pthread_join(s->thread, NULL);
    s->threaded = false;
    (void)progress_storage_end(0);
}

static const char *const state_prefix[OPTIMIZER_STATES] = {"slot0.", "slot1."};

static Status content_copy(TowerProcess *p, Saving *s)
{
    Replica *r = p->replica;
    for (int i = 0; i < OPTIMIZER_STATES; i++)
        if (r->optimizer_state[i])
            TRY(snapshot_pack(p, state_prefix[i], r->optimizer_state[i], SNAPSHOT_TRAINED, -1, &s->train));
    if (r->ema) TRY(snapshot_pack(p, "raw.", r->arena[ARENA_PARAM], SNAPSHOT_PARAMS, -1, &s->train));
    return model_pack(p, &s->model);
}

static Status content_describe(TowerProcess *p, Saving *s)
{
    if (p->run.epoch_count) p->run.epoch_seconds = (double)(clock_ns() - p->epoch_started_ns) * 1e-9;
    s->state = run_state_text(p);
    if (!s->state) return FAIL(ERR_MEMORY, "no memory for the state of the checkpoint of step %" PRId64, p->run.step);
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
    s->offers = p->job->offers;
    s->best_step = p->run.best_step > 0 ? p->run.best_step : -1;
    return OK;
}

Status snapshot_save(TowerProcess *p, bool best)
{
    Status st = OK;
    Saving *s = calloc(1, sizeof *s);
    if (!s) return FAIL(ERR_MEMORY, "no memory for the checkpoint of step %" PRId64, p->run.step);
    s->best = best;
    process_activity(p, p->run.step, ACTIVITY_SAVE);
    TRY_OUT(statistics_export(p));
    if (is_root(&p->place)) TRY_OUT(content_copy(p, s));
    TRY_OUT(tower_states_pack(p, &s->train));
    if (!is_root(&p->place)) goto out;
    TRY_OUT(content_describe(p, s));
    metrics_flush(p->metrics);
    s->metrics = p->metrics;
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
    for (int t = 0; r->layout->running_elements && t < p->ledger->towers; t++) {
        char prefix[64];
        int local = t - p->place.first_tower;
        bool mine = is_local_tower(&p->place, t);
        snprintf(prefix, sizeof prefix, "tower%d.", t);
        TRY(arena_unpack(p, prefix, file, mine ? r->running[local] : NULL, SNAPSHOT_RUNNING));
        if (!r->ema) continue;
        snprintf(prefix, sizeof prefix, "tower%d.ema.", t);
        TRY(arena_unpack(p, prefix, file, mine ? r->ema_running[local] : NULL, SNAPSHOT_RUNNING));
    }
    return OK;
}

/* On rank 0: a state of the optimizer, to p->scratch. Parameters that join after the step of this checkpoint have none in
 * it, and begin with a fresh one. */
static Status optimizer_state_read(TowerProcess *p, const char *prefix, const SafeTensors *file, float fresh)
{
    const Layout *layout = p->replica->layout;
    WeightMap map = map_of(p, SNAPSHOT_TRAINED);
    WeightMatch match;
    int joining = 0;
    bool here = p->job->unfrozen && p->run.step == job_unfreeze_step(p->job);
    for (int i = 0; here && i < map.count; i++) joining += names_match(p->job->unfrozen, layout->params[i].name);
    for (size_t i = 0; here && i < layout->trained_elements; i++) p->scratch[i] = fresh;
    if (joining) TRY(weights_unpack(&map, prefix, file, NULL, p->scratch, NULL, &match));
    if (joining && match.missing == joining && !match.mismatched) return OK;
    return weights_unpack_exact(&map, prefix, file, p->scratch, NULL);
}

/* `file`: known on rank 0 only. Collective. */
static Status optimizer_state_restore(TowerProcess *p, int k, const SafeTensors *file)
{
    Replica *r = p->replica;
    size_t bytes = r->layout->trained_elements * sizeof(float);
    memset(p->scratch, 0, bytes); /* padding between parameters */
    if (is_root(&p->place))
        TRY(optimizer_state_read(p, state_prefix[k], file, optimizer_state_start(&r->config.optimizer, k)));
    TRY(comm_broadcast(p->comm, p->scratch, bytes, 0));
    return replica_upload(r, r->optimizer_state[k], p->scratch, bytes);
}

/* `checkpoint`: NULL on all ranks but 0. Collective. */
static Status content_restore(TowerProcess *p, const Checkpoint *checkpoint)
{
    Replica *r = p->replica;
    const SafeTensors *model = checkpoint ? checkpoint->model : NULL, *train = checkpoint ? checkpoint->train : NULL;
    if (checkpoint) TRY(run_state_parse(p, checkpoint->state_json, checkpoint->path));
    TRY(comm_broadcast(p->comm, &p->run, sizeof p->run, 0));
    if (p->job->unfrozen && p->run.step == job_unfreeze_step(p->job)) p->run.joined_updates = p->run.phase[0].updates;
    r->unfrozen_updates = (float)p->run.joined_updates;
    TRY(arena_unpack(p, r->ema ? "raw." : "", r->ema ? train : model, r->arena[ARENA_PARAM], SNAPSHOT_PARAMS));
    if (r->ema) TRY(arena_unpack(p, "", model, r->ema, SNAPSHOT_PARAMS));
    replica_weights_changed(r);
    for (int s = 0; s < OPTIMIZER_STATES; s++)
        if (r->optimizer_state[s]) TRY(optimizer_state_restore(p, s, train));
    return tower_states_unpack(p, train);
}

/* A branch takes over the best weights of its run only if they were saved with a checkpoint that still exists;
 * otherwise its next ones become the best. The best weights of the current step are exported by epochs_run. */
static Status best_branch(TowerProcess *p)
{
    char from[PATH_BYTES], to[PATH_BYTES], step[64];
    Checkpoint *best = NULL;
    if (p->run.best_step <= 0 || p->run.best_step == p->run.step) return OK;
    snprintf(step, sizeof step, "../step-%010" PRId64, p->run.best_step);
    TRY(path_join(from, p->job->resume_path, step));
    if (place_access(from, F_OK) != 0 || checkpoint_open(from, &best) != OK) {
        p->run.best_step = 0;
        for (int i = 0; i < SCORES; i++) p->run.best[i] = ABSENT;
        return OK;
    }
    checkpoint_close(best);
    TRY(path_join(to, p->job->run_dir, "best.safetensors"));
    snprintf(step, sizeof step, "../step-%010" PRId64 "/model.safetensors", p->run.best_step);
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
    snprintf(name, sizeof name, "ckpt/step-%010" PRId64, step);
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
    size_t params = r->layout->param_elements * sizeof(float), running = r->layout->running_elements;
    float *host = calloc(running + 1, sizeof *host);
    if (!host) return FAIL(ERR_MEMORY, "no memory for the statistics (%zu floats)", running);
    TRY_OUT(backend->download(&r->device, p->scratch, r->arena[ARENA_PARAM], params));
    TRY_OUT(backend->download(&r->device, host, r->running[0], running * sizeof *host));
    TRY_OUT(backend->finish(&r->device, STREAM_COMPUTE));
    if (is_root(&p->place))
        TRY_OUT(pretrained_read(&p->map, &p->job->program, path, p->job->reset_head ? HEAD_RESET : HEAD_READ,
                                p->scratch, host, NULL));
    TRY_OUT(comm_broadcast(p->comm, p->scratch, params, 0));
    TRY_OUT(comm_broadcast(p->comm, host, running * sizeof *host, 0));
    TRY_OUT(replica_values_set(r, p->scratch, host));
out:
    free(host);
    return st;
}
