/* A tower process from set-up to tear-down: create, restore, then epoch after epoch of steps, evaluations and
 * checkpoints. */
#include "towers/process.h"

#include "towers/batch_max.h"
#include "towers/checkpoint.h"
#include "towers/fault.h"
#include "towers/forensics.h"
#include "towers/poison.h"
#include "towers/rollback.h"
#include "towers/summary.h"

#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum {
    FIRST_BUCKET_BYTES = 4 << 20,
    BUCKET_BYTES = 25 << 20,
    SUPERVISOR_FIRST_MS = 1000, /* who waits for a silent tower knows less about it than the supervisor */
    SAVES_FAILED_MAX = 3        /* checkpoints in a row that may not reach the disk */
};

int64_t job_batches_per_epoch(const TrainJob *job)
{
    return shares_steps_per_epoch(&job->shares, dataset_info(job->train)->count);
}

int64_t job_steps_per_epoch(const TrainJob *job)
{
    return (job_batches_per_epoch(job) + job->accumulate - 1) / job->accumulate;
}

int64_t job_first_batch(const TrainJob *job, int64_t step)
{
    int64_t steps = job_steps_per_epoch(job);
    return step / steps * job_batches_per_epoch(job) + step % steps * job->accumulate;
}

int64_t job_total_steps(const TrainJob *job)
{
    int64_t steps = job->epochs * job_steps_per_epoch(job);
    return job->max_steps >= 0 && job->max_steps < steps ? job->max_steps : steps;
}

int job_first_tower(const TrainJob *job, int process)
{
    return (int)((int64_t)process * job->shares.towers / job->processes);
}

void towers_text(const TrainJob *job, int rank, char *text, size_t bytes)
{
    int first = job_first_tower(job, rank), last = job_first_tower(job, rank + 1) - 1;
    if (first == last)
        snprintf(text, bytes, "tower %d", first);
    else
        snprintf(text, bytes, "towers %d..%d (process %d)", first, last, rank);
}

/* ---- where a run is */

static bool epoch_ended(const TowerProcess *p)
{
    return p->run.step % p->steps_per_epoch == 0 || p->run.step == p->total_steps;
}

/* A signal in the middle of the evaluation leaves the end of the epoch to whoever resumes. */
static bool epoch_end_is_owed(const TowerProcess *p)
{
    return epoch_ended(p) && p->run.epoch_count > 0;
}

/* ---- set-up */

static void size_add(int32_t *sizes, int32_t n)
{
    for (int i = 0; n > 0 && i < REPLICA_PROGRAMS; i++) {
        if (sizes[i] == n) return;
        if (sizes[i]) continue;
        sizes[i] = n;
        return;
    }
}

/* Every batch size that this process will ever see: full shares and those of the short last batch. */
static void batch_sizes(const TowerProcess *p, ReplicaConfig *config)
{
    const TrainJob *job = p->job;
    int64_t count = dataset_info(job->train)->count, first;
    for (int slot = 0; slot < p->local; slot++) {
        int32_t n;
        shares_of(&job->shares, count, 0, p->first + slot, &first, &n);
        size_add(config->train_n, n);
        shares_of(&job->shares, count, job_batches_per_epoch(job) - 1, p->first + slot, &first, &n);
        size_add(config->train_n, n);
    }
    if (!job->test) return;
    int64_t tests = dataset_info(job->test)->count;
    if (tests >= job->eval_batch) size_add(config->eval_n, job->eval_batch);
    size_add(config->eval_n, (int32_t)(tests % job->eval_batch));
}

void process_config(const TowerProcess *p, ReplicaConfig *config)
{
    const TrainJob *job = p->job;
    bool cpu = !strcmp(job->backend->name, "cpu"); /* one device, whatever the rank */
    int ordinal = cpu ? 0 : job->gpu_count ? job->gpu[p->rank % job->gpu_count] : p->rank;
    *config = (ReplicaConfig){
        .backend = job->backend,
        .device = {.ordinal = ordinal,
                   .threads = job->threads,
                   .deterministic = job->deterministic,
                   .tf32 = job->tf32,
                   .winograd = job->winograd,
                   .direct_bf16 = job->direct_bf16},
        .program = job->program,
        .local = p->local,
        .optimizer = job->optimizer,
        .weight_decay = job->weight_decay,
        .decay_all = job->decay_all,
        .freeze = job->freeze,
        .ema = job->ema_decay > 0,
        .accumulate = job->accumulate > 1,
        .record = job->graphs && job->bn_stats != BN_STATS_SYNC, /* its sums go through the host */
        .seed = job->seed,
    };
    batch_sizes(p, config);
}

static Status replica_open(TowerProcess *p)
{
    const TrainJob *job = p->job;
    ReplicaConfig config;
    process_config(p, &config);
    Status made = replica_create(&config, &p->replica);
    if (made == ERR_MEMORY) return batch_explain(job, &config);
    TRY(made);
    for (int slot = 0; slot < p->local; slot++)
        if (job->shares.batch[p->first + slot])
            TRY(replica_statistics_over(p->replica, slot, job->shares.batch[p->first + slot]));
    const Program *any = p->replica->train[0].graph ? &p->replica->train[0] : &p->replica->eval[0];
    TRY(weight_map_create(p->replica->layout, any->graph, &p->map));
    size_t params = p->replica->layout->param_elements, states = p->replica->layout->state_elements;
    p->scratch = calloc((params > states ? params : states) + SUM_LANES, sizeof *p->scratch);
    return p->scratch ? OK : FAIL(ERR_MEMORY, "host copy of the weights (%zu MiB)", params * sizeof(float) >> 20);
}

static Status buckets_open(TowerProcess *p)
{
    const Layout *layout = p->replica->layout;
    size_t *ends = calloc((size_t)layout->param_count + 1, sizeof *ends);
    if (!ends) return FAIL(ERR_MEMORY, "bucket ends");
    for (int i = 0; i < layout->param_count; i++)
        ends[i] = i + 1 < layout->param_count ? layout->params[i + 1].first : layout->param_elements;
    size_t bytes = p->job->bucket_bytes;
    buckets_cut(ends, layout->param_count, layout->param_elements, bytes ? bytes : FIRST_BUCKET_BYTES,
                bytes ? bytes : BUCKET_BYTES, &p->buckets);
    free(ends);
    return OK;
}

size_t job_comm_room(const TrainJob *job, const Layout *layout)
{
    size_t room = layout->param_elements > layout->state_elements ? layout->param_elements : layout->state_elements;
    size_t tally = job->test ? (size_t)evaluate_floats(job) : 0;
    return (room > tally ? room : tally) + judge_lane_count(job->shares.towers) + norm_sync_floats(job, layout);
}

static Status comm_open(TowerProcess *p, CommShared *shared)
{
    CommConfig config = {
        .rank = p->rank,
        .ranks = p->job->processes,
        .first = p->first,
        .local = p->local,
        .towers = p->job->shares.towers,
        .max_count = job_comm_room(p->job, p->replica->layout),
        .timeout_ms = p->job->comm_timeout_ms + SUPERVISOR_FIRST_MS,
        .reduce = p->job->reduce_dtype,
        .gradients = p->replica->layout->param_elements,
        .ordered = p->job->reduce_ordered,
        .ctas = p->job->nccl_ctas,
    };
    TRY(comm_join(&config, shared, &p->replica->device, &p->comm));
    return comm_enlist(p->comm, p->replica->arena[ARENA_GRAD], config.gradients * sizeof(float));
}

static void loader_pin(TowerProcess *p, bool often)
{
    const Backend *backend = p->job->backend;
    void *memory;
    size_t bytes;
    for (int i = 0; p->loader && backend->pin && loader_pixels(p->loader, i, &memory, &bytes); i++)
        backend->pin(&p->replica->device, memory, bytes, often);
}

LoaderConfig process_loader(const TowerProcess *p)
{
    const TrainJob *job = p->job;
    return (LoaderConfig){
        .dataset = job->train,
        .shares = job->shares,
        .first_tower = p->first,
        .local = p->local,
        .seed = job->seed,
        .shuffle = true,
        .augment = job->augment,
        .flip = job->flip,
        .side = job->program.options.side,
        .pad = (job->program.canvas - job->program.options.side) / 2,
        .start_step = job_first_batch(job, p->run.step),
        .max_steps = job_first_batch(job, p->total_steps),
        .workers = job->workers,
        .depth = 2 * p->local + 2,
    };
}

static Status loader_open(TowerProcess *p)
{
    LoaderConfig config = process_loader(p);
    TRY(loader_create(&config, &p->loader));
    loader_pin(p, true);
    return OK;
}

Status process_restart_loader(TowerProcess *p)
{
    loader_pin(p, false);
    loader_destroy(p->loader);
    p->loader = NULL;
    return loader_open(p);
}

static Status records_open(TowerProcess *p, bool restored)
{
    if (p->rank != 0) return OK;
    char path[4096];
    TRY(metrics_open(p->job->run_dir, restored ? p->run.step : -1, p->job->event_interval, &p->metrics));
    snprintf(path, sizeof path, "%s/args.yaml", p->job->run_dir);
    TRY(file_replace(path, p->job->args_yaml, strlen(p->job->args_yaml)));
    snprintf(path, sizeof path, "%s/env.json", p->job->run_dir);
    TRY(file_replace(path, p->job->env_json, strlen(p->job->env_json)));
    char device[256] = "";
    p->job->backend->describe(&p->replica->device, device, sizeof device);
    TRY(metrics_log(p->metrics, "%s, %d towers in %d processes on %s, batch %lld, %lld steps of %lld an epoch",
                    p->job->program.model->name, p->job->shares.towers, p->job->processes, device,
                    (long long)shares_global(&p->job->shares), (long long)p->total_steps,
                    (long long)p->steps_per_epoch));
    for (int64_t n = 0; n < atomic_load(&p->ledger->run.notes) && n < LEDGER_NOTES; n++)
        TRY(metrics_log(p->metrics, "%s", p->ledger->run.note[n]));
    if (restored) TRY(metrics_log(p->metrics, "resumed after step %lld", (long long)p->run.step));
    return summary_start(p);
}

/* Where this run begins, for the console; `steps` last, for it says that the rest is there. */
static void run_tell(const TowerProcess *p)
{
    LedgerRun *run = &p->ledger->run;
    int64_t epochs = p->run.step / p->steps_per_epoch - (epoch_end_is_owed(p) ? 1 : 0);
    run->best_top1 = p->run.best_top1;
    atomic_store(&run->first_epoch, epochs);
    atomic_store(&run->epochs_done, epochs);
    atomic_store(&run->first_step, p->run.step);
    atomic_store(&run->step, p->run.step);
    atomic_store(&run->steps, p->total_steps);
}

static Status process_open(TowerProcess *p, CommShared *shared)
{
    bool restored;
    p->steps_per_epoch = job_steps_per_epoch(p->job);
    p->total_steps = job_total_steps(p->job);
    p->run.best_top1 = -1;
    straggler_start(&p->watch);
    TRY(replica_open(p));
    if (p->replica->train[0].plan) TRY(poison_check(&p->replica->train[0]));
    TRY(buckets_open(p));
    TRY(comm_open(p, shared));
    TRY(norm_sync_open(p));
    if (p->job->self_test) TRY(selftest_run(p));
    if (p->job->initial_weights) TRY(snapshot_load_weights(p, p->job->initial_weights));
    TRY(snapshot_restore(p, &restored));
    p->good_step = restored ? p->run.step : -1;
    TRY(steps_open(p));
    TRY(loader_open(p));
    TRY(records_open(p, restored));
    if (p->rank == 0) run_tell(p);
    return OK;
}

static void process_close(TowerProcess *p)
{
    loader_pin(p, false);
    loader_destroy(p->loader);
    metrics_close(p->metrics);
    weight_map_destroy(&p->map);
    comm_close(p->comm); /* it may use the replica's device */
    steps_close(p);
    replica_destroy(p->replica);
    norm_sync_close(p);
    free(p->scratch);
}

/* ---- the run */

static Status weights_write(TowerProcess *p, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", p->job->run_dir, name);
    return snapshot_export(p, path);
}

static double epoch_loss(const TowerProcess *p)
{
    if (p->job->divisor == LOSS_DIVISOR_GLOBAL_BATCH) return p->run.epoch_constant_sum / (double)p->steps_per_epoch;
    return p->run.epoch_count ? p->run.epoch_sum / (double)p->run.epoch_count : NAN;
}

static Status epoch_record(TowerProcess *p, int64_t epoch, const EvalResult *test, bool evaluated)
{
    const RunState *run = &p->run;
    double seconds = (double)(clock_ns() - p->epoch_started_ns) * 1e-9;
    EpochRecord rec = {
        .epoch = epoch,
        .step = run->step,
        .train_loss = epoch_loss(p),
        .train_top1 = run->epoch_count ? (double)run->epoch_hits / (double)run->epoch_count : NAN,
        .test_loss = evaluated ? test->loss : NAN,
        .test_top1 = evaluated ? (double)test->hits[0] / (double)test->count : NAN,
        .test_top5 = evaluated ? (double)test->hits[1] / (double)test->count : NAN,
        .lr = schedule_lr(&p->job->schedule, run->step - 1, p->steps_per_epoch, p->total_steps),
        .images_per_sec = (double)(run->epoch_count - p->epoch_count_before) / seconds,
        .seconds = seconds,
    };
    if (p->rank != 0) return OK;
    p->ledger->epoch[epoch % LEDGER_EPOCHS] = rec;
    if (evaluated) p->ledger->run.tested = rec;
    atomic_store(&p->ledger->run.epochs_done, epoch);
    return metrics_epoch(p->metrics, &rec);
}

/* Storage that refuses is no reason to end a run at once: it is told, and the next time may do better. Only rank 0
 * writes, so only rank 0 knows. */
static void storage_note(TowerProcess *p, const char *what)
{
    char why[LEDGER_MESSAGE];
    snprintf(why, sizeof why, "%s", status_message());
    ledger_note(p->ledger, "%s of step %lld was not written, training goes on: %s", what, (long long)p->run.step, why);
    if (metrics_log(p->metrics, "%s of step %lld was not written: %s", what, (long long)p->run.step, why) != OK) return;
}

static Status epoch_end(TowerProcess *p)
{
    const TrainJob *job = p->job;
    RunState *run = &p->run;
    int64_t epoch = (run->step + p->steps_per_epoch - 1) / p->steps_per_epoch;
    bool last = run->step == p->total_steps,
         wanted = job->eval_interval > 0 && (last || epoch % job->eval_interval == 0);
    bool evaluated = job->test && wanted, whole = true;
    EvalResult test = {0};
    if (evaluated) TRY(evaluate(p, &test, &whole));
    if (!whole) return OK;
    TRY(epoch_record(p, epoch, &test, evaluated));
    TRY(norm_drift_record(p));
    double top1 = evaluated && isfinite(test.loss) ? (double)test.hits[0] / (double)test.count : -1;
    run->epoch_sum = run->epoch_constant_sum = 0;
    run->epoch_count = run->epoch_hits = p->epoch_count_before = 0;
    p->epoch_started_ns = clock_ns();
    if (top1 <= run->best_top1) return OK;
    run->best_top1 = top1;
    run->best_step = run->step;
    if (p->rank == 0) p->ledger->run.best_top1 = top1;
    Status st = weights_write(p, "best.safetensors");
    if (st != ERR_IO) return st;
    storage_note(p, "best.safetensors");
    return OK;
}

static Status checkpoint_write(TowerProcess *p)
{
    bool finite = true, last = p->run.step == p->total_steps || p->stop;
    p->checkpoint_ns = clock_ns();
    if (p->job->nan_check != NAN_CHECK_OFF) TRY(forensics_state(p, &finite));
    if (!finite) {
        if (last)
            return FAIL(ERR_NUMERIC, "the run ends with numbers that are not finite after step %lld%s",
                        (long long)p->run.step, p->ledger->search.report);
        if (p->rank == 0)
            ledger_note(p->ledger, "what step %lld left is not finite: no checkpoint of it%s", (long long)p->run.step,
                        p->ledger->search.report);
        return OK;
    }
    Status st = snapshot_save(p);
    if (st == OK) {
        p->saves_failed = 0;
        p->good_step = p->run.step;
    }
    if (st != ERR_IO || last || ++p->saves_failed == SAVES_FAILED_MAX) return st;
    storage_note(p, "the checkpoint");
    return OK;
}

/* Rank 0's clock decides for all: the others follow its broadcast. */
static Status checkpoint_due(TowerProcess *p, bool epoch_ended, bool *due)
{
    const TrainJob *job = p->job;
    *due = p->run.step == p->total_steps || p->stop;
    *due |= job->checkpoint_steps > 0 ? p->run.step % job->checkpoint_steps == 0 : epoch_ended;
    if (*due || job->checkpoint_minutes <= 0 || p->run.step % 16) return OK;
    char now = (double)(clock_ns() - p->checkpoint_ns) > job->checkpoint_minutes * 60e9;
    TRY(comm_broadcast(p->comm, &now, 1, 0));
    *due = now;
    return OK;
}

/* What follows a step, and what a resumed run may still owe to its last one. Whoever looks at weights first waits for
 * the steps under way. */
static Status step_follow(TowerProcess *p)
{
    bool ended = epoch_ended(p), due;
    int64_t step = p->run.step;
    if (ended) TRY(steps_drain(p));
    if (!p->go_back) TRY(digest_check(p, ended)); /* what is saved has been compared */
    if (p->go_back || p->run.step != step) return OK;
    if (ended) TRY(epoch_end(p));
    TRY(checkpoint_due(p, ended, &due));
    if (due) TRY(steps_drain(p));
    if (due && !p->go_back) TRY(digest_check(p, true));
    return due && !p->go_back && p->run.step == step ? checkpoint_write(p) : OK;
}

static Status steps_run(TowerProcess *p)
{
    p->epoch_started_ns = p->checkpoint_ns = clock_ns();
    bool goes_back = p->job->nan_policy == NAN_POLICY_ROLLBACK || p->job->sdc_policy == SDC_POLICY_ROLLBACK;
    p->epoch_count_before = p->run.epoch_count;
    if (epoch_end_is_owed(p)) TRY(step_follow(p));
    if (goes_back && p->run.step == 0) TRY(checkpoint_write(p)); /* to go back to */
    while (p->run.step < p->total_steps && !p->stop) {
        TRY(step_run(p));
        TRY(step_follow(p));
        if (p->go_back) TRY(rollback_run(p, p->run.step + 1));
    }
    return OK;
}

Status process_log(TowerProcess *p, const char *format, ...)
{
    char line[LEDGER_MESSAGE];
    va_list args;
    if (!p->metrics) return OK;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    for (char *at = line; *at; at++)
        if (*at == '\n') *at = '|';
    return metrics_log(p->metrics, "%s", line);
}

/* A line of the log on the way out of a failure: that it could not be written must not hide the cause. */
static void stop_log(TowerProcess *p, const char *message, const char *more)
{
    if (process_log(p, "stopped: %s%s", message, more) != OK) return;
}

/* A refused step leaves every rank with the weights before it: if they are whole they are worth keeping, and all ranks
 * are here together. */
static Status keep_good_state(TowerProcess *p, Status cause)
{
    StatusText words;
    status_keep(&words);
    bool finite = false, moved = p->job->nan_check == NAN_CHECK_LAST; /* it looks after the update */
    Status st = forensics_state(p, &finite);
    if (st == OK && finite && !moved) st = snapshot_save(p);
    if (p->metrics) stop_log(p, words.message, st == OK ? "" : " (and no checkpoint could be written)");
    return status_restore(cause, &words);
}

/* Replicas that differ: which one could be saved is not known, so none is. */
static Status drift_stop(TowerProcess *p, Status cause)
{
    StatusText words;
    status_keep(&words);
    if (p->metrics) stop_log(p, words.message, "");
    return status_restore(cause, &words);
}

static Status process_run(TowerProcess *p)
{
    Status st = steps_run(p);
    if (st == ERR_NUMERIC && !p->drifted) return keep_good_state(p, st);
    if (p->drifted) return drift_stop(p, st);
    TRY(st);
    TRY(weights_write(p, "last.safetensors"));
    if (p->metrics) TRY(metrics_flush(p->metrics));
    for (int slot = 0; slot < p->local; slot++) ledger_phase(p->ledger, p->first + slot, p->run.step, PHASE_DONE);
    int stop = atomic_load(&p->ledger->run.stop_signal);
    if (p->stop && (p->run.step < p->total_steps || epoch_end_is_owed(p)))
        return FAIL(ERR_INTERRUPTED, "stopped by signal %d after step %lld; --resume auto continues", stop,
                    (long long)p->run.step);
    return OK;
}

static Status eval_open(TowerProcess *p, CommShared *shared)
{
    TRY(replica_open(p));
    TRY(comm_open(p, shared));
    return snapshot_load_weights(p, p->job->initial_weights);
}

static Status eval_process(TowerProcess *p, CommShared *shared)
{
    EvalResult result;
    bool whole;
    TRY(eval_open(p, shared));
    TRY(evaluate(p, &result, &whole));
    if (!whole) return FAIL(ERR_INTERRUPTED, "evaluation stopped by a signal");
    if (p->rank == 0) p->ledger->eval = result;
    return comm_barrier(p->comm);
}

static Status timed_process(TowerProcess *p, CommShared *shared)
{
    p->steps_per_epoch = job_steps_per_epoch(p->job);
    p->total_steps = job_total_steps(p->job);
    TRY(replica_open(p));
    TRY(buckets_open(p));
    TRY(comm_open(p, shared));
    TRY(norm_sync_open(p));
    TRY(steps_open(p));
    TRY(loader_open(p));
    int64_t before = clock_ns();
    while (p->done < p->total_steps && !p->stop) {
        int64_t done = p->done;
        bool last = p->run.step == p->total_steps || digest_is_due(p, false); /* nothing is begun before it is known */
        TRY(last && done < p->run.step ? step_take(p) : step_run(p));
        if (p->done == p->run.step) TRY(digest_check(p, false));
        if (p->done == done) continue;
        int64_t now = clock_ns();
        double loss = p->run.epoch_count ? p->run.epoch_sum / (double)p->run.epoch_count : NAN;
        p->run.epoch_sum = p->run.epoch_constant_sum = 0;
        p->run.epoch_count = p->run.epoch_hits = 0;
        if (p->rank == 0)
            p->job->on_step(p->job->on_step_context, p->ledger, p->done, (double)(now - before) * 1e-9, loss);
        before = now;
    }
    return p->stop ? FAIL(ERR_INTERRUPTED, "benchmark interrupted after step %lld", (long long)p->done) : OK;
}

static Status train_process(TowerProcess *p, CommShared *shared)
{
    TRY(process_open(p, shared));
    return process_run(p);
}

/* The common frame: a failure is written down for the supervisor, and the peers are released from their waiting. */
static Status process_live(const TrainJob *job, int rank, Ledger *ledger, CommShared *shared,
                           Status (*life)(TowerProcess *, CommShared *))
{
    int first = job_first_tower(job, rank);
    TowerProcess p = {
        .job = job, .ledger = ledger, .rank = rank, .first = first, .local = job_first_tower(job, rank + 1) - first};
    Status st = faults_load();
    if (st == OK) st = life(&p, shared);
    if (st != OK) {
        ledger_fail(ledger, rank, st);
        if (st != ERR_INTERRUPTED && st != ERR_NUMERIC) {
            comm_shared_abort(shared, rank);
            comm_abort(p.comm); /* a collective that peers will not join would hold back what is freed below */
        }
    }
    StatusText words;
    status_keep(&words);
    if (p.comm && comm_barrier(p.comm) != OK) comm_abort(p.comm); /* leave together: rank 0 may still be writing */
    process_close(&p);
    return st == OK ? OK : status_restore(st, &words);
}

Status tower_process_train(const TrainJob *job, int rank, Ledger *ledger, CommShared *shared)
{
    return process_live(job, rank, ledger, shared, train_process);
}

Status tower_process_eval(const TrainJob *job, int rank, Ledger *ledger, CommShared *shared)
{
    return process_live(job, rank, ledger, shared, eval_process);
}

Status tower_process_timed(const TrainJob *job, int rank, Ledger *ledger, CommShared *shared)
{
    return process_live(job, rank, ledger, shared, timed_process);
}
