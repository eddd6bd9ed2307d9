/* The lines of :::MLLOG; see mlperf_log.h. */
#include "towers/train/mlperf_log.h"

#include "kernels/base/place.h"
#include "towers/files/files.h"
#include "towers/files/json.h"
#include "towers/record/lines.h"

static const char mark[] = ":::MLLOG ";

static bool is_logged(const TowerProcess *p)
{
    return p->job->mlperf_org && is_root(&p->place);
}

/* ---- lines */

/* The number of a line, as last_line_kept has it. An epoch's start belongs to its first step; the end of a run stands behind
 * everything, so that who goes on removes it. */
static int64_t mlperf_line_step(const char *line, size_t count)
{
    json_t *event = count > sizeof mark ? json_loadb(line + sizeof mark - 1, count - (sizeof mark - 1), 0, NULL) : NULL;
    const json_t *metadata = json_object_get(event, "metadata");
    const char *key = json_word_or_empty(event, "key");
    int64_t step = metadata ? json_whole(metadata, "step_num") : -1;
    if (step >= 0 && strcmp(key, "run_stop") == 0)
        step = INT64_MAX;
    else if (step >= 0 && strcmp(key, "epoch_start") == 0)
        step = 2 * (step + 1);
    else if (step > 0)
        step = 2 * step + 1;
    json_decref(event);
    return step;
}

/* What is written at one time, behind one step. */
typedef struct LogLines {
    Draft draft;
    Status st;           /* of the lines so far */
    int64_t step, epoch; /* epoch 0: none */
} LogLines;

static Status lines_begin(LogLines *lines, int64_t step, int64_t epoch)
{
    *lines = (LogLines){.step = step, .epoch = epoch};
    return draft_begin(&lines->draft, "the lines of " MLPERF_LOG);
}

/* Takes `value`. */
static void event_put(LogLines *lines, const char *type, double date, const char *key, json_t *value)
{
    json_t *metadata = json_pack("{s:I}", "step_num", (json_int_t)lines->step);
    if (lines->epoch) json_object_set_new(metadata, "epoch_num", json_integer((json_int_t)lines->epoch));
    if (strcmp(key, "run_stop") == 0) json_object_set(metadata, "status", value);
    json_t *event = json_pack("{s:s, s:I, s:s, s:s, s:o, s:o}", "namespace", "", "time_ms", (json_int_t)(date * 1e3),
                              "event_type", type, "key", key, "value", value, "metadata", metadata);
    fputs(mark, lines->draft.to);
    Status st = json_emit(event, JSON_COMPACT, lines->draft.to);
    if (lines->st == OK) lines->st = st;
}

static void moment_put(LogLines *lines, const char *key, json_t *value)
{
    event_put(lines, "POINT_IN_TIME", clock_date(), key, value);
}

static Status lines_append(const TowerProcess *p, LogLines *lines)
{
    char path[PATH_BYTES];
    TRY(draft_end(&lines->draft, lines->st));
    Status st = path_join(path, p->job->run_dir, MLPERF_LOG);
    if (st == OK) st = run_file_append(path, lines->draft.text, lines->draft.bytes);
    free(lines->draft.text);
    return st;
}

/* Training goes on without these lines. */
static void lines_end(TowerProcess *p, LogLines *lines)
{
    if (lines_append(p, lines) != OK) storage_note(p, MLPERF_LOG, lines->step);
}

/* ---- settings */

/* The name that the rules have for the network; others have none there, and keep their own. */
static const char *benchmark_name(const TrainJob *job)
{
    return strcmp(job->program.model->name, "resnet50") == 0 ? "resnet" : job->program.model->name;
}

static void submission_put(LogLines *lines, const TowerProcess *p)
{
    char device[256], platform[320];
    p->job->backend->describe(&p->replica->device, device, sizeof device);
    snprintf(platform, sizeof platform, "%d x %s", p->job->processes, device);
    moment_put(lines, "submission_benchmark", json_text(benchmark_name(p->job)));
    moment_put(lines, "submission_org", json_text(p->job->mlperf_org));
    moment_put(lines, "submission_platform", json_text(platform));
    moment_put(lines, "submission_division", json_string(p->job->mlperf_division == MLPERF_CLOSED ? "closed" : "open"));
    moment_put(lines, "submission_status", json_string("research"));
    moment_put(lines, "cache_clear", json_false()); /* the files of the data may be in memory */
}

/* 0.9 of what a float has of it. */
static double decimal(float value)
{
    char text[32];
    snprintf(text, sizeof text, "%.7g", (double)value);
    return strtod(text, NULL);
}

/* The rules have names of their own for the settings of LARS and of SGD. */
static void optimizer_put(LogLines *lines, const TrainJob *job)
{
    const OptimizerHyper *hyper = &job->optimizer;
    const Schedule *schedule = &job->schedule;
    bool lars = hyper->kind == OPTIMIZER_LARS, named = lars || hyper->kind == OPTIMIZER_SGD;
    const char *prefix = lars ? "lars_opt" : named ? "sgd_opt" : "opt";
    const struct {
        const char *key;
        double value;
        bool known;
    } settings[] = {{"base_learning_rate", schedule->lr, true},
                    {"end_learning_rate", schedule->min_lr, true},
                    {"weight_decay", job->weight_decay, true},
                    {"momentum", decimal(hyper->momentum), named},
                    {"learning_rate_decay_poly_power", schedule->power, schedule->kind == SCHEDULE_POLYNOMIAL},
                    {"learning_rate_decay_steps", (double)job_total_steps(job), true}};
    char key[96];
    moment_put(lines, "opt_name", json_string(optimizer_infos[hyper->kind].name));
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        snprintf(key, sizeof key, "%s_%s", prefix, settings[i].key);
        if (settings[i].known) moment_put(lines, key, json_real(settings[i].value));
    }
    snprintf(key, sizeof key, "%s_learning_rate_warmup_epochs", lars ? prefix : "opt");
    moment_put(lines, key, json_real(schedule->warmup_epochs));
    if (lars) moment_put(lines, "lars_epsilon", json_real(decimal(hyper->epsilon)));
}

static void settings_put(LogLines *lines, const TowerProcess *p)
{
    const TrainJob *job = p->job;
    int64_t step_images = global_batch_of(&job->local_batches) * job->accumulate;
    bool synced = job->bn_stats == BN_STATS_SYNC;
    moment_put(lines, "seed", json_integer((json_int_t)job->seed));
    moment_put(lines, "global_batch_size", json_integer((json_int_t)step_images));
    moment_put(lines, "gradient_accumulation_steps", json_integer(job->accumulate));
    moment_put(lines, "train_samples", json_integer((json_int_t)source_info(job->train)->count));
    if (job->test) moment_put(lines, "eval_samples", json_integer((json_int_t)source_info(job->test)->count));
    moment_put(lines, "model_bn_span",
               json_integer((json_int_t)(synced ? global_batch_of(&job->local_batches) : job->local_batches.batch[0])));
    optimizer_put(lines, job);
}

/* ---- events */

Status mlperf_log_return(TowerProcess *p)
{
    char path[PATH_BYTES];
    if (!is_logged(p)) return OK;
    TRY(path_join(path, p->job->run_dir, MLPERF_LOG));
    return lines_cut(path, last_line_kept(p), mlperf_line_step);
}

Status mlperf_log_open(TowerProcess *p, bool goes_on)
{
    char path[PATH_BYTES];
    bool moved;
    LogLines lines;
    if (!is_logged(p)) return OK;
    TRY(path_join(path, p->job->run_dir, MLPERF_LOG));
    bool exists = place_access(path, F_OK) == 0; /* not in a branch of another run */
    if (exists && goes_on) return mlperf_log_return(p);
    TRY(lines_set_aside(path, &moved));
    TRY(lines_begin(&lines, 0, 0));
    event_put(&lines, "INTERVAL_START", p->job->began, "init_start", json_null());
    submission_put(&lines, p);
    settings_put(&lines, p);
    event_put(&lines, "INTERVAL_END", clock_date(), "init_stop", json_null());
    event_put(&lines, "INTERVAL_START", clock_date(), "run_start", json_null());
    return lines_append(p, &lines);
}

void mlperf_log_step(TowerProcess *p)
{
    LogLines lines;
    if (!is_logged(p) || p->run.step % p->steps_per_epoch) return;
    if (lines_begin(&lines, p->run.step, p->run.step / p->steps_per_epoch + 1) != OK) return;
    event_put(&lines, "INTERVAL_START", clock_date(), "epoch_start", json_null());
    lines_end(p, &lines);
}

void mlperf_log_epoch(TowerProcess *p, int64_t epoch)
{
    LogLines lines;
    if (!is_logged(p) || lines_begin(&lines, p->run.step, epoch) != OK) return;
    event_put(&lines, "INTERVAL_END", clock_date(), "epoch_stop", json_null());
    lines_end(p, &lines);
}

void mlperf_log_evaluation(TowerProcess *p, int64_t epoch, double began, double accuracy)
{
    LogLines lines;
    if (!is_logged(p) || lines_begin(&lines, p->run.step, epoch) != OK) return;
    event_put(&lines, "INTERVAL_START", began, "eval_start", json_null());
    moment_put(&lines, "eval_accuracy", json_finite(accuracy));
    event_put(&lines, "INTERVAL_END", clock_date(), "eval_stop", json_null());
    lines_end(p, &lines);
}

void mlperf_log_close(TowerProcess *p, bool success)
{
    LogLines lines;
    if (!is_logged(p) || lines_begin(&lines, p->run.step, 0) != OK) return;
    event_put(&lines, "INTERVAL_END", clock_date(), "run_stop", json_string(success ? "success" : "aborted"));
    lines_end(p, &lines);
}
