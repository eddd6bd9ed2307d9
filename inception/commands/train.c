/* towers train: makes the job, takes the run directory, trains (towers/supervisor/train.h), and says how it ended. */
#include "inception/commands/commands.h"

#include "inception/commands/restored_norms.h"
#include "inception/commands/result_file.h"
#include "inception/job/hosts.h"
#include "inception/job/named_model.h"
#include "inception/options/recipe.h"
#include "inception/options/settle.h"
#include "inception/report/report.h"
#include "kernels/base/outlet.h"
#include "kernels/base/place.h"
#include "towers/files/json.h"
#include "towers/guard/disk_check.h"
#include "towers/guard/memory_check.h"
#include "towers/record/prometheus.h"
#include "towers/record/statistics.h"
#include "towers/replica/hooks.h"
#include "towers/replica/norm_values.h"
#include "towers/store/pretrained.h"
#include "towers/store/run_dir.h"
#include "towers/supervisor/after_checkpoint.h"
#include "towers/supervisor/restart.h"
#include "towers/train/introduction.h"
#include "towers/train/mlperf_log.h"
#include "towers/train/outcome.h"
#include "towers/train/samples_log.h"

static Status result_json(const JobFiles *files, const TrainResult *result)
{
    json_t *root =
        json_pack("{s:o, s:I, s:I, s:I}", "run_dir", json_text(files->run_dir), "step", (json_int_t)result->step,
                  "bad_samples", (json_int_t)result->bad_samples, "restarts", (json_int_t)result->restarts);
    bool multi_label = files->job.program.multi_label;
    if (root && result->test_top1 >= 0) {
        json_object_set_new(root, multi_label ? "test_map" : "test_accuracy", json_real(result->test_top1));
        json_object_set_new(root, multi_label ? "best_map" : "best_accuracy", json_null());
    }
#define SCORE(id, key, json, multi_label_json, higher)                                                                 \
    if (root && isfinite(result->best[SCORE_##id]))                                                                    \
        json_object_set_new(root, multi_label ? multi_label_json : json, json_real(result->best[SCORE_##id]));
#include "towers/record/epoch.def"
    if (root && result->best_step) json_object_set_new(root, "best_step", json_integer((json_int_t)result->best_step));
    if (root && *result->ending) json_object_set_new(root, "ended_early", json_text(result->ending));
    return json_emit(root, JSON_COMPACT, stdout);
}

static bool is_finished(const JobFiles *files, const TrainResult *result)
{
    return *result->ending || result->step >= job_total_steps(&files->job);
}

/* Print the result as text on stderr, because stdout belongs to --json. Omitted with --quiet --json. */
static void result_print(const Options *options, const JobFiles *files, const TrainResult *result)
{
    if (options->quiet && options->json) return;
    if (result->complete)
        text_printf(stderr, "this run has ended before, after step %" PRId64 "; nothing was changed\n", result->step);
    else if (*result->ending)
        text_printf(stderr, "ended after step %" PRId64 ": %s\n", result->step, result->ending);
    else if (!is_finished(files, result))
        text_printf(stderr, "stopped after step %" PRId64 "\n", result->step);
    if (result->test_top1 >= 0)
        text_printf(stderr, "test %s %.2f %%", files->job.program.multi_label ? "mAP" : "accuracy",
                    100 * result->test_top1);
    if (result->test_top1 >= 0 && !files->job.program.multi_label) {
        int64_t count = source_info(files->job.test)->count;
        Estimate e = share_estimate(llrint(result->test_top1 * (double)count), count);
        text_printf(stderr, " +- %.1f", 50 * (e.high - e.low));
    }
    if (result->test_top1 >= 0 && isfinite(result->best[SCORE_ACCURACY]))
        text_printf(stderr, " (best epoch %.2f %%)", 100 * result->best[SCORE_ACCURACY]);
    if (result->test_top1 >= 0) fputc('\n', stderr);
    if (isfinite(result->best[SCORE_KID]))
        text_printf(stderr, "best KID %.5f after step %" PRId64 "\n", result->best[SCORE_KID], result->best_step);
    if (result->bad_samples > 0)
        text_printf(stderr,
                    "%" PRId64 " training samples could not be decoded and were skipped; %s/" BAD_SAMPLES_FILE
                    " lists them\n",
                    result->bad_samples, files->run_dir);
    if (result->restarts)
        text_printf(stderr, "%" PRId64 " restart%s after crashes; %s/" RESTARTS_FILE " lists them\n", result->restarts,
                    result->restarts == 1 ? "" : "s", files->run_dir);
    text_printf(stderr, "run directory %s\n", files->run_dir);
}

/* Write the report, also of a run that failed, to show why, unless it has no records yet. If it cannot be written the
 * run has not failed, and the message of an earlier failure must be kept. */
static void report_make(const char *run_dir, bool quiet, Status cause)
{
    StatusText words;
    char records[PATH_BYTES];
    status_keep(&words);
    Status st = path_join(records, run_dir, "metrics.jsonl");
    if (st == OK && place_access(records, F_OK) != 0) return;
    if (st == OK) st = report_write(run_dir);
    if (st == OK && !quiet) text_printf(stderr, "report %s/report.html\n", run_dir);
    if (st != OK) {
        text_printf(stderr, "cannot write the report: %s; to write it later: towers report ", status_message());
        text_shell(stderr, run_dir);
        fputc('\n', stderr);
    }
    if (cause != OK) (void)!status_restore(cause, &words);
}

/* The time that MLPerf asks for counts from the first step: what was trained without its log has none. */
static Status mlperf_check(const Options *options, JobFiles *files)
{
    char path[PATH_BYTES];
    const char *before = *files->branch_of ? files->branch_of : files->run_dir;
    if (!files->job.mlperf_org || !job_resumes(files)) return OK;
    TRY(path_join(path, files->run_dir, MLPERF_LOG));
    if (!*files->branch_of && place_access(path, F_OK) == 0) return OK;
    if (options->origin[OPTION_ID_mlperf_log] != ORIGIN_RUN)
        return FAIL(ERR_ARG,
                    "--mlperf-log: the time in " MLPERF_LOG
                    " counts from the first step, and %s has taken steps already: "
                    "start a new run, without --resume",
                    before);
    files->job.mlperf_org = NULL;
    if (!options->quiet)
        text_printf(stderr,
                    MLPERF_LOG " is not written: its time counts from the first step, and %s has taken steps already\n",
                    before);
    return OK;
}

/* Rank 0 takes the run directory and prepares it; `lock` is its. */
static Status run_dir_open(const Options *options, JobFiles *files, int *lock)
{
    if (!hosts_lead(files)) return OK;
    if (files->fresh_name) TRY(run_dir_create(files->run_dir));
    if (files->nothing_to_resume && !options->quiet)
        text_printf(stderr, "no run to resume; starting a new one in %s\n", files->run_dir);
    TRY(run_dir_take(files->run_dir, lock));
    int error = place_hold(files->run_dir);
    if (error) return FAIL(ERR_IO, "cannot open the directory '%s': %s", files->run_dir, strerror(error));
    /* A run that has ended writes nothing. */
    bool ended = files->job.resume && outcome_ends(files->run_dir, job_total_steps(&files->job));
    if (!ended) TRY(disk_check(&files->job));
    TRY(mlperf_check(options, files));
    TRY(job_branch(files));
    if (files->job.program.model->file && (*files->branch_of || !job_resumes(files)))
        TRY(network_keep(files->job.program.model, files->run_dir));
    return files->lr_curve ? text_replace(files->run_dir, "lr-find.json", files->lr_curve) : OK;
}

/* What the towers would refuse, before the run directory is made. */
static Status norms_check(const TrainJob *job)
{
    char text[STATUS_MESSAGE_BYTES];
    Layout *layout;
    TrainJob first = *job;
    job_stage(&first, 0);
    TRY(program_layout(&first.program, 1, &layout));
    Status st = norm_values_check(&first, layout, 1, text, sizeof text);
    layout_destroy(layout);
    return st;
}

Status train_open(Options *options, JobFiles *files)
{
    TRY(hooks_load()); /* reports an invalid TOWERS_FAULT before anything starts */
    bool trains = !options->dry_run && !options->print_config, automatic = isnan(options->lr) && trains;
    OptionOrigin origin = options->origin[OPTION_ID_lr];
    if (automatic && options->resume)
        origin = option_withdraw(options, OPTION_ID_lr); /* a run that is resumed has its rate */
    if (options->prometheus) TRY(prometheus_check(options->prometheus));
    if (options->prometheus) TRY(result_file_check("--prometheus", options->prometheus, RESULT_GAUGES, NULL));
    TRY(hosts_meet(options, options->comm_timeout, false, files));
    TRY(hosts_run_dir(options, files));
    bool sweeps = automatic && (!options->resume || files->nothing_to_resume),
         stages = options->unfreeze_epoch || options->img_size_schedule;
    if (sweeps || (stages && trains)) TRY(hosts_carry(files));
    if (sweeps) {
        if (options->resume) option_give(options, OPTION_ID_lr, origin);
        TRY(lr_auto(options, files));
    }
    TRY(job_open(options, 0, files));
    TRY(restored_norms_measure(options, files));
    return hosts_lead(files) ? job_survey(options, files) : OK;
}

/* The end of --after-checkpoint, when the directory has all that a run leaves there. Who has sent a second signal wants no more, and a
 * directory that has gone has no name for the command. Its failure is that of a run that has none; else it is a warning. */
static Status after_run(JobFiles *files, const TrainResult *result, Status trained, Status st)
{
    StatusText words;
    TrainJob *job = &files->job;
    bool begins = !result->complete || upload_is_on(job); /* the copy of a complete run may lack something */
    bool waits = !result->abandoned && !result->moved && begins && (trained != ERR_INTERRUPTED || result->saved);
    if (!job->offers) return st;
    /* A run that was killed or copied between its last checkpoint and its end takes no step here. The towers have ended, so that this process
     * may offer that checkpoint in their place. */
    bool unoffered = trained == OK && waits && result->step > 0 && !atomic_load(&job->offers->count);
    if (unoffered) offers_put(job->offers, result->step);
    status_keep(&words);
    Status ended = after_checkpoint_end(job, waits);
    if (st != OK) {
        if (ended != OK) console_warn(&(Console){0}, "%s", status_message());
        st = status_restore(st, &words);
    } else {
        st = ended;
    }
    if (!result->abandoned && !result->complete && atomic_load(&job->offers->count))
        outcome_again(job, result, trained, st, ending_exit_code(st, &files->ending));
    offers_destroy(job->offers);
    job->offers = NULL;
    return st;
}

/* All that can be refused before the run directory is made, on every host alike. */
static Status job_check(const Options *options, JobFiles *files, PretrainedNotes *notes)
{
    const TrainJob *job = &files->job;
    TrainJob whole = *job;
    if (hosts_lead(files)) TRY(pretrained_check(&job->program, job->initial_weights, job->reset_head, notes));
    if (job->unfreeze_epoch) whole.program.freeze = NULL; /* all parameters must fit in the end */
    TRY(memory_check(&whole));
    TRY(norms_check(job));
    TRY(watch_start(options, files));
    return hosts_compare(options, files);
}

static Status dry_run_print(const Options *options, JobFiles *files, FILE *to)
{
    if (!hosts_lead(files)) return OK;
    recipe_gaps_print(options, to);
    would_fetch_print(files, to);
    TRY(info_run(files, to));
    return expected_print(files, to);
}

/* What a person should know before the run begins. */
static void start_print(const Options *options, const JobFiles *files, const PretrainedNotes *notes)
{
    char text[PATH_BYTES + 1024];
    bool leads = hosts_lead(files);
    if (!options->quiet && leads) text_print(stderr, files->notes);
    if (options->quiet && leads && *files->without_gpu && backend_gpu_expected())
        text_printf(stderr, "running on the CPU: %s\n", files->without_gpu);
    if (!options->quiet && *weight_part_text(&notes->part, options->pretrained, text, sizeof text))
        text_printf(stderr, "%s\n", text);
    if (*notes->absent && !options->quiet)
        text_printf(stderr, "%s has no weights for %s, which is initialized randomly\n", options->pretrained,
                    notes->absent);
}

static Status run_begin(const Options *options, JobFiles *files, int *lock)
{
    TRY(run_dir_open(options, files, lock));
    TRY(hosts_begin(options, files));
    if (!hosts_lead(files)) return OK;
    TRY(upload_claim(&files->job));
    return after_checkpoint_start(&files->job);
}

/* What a run has come to: on the terminal, as its report, as JSON. */
static Status end_report(const Options *options, JobFiles *files, const TrainResult *result, Status trained)
{
    bool refused = trained == ERR_ARG || trained == ERR_CHECKPOINT; /* a resume, whose old report stays */
    bool steps = trained != OK || result->step > 0;                 /* none with --epochs 0 */
    bool ended = trained == OK || trained == ERR_INTERRUPTED;
    if (ended) result_print(options, files, result);
    if (!refused && steps && !result->complete) report_make(files->run_dir, options->quiet, trained);
    if (ended && !options->quiet) next_steps_print(&files->job, is_finished(files, result), result->rule, stderr);
    Status printed = options->json && ended ? result_json(files, result) : OK;
    if (trained != OK) return trained;
    Status st = output_end(printed, &files->ending);
    if (st != OK) outcome_again(&files->job, result, trained, st, ending_exit_code(st, &files->ending));
    return st;
}

Status train_command(const Options *options, JobFiles *files, FILE *to)
{
    int lock = -1;
    TrainResult result = {.test_top1 = -1};
    PretrainedNotes notes = {0};
    for (int i = 0; i < SCORES; i++) result.best[i] = ABSENT;
    TRY(job_check(options, files, &notes));
    start_print(options, files, &notes);
    if (options->dry_run) return dry_run_print(options, files, to);
    Status st = run_begin(options, files, &lock);
    if (st != OK) {
        run_dir_release(lock);
        return st;
    }
    outlet_open(OUTLET_STDOUT);
    const Status trained = train_run(&files->job, &result);
    files->ending = train_ending(&files->job, &result);
    if (result.abandoned || !hosts_lead(files))
        return after_run(files, &result, trained, trained); /* the storage of the run directory may hang */
    st = end_report(options, files, &result, trained);
    st = after_run(files, &result, trained, st);
    run_dir_release(lock);
    return st;
}
