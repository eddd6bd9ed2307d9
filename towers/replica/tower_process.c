/* Shared functions of a tower process: settings derived from the job, the log, the position in the epoch. */
#include "towers/replica/tower_process.h"
#include "kernels/base/progress.h"
#include "kernels/base/timeouts.h"
#include "towers/replica/hooks.h"

/* ---- settings */

static void size_add(int32_t *sizes, int32_t n)
{
    if (n < 1) return;
    while (*sizes && *sizes != n) sizes++;
    *sizes = n;
}

/* Every batch size of training that this process will use: full local batches and those of the short last batch. */
static void train_sizes(const TrainJob *job, const Placement *place, int32_t *sizes)
{
    int64_t count = source_info(job->train)->count, first;
    for (int local = 0; local < place->local_towers; local++) {
        int32_t n;
        local_batch_of(&job->local_batches, count, 0, place->first_tower + local, &first, &n);
        size_add(sizes, n);
        local_batch_of(&job->local_batches, count, job_batches_per_epoch(job) - 1, place->first_tower + local, &first,
                       &n);
        size_add(sizes, n);
    }
    size_add(sizes, sizes[0] ? 0 : 1); /* empty towers: the layout and the names of terms */
}

static void eval_sizes(const TrainJob *job, int32_t *sizes)
{
    if (!job->test) return;
    int64_t tests = source_info(job->test)->count;
    if (tests >= job->eval_batch) size_add(sizes, job->eval_batch);
    size_add(sizes, (int32_t)(tests % job->eval_batch));
}

Status process_config(const TrainJob *job, const Placement *place, ReplicaConfig *config, int32_t **sizes)
{
    /* A full and a short batch for each tower, and for evaluation; behind either a 0. */
    size_t trains = 2 * (size_t)place->local_towers + 1, evals = 3;
    int32_t *made = calloc(trains + evals, sizeof *made);
    if (!made) return FAIL(ERR_MEMORY, "no memory for the batch sizes of %d towers", place->local_towers);
    train_sizes(job, place, made);
    eval_sizes(job, made + trains);
    *config = (ReplicaConfig){
        .backend = job->backend,
        .device = job_device(job, place->local_rank),
        .program = job->program,
        .local = place->local_towers,
        .train_n = made,
        .eval_n = made + trains,
        .optimizer = job->optimizer,
        .weight_decay = job->weight_decay,
        .decay_all = job->decay_all,
        .rates = job->rates,
        .rate_count = job->rate_count,
        .unfrozen = job->unfrozen,
        .ema = job->gate.ema_decay > 0,
        .accumulate = job->accumulate > 1,
        .capture = job->graphs,
        .seed = job->seed,
        .sum = job_comm(job, *place),
    };
    if (job->near_cores) config->device.near_cores = job->data.workers + 1; /* threads that are busy */
    *sizes = made;
    return OK;
}

LoaderConfig process_loader(const TowerProcess *p)
{
    LoaderConfig config = job_loader(p->job, true);
    config.local_batches = p->job->local_batches;
    config.first_tower = p->place.first_tower;
    config.local = p->place.local_towers;
    config.start_step = job_first_batch(p->job, p->run.step);
    config.max_steps = job_batches_before(p->job, p->total_steps);
    config.depth = LOADER_DEPTH(p->place.local_towers);
    return config;
}

/* ---- activities */

void tower_activity(TowerProcess *p, int local, int64_t step, Activity activity)
{
    int tower = p->place.first_tower + local;
    errno = 0; /* if a library crashes in this activity, errno tells whether it ran out of memory (process.c) */
    ledger_activity(p->ledger, tower, step, activity);
    if (run_hooks) run_hooks->activity(tower, step, activity);
}

/* A process that has waited long for storage says so when it goes on. */
static void wait_report(TowerProcess *p, int64_t step)
{
    double seconds = (double)progress_waited() * 1e-9;
    char who[64];
    if (seconds * 1000 < STORAGE_REPORT_MS) return;
    towers_text(p->job, p->place.rank, who, sizeof who);
    ledger_note(p->ledger, "%s: waited for storage for %.0f s (step %" PRId64 ")", who, seconds, step);
    process_log(p, "%s: waited for storage for %.0f s (step %" PRId64 ")", who, seconds, step);
}

void process_activity(TowerProcess *p, int64_t step, Activity activity)
{
    wait_report(p, step);
    for (int local = 0; local < p->place.local_towers; local++) tower_activity(p, local, step, activity);
}

/* ---- messages */

void towers_text(const TrainJob *job, int rank, char *text, size_t bytes)
{
    Placement place = job_placement(job, rank);
    if (place.local_towers == 1)
        snprintf(text, bytes, "tower %d", place.first_tower);
    else
        snprintf(text, bytes, "towers %d..%d (process %d)", place.first_tower,
                 place.first_tower + place.local_towers - 1, rank);
}

void process_log(TowerProcess *p, const char *format, ...)
{
    char line[LEDGER_MESSAGE];
    va_list args;
    if (!p->metrics) return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    for (char *at = line; *at; at++)
        if (*at == '\n') *at = '|';
    metrics_log(p->metrics, "%s", line);
}

void storage_note(TowerProcess *p, const char *what, int64_t step)
{
    char why[LEDGER_MESSAGE];
    snprintf(why, sizeof why, "%s", status_message());
    ledger_note(p->ledger, "%s of step %" PRId64 " was not written, training continues: %s", what, step, why);
    process_log(p, "%s of step %" PRId64 " was not written: %s", what, step, why);
}

/* ---- position in the epoch */

void run_state_clear(RunState *run)
{
    *run = (RunState){.stopping = {.best = ABSENT, .last = ABSENT, .plateau_best = ABSENT, .plateau_lr = ABSENT}};
    for (int i = 0; i < SCORES; i++) run->best[i] = ABSENT;
}

double process_lr(const TowerProcess *p, int64_t step)
{
    Schedule schedule = p->job->schedule;
    schedule.plateau_lr = p->run.stopping.plateau_lr;
    /* p->total_steps would be that of a run which --stop-epoch or --patience has ended. */
    return schedule_lr(&schedule, step, p->steps_per_epoch, job_total_steps(p->job));
}

bool epoch_ended(const TowerProcess *p)
{
    return p->run.step % p->steps_per_epoch == 0 || p->run.step == p->total_steps;
}

bool epoch_end_is_owed(const TowerProcess *p)
{
    return epoch_ended(p) && p->run.epoch_told != p->run.step;
}

int64_t last_line_kept(const TowerProcess *p)
{
    return 2 * p->run.step + !epoch_end_is_owed(p);
}

/* Of older checkpoints, which do not know their seconds, the speed is that of the samples since. */
void epoch_clock_start(TowerProcess *p)
{
    p->epoch_started_ns = clock_ns() - (int64_t)(p->run.epoch_seconds * 1e9);
    p->epoch_count_before = p->run.epoch_seconds > 0 ? 0 : p->run.epoch_count;
}

bool rollback_leaves_out(const RunState *run, int64_t step)
{
    for (int64_t i = 0; i < run->rollbacks; i++)
        if (run->left_out[i] == step) return true;
    return false;
}
