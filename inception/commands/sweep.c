/* towers sweep: many runs of one model, each an ordinary `towers train` in a process of its own, and their ranking.
 *
 * What has been done is read from the run directories, so a sweep that was killed continues when the command is given
 * again: a run continues from its checkpoint, exactly, and one that is complete stays. sweep.json only remembers the
 * settings, so that a changed file is refused. A run that fails is a row of the table. No run is ever deleted.
 *
 * Successive halving without waiting (ASHA; Li et al., "A System for Massively Parallel Hyperparameter Tuning", 2020): a
 * free place takes, from the highest rung down, a setting that is among the best 1/R of those that have completed the
 * rung, and lets it continue to the next; if there is none, it begins a new setting. A rung continues a run by --resume
 * with a larger --stop-epoch, so the schedule is that of the whole run from its first step. */
#include "inception/commands/commands.h"

#include "inception/commands/sweep_plan.h"
#include "inception/options/conditions.h"
#include "inception/options/settle.h"
#include "inception/report/runs.h"
#include "kernels/base/open.h"
#include "kernels/base/timeouts.h"
#include "towers/files/files.h"
#include "towers/files/json.h"
#include "towers/store/run_dir.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { ARGUMENTS = SWEEP_DIMENSIONS + SWEEP_FIXED + 16, PARALLEL_MOST = 256, FORCE_SIGNALS = 2 };

typedef struct SweepRun {
    SweepRow row;   /* what the table shows */
    pid_t pid;      /* 0: it does not run */
    int place;      /* of the machine's parts, while it runs */
    int64_t target; /* epochs to which it was started */
    int64_t begun;  /* epochs of which it has records, be they of a few steps */
    bool settled;   /* its outcome is written: one that was killed after the last epoch's row may lack its weights */
    bool ended;     /* it cannot come further: finished, or ended early by its own rules */
} SweepRun;

typedef struct Sweep {
    const Options *options; /* borrowed */
    SweepPlan *plan;        /* owned, as the next two */
    SweepRun *run;          /* [settings][repeats] */
    int *rung;              /* [settings]: the rung to which it is trained; -1: not begun */
    char folder[PATH_BYTES];
    bool place[PARALLEL_MOST]; /* taken */
    int running;
    int signal, signals; /* the first stop signal, and how many there were */
} Sweep;

static SweepRun *run_at(const Sweep *s, int setting, int repeat)
{
    return &s->run[setting * s->plan->repeats + repeat];
}

/* ---- what the run directories say */

/* The last line of the run's log that reports an error. */
static void log_error(const Sweep *s, const SweepRun *run, char why[RUN_WHY_ROOM])
{
    char path[PATH_BYTES], name[RUN_NAME_ROOM + 8], *text = NULL;
    size_t bytes = 0;
    snprintf(name, sizeof name, "%s.log", run->row.run.name);
    if (path_join(path, s->folder, name) != OK || file_read(path, 1 << 26, &text, &bytes) != OK) return;
    for (const char *at = text; (at = strstr(at, "error: ")); at++)
        if (at == text || at[-1] == '\n') snprintf(why, RUN_WHY_ROOM, "%.*s", (int)strcspn(at + 7, "\n"), at + 7);
    free(text);
}

/* Read the records of a run: epochs, state, and its best score up to the end of each rung. */
static void run_refresh(const Sweep *s, SweepRun *run)
{
    char path[PATH_BYTES], name[RUN_NAME_ROOM];
    Run *records = NULL;
    memcpy(name, run->row.run.name, sizeof name);
    if (path_join(path, s->folder, name) != OK || !is_run(path)) return;
    if (run_read(path, RUN_BYTES, &records) != OK) records = NULL;
    run_row_of(records, path, name, &run->row.run);
    run->row.epochs = records && records->epochs ? records->epoch[records->epochs - 1].epoch : 0;
    run->begun = records && records->steps ? (int64_t)records->step[records->steps - 1].epoch + 1 : 0;
    for (int k = 0; k < s->plan->rungs; k++) {
        run->row.score[k] = ABSENT;
        run->row.kind[k] = NOT_SCORED;
        if (records) run_score(records, s->plan->rung[k], &run->row.kind[k], &run->row.score[k]);
    }
    free(run->row.epoch);
    run->row.epoch = records ? records->epoch : NULL;
    run->row.epoch_count = records ? records->epochs : 0;
    if (records) records->epoch = NULL;
    run_destroy(records);
    json_t *outcome = json_of_run(path, "outcome.json");
    const char *word = json_word_or_empty(outcome, "outcome");
    run->row.failed = !strcmp(word, "failed");
    bool early = !strcmp(word, "ended early"), finished = !strcmp(word, "finished");
    run->settled = finished || early;
    run->ended = finished || (!s->plan->halving && early);
    json_decref(outcome);
}

/* ---- settings */

static bool run_complete(const Sweep *s, const SweepRun *run, int rung)
{
    return !run->pid && (run->row.failed || run->ended || (run->settled && run->row.epochs >= s->plan->rung[rung]));
}

static bool setting_complete(const Sweep *s, int setting, int rung)
{
    for (int r = 0; r < s->plan->repeats; r++)
        if (!run_complete(s, run_at(s, setting, r), rung)) return false;
    return true;
}

/* The mean score of a setting at a rung; false if no repetition has one. */
static bool setting_score(const Sweep *s, int setting, int rung, SweepScore *score)
{
    const SweepRow *rows[SWEEP_MOST];
    for (int r = 0; r < s->plan->repeats; r++) rows[r] = &run_at(s, setting, r)->row;
    *score = sweep_score(rows, s->plan->repeats, rung);
    return score->count > 0;
}

/* The best setting of those that have completed this rung, belongs to their best 1/R and has not gone on; -1: none. */
static int promotable(const Sweep *s, int rung)
{
    int complete = 0, above = 0, best = -1;
    SweepScore top = {.kind = NOT_SCORED}, one;
    for (int i = 0; i < s->plan->settings; i++) {
        if (s->rung[i] < rung || (s->rung[i] == rung && !setting_complete(s, i, rung))) continue;
        complete++;
        if (s->rung[i] > rung || !setting_score(s, i, rung, &one)) continue;
        if (best < 0 || run_scores_better(one.kind, one.mean, top.kind, top.mean)) best = i, top = one;
    }
    for (int i = 0; best >= 0 && i < s->plan->settings; i++) /* those that rank before it, gone on or not */
        above += s->rung[i] > rung && setting_score(s, i, rung, &one) &&
                 !run_scores_better(top.kind, top.mean, one.kind, one.mean);
    return best >= 0 && above < complete / s->plan->halving ? best : -1;
}

static SweepRun *run_due(const Sweep *s, int setting)
{
    for (int r = 0; r < s->plan->repeats; r++) {
        SweepRun *run = run_at(s, setting, r);
        if (!run->pid && !run_complete(s, run, s->rung[setting])) return run;
    }
    return NULL;
}

/* The next run to start, and the rung to which it goes; NULL: none now. */
static SweepRun *run_next(Sweep *s, int *rung)
{
    SweepRun *run = NULL;
    int pick = -1;
    for (int i = 0; i < s->plan->settings && !run; i++)
        if (s->rung[i] >= 0 && (run = run_due(s, i))) pick = i;
    while (!run) { /* one that has ended by its own rules rises without a run */
        pick = -1;
        for (int k = s->plan->rungs - 2; k >= 0 && pick < 0; k--) pick = promotable(s, k);
        for (int i = 0; i < s->plan->settings && pick < 0; i++)
            if (s->rung[i] < 0) pick = i;
        if (pick < 0) return NULL;
        s->rung[pick]++;
        run = run_due(s, pick);
    }
    *rung = s->rung[pick];
    return run;
}

/* Finds how far each setting of a sweep that continues had been sent. A run with steps behind the epoch of a rung was sent
 * beyond that rung: told to end there once more, it would end within its epoch. */
static void rungs_find(Sweep *s)
{
    char path[PATH_BYTES];
    for (int i = 0; i < s->plan->settings; i++) {
        s->rung[i] = -1;
        for (int r = 0; r < s->plan->repeats; r++) {
            SweepRun *run = run_at(s, i, r);
            int k = 0;
            run_refresh(s, run);
            if (path_join(path, s->folder, run->row.run.name) != OK || !is_run(path)) continue;
            while (k + 1 < s->plan->rungs && s->plan->rung[k] < run->begun) k++;
            if (k > s->rung[i]) s->rung[i] = k;
        }
    }
}

/* ---- a run as a process */

typedef struct Arguments {
    char *argument[ARGUMENTS]; /* owned */
    int count;
} Arguments;

__attribute__((format(printf, 2, 3))) static void argument_add(Arguments *a, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (a->count < ARGUMENTS - 1 && vasprintf(&a->argument[a->count], format, args) >= 0) a->count++;
    va_end(args);
}

/* The part of the GPUs that belongs to a place; nothing on CPUs. */
static void gpus_add(const Sweep *s, int place, Arguments *a)
{
    const Backend *backend;
    int devices = 0, parallel = (int)s->options->parallel;
    char list[1024] = "";
    Text text = text_start(list, sizeof list);
    if (backend_find("cuda", &backend, NULL, 0) != OK || backend_device_count(backend, &devices) != OK || parallel < 2)
        return;
    for (int k = 0; k < s->plan->fixes; k++)
        if (s->plan->fixed[k].id == OPTION_ID_gpus || s->plan->fixed[k].id == OPTION_ID_device) return;
    int share = devices > parallel ? devices / parallel : 1;
    for (int k = 0; k < share && devices > 0; k++) text_add(&text, "%s%d", k ? "," : "", (place * share + k) % devices);
    if (*list) argument_add(a, "--gpus=%s", list);
}

static void arguments_make(const Sweep *s, int setting, int repeat, int rung, int place, Arguments *a)
{
    const SweepPlan *plan = s->plan;
    char text[SWEEP_VALUE];
    *a = (Arguments){0};
    argument_add(a, "towers");
    argument_add(a, "train");
    argument_add(a, "%s", plan->model);
    for (int k = 0; k < plan->fixes; k++)
        argument_add(a, "--%s%s=%s", plan->fixed[k].negated ? "no-" : "", option_info(plan->fixed[k].id)->flag,
                     plan->fixed[k].value);
    for (int d = 0; d < plan->dimensions; d++)
        argument_add(a, "--%s=%s", option_info(plan->dimension[d].id)->flag,
                     sweep_value(plan, setting, repeat, d, text));
    gpus_add(s, place, a);
    if (plan->halving) argument_add(a, "--stop-epoch=%" PRId64, rung + 1 < plan->rungs ? plan->rung[rung] : INT64_C(0));
    argument_add(a, "--output-dir=%s", s->folder);
    argument_add(a, "--experiment=%s", run_at(s, setting, repeat)->row.run.name);
    argument_add(a, "--resume=auto");
}

static void arguments_free(Arguments *a)
{
    for (int k = 0; k < a->count; k++) free(a->argument[k]);
}

/* In the child: the cores of its place, its log in place of the terminal, no signals of the terminal. It ends, after
 * saving, with the sweep. */
static void child_become(const Sweep *s, const SweepRun *run, const Arguments *a, const cpu_set_t *cores,
                         const sigset_t *mask, pid_t parent)
{
    char path[PATH_BYTES], name[RUN_NAME_ROOM + 8];
    snprintf(name, sizeof name, "%s.log", run->row.run.name);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    close(STDIN_FILENO); /* main opens /dev/null in its place */
    int log = path_join(path, s->folder, name) == OK
                  ? regular_open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, NULL)
                  : -1;
    if (getppid() != parent || log < 0 || setpgid(0, 0) != 0) _exit(1);
    if (dup2(log, STDOUT_FILENO) < 0 || dup2(log, STDERR_FILENO) < 0 || close(log) != 0) _exit(1);
    if (CPU_COUNT(cores)) (void)sched_setaffinity(0, sizeof *cores, cores);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execv("/proc/self/exe", a->argument);
    _exit(1);
}

/* An equal part of the cores that this process may use; none if there are fewer cores than runs. */
static void cores_of(const Sweep *s, int place, cpu_set_t *mine)
{
    cpu_set_t all;
    int count, parallel = (int)s->options->parallel, seen = 0;
    CPU_ZERO(mine);
    if (parallel < 2 || sched_getaffinity(0, sizeof all, &all) != 0 || (count = CPU_COUNT(&all)) < parallel) return;
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &all)) continue;
        if (seen * parallel / count == place) CPU_SET(core, mine);
        seen++;
    }
}

static Status run_start(Sweep *s, SweepRun *run, int rung, const sigset_t *mask)
{
    int index = (int)(run - s->run), place = 0;
    char path[PATH_BYTES];
    cpu_set_t cores;
    Arguments a;
    TRY(path_join(path, s->folder, run->row.run.name));
    while (s->place[place]) place++;
    cores_of(s, place, &cores);
    arguments_make(s, index / s->plan->repeats, index % s->plan->repeats, rung, place, &a);
    fflush(NULL);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) child_become(s, run, &a, &cores, mask, parent);
    arguments_free(&a);
    if (pid < 0)
        return FAIL(ERR_MEMORY, "cannot start run %s: %s (a limit on processes, as ulimit -u?)", run->row.run.name,
                    strerror(errno));
    run->pid = pid;
    run->place = place;
    run->target = s->plan->rung[rung];
    s->place[place] = true;
    s->running++;
    return OK;
}

/* ---- following the runs */

static void progress_print(const Sweep *s, const SweepRun *run)
{
    int done = 0;
    const RunRow *row = &run->row.run;
    char score[48] = "";
    for (int i = 0; i < s->plan->settings; i++) done += s->rung[i] >= 0 && setting_complete(s, i, s->rung[i]);
    if (row->kind != NOT_SCORED) run_score_text(row->kind, row->score, score, sizeof score);
    text_printf(stderr, "%s: %s%s, epoch %" PRId64 "%s%s (%d of %d settings at their rung)\n", row->name,
                run->row.failed ? "failed: " : row->state, run->row.failed ? row->why : "", run->row.epochs,
                *score ? ", best " : "", score, done, s->plan->settings);
}

static void run_ended(Sweep *s, SweepRun *run, int status)
{
    bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    run->pid = 0;
    s->place[run->place] = false;
    s->running--;
    run_refresh(s, run);
    run->settled |= good;                                         /* a full disk has no room for an outcome */
    if (good && run->row.epochs < run->target) run->ended = true; /* by its own rules */
    if (!good && !s->signal) {
        char *why = run->row.run.why;
        run->row.failed = true;
        if (!*run->row.run.state) snprintf(run->row.run.state, sizeof run->row.run.state, "failed");
        if (WIFSIGNALED(status)) snprintf(why, RUN_WHY_ROOM, "killed by signal %d", WTERMSIG(status));
        if (!*why) log_error(s, run, why);
        if (!*why) snprintf(why, RUN_WHY_ROOM, "exit code %d", WEXITSTATUS(status));
    }
    if (!s->signal) progress_print(s, run);
}

static void tick(Sweep *s, const sigset_t *watched)
{
    struct timespec wait = {0, SWEEP_LOOK_MS * 1000000l};
    int number = sigtimedwait(watched, NULL, &wait), status;
    if (number == SIGINT || number == SIGTERM) {
        if (!s->signal) s->signal = number;
        if (!s->signals++) fputs("stopping: the runs save their state\n", stderr);
        for (int i = 0; i < s->plan->settings * s->plan->repeats; i++)
            if (s->run[i].pid) kill(s->run[i].pid, s->signals > FORCE_SIGNALS ? SIGKILL : SIGTERM);
    }
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
        for (int i = 0; i < s->plan->settings * s->plan->repeats; i++)
            if (s->run[i].pid == pid) run_ended(s, &s->run[i], status);
}

static Status runs_train(Sweep *s)
{
    sigset_t watched, before;
    Status st = OK;
    int rung;
    sigemptyset(&watched);
    sigaddset(&watched, SIGINT);
    sigaddset(&watched, SIGTERM);
    sigaddset(&watched, SIGCHLD);
    sigprocmask(SIG_BLOCK, &watched, &before);
    for (;;) {
        SweepRun *run;
        while (st == OK && !s->signal && s->running < s->options->parallel && (run = run_next(s, &rung)))
            st = run_start(s, run, rung, &before);
        if (!s->running) break;
        tick(s, &watched);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return st;
}

/* ---- the folder of the sweep */

/* sweep.json: the lines that determine the settings, and for people what each run is trained with. */
static Status folder_note(const Sweep *s)
{
    json_t *trials = json_array();
    for (int i = 0; i < s->plan->settings; i++) json_array_append_new(trials, sweep_setting_json(s->plan, i));
    json_t *root =
        json_pack("{s:s, s:o, s:o}", "format", "towers sweep 1", "lines", json_text(s->plan->text), "settings", trials);
    return json_replace(s->folder, "sweep.json", root, JSON_INDENT(2));
}

/* A sweep continues with the same lines only; their runs would not be comparable otherwise. */
static Status folder_check(const Sweep *s)
{
    json_t *root = json_of_run(s->folder, "sweep.json");
    const char *lines = json_word(root, "lines");
    Status st = !lines || !strcmp(lines, s->plan->text)
                    ? OK
                    : FAIL(ERR_ARG,
                           "'%s' has a sweep with other settings; choose another --experiment, or restore the file "
                           "(see sweep.json; --trials and --parallel may change)",
                           s->folder);
    json_decref(root);
    return st;
}

/* OUTPUT-DIR/NAME, where NAME is that of the file. */
static Status folder_name(const Options *o, char folder[PATH_BYTES])
{
    char name[RUN_NAME_ROOM];
    const char *file = strrchr(o->arguments[0], '/');
    file = file ? file + 1 : o->arguments[0];
    size_t bytes = strcspn(file, ".");
    snprintf(name, sizeof name, "%.*s", (int)(bytes ? bytes : strlen(file)), file);
    if (o->experiment && (!*o->experiment || strchr(o->experiment, '/') || *o->experiment == '.'))
        return FAIL(ERR_ARG, "--experiment '%s': expected a plain name, a folder in --output-dir", o->experiment);
    return path_join(folder, o->output_dir, o->experiment ? o->experiment : name);
}

static void runs_name(Sweep *s)
{
    for (int i = 0; i < s->plan->settings; i++)
        for (int r = 0; r < s->plan->repeats; r++) {
            SweepRow *row = &run_at(s, i, r)->row;
            row->run = (RunRow){.kind = NOT_SCORED, .score = ABSENT, .seconds = ABSENT};
            for (int k = 0; k < s->plan->rungs; k++) row->score[k] = ABSENT, row->kind[k] = NOT_SCORED;
            Text name = text_start(row->run.name, sizeof row->run.name);
            text_add(&name, "t%03d", i + 1);
            if (s->plan->repeats > 1) text_add(&name, "-%d", r + 1);
        }
}

/* --dry-run: the command of each run. */
static void commands_print(const Sweep *s, FILE *to)
{
    Arguments a;
    for (int i = 0; i < s->plan->settings * s->plan->repeats; i++) {
        arguments_make(s, i / s->plan->repeats, i % s->plan->repeats, 0, 0, &a);
        for (int k = 0; k < a.count; k++) {
            if (k) fputc(' ', to);
            text_shell(to, a.argument[k]);
        }
        fputc('\n', to);
        arguments_free(&a);
    }
}

/* ---- the result */

/* N of the folds K/N that are among the repetitions; 0: none are. Of different N the smallest, with which a difference is the least
 * certain. */
static int folds_of(const SweepPlan *plan)
{
    int smallest = 0, folds;
    for (int d = 0; d < plan->dimensions; d++)
        for (int k = 0; plan->dimension[d].id == OPTION_ID_fold && k < plan->dimension[d].choices; k++)
            if (sscanf(plan->dimension[d].choice[k], "%*d/%d", &folds) == 1 && (!smallest || folds < smallest))
                smallest = folds;
    return smallest;
}

static Status result_make(const Sweep *s, FILE *to)
{
    const SweepPlan *plan = s->plan;
    SweepResult result = {.folder = s->folder,
                          .rungs = plan->rungs,
                          .rung = plan->rung,
                          .repeats = plan->repeats,
                          .folds = folds_of(plan)};
    SweepSetting *settings = calloc((size_t)plan->settings, sizeof *settings);
    const SweepRow **rows = calloc((size_t)plan->settings * (size_t)plan->repeats, sizeof *rows);
    Status st = settings && rows ? OK : FAIL(ERR_MEMORY, "no memory for the ranking of %d settings", plan->settings);
    for (int i = 0; st == OK && i < plan->settings; i++) {
        for (int r = 0; r < plan->repeats; r++) rows[i * plan->repeats + r] = &run_at(s, i, r)->row;
        settings[i] = (SweepSetting){.number = i + 1,
                                     .rung = s->rung[i],
                                     .rows = rows + i * plan->repeats,
                                     .values = sweep_setting_json(plan, i)};
    }
    result.settings = settings;
    result.count = plan->settings;
    if (st == OK) st = sweep_table(&result, s->options->json, to);
    if (st == OK) st = sweep_page(&result);
    for (int i = 0; settings && i < plan->settings; i++) json_decref(settings[i].values);
    free(settings);
    free(rows);
    return st;
}

/* If no run has a result, the sweep has failed, as its first run has. */
static Status outcome_of(const Sweep *s)
{
    const SweepRun *first = NULL;
    for (int i = 0; i < s->plan->settings * s->plan->repeats; i++) {
        if (s->run[i].row.run.kind != NOT_SCORED || !s->run[i].row.failed) return OK;
        if (!first) first = &s->run[i];
    }
    return FAIL(ERR_ARG, "all runs failed; the first, %s: %s", first->row.run.name, first->row.run.why);
}

static Status sweep_run(Sweep *s, FILE *to)
{
    int lock = -1;
    char name[SIGNAL_TEXT_BYTES];
    TRY(directory_create(s->folder));
    TRY(run_dir_take(s->folder, &lock));
    Status st = folder_check(s);
    if (st == OK) st = folder_note(s);
    if (st == OK) rungs_find(s);
    if (st == OK) st = runs_train(s);
    if (st == OK && !s->signal) st = result_make(s, to);
    if (st == OK)
        st = s->signal ? FAIL(ERR_INTERRUPTED, "stopped by %s; the same command continues the sweep",
                              signal_text(s->signal, name))
                       : outcome_of(s);
    run_dir_release(lock);
    return st;
}

Status sweep_command(const Options *given, JobFiles *files, FILE *to)
{
    Options own; /* with those in the file */
    Sweep s = {.options = &own};
    size_t runs = 0;
    Status st = OK;
    if (given->argument_count == 0) return FAIL(ERR_ARG, "no file given; usage: towers sweep FILE.yaml");
    TRY(folder_name(given, s.folder));
    TRY(options_copy(given, &own));
    TRY_OUT(sweep_plan_read(given->arguments[0], &own, &s.plan));
    TRY_OUT(conditions_check(s.options));
    TRY_OUT(folder_name(s.options, s.folder)); /* the file may name it */
    runs = (size_t)s.plan->settings * (size_t)s.plan->repeats;
    s.run = calloc(runs, sizeof *s.run);
    s.rung = calloc((size_t)s.plan->settings, sizeof *s.rung);
    if (!s.run || !s.rung) TRY_OUT(FAIL(ERR_MEMORY, "no memory for a sweep of %zu runs", runs));
    runs_name(&s);
    if (s.options->dry_run)
        commands_print(&s, to);
    else
        TRY_OUT(sweep_run(&s, to));
out:
    files->ending.signal = s.signal;
    for (size_t i = 0; s.run && i < runs; i++) free(s.run[i].row.epoch);
    free(s.run);
    free(s.rung);
    sweep_plan_destroy(s.plan);
    options_close(&own);
    return st;
}
