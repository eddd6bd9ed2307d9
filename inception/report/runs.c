/* Reading and listing the runs of a folder.
 *
 * The state of a run is, in this order: running, if a trainer holds its lock; what outcome.json says; failed without a
 * word, if it left its heartbeat; failed, if log.txt ends with the cause; finished or stopped, if it wrote the weights of
 * its end, by its number of epochs or steps; else failed, because it ended without a word. The score is the best of the run:
 * test accuracy or mAP, else KID, else the lowest training loss of an epoch. */
#include "inception/report/runs.h"

#include "kernels/base/array.h"
#include "kernels/base/place.h"
#include "towers/files/files.h"
#include "towers/store/run_dir.h"

#include <dirent.h>

enum { LOG_LIMIT = 1 << 28 };

const char *run_score_name(ScoreKind kind)
{
    static const char *const names[] = {"accuracy", "mAP", "KID", "loss", ""};
    return names[kind];
}

double run_score_scale(ScoreKind kind)
{
    return kind <= SCORED_BY_MAP ? 100 : 1;
}

void run_score_text(ScoreKind kind, double score, char *text, size_t bytes)
{
    snprintf(text, bytes, kind <= SCORED_BY_MAP ? "%s %.2f %%" : "%s %.5g", run_score_name(kind),
             run_score_scale(kind) * score);
}

/* ---- one run */

static bool has_file(const char *run, const char *name)
{
    char path[PATH_BYTES];
    return path_join(path, run, name) == OK && place_access(path, F_OK) == 0;
}

/* Its first line. */
static void word_copy(const json_t *root, const char *key, char *to, size_t bytes)
{
    const char *text = json_word(root, key);
    if (text) snprintf(to, bytes, "%.*s", (int)strcspn(text, "\n"), text);
}

/* What follows "stopped: " in the last lines of log.txt, which a refused step leaves there. */
static void log_cause(const char *run, char why[RUN_WHY_ROOM])
{
    char path[PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    if (path_join(path, run, "log.txt") != OK || file_read(path, LOG_LIMIT, &text, &bytes) != OK) return;
    char *last = NULL;
    for (char *at = text; (at = strstr(at, " stopped: ")); at++) last = at + strlen(" stopped: ");
    if (last) snprintf(why, RUN_WHY_ROOM, "%.*s", (int)strcspn(last, "\n"), last);
    free(text);
}

static bool is_whole(const Run *run)
{
    char text[RUN_WORD_ROOM];
    if (run_argument(run, "max-steps", text, sizeof text) && strtoll(text, NULL, 10) > 0 && run->steps &&
        run->step[run->steps - 1].step >= strtoll(text, NULL, 10))
        return true;
    return run_argument(run, "epochs", text, sizeof text) && run->epochs &&
           run->epoch[run->epochs - 1].epoch >= strtoll(text, NULL, 10);
}

static void state_find(const Run *run, const char *path, RunRow *row)
{
    json_t *outcome = json_of_run(path, "outcome.json");
    if (run_dir_taken(path)) {
        row->pid = run_dir_holder(path);
        snprintf(row->state, sizeof row->state, "running");
        if (row->pid)
            snprintf(row->why, sizeof row->why, "pid %ld", (long)row->pid);
        else
            snprintf(row->why, sizeof row->why, "on another machine, in another container or of another user");
    } else if (json_word(outcome, "outcome")) {
        word_copy(outcome, "outcome", row->state, sizeof row->state);
        word_copy(outcome, "message", row->why, sizeof row->why);
    } else {
        bool killed = has_file(path, HEARTBEAT_FILE); /* the cause and the weights are of an earlier end */
        if (!killed) log_cause(path, row->why);
        bool ended = !killed && has_file(path, "last.safetensors") && !*row->why;
        snprintf(row->state, sizeof row->state, !ended ? "failed" : run && is_whole(run) ? "finished" : "stopped");
        if (!ended && !*row->why)
            snprintf(row->why, sizeof row->why, "it ended without a word: killed, or its machine stopped");
    }
    json_decref(outcome);
}

bool run_scores_better(ScoreKind kind, double score, ScoreKind than_kind, double than)
{
    if (!isfinite(score) || kind > than_kind) return false;
    return kind < than_kind || (kind <= SCORED_BY_MAP ? score > than : score < than);
}

double epoch_score(const EpochRecord *e, ScoreKind kind)
{
    switch (kind) {
    case SCORED_BY_ACCURACY: return e->multi_label ? ABSENT : e->test_top1;
    case SCORED_BY_MAP: return e->multi_label ? e->test_top1 : ABSENT;
    case SCORED_BY_KID: return e->kid;
    case SCORED_BY_LOSS: return e->train_loss;
    default: return ABSENT;
    }
}

void run_score(const Run *run, int64_t last_epoch, ScoreKind *kind, double *best)
{
    *kind = NOT_SCORED;
    *best = ABSENT;
    for (int64_t i = 0; i < run->epochs && run->epoch[i].epoch <= last_epoch; i++)
        for (ScoreKind k = SCORED_BY_ACCURACY; k < NOT_SCORED; k++) {
            double score = epoch_score(&run->epoch[i], k);
            if (run_scores_better(k, score, *kind, *best)) *kind = k, *best = score;
        }
}

const EpochRecord *run_best_epoch(const Run *run)
{
    const EpochRecord *best = NULL;
    for (int64_t i = 0; i < run->epochs; i++)
        if (isfinite(run->epoch[i].test_top1) && (!best || run->epoch[i].test_top1 > best->test_top1))
            best = &run->epoch[i];
    return best;
}

/* The seconds of the epochs, and of the steps behind the last one. Not every step has a row: the mean stands for all. */
static double seconds_of(const Run *run)
{
    const int64_t recorded = run->epochs ? run->epoch[run->epochs - 1].step : 0;
    double seconds = 0, behind = 0;
    int64_t rows = 0;
    for (int64_t i = 0; i < run->epochs; i++)
        if (isfinite(run->epoch[i].seconds)) seconds += run->epoch[i].seconds;
    for (int64_t i = 0; i < run->steps; i++) {
        const RunStep *s = &run->step[i];
        if (s->step <= recorded || !(s->images_per_sec > 0)) continue;
        behind += (double)s->images / s->images_per_sec;
        rows++;
    }
    return seconds + (rows ? behind / (double)rows * (double)(run->step[run->steps - 1].step - recorded) : 0);
}

void run_row_of(const Run *run, const char *path, const char *name, RunRow *row)
{
    *row = (RunRow){.kind = NOT_SCORED, .score = ABSENT, .seconds = ABSENT, .step = STEP_UNKNOWN};
    snprintf(row->name, sizeof row->name, "%s", name);
    json_t *environment = json_of_run(path, "env.json");
    word_copy(environment, "model", row->model, sizeof row->model);
    word_copy(environment, "started", row->started, sizeof row->started);
    row->started_at = json_number_value(json_object_get(environment, "started_at"));
    json_decref(environment);
    if (run) {
        run_score(run, INT64_MAX, &row->kind, &row->score);
        row->step = run->steps ? run->step[run->steps - 1].step : 0;
        row->seconds = run->steps ? seconds_of(run) : ABSENT;
    }
    state_find(run, path, row);
}

static void row_read(const char *path, const char *name, RunRow *row)
{
    Run *run = NULL;
    char unread[RUN_WHY_ROOM] = "";
    if (run_read_ending(path, &run) != OK) snprintf(unread, sizeof unread, "%s", status_message());
    run_row_of(run, path, name, row);
    if (*unread) memcpy(row->why, unread, sizeof unread);
    run_destroy(run);
}

/* ---- the order */

/* The larger first, NaN last. */
static int by_number(double a, double b)
{
    if (isnan(a) || isnan(b)) return isnan(a) - isnan(b);
    return a > b ? -1 : a < b;
}

/* `order`: a RunOrder. Equal runs are in the order of their starts, then of their names. */
static int in_order(const void *a, const void *b, void *order)
{
    const RunRow *x = a, *y = b;
    int found = 0;
    switch (*(const RunOrder *)order) {
    case RUNS_BY_NAME: found = strcmp(x->name, y->name); break;
    case RUNS_BY_MODEL: found = strcmp(x->model, y->model); break;
    case RUNS_BY_STATE: found = strcmp(x->state, y->state); break;
    case RUNS_BY_SCORE: /* the better first */
        found = run_scores_better(y->kind, y->score, x->kind, x->score) -
                run_scores_better(x->kind, x->score, y->kind, y->score);
        break;
    case RUNS_BY_TIME: found = by_number(x->seconds, y->seconds); break;
    default: break;
    }
    if (!found) found = by_number(y->started_at, x->started_at);
    if (!found) found = strcmp(x->started, y->started); /* without started_at */
    return found ? found : strcmp(x->name, y->name);
}

/* ---- the list */

static void row_print(const RunRow *row, int name_width, FILE *to)
{
    char score[48] = "-", time[32] = "-", step[32] = "-";
    if (row->step != STEP_UNKNOWN) snprintf(step, sizeof step, "%" PRId64, row->step);
    if (row->kind != NOT_SCORED) run_score_text(row->kind, row->score, score, sizeof score);
    if (isfinite(row->seconds)) {
        int64_t s = (int64_t)(row->seconds + 0.5);
        snprintf(time, sizeof time, "%" PRId64 ":%02" PRId64 ":%02" PRId64, s / 3600, s / 60 % 60, s % 60);
    }
    text_printf(to, "%-*s  %-16s  %-11s %9s  %-18s %9s  %s%s%s\n", name_width, row->name, row->model, row->state, step,
                score, time, row->started, *row->why ? "  " : "", row->why);
}

static json_t *row_json(const RunRow *row)
{
    return json_pack("{s:o, s:i, s:o, s:o, s:o, s:o, s:o, s:s, s:o, s:o, s:o}", "run", json_text(row->name), "runs",
                     row->runs, "model", json_text(row->model), "state", json_text(row->state), "why",
                     json_text(row->why), "pid", row->pid ? json_integer(row->pid) : json_null(), "step",
                     row->step == STEP_UNKNOWN ? json_null() : json_integer(row->step), "scored_by",
                     run_score_name(row->kind), "score", json_finite(row->score), "seconds", json_finite(row->seconds),
                     "started", json_text(row->started));
}

static Status rows_emit(RunRow *rows, int count, RunOrder order, bool json, FILE *to)
{
    int width = 4;
    json_t *all = json ? json_array() : NULL;
    qsort_r(rows, (size_t)count, sizeof *rows, in_order, &order);
    for (int i = 0; i < count; i++)
        if (text_columns(rows[i].name) > width) width = text_columns(rows[i].name);
    if (!json)
        text_printf(to, "%-*s  %-16s  %-11s %9s  %-18s %9s  started\n", width, "run", "model", "state", "step", "best",
                    "time");
    for (int i = 0; i < count; i++)
        if (json)
            json_array_append_new(all, row_json(&rows[i]));
        else
            row_print(&rows[i], width, to);
    return json ? json_emit(all, JSON_INDENT(2), to) : OK;
}

bool is_run(const char *path)
{
    return has_file(path, "args.yaml") || has_file(path, "metrics.jsonl");
}

static bool is_sweep(const char *path)
{
    return has_file(path, "sweep.json");
}

/* The runs that the sweep is to have; 0 if its file does not say. */
static int sweep_runs(const char *path)
{
    json_t *root = json_of_run(path, "sweep.json");
    int runs = (int)json_array_size(json_object_get(root, "settings"));
    json_decref(root);
    return runs;
}

/* One row for the runs of a sweep: the best of their scores, the sum of their times; running or stopped if one of them is, and
 * stopped if some are not begun. */
static void sweep_row(const RunRow *runs, int count, const char *path, const char *name, RunRow *row)
{
    *row = (RunRow){.kind = NOT_SCORED, .score = ABSENT, .seconds = ABSENT, .runs = count};
    int failed = 0, running = 0, stopped = 0, wanted = sweep_runs(path);
    snprintf(row->name, sizeof row->name, "%s", name);
    for (int i = 0; i < count; i++) {
        const RunRow *run = &runs[i];
        if (run_scores_better(run->kind, run->score, row->kind, row->score))
            row->kind = run->kind, row->score = run->score;
        if (isfinite(run->seconds)) row->seconds = run->seconds + (isfinite(row->seconds) ? row->seconds : 0);
        if (!*row->model) memcpy(row->model, run->model, sizeof row->model);
        if (i == 0 || run->started_at < row->started_at) {
            row->started_at = run->started_at;
            memcpy(row->started, run->started, sizeof row->started);
        }
        if (run->step != STEP_UNKNOWN) row->step += run->step;
        failed += !strcmp(run->state, "failed");
        running += !strcmp(run->state, "running");
        stopped += !strcmp(run->state, "stopped");
    }
    snprintf(row->state, sizeof row->state, "%s",
             running                     ? "running"
             : stopped || count < wanted ? "stopped"
             : count && failed == count  ? "failed"
                                         : "finished");
    Text why = text_start(row->why, sizeof row->why);
    text_add(&why, "a sweep of %d run%s", count, count == 1 ? "" : "s");
    if (count < wanted) text_add(&why, " of %d", wanted);
    text_add(&why, "%s: towers runs %s", failed ? ", some failed" : "", path);
}

/* The runs in a folder, and as one row each the sweeps in it, whose runs are a folder deeper. */
static Status folder_read(const char *folder, bool sweeps, RunRow **rows, int *count)
{
    Status st = OK;
    char path[PATH_BYTES];
    DIR *listing = place_list(folder);
    if (!listing)
        return FAIL(ERR_ARG, "cannot list '%s': %s; usage: towers runs [DIR], the --output-dir of the runs", folder,
                    strerror(errno));
    for (struct dirent *entry; (entry = readdir(listing));) {
        if (entry->d_name[0] == '.' || path_join(path, folder, entry->d_name) != OK) continue;
        bool sweep = sweeps && is_sweep(path);
        if (!sweep && !is_run(path)) continue;
        RunRow *own = NULL;
        int own_count = 0;
        if (sweep) st = folder_read(path, false, &own, &own_count);
        if (st == OK) st = array_grow(rows, *count, sizeof **rows, "a list of runs");
        if (st == OK && sweep) sweep_row(own, own_count, path, entry->d_name, *rows + (*count)++);
        if (st == OK && !sweep) row_read(path, entry->d_name, *rows + (*count)++);
        free(own);
        TRY_OUT(st);
    }
out:
    closedir(listing);
    return st;
}

Status runs_list(const char *folder, RunOrder order, bool json, FILE *to)
{
    RunRow one, *rows = NULL;
    int count = 0;
    if (is_run(folder)) {
        row_read(folder, folder, &one);
        return rows_emit(&one, 1, order, json, to);
    }
    Status st = folder_read(folder, true, &rows, &count);
    if (st == OK && !count)
        st = FAIL(ERR_ARG, "'%s' has no run: expected folders with args.yaml, as towers train makes them", folder);
    if (st == OK) st = rows_emit(rows, count, order, json, to);
    free(rows);
    return st;
}
