/* towers: the command line. Each command reads its options, does its work and returns a Status, which only main turns
 * into an exit code. Results go to stdout, progress and errors to stderr. */
#include "inception/commands/commands.h"
#include "inception/commands/data.h"
#include "inception/commands/doctor.h"
#include "inception/job/hosts.h"
#include "inception/job/job.h"
#include "inception/job/run_argument.h"
#include "inception/options/help.h"
#include "inception/options/options.h"
#include "inception/options/recipe.h"
#include "inception/options/uses.h"
#include "inception/report/compare.h"
#include "inception/report/report.h"
#include "kernels/text.h"
#include "towers/data/images/image_memory.h"
#include "towers/files/json.h"
#include "towers/guard/fault.h"
#include "towers/guard/memory_check.h"
#include "towers/store/checkpoint.h"
#include "towers/store/pretrained.h"
#include "towers/train/introduction.h"
#include "towers/train/restart.h"
#include "towers/train/samples_log.h"
#include "towers/train/train.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static void notes_print(const JobFiles *files, bool quiet)
{
    if (!quiet) fputs(files->notes, stderr);
}

/* ---- train */

static Status result_json(const JobFiles *files, const TrainResult *result)
{
    json_t *root =
        json_pack("{s:o, s:I, s:I, s:I}", "run_dir", json_text(files->run_dir), "step", (json_int_t)result->step,
                  "bad_samples", (json_int_t)result->bad_samples, "restarts", (json_int_t)result->restarts);
    bool several = files->job.program.several;
    if (root && result->test_top1 >= 0) {
        json_object_set_new(root, several ? "test_map" : "test_accuracy", json_real(result->test_top1));
        json_object_set_new(root, several ? "best_map" : "best_accuracy",
                            result->best_top1 >= 0 ? json_real(result->best_top1) : json_null());
    }
    if (root && isfinite(result->best_kid)) {
        json_object_set_new(root, "best_kid", json_real(result->best_kid));
        json_object_set_new(root, "best_step", json_integer((json_int_t)result->best_step));
    }
    if (!root) return FAIL(ERR_MEMORY, "no memory for the result as JSON");
    json_dumpf(root, stdout, JSON_COMPACT); /* output_end checks for errors */
    putchar('\n');
    json_decref(root);
    return OK;
}

/* Print the result as text on stderr, because stdout belongs to --json. Omitted with --quiet --json. */
static void result_print(const Options *options, const JobFiles *files, const TrainResult *result)
{
    bool finished = result->step >= job_total_steps(&files->job);
    if (options->quiet && options->json) return;
    if (!finished) fprintf(stderr, "stopped after step %lld\n", (long long)result->step);
    if (result->test_top1 >= 0)
        fprintf(stderr, "test %s %.2f %%", files->job.program.several ? "mAP" : "accuracy", 100 * result->test_top1);
    if (result->test_top1 >= 0 && result->best_top1 >= 0)
        fprintf(stderr, " (best epoch %.2f %%)", 100 * result->best_top1);
    if (result->test_top1 >= 0) fputc('\n', stderr);
    if (isfinite(result->best_kid))
        fprintf(stderr, "best KID %.5f after step %lld\n", result->best_kid, (long long)result->best_step);
    if (result->bad_samples > 0)
        fprintf(stderr,
                "%lld training samples could not be decoded and were skipped; %s/" BAD_SAMPLES_FILE " lists them\n",
                (long long)result->bad_samples, files->run_dir);
    if (result->restarts)
        fprintf(stderr, "%lld restart%s after crashes; %s/" RESTARTS_FILE " lists them\n", (long long)result->restarts,
                result->restarts == 1 ? "" : "s", files->run_dir);
    fprintf(stderr, "run directory %s\n", files->run_dir);
}

/* Write the report, also of a run that failed, to show why. If it cannot be written the run has not failed, and the
 * message of an earlier failure must be kept. */
static void report_make(const char *run_dir, bool quiet, Status cause)
{
    StatusText words;
    status_keep(&words);
    Status st = report_write(run_dir);
    if (st == OK && !quiet) fprintf(stderr, "report %s/report.html\n", run_dir);
    if (st != OK && cause == OK) fprintf(stderr, "cannot write the report: %s\n", status_message());
    if (cause != OK) (void)!status_restore(cause, &words);
}

static int preempt_exit = -1; /* --preempt-exit, once a signal has stopped the run and its state is saved */

/* Rank 0 takes the run directory and prepares it; `lock` is its. */
static Status run_dir_open(const Options *options, JobFiles *files, int *lock)
{
    if (!hosts_lead(files)) return OK;
    if (files->fresh_name) TRY(run_dir_create(files->run_dir));
    if (files->nothing_to_resume && !options->quiet)
        fprintf(stderr, "no run to resume; starting a new one in %s\n", files->run_dir);
    TRY(run_dir_take(files->run_dir, lock));
    return job_branch(files);
}

static Status train(Options *options, JobFiles *files, int *signal_number)
{
    int lock = -1;
    TrainResult result = {.test_top1 = -1, .best_kid = NAN};
    TRY(faults_load()); /* reports an invalid TOWERS_FAULT before anything starts */
    TRY(hosts_meet(options, files));
    TRY(hosts_run_dir(options, files));
    TRY(job_open(options, 0, files));
    bool leads = hosts_lead(files);
    if (options->print_config && !leads) return OK;
    if (options->print_config) {
        options_print_config(options, stdout);
        return OK;
    }
    char absent[256] = "";
    const TrainJob *job = &files->job;
    if (leads) TRY(pretrained_check(&job->program, job->initial_weights, job->reset_head, absent, sizeof absent));
    TRY(memory_check(&files->job));
    TRY(watch_start(options, files));
    TRY(hosts_compare(options, files));
    if (options->dry_run && !leads) return OK;
    if (options->dry_run) {
        recipe_gaps_print(options, stdout);
        return info_run(files, stdout);
    }
    notes_print(files, options->quiet || !leads);
    if (*absent && !options->quiet)
        fprintf(stderr, "%s has no weights for %s, which is initialized randomly\n", options->pretrained, absent);
    Status st = run_dir_open(options, files, &lock);
    if (st == OK) st = hosts_begin(options, files);
    if (st != OK) {
        run_dir_release(lock);
        return st;
    }
    st = train_run(&files->job, &result);
    *signal_number = result.signal;
    if (result.saved) preempt_exit = (int)options->preempt_exit;
    if (result.abandoned || !leads) return st;          /* the storage of the run directory may hang */
    bool begun = st != ERR_ARG && st != ERR_CHECKPOINT; /* after a refused resume keep the old report */
    if (st == OK && result.step == 0) begun = false;    /* --epochs 0: nothing to report */
    bool ended = st == OK || st == ERR_INTERRUPTED;
    if (ended) result_print(options, files, &result);
    if (begun) report_make(files->run_dir, options->quiet, st);
    if (ended && !options->quiet) next_steps_print(&files->job, result.step >= job_total_steps(&files->job), stderr);
    Status told = options->json && ended ? result_json(files, &result) : OK;
    if (st == OK) st = told;
    run_dir_release(lock);
    return st;
}

/* ---- eval */

static Status eval(Options *options, JobFiles *files, int *signal_number)
{
    EvalResult result;
    char weights[4096];
    TRY(run_argument_apply(options));
    if (!options->weights) return FAIL(ERR_ARG, "eval needs weights: use --weights RUN or --weights FILE");
    TRY(job_weights(options->weights, weights, sizeof weights));
    eval_classes(options, weights, files);
    TRY(job_open(options, 0, files));
    if (options->print_config) {
        options_print_config(options, stdout);
        return OK;
    }
    TRY(memory_check(&files->job));
    TRY(eval_classes_note(files));
    notes_print(files, options->quiet);
    if (!options->quiet) eval_introduce(files);
    size_t count = (size_t)source_info(files->test)->count, classes = (size_t)files->job.program.options.classes;
    EvalSample *samples = calloc(count, sizeof *samples);
    float *scores = files->job.program.several ? calloc(count * classes, sizeof *scores) : NULL;
    Status st = samples && (scores || !files->job.program.several)
                    ? eval_run(&files->job, weights, &result, samples, scores, signal_number)
                    : FAIL(ERR_MEMORY, "no memory for the predictions of the evaluation");
    if (st == OK) st = eval_print(options, files, &result, samples, scores);
    free(scores);
    free(samples);
    return st;
}

/* ---- info, bench */

static Status info(Options *options, JobFiles *files)
{
    if (options->argument_count == 0) return info_models(stdout);
    TRY(run_argument_apply(options));
    TRY(job_model(options, files));
    if (options->print_config) {
        options_print_config(options, stdout);
        return OK;
    }
    return info_model(files, (int32_t)options->batch_size, options->ops, options->kernels, stdout);
}

static Status export(Options *options, JobFiles *files)
{
    TRY(run_argument_apply(options));
    TRY(job_model(options, files));
    if (options->print_config) {
        options_print_config(options, stdout);
        return OK;
    }
    return export_run(options, files, stdout);
}

static Status bench(Options *options, JobFiles *files, int *signal_number)
{
    char absent[256];
    TRY(bench_open(options, files));
    if (options->print_config) {
        options_print_config(options, stdout);
        return OK;
    }
    const TrainJob *job = &files->job;
    TRY(pretrained_check(&job->program, job->initial_weights, job->reset_head, absent, sizeof absent));
    TRY(memory_check(&files->job));
    if (options->dry_run) {
        recipe_gaps_print(options, stdout);
        return info_run(files, stdout);
    }
    notes_print(files, options->quiet);
    return options->scaling ? scaling_run(options, files, signal_number) : bench_run(options, files, signal_number);
}

static Status report(const Options *options)
{
    if (options->argument_count == 0) return FAIL(ERR_ARG, "no run given; usage: towers report RUN");
    return report_run(options->arguments[0], options->png, options->json, options->quiet, stdout);
}

static Status replay(const Options *options)
{
    if (options->argument_count == 0)
        return FAIL(ERR_ARG, "no capsule given; usage: towers replay RUN/nan-step-N-tower-K");
    return replay_run(options, options->arguments[0], stdout);
}

/* ---- help, version and others */

static void version_print(void)
{
    const Backend *backend;
    printf("towers %s", TOWERS_VERSION);
    for (int i = 0; i < 2; i++)
        if (backend_find(i ? "cuda" : "cpu", &backend, NULL, 0) == OK) printf(" %s", backend->name);
    putchar('\n');
}

static Status doctor(Options *options, JobFiles *files)
{
    DoctorMachine machine;
    DoctorReport report;
    TRY(uses_check(options));
    if (options->hosts) return doctor_hosts_run(options, files, stdout);
    doctor_measure(&machine);
    doctor_judge(&machine, &report);
    if (options->json) return doctor_print_json(&report, stdout);
    doctor_print(&report, options->color && isatty(STDOUT_FILENO) && !getenv("NO_COLOR"), stdout);
    return OK;
}

static Status help(const Options *options)
{
    Verb verb = options->verb == VERB_HELP ? VERB_NONE : options->verb;
    if (options->verb == VERB_HELP && options->argument_count) {
        verb = verb_find(options->arguments[0]);
        if (verb == VERB_NONE)
            return FAIL(ERR_ARG, "unknown command '%s'; 'towers help' lists all commands", options->arguments[0]);
    }
    help_print(stdout, verb, options->help_all, help_width());
    return OK;
}

/* Records may come from anywhere and contain terminal control sequences: print them escaped. */
static Status compare(const Options *options)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (!to) return FAIL(ERR_MEMORY, "no memory for the comparison of runs");
    Status st = compare_runs(options->arguments, options->argument_count, options->json, to);
    if (fclose(to) != 0 && st == OK) st = FAIL(ERR_MEMORY, "no memory for the comparison of runs");
    if (st == OK) text_print(stdout, text);
    free(text);
    return st;
}

static Status verb_run(Options *options, int *signal_number)
{
    JobFiles files = {0};
    Status st = OK;
    if (options->version) {
        version_print();
        return OK;
    }
    if (options->help || options->help_all || options->verb == VERB_HELP) return help(options);
    switch (options->verb) {
    case VERB_TRAIN: st = train(options, &files, signal_number); break;
    case VERB_EVAL: st = eval(options, &files, signal_number); break;
    case VERB_PREDICT: st = predict_run(options, &files, stdout); break;
    case VERB_GENERATE: st = generate_run(options, &files, stdout); break;
    case VERB_FID: st = fid_run(options, &files, stdout); break;
    case VERB_DATA: st = data_run(options, stdout); break;
    case VERB_INFO: st = info(options, &files); break;
    case VERB_BENCH: st = bench(options, &files, signal_number); break;
    case VERB_MODELS: st = info_models(stdout); break;
    case VERB_COMPARE: st = compare(options); break;
    case VERB_EXPORT: st = export(options, &files); break;
    case VERB_REPORT: st = report(options); break;
    case VERB_REPLAY: st = replay(options); break;
    case VERB_DOCTOR: st = doctor(options, &files); break;
    case VERB_VERSION: version_print(); break;
    case VERB_MAN: manual_print(stdout, options->markdown); break;
    case VERB_COMPLETION: st = completion_print(stdout, options->argument_count ? options->arguments[0] : NULL); break;
    default: st = FAIL(ERR_ARG, "no command given; 'towers --help' lists all commands"); break;
    }
    watch_stop(files.watch);
    hosts_leave(&files, st);
    job_close(&files);
    return st;
}

/* libgomp reads its environment when it is loaded, before main; to change how long an idle team spins, the program
 * starts itself again. By default teams spin for milliseconds. With other load on the cores that made a step 7 times
 * slower; with a short spin it costs nothing. Done only for commands that compute and if threads have to wait for each
 * other, because a second start detaches an emulator or a debugger. */
static void short_spins(const Options *options, char **argv)
{
    static const Verb computes[] = {VERB_TRAIN,  VERB_EVAL,     VERB_PREDICT, VERB_BENCH,
                                    VERB_REPLAY, VERB_GENERATE, VERB_FID};
    bool helps = false;
    for (size_t i = 0; i < sizeof computes / sizeof *computes; i++) helps |= options->verb == computes[i];
    if (!helps || options->help || options->help_all || options->version || options->threads == 1) return;
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2 || getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY")) return;
    if (setenv("GOMP_SPINCOUNT", "2000", 1) == 0) execv("/proc/self/exe", argv);
}

/* True if the reader of our standard output (`| head`) has closed it. */
static bool reader_left(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&out, 1, 0) == 1 && (out.revents & POLLERR);
}

int main(int argc, char **argv)
{
    /* If a standard stream is closed, the run's first file would get its number, and messages would be written into
     * that file. The replacement for a closed standard output cannot be written, so that losing results remains an
     * error. */
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY) != fd) _exit(1);
    static char line[1 << 14];
    (void)setvbuf(stderr, line, _IOLBF, sizeof line); /* a line is one write, which other programs' lines do not tear */
    signal(SIGXFSZ, SIG_IGN);                         /* exceeding a file size limit becomes a write error */
    Options options;
    int signal_number = 0;
    Status st = options_parse(argc, argv, environ, &options);
    if (st == OK) {
        image_pixels_limit(options.max_pixels);
        short_spins(&options, argv);
        st = verb_run(&options, &signal_number);
        options_close(&options);
    }
    /* Check that all output was written. If its reader has gone, end silently by SIGPIPE like other programs, even if
     * that signal was ignored; any other error is reported. */
    bool unread = st == ERR_INTERRUPTED && signal_number == SIGPIPE, failed = fflush(stdout) != 0 || ferror(stdout);
    if (unread || (failed && (st == OK || st == ERR_IO) && reader_left())) {
        signal(SIGPIPE, SIG_DFL);
        raise(SIGPIPE);
    }
    st = failed && st == OK ? FAIL(ERR_IO, "cannot write to standard output") : st;
    if (st == OK) return 0;
    status_print(stderr, st, getenv("TOWERS_TRACE") != NULL);
    hosts_error_file(st);
    if (st == ERR_INTERRUPTED && signal_number && preempt_exit >= 0) return preempt_exit;
    return st == ERR_INTERRUPTED && signal_number ? 128 + signal_number : status_exit_code(st);
}
