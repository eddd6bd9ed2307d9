/* Set-up and tear-down of a tower process: communicator, replica, loader, records, in the order of their dependencies;
 * process_close frees whatever exists. */
#include "towers/train/process_open.h"
#include "towers/files/json.h"
#include "towers/guard/batch_max.h"
#include "towers/guard/selftest.h"
#include "towers/replica/hooks.h"
#include "towers/replica/norm_sync.h"
#include "towers/replica/norm_values.h"
#include "towers/replica/snapshot.h"
#include "towers/train/choices.h"
#include "towers/train/introduction.h"
#include "towers/train/mlperf_log.h"
#include "towers/train/outcome.h"
#include "towers/train/samples_log.h"
#include "towers/train/step.h"
#include "towers/train/stopping.h"
#include "towers/train/summary.h"

enum { FIRST_BUCKET_BYTES = 4 << 20, BUCKET_BYTES = 25 << 20 };

/* ---- device and replica */

/* The other processes learn that this one lacks memory before the search for a batch that fits begins; the ledger before
 * them, so that it is the root cause. */
static Status memory_explain(TowerProcess *p, const ReplicaConfig *config)
{
    StatusText words;
    ledger_fail(p->ledger, p->place.rank, ERR_MEMORY, false);
    status_keep(&words);
    comm_abort(p->comm);
    comm_close(p->comm);
    replica_destroy(p->replica);
    p->comm = NULL;
    p->replica = NULL;
    Status st = status_restore(ERR_MEMORY, &words);
    atomic_store(&p->ledger->process[p->place.rank].explains, true);
    if (st == ERR_MEMORY) st = batch_explain(p->job, config);
    atomic_store(&p->ledger->process[p->place.rank].explains, false);
    return st;
}

static Status replica_finish(TowerProcess *p)
{
    p->map = weight_map(p->replica->layout);
    size_t params = p->replica->layout->param_elements, running = p->replica->layout->running_elements;
    p->scratch = calloc((params > running ? params : running) + SUM_EXTRAS, sizeof *p->scratch);
    p->findings = calloc((size_t)p->job->processes, sizeof *p->findings);
    return p->scratch && p->findings
               ? OK
               : FAIL(ERR_MEMORY, "no memory for the host copy of the weights (%zu MiB)", params * sizeof(float) >> 20);
}

/* ---- the sum over towers */

static Status buckets_open(TowerProcess *p)
{
    const Layout *layout = p->replica->layout;
    size_t *ends = calloc((size_t)layout->trained_count + 1, sizeof *ends), bytes = p->job->bucket_bytes;
    if (!ends) return FAIL(ERR_MEMORY, "no memory for the bucket ends");
    for (int phase = 0; phase < layout->phase_count; phase++) {
        const LayoutPhase *range = &layout->phase[phase];
        Buckets *buckets = &p->sums[phase].buckets;
        for (int i = 0; i < range->param_count; i++)
            ends[i] = layout_param_end(layout, range->first_param + i) - range->first;
        buckets_cut(ends, range->param_count, range->elements, bytes ? bytes : FIRST_BUCKET_BYTES,
                    bytes ? bytes : BUCKET_BYTES, buckets);
        for (int b = 0; b < buckets->count; b++) buckets->bucket[b].first += range->first;
    }
    free(ends);
    return OK;
}

static Status comm_open(TowerProcess *p, CommShared *shared)
{
    const Layout *layout = p->replica->layout;
    CommConfig config = p->replica->config.sum;
    replica_sum_sized(layout, &config);
    config.max_count += norm_sync_floats(p->job, layout);
    return comm_join(&config, shared, &p->replica->device, &p->comm);
}

/* Device, communicator, replica, in this order: the replica is built with what rank 0 has chosen. */
static Status replica_open(TowerProcess *p, const ReplicaConfig *config, CommShared *shared)
{
    Status st = replica_begin(config, &p->replica);
    if (st == OK) TRY(comm_open(p, shared));
    if (st == OK) st = choices_build(p);
    if (st == ERR_MEMORY) return memory_explain(p, config);
    TRY(st);
    TRY(replica_finish(p));
    return comm_register(p->comm, &p->replica->grad_memory, p->replica->layout->trained_elements * sizeof(float));
}

static Status replica_join(TowerProcess *p, CommShared *shared)
{
    ReplicaConfig config;
    int32_t *sizes;
    TRY(process_config(p->job, &p->place, &config, &sizes));
    Status st = replica_open(p, &config, shared);
    free(sizes);
    return st;
}

/* What towers add up, of which nothing else uses the way between them before it is tested. */
static Status sums_open(TowerProcess *p)
{
    TRY(buckets_open(p));
    TRY(norm_sync_open(p));
    return p->job->self_test ? selftest_run(p) : OK;
}

/* ---- data */

static Status loader_open(TowerProcess *p)
{
    LoaderConfig config = process_loader(p);
    TRY(loader_create(&config, &p->loader));
    replica_pin(p->replica, p->loader, true);
    return OK;
}

Status process_restart_loader(TowerProcess *p)
{
    replica_pin(p->replica, p->loader, false);
    loader_destroy(p->loader);
    p->loader = NULL;
    return loader_open(p);
}

/* ---- records */

/* Give the header of the run to the console, through the ledger, and to log.txt line by line. */
static Status run_introduce(TowerProcess *p)
{
    char device[256] = "", sums[128] = "";
    Draft header;
    TRY(draft_begin(&header, "the header of the run"));
    p->job->backend->describe(&p->replica->device, device, sizeof device);
    comm_text(p->comm, sums, sizeof sums);
    TRY(draft_end(&header, introduction_print(p->job, device, sums, header.to)));
    snprintf(p->ledger->run.header, sizeof p->ledger->run.header, "%s", header.text);
    for (char *rest = header.text, *line; (line = strsep(&rest, "\n"));)
        if (*line) metrics_log(p->metrics, "%s", line);
    free(header.text);
    return OK;
}

/* env.json; a run that goes on has begun when it first began. */
static Status environment_write(const TrainJob *job, bool goes_on)
{
    static const char *const keys[] = {"started", "started_at"};
    if (!goes_on) return text_replace(job->run_dir, "env.json", job->env_json);
    json_t *then = json_of_run(job->run_dir, "env.json"), *now = json_loads(job->env_json, 0, NULL);
    for (size_t i = 0; now && i < sizeof keys / sizeof *keys; i++) {
        json_t *value = json_object_get(then, keys[i]);
        if (value) json_object_set(now, keys[i], value);
    }
    json_decref(then);
    return json_replace(job->run_dir, "env.json", now, JSON_INDENT(2));
}

static Status records_open(TowerProcess *p, bool restored)
{
    if (!is_root(&p->place)) return OK;
    /* An interrupted epoch will be recorded again. The row of its first end stays if the best weights are from there. */
    int64_t whole = p->run.step - p->run.step % p->steps_per_epoch;
    if (restored && p->run.step < p->total_steps)
        TRY(metrics_forget_epochs(p->job->run_dir, p->run.best_step > whole ? p->run.best_step : whole));
    if (p->run.epoch_told > whole && p->run.best_step >= p->run.epoch_told) p->run.epoch_seconds = 0; /* in that row */
    bool again = epoch_end_is_owed(p) || p->run.step == 0; /* the grid of step 0 is drawn again, too */
    if (restored && again) TRY(metrics_forget_end(p->job->run_dir, p->run.step));
    TRY(metrics_open(p->job->run_dir, restored ? p->run.step : -1, p->job->metrics_interval, p->job->scalar_interval,
                     p->job->program.multi_label, &p->metrics));
    outcome_forget(p->job->run_dir);
    TRY(text_replace(p->job->run_dir, "args.yaml", p->job->args_yaml));
    TRY(environment_write(p->job, restored && !p->job->resume_path));
    if (p->job->survey) TRY(text_replace(p->job->run_dir, SURVEY_FILE, p->job->survey));
    if (p->job->objects) TRY(text_replace(p->job->run_dir, OBJECTS_FILE, p->job->objects));
    TRY(run_introduce(p));
    for (int64_t n = 0; n < atomic_load(&p->ledger->run.notes); n++) {
        const char *note = ledger_noted(p->ledger, n);
        if (note) metrics_log(p->metrics, "%s", note);
    }
    if (p->job->restarts)
        metrics_log(p->metrics, "restart %" PRId64 " of %" PRId64 " (--max-restarts)", p->job->restarts,
                    p->job->max_restarts);
    if (restored) metrics_log(p->metrics, "resumed after step %" PRId64, p->run.step);
    if (p->job->unfrozen && p->run.step == job_unfreeze_step(p->job)) {
        ledger_inform(p->ledger, "epoch %" PRId64 ": %s join", p->job->unfreeze_epoch, p->job->unfrozen);
        metrics_log(p->metrics, "epoch %" PRId64 ": %s join", p->job->unfreeze_epoch, p->job->unfrozen);
    }
    int32_t side = p->job->program.train_side;
    if (side) {
        ledger_inform(p->ledger, "images of %d x %d pixels from epoch %" PRId64 " on", side, side,
                      p->run.step / p->steps_per_epoch + 1);
        metrics_log(p->metrics, "images of %d x %d pixels after step %" PRId64, side, side, p->run.step);
    }
    return summary_start(p);
}

/* Write the start of this run to the ledger for the console; `steps` last, because it marks the others as complete. */
static void run_announce(const TowerProcess *p)
{
    LedgerRun *run = &p->ledger->run;
    int64_t epochs = p->run.step / p->steps_per_epoch - (epoch_end_is_owed(p) ? 1 : 0);
    memcpy(run->best, p->run.best, sizeof run->best);
    run->best_step = p->run.best_step;
    run->complete = p->complete;
    atomic_store(&run->first_epoch, epochs);
    atomic_store(&run->epochs_done, epochs);
    atomic_store(&run->first_step, p->run.step);
    atomic_store(&run->step, p->run.step);
    atomic_store(&run->steps, p->total_steps);
}

/* ---- where a restored run is */

/* The step, from 0, in whose stage this state goes on: the last one at the end of the run, and while the evaluation behind
 * it is owed; else the next one. */
static int64_t stage_step(const TowerProcess *p, bool over)
{
    return (over || epoch_end_is_owed(p)) && p->run.step > 0 ? p->run.step - 1 : p->run.step;
}

/* Has this run directory everything that a run leaves that ends at this step? Rank 0 looks. */
static Status completion_find(TowerProcess *p, bool over)
{
    char complete = over && !p->job->resume_path && !epoch_end_is_owed(p) && is_root(&p->place) &&
                    outcome_completes(p->job->run_dir, p->run.step);
    TRY(comm_broadcast(p->comm, &complete, sizeof complete, 0));
    p->complete = complete;
    return OK;
}

/* In each stage: batch norms whose statistics do not exist in some steps, or in all. */
static Status norms_check(TowerProcess *p)
{
    char text[LEDGER_MESSAGE];
    Replica *r = p->replica;
    TRY(norm_values_check(p->job, r->layout, r->config.train_n[0], text, sizeof text));
    if (!*text || !is_root(&p->place)) return OK;
    ledger_note(p->ledger, "%s", text);
    return OK;
}

/* ---- the whole process */

Status process_open(TowerProcess *p, CommShared *shared)
{
    bool restored;
    p->steps_per_epoch = job_steps_per_epoch(p->job);
    p->total_steps = job_total_steps(p->job);
    run_state_clear(&p->run);
    straggler_start(&p->watch);
    if (run_hooks) run_hooks->activity(p->place.first_tower, 1, ACTIVITY_START);
    TRY(replica_join(p, shared));
    if (run_hooks) TRY(run_hooks->opened(p->replica->train, p->replica->train_count));
    TRY(sums_open(p));
    if (p->job->initial_weights) TRY(snapshot_load_weights(p, p->job->initial_weights));
    TRY(snapshot_restore(p, &restored));
    if (p->run.step > p->total_steps)
        return FAIL(ERR_ARG,
                    "%s is already at step %" PRId64 ", but --epochs and --max-steps end the run at step %" PRId64
                    "; raise them to continue",
                    p->job->run_dir, p->run.step, p->total_steps);
    p->good_step = restored ? p->run.step : -1;
    bool over = p->run.step == p->total_steps || (restored && stopping_is_due(p));
    p->stage = stage_step(p, over);
    if (!job_stage_is(p->job, p->stage)) return OK; /* the processes of that stage begin here */
    if (restored) TRY(completion_find(p, over));
    if (p->complete) {
        stopping_decide(p);
        if (leads_node(&p->place)) run_announce(p);
        return OK;
    }
    TRY(norms_check(p));
    TRY(steps_open(p));
    TRY(mlperf_log_open(p, restored));
    TRY(loader_open(p));
    TRY(records_open(p, restored));
    TRY(samples_forget(p, restored));
    if (restored) stopping_decide(p);
    if (leads_node(&p->place)) run_announce(p);
    return OK;
}

Status process_open_eval(TowerProcess *p, CommShared *shared)
{
    TRY(replica_join(p, shared));
    return snapshot_load_weights(p, p->job->initial_weights);
}

Status process_open_timed(TowerProcess *p, CommShared *shared)
{
    p->steps_per_epoch = job_steps_per_epoch(p->job);
    p->total_steps = job_total_steps(p->job);
    TRY(replica_join(p, shared));
    TRY(sums_open(p));
    if (p->job->initial_weights) TRY(snapshot_load_weights(p, p->job->initial_weights));
    TRY(steps_open(p));
    return loader_open(p);
}

void process_close(TowerProcess *p)
{
    if (p->replica) replica_pin(p->replica, p->loader, false);
    loader_destroy(p->loader);
    snapshot_close(p);
    summary_close(p);
    step_rows_flush(p);
    metrics_close(p->metrics);
    comm_close(p->comm); /* before the replica, whose device it may use */
    steps_close(p);
    norm_sync_close(p);
    replica_destroy(p->replica);
    free(p->findings);
    free(p->exported);
    free(p->scratch);
}
