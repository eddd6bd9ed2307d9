/* towers lr-find, and train --lr auto: the learning-rate range test (Smith, "Cyclical Learning Rates", 2017). The rate
 * grows exponentially from step to step; the mean loss of all towers is smoothed with bias correction; the suggestion is
 * the rate at which it falls most steeply per step, before its minimum and after the first tenth of the steps. The sweep
 * ends early when the smoothed loss exceeds four times its minimum or is not finite.
 *
 * The sweep runs in tower processes of its own, which end with it. Nothing that a run starts from is touched, so a run
 * with --lr auto has the bits of a run that is given the rate that was found. */
#include "inception/commands/commands.h"

#include "inception/commands/restored_norms.h"
#include "inception/job/hosts.h"
#include "inception/job/notes.h"
#include "inception/options/settle.h"
#include "towers/files/json.h"
#include "towers/guard/memory_check.h"
#include "towers/store/pretrained.h"

#include <sys/mman.h>

static const double TOO_HIGH = 4;
enum { COLUMNS = 64, ROWS = 12, DELAY_MOST = 9 };

/* The steps by which the smoothed loss lags, s / (1 - s): at most a tenth of them, or the smoothing of the first steps would hide
 * where the loss falls. */
static int64_t smoothing_delay(int64_t steps)
{
    return steps / 10 < DELAY_MOST ? steps / 10 : DELAY_MOST;
}

static double smoothing_of(int64_t steps)
{
    double delay = (double)smoothing_delay(steps);
    return delay / (delay + 1);
}

/* Every process has its own, and finds the same end; `result`, in shared memory, is that of the program's first process. */
typedef struct RateSweep {
    size_t bytes;
    struct RateSweep *result;
    const TrainJob *job; /* borrowed; at the same address in every process */
    int64_t count;       /* steps with a finite smoothed loss */
    int64_t begun;       /* the first step with a loss */
    bool ended;          /* later steps do not count */
    double average, best;
    int64_t pick;      /* index of the suggestion; -1: none */
    double smoothed[]; /* [steps], then the losses [steps] */
} RateSweep;

static double sweep_rate(const RateSweep *s, int64_t i)
{
    return schedule_lr(&s->job->schedule, i, 1, s->job->max_steps);
}

static bool step_seen(void *context, bool leads, int64_t step, double loss)
{
    RateSweep *s = context;
    if (s->ended) return false;
    double *losses = s->smoothed + s->job->max_steps;
    if (is_absent(loss) && !s->begun)
        return true; /* its gradients overflowed the loss scale, as those of all before it */
    if (is_absent(loss)) loss = losses[step - 2];
    if (!s->begun) s->begun = step;
    for (int64_t i = s->begun == step ? 0 : step - 1; i < step; i++) losses[i] = loss;
    double old = smoothing_of(s->job->max_steps);
    s->average = old * s->average + (1 - old) * loss;
    double smooth = s->average / (1 - pow(old, (double)(step - s->begun + 1)));
    for (int64_t i = s->begun == step ? 0 : step - 1; i < step; i++) s->smoothed[i] = smooth;
    if (step == s->begun || smooth < s->best) s->best = smooth;
    if (isfinite(smooth)) s->count = step;
    s->ended = !isfinite(smooth) || smooth > TOO_HIGH * s->best;
    if (leads) memcpy(s->result, s, s->bytes);
    return !s->ended;
}

/* The step of the steepest fall before the minimum, by central differences, less what smoothing delays the curve by. What
 * comes after the minimum is chaotic, and differs with each rounding. */
static int64_t pick_find(const double *smoothed, int64_t count, int64_t steps)
{
    int64_t pick = -1, lowest = 0, delay = smoothing_delay(steps);
    double least = 0;
    for (int64_t i = 1; i < count; i++)
        if (smoothed[i] < smoothed[lowest]) lowest = i;
    for (int64_t i = steps / 10 + delay; i < lowest; i++) {
        double slope = (smoothed[i + 1] - smoothed[i - 1]) / 2;
        if (slope < least) least = slope, pick = i - delay;
    }
    return pick;
}

/* Errors: those of training, except for what a rate that is too high causes. */
static Status sweep_run(const Options *o, JobFiles *files, RateSweep **made)
{
    TrainJob *job = &files->job;
    if (job->program.model->phases)
        return FAIL(ERR_UNSUPPORTED, "the losses of %s's phases do not show which learning rate is best; give --lr",
                    job->program.model->name);
    if (o->lr_to <= o->lr_from)
        return FAIL(ERR_ARG, "--lr-to %g is not above --lr-from %g, but the sweep rises from one to the other",
                    o->lr_to, o->lr_from);
    if (hosts_lead(files)) TRY(pretrained_check(&job->program, job->initial_weights, job->reset_head, NULL));
    TRY(memory_check(job));
    job->max_steps = job->epochs = o->lr_steps;
    job->schedule = (Schedule){.kind = SCHEDULE_EXPONENTIAL, /* by a factor in each step */
                               .lr = o->lr_from,
                               .decay_rate = pow(o->lr_to / o->lr_from, 1 / (double)(o->lr_steps - 1)),
                               .decay_epochs = 1,
                               .epoch_steps = 1};
    size_t bytes = sizeof(RateSweep) + 2 * (size_t)o->lr_steps * sizeof(double);
    RateSweep *own = calloc(1, bytes),
              *s = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!own || s == MAP_FAILED) {
        free(own);
        if (s != MAP_FAILED) munmap(s, bytes);
        return FAIL(ERR_MEMORY, "no memory for the losses of %" PRId64 " steps", o->lr_steps);
    }
    *own = *s = (RateSweep){.bytes = bytes, .result = s, .job = job};
    job->goes_on = step_seen;
    job->on_step_context = own;
    job->quiet = true;
    job->nan_policy = NAN_POLICY_STOP; /* a rate that is too high ends the sweep */
    job->report = LOSS_REPORT_MEAN;
    Status st = train_timed(job, &files->ending.signal);
    free(own);
    if (st == OK && !s->count)
        st = FAIL(ERR_NUMERIC, "the loss of the first step, at rate %g, is not finite", o->lr_from);
    s->pick = pick_find(s->smoothed, s->count, o->lr_steps);
    if (st == OK)
        *made = s;
    else
        munmap(s, bytes);
    return st;
}

/* ---- the result */

static json_t *sweep_json(const RateSweep *s)
{
    json_t *rates = json_array(), *losses = json_array(), *smoothed = json_array();
    for (int64_t i = 0; i < s->count; i++) {
        json_array_append_new(rates, json_finite(sweep_rate(s, i)));
        json_array_append_new(losses, json_finite(s->smoothed[s->job->max_steps + i]));
        json_array_append_new(smoothed, json_finite(s->smoothed[i]));
    }
    return json_pack("{s:o, s:s, s:i, s:I, s:I, s:o, s:o, s:o}", "suggestion",
                     json_finite(s->pick < 0 ? ABSENT : sweep_rate(s, s->pick)), "model", s->job->program.model->name,
                     "towers", s->job->local_batches.towers, "global_batch",
                     (json_int_t)global_batch_of(&s->job->local_batches), "steps", (json_int_t)s->count, "lr", rates,
                     "loss", losses, "smoothed", smoothed);
}

/* Columns are steps, that is logarithms of rates; losses above what the sweep began with are cut. */
static void curve_print(const RateSweep *s, FILE *to)
{
    char grid[ROWS][COLUMNS + 1];
    double low = INFINITY, high = -INFINITY;
    for (int64_t i = 0; i < s->count; i++) low = fmin(low, s->smoothed[i]);
    for (int64_t i = 0; i <= s->count / 2; i++) high = fmax(high, s->smoothed[i]);
    for (int r = 0; r < ROWS; r++) memset(grid[r], ' ', COLUMNS), grid[r][COLUMNS] = 0;
    for (int64_t i = 0; i < s->count; i++) {
        double part = high > low ? (high - fmin(high, s->smoothed[i])) / (high - low) : 0;
        int column = (int)(i * (COLUMNS - 1) / (s->count > 1 ? s->count - 1 : 1)), row = (int)(part * (ROWS - 1) + 0.5);
        char *cell = &grid[row][column];
        *cell = i == s->pick || *cell == 'O' ? 'O' : '*';
    }
    for (int r = 0; r < ROWS; r++) text_printf(to, "%9.4f |%s\n", high - (high - low) * r / (ROWS - 1), grid[r]);
    text_printf(to, "%9s +%.*s\n", "loss", COLUMNS, "----------------------------------------------------------------");
    text_printf(to, "%9s  %-*.3g%*.3g  learning rate\n", "", COLUMNS / 2, sweep_rate(s, 0), COLUMNS / 2,
                sweep_rate(s, s->count - 1));
}

static Status suggestion_check(const RateSweep *s)
{
    if (s->pick >= 0) return OK;
    return FAIL(ERR_NUMERIC,
                "the loss did not fall at any rate between %g and %g (%" PRId64
                " steps): use other --lr-from and --lr-to, or more --lr-steps",
                sweep_rate(s, 0), sweep_rate(s, s->job->max_steps - 1), s->count);
}

/* ---- the command, and --lr auto */

Status lr_find_open(Options *o, JobFiles *files)
{
    TRY(hosts_meet(o, o->comm_timeout, false, files));
    Verb verb = options_serve(o, VERB_TRAIN);      /* the job is that of training */
    option_settle_real(o, OPTION_ID_lr, o->lr_to); /* the highest, for checks */
    Status st = job_open(o, 0, files);
    if (st == OK) st = restored_norms_measure(o, files);
    options_serve(o, verb);
    return st;
}

Status lr_find_command(const Options *o, JobFiles *files, FILE *to)
{
    RateSweep *s;
    bool leads = hosts_lead(files), text = leads && !o->json;
    TRY(hosts_compare(o, files));
    if (!o->quiet && leads) text_print(stderr, files->notes);
    TRY(sweep_run(o, files, &s));
    if (text) curve_print(s, to);
    Status st = leads && o->json ? json_emit(sweep_json(s), JSON_COMPACT, to) : OK;
    if (st == OK && leads) st = suggestion_check(s);
    if (st == OK && text)
        text_printf(to,
                    "suggestion: --lr %.3g (O: where the loss falls most steeply, step %" PRId64 " of %" PRId64 ")\n",
                    sweep_rate(s, s->pick), s->pick + 1, s->count);
    munmap(s, s->bytes);
    return st;
}

Status lr_auto(Options *o, JobFiles *files)
{
    Status st = OK;
    bool leads = hosts_lead(files);
    JobFiles probe = {.control = files->control, .carrier = files->carrier, .launch = files->launch};
    RateSweep *s = NULL;
    char name[SIGNAL_TEXT_BYTES];
    if (o->sched == SCHEDULE_PIECEWISE)
        return FAIL(ERR_ARG, "--lr auto has no effect with --sched piecewise, whose rates are those of --lr-schedule");
    option_settle_real(o, OPTION_ID_lr, o->lr_to); /* the highest, for checks */
    hosts_join(&probe);
    TRY_OUT(job_open(o, 0, &probe));
    TRY_OUT(restored_norms_measure(o, &probe));
    TRY_OUT(hosts_compare(o, &probe));
    TRY_OUT(sweep_run(o, &probe, &s));
    if (probe.ending.signal) /* that came behind its last step: the run that follows is not wanted */
        TRY_OUT(FAIL(ERR_INTERRUPTED, "stopped by %s", signal_text(probe.ending.signal, name)));
    TRY_OUT(suggestion_check(s));
    double lr = sweep_rate(s, s->pick);
    if (probe.control) control_again(probe.control); /* for the run */
    if (!o->quiet && leads)
        text_printf(stderr, "--lr auto: %.3g, from %" PRId64 " steps with rates between %g and %g\n", lr, s->count,
                    o->lr_from, sweep_rate(s, s->count - 1));
    if (o->lr_reference_batch > 0) /* which it will be multiplied by */
        lr *=
            (double)o->lr_reference_batch / (double)(global_batch_of(&probe.job.local_batches) * probe.job.accumulate);
    option_settle_real(o, OPTION_ID_lr, lr);
    settled_notes_pass(&probe, files);
    json_t *root = sweep_json(s);
    files->lr_curve = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    if (!files->lr_curve) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the curve of the learning rate"));
out:
    if (s) munmap(s, s->bytes);
    files->ending.signal = probe.ending.signal;
    probe.control = NULL; /* they are the run's */
    probe.carrier = NULL;
    job_close(&probe);
    return st;
}
