/* bench --scaling: how much faster N towers are than one, and what causes each lost percent.
 *
 * Three runs alternate over several rounds, so that changes of the machine's speed affect all of them: one tower alone
 * on its device with its local batch; all towers on synthetic data; and, if a data set is given, all towers on
 * it. By the ledger's clocks a tower's step is data + computation + waiting for the last tower + all-reduce + update.
 * The time lost to a part is that by which it takes longer than with one tower alone:
 *   contention   the same computation is slower beside other towers (memory, caches, cores, clocks)
 *   skew         waiting for the tower that arrives last at the all-reduce
 *   reduction    from the last arrival to the gate's decision
 *   data         waiting for batches
 *   rest         update, bookkeeping
 * Intervals are Student's t over the rounds, paired within a round. */
#include "inception/commands/commands.h"
#include "inception/commands/speed.h"
#include "inception/options/settle.h"

#include "towers/files/json.h"

#include <sys/mman.h>

enum { ROUNDS = 6, LEAST_STEPS = 5, LEAST_WARMUP = 3 };

typedef enum Mode { MODE_ALONE = 0, MODE_TOGETHER, MODE_REAL, MODE_COUNT } Mode;
typedef enum ScalingPart {
    PART_DATA = 0,
    PART_COMPUTE,
    PART_SKEW,
    PART_REDUCE,
    PART_REST,
    PART_STEP,
    PART_COUNT
} ScalingPart;

/* Shared memory filled by rank 0's process: sums of seconds over the counted steps, averaged over towers. */
typedef struct ScalingTimes {
    int64_t warmup, count;
    double seconds, sum[PART_COUNT]; /* seconds: duration of the previous step */
} ScalingTimes;

/* Count the previous step, whose ledger rows are complete. */
static void step_seen(void *context, Ledger *ledger, int64_t step, double seconds, double loss)
{
    ScalingTimes *times = context;
    double part[PART_COUNT] = {0}, known = 0, of_step = times->seconds;
    int64_t last = 0;
    (void)loss;
    times->seconds = seconds;
    if (step - 1 <= times->warmup) return;
    for (int t = 0; t < ledger->towers; t++) {
        int64_t arrival = ledger_row(ledger, t, step - 1)->arrival_ns;
        if (arrival > last) last = arrival;
    }
    for (int t = 0; t < ledger->towers; t++) {
        const LedgerRow *row = ledger_row(ledger, t, step - 1);
        const int64_t *ns = row->activity_ns;
        double skew = (double)(last - row->arrival_ns) * 1e-9;
        part[PART_DATA] += (double)ns[ACTIVITY_DATA] * 1e-9;
        part[PART_COMPUTE] += (double)(ns[ACTIVITY_COPY] + ns[ACTIVITY_FORWARD] + ns[ACTIVITY_BACKWARD]) * 1e-9;
        part[PART_SKEW] += skew;
        part[PART_REDUCE] += (double)ns[ACTIVITY_REDUCE] * 1e-9 - skew;
    }
    for (int k = 0; k < PART_REST; k++) known += part[k] /= ledger->towers;
    part[PART_REST] = of_step - known;
    part[PART_STEP] = of_step;
    for (int k = 0; k < PART_COUNT; k++) times->sum[k] += part[k];
    times->count++;
}

static Status mode_run(const TrainJob *base, Mode mode, const Options *o, double means[PART_COUNT], int *signal_number)
{
    TrainJob job = *base;
    int64_t steps = o->batches / ROUNDS > LEAST_STEPS ? o->batches / ROUNDS : LEAST_STEPS,
            warmup = o->warmup_batches / ROUNDS > LEAST_WARMUP ? o->warmup_batches / ROUNDS : LEAST_WARMUP;
    ScalingTimes *times = mmap(NULL, sizeof *times, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (times == MAP_FAILED) return FAIL(ERR_MEMORY, "no memory for the times of a run: %s", strerror(errno));
    times->warmup = warmup;
    job.quiet = true;
    job.on_step = step_seen;
    job.on_step_context = times;
    job.epochs = job.max_steps = warmup + steps + 1; /* the last is not counted: its rows are incomplete */
    if (mode == MODE_ALONE) {
        job.local_batches.towers = job.processes = 1;
        job.test = NULL;
    }
    char name[SIGNAL_TEXT_BYTES];
    Status st = train_timed(&job, signal_number);
    if (st == OK && *signal_number) /* that came behind the last step: the runs that follow are not wanted */
        st = FAIL(ERR_INTERRUPTED, "stopped by %s", signal_text(*signal_number, name));
    for (int k = 0; st == OK && k < PART_COUNT; k++) means[k] = times->sum[k] / (double)times->count;
    munmap(times, sizeof *times);
    return st;
}

/* ---- statistics over the rounds */

typedef struct Interval {
    double mean, half; /* half width of the 95 % interval */
} Interval;

static Interval interval_of(const double x[ROUNDS])
{
    Estimate e = repeated_mean(x, ROUNDS, 0);
    return (Interval){e.mean, e.high - e.mean};
}

typedef struct Scaling {
    int towers;
    int64_t local_batch; /* samples per tower */
    bool real;
    double round[MODE_COUNT][ROUNDS][PART_COUNT]; /* means of one run in one round, in seconds per step */
} Scaling;

static Interval images_per_sec(const Scaling *s, Mode mode)
{
    double x[ROUNDS];
    int towers = mode == MODE_ALONE ? 1 : s->towers;
    for (int r = 0; r < ROUNDS; r++) x[r] = (double)(towers * s->local_batch) / s->round[mode][r][PART_STEP];
    return interval_of(x);
}

/* Percent of `mode`'s step by which a part is longer than with one tower alone. PART_STEP: the sum of all parts. */
static Interval lost(const Scaling *s, Mode mode, ScalingPart part)
{
    double x[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        const double *alone = s->round[MODE_ALONE][r], *all = s->round[mode][r];
        x[r] = 100 * (all[part] - alone[part]) / all[PART_STEP];
    }
    return interval_of(x);
}

static Interval milliseconds(const Scaling *s, Mode mode)
{
    double x[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) x[r] = 1000 * s->round[mode][r][PART_STEP];
    return interval_of(x);
}

typedef struct Loss {
    const char *name, *words;
    ScalingPart part;
} Loss;

static const Loss losses[] = {
    {"contention", "slower computation beside other towers", PART_COMPUTE},
    {"skew", "waiting for the slowest tower", PART_SKEW},
    {"reduction", "all-reduce after the last arrival", PART_REDUCE},
    {"data", "waiting for data", PART_DATA},
    {"rest", "update and bookkeeping", PART_REST},
};
enum { LOSSES = sizeof losses / sizeof *losses };

static void mode_print(const Scaling *s, Mode mode)
{
    Interval images = images_per_sec(s, mode), ms = milliseconds(s, mode), all = lost(s, mode, PART_STEP);
    char name[64];
    snprintf(name, sizeof name, mode == MODE_ALONE ? "one tower alone" : "%d towers%s", s->towers,
             mode == MODE_REAL ? ", real data" : "");
    text_printf(stdout, "  %-24s %9.1f +- %-7.1f images/s  %9.2f +- %-6.2f ms", name, images.mean, images.half, ms.mean,
                ms.half);
    if (mode != MODE_ALONE) printf("  %5.1f +- %.1f %% efficiency", 100 - all.mean, all.half);
    putchar('\n');
}

static void scaling_print(const Scaling *s, const TrainJob *job)
{
    text_printf(stdout,
                "Scaling of %s on %s, %" PRId64 " images per tower, %d thread%s each; %d rounds, 95 %% intervals\n\n",
                job->program.model->name, job->backend->name, s->local_batch, job->device.threads,
                job->device.threads == 1 ? "" : "s", ROUNDS);
    for (int m = 0; m < MODE_COUNT; m++)
        if (m != MODE_REAL || s->real) mode_print(s, (Mode)m);
    text_printf(stdout, "\n  %% of a step to    %-19s%s\n", s->real ? "synthetic data" : "",
                s->real ? "real data" : "");
    for (int i = 0; i < LOSSES; i++) {
        Interval a = lost(s, MODE_TOGETHER, losses[i].part), b = {0};
        text_printf(stdout, "    %-14s %+7.2f +- %-6.2f", losses[i].name, a.mean, a.half);
        if (s->real) b = lost(s, MODE_REAL, losses[i].part);
        if (s->real) printf(" %+7.2f +- %-6.2f", b.mean, b.half);
        text_printf(stdout, "  %s\n", losses[i].words);
    }
    if (!s->real) printf("\n  (add --data-path DIR to measure with real data)\n");
}

static json_t *interval_json(Interval x)
{
    return json_pack("{s:f, s:o}", "value", x.mean, "half_width", json_finite(x.half));
}

static json_t *mode_json(const Scaling *s, Mode mode)
{
    json_t *root = json_pack("{s:o, s:o}", "images_per_sec", interval_json(images_per_sec(s, mode)), "step_ms",
                             interval_json(milliseconds(s, mode)));
    if (mode == MODE_ALONE) return root;
    json_t *parts = json_object();
    for (int i = 0; i < LOSSES; i++)
        json_object_set_new(parts, losses[i].name, interval_json(lost(s, mode, losses[i].part)));
    json_object_set_new(root, "lost_percent", interval_json(lost(s, mode, PART_STEP)));
    json_object_set_new(root, "lost_percent_to", parts);
    return root;
}

static Status scaling_json(const Scaling *s, const TrainJob *job)
{
    json_t *root = json_pack("{s:s, s:s, s:i, s:I, s:i, s:i, s:o, s:o}", "model", job->program.model->name, "device",
                             job->backend->name, "towers", s->towers, "images_per_tower", (json_int_t)s->local_batch,
                             "threads", job->device.threads, "rounds", ROUNDS, "alone", mode_json(s, MODE_ALONE),
                             "together", mode_json(s, MODE_TOGETHER));
    if (s->real) json_object_set_new(root, "together_real_data", mode_json(s, MODE_REAL));
    return json_emit(root, JSON_COMPACT, stdout);
}

/* ---- the rounds */

static Status job_check(const TrainJob *job)
{
    if (job->local_batches.towers < 2)
        return FAIL(ERR_ARG, "--scaling compares one tower with several; use --towers 2 or more");
    if (job->processes != job->local_batches.towers)
        return FAIL(ERR_ARG,
                    "--scaling needs one process and device per tower, but there are %d towers in %d processes",
                    job->local_batches.towers, job->processes);
    for (int t = 1; t < job->local_batches.towers; t++)
        if (job->local_batches.batch[t] != job->local_batches.batch[0])
            return FAIL(ERR_ARG, "--scaling needs equal batch sizes, but tower %d has %d and tower 0 has %d", t,
                        job->local_batches.batch[t], job->local_batches.batch[0]);
    return OK;
}

Status scaling_run(const Options *o, JobFiles *files)
{
    Status st = OK;
    const TrainJob *job = &files->job;
    JobFiles real = {0};
    Options of_real;
    bool with_real = o->dataset == DATASET_FMNIST || option_is_set(o, "data-path");
    TRY(job_check(job));
    TRY(options_copy(o, &of_real)); /* a small set lowers its batch, which is not the synthetic job's */
    Scaling s = {.towers = job->local_batches.towers, .local_batch = job->local_batches.batch[0], .real = with_real};
    if (with_real) TRY_OUT(job_open(&of_real, 0, &real));
    real.job.test = NULL;
    const TrainJob *jobs[MODE_COUNT] = {job, job, with_real ? &real.job : NULL};
    for (int r = 0; r < ROUNDS; r++) {
        for (int m = 0; m < MODE_COUNT; m++)
            if (jobs[m]) TRY_OUT(mode_run(jobs[m], (Mode)m, o, s.round[m][r], &files->ending.signal));
        if (!o->quiet) fprintf(stderr, "round %d of %d\n", r + 1, ROUNDS);
    }
    if (o->json)
        TRY_OUT(scaling_json(&s, job));
    else
        scaling_print(&s, job);
out:
    job_close(&real);
    options_close(&of_real);
    return st;
}
