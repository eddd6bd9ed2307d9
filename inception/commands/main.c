/* towers: the command line. Each command reads its options, does its work and returns a Status, which only main turns
 * into an exit code. Results go to stdout, progress and errors to stderr. */
#include "inception/commands/commands.h"
#include "inception/commands/doctor.h"
#include "inception/commands/result_file.h"
#include "inception/job/hosts.h"
#include "inception/job/named_model.h"
#include "inception/models/models.h"
#include "inception/options/conditions.h"
#include "inception/options/help.h"
#include "inception/report/compare.h"
#include "inception/report/report.h"
#include "inception/report/runs.h"
#include "kernels/base/outlet.h"
#include "towers/data/images/image.h"
#include "towers/data/images/image_memory.h"
#include "towers/files/files.h"
#include "towers/store/weights.h"

#include "commit.h" /* cmake/commit.cmake */

#include <fcntl.h>
#include <signal.h>

extern char **environ;

/* ---- commands of a few lines; the others have files of their own */

Status report_command(const Options *options, JobFiles *files, FILE *to)
{
    (void)files;
    if (options->argument_count == 0) return FAIL(ERR_ARG, "no run given; usage: towers report RUN");
    return report_run(options->arguments[0], options->png, options->json, options->quiet, to);
}

Status runs_command(const Options *options, JobFiles *files, FILE *to)
{
    (void)files;
    return runs_list(options->argument_count ? options->arguments[0] : "runs", options->sort, options->json, to);
}

Status card_command(const Options *options, JobFiles *files, FILE *to)
{
    Draft card;
    (void)files;
    if (options->argument_count == 0) return FAIL(ERR_ARG, "no run given; usage: towers card RUN [-o FILE]");
    if (options->out) TRY(result_file_check("-o", options->out, RESULT_CARD, NULL));
    TRY(draft_begin(&card, "the card of the run"));
    Status st = card_print(options->arguments[0], card.to);
    if (options->out) return draft_replace(&card, st, NULL, options->out);
    TRY(draft_end(&card, st));
    text_print(to, card.text);
    free(card.text);
    return OK;
}

/* Records may come from anywhere and contain terminal control sequences: print them escaped. JSON knows no such escapes. */
Status compare_command(const Options *options, JobFiles *files, FILE *to)
{
    Draft draft;
    (void)files;
    if (options->out) TRY(result_file_check("-o", options->out, RESULT_PAGE, NULL));
    if (options->json) return compare_runs(options->arguments, options->argument_count, true, options->out, to);
    TRY(draft_begin(&draft, "the comparison of runs"));
    TRY(draft_end(&draft, compare_runs(options->arguments, options->argument_count, false, options->out, draft.to)));
    text_print(to, draft.text);
    free(draft.text);
    return OK;
}

Status doctor_command(const Options *options, JobFiles *files, FILE *to)
{
    DoctorMachine machine;
    DoctorReport report;
    TRY(conditions_check(options));
    if (options->hosts) return doctor_hosts_run(options, files, to);
    doctor_measure(&machine);
    doctor_check(&machine, &report);
    if (options->json) return doctor_print_json(&report, to);
    doctor_print(&report, options->color && isatty(fileno(to)) && !getenv("NO_COLOR"), to);
    return OK;
}

/* What this build has, for scripts, then what this machine lets it use of that. */
Status version_command(const Options *options, JobFiles *files, FILE *to)
{
    DoctorMachine machine;
    (void)options, (void)files;
    doctor_measure(&machine);
    fprintf(to, "towers %s %s", TOWERS_VERSION, backends_built);
    fprintf(to, *program_commit ? ", commit %s\n" : "\n", program_commit);
    text_printf(to, "cpu   %s\n", machine.cpu_backend);
    text_printf(to, "cuda  %s\n", machine.cuda_backend);
    text_printf(to, "mpi   %s\n", *machine.mpi ? machine.mpi : "not in this build");
    fputs("reads", to);
    for (ImageFormat f = IMAGE_RAW + 1; f < IMAGE_FORMATS; f++)
        if (image_format_read(f)) fprintf(to, "%s %s", f == IMAGE_RAW + 1 ? "" : ",", image_format_name(f));
    fputc('\n', to);
    return OK;
}

static bool help_wanted(const Options *options)
{
    return options->help || options->help_all || options->help_debug || options->version;
}

Status help_command(const Options *options, JobFiles *files, FILE *to)
{
    Verb verb = options->verb == VERB_HELP && !help_wanted(options) ? VERB_NONE : options->verb;
    const char *name = options->argument_count ? options->arguments[0] : NULL;
    const Model *model = NULL;
    (void)files;
    if (options->verb == VERB_HELP && name) {
        verb = verb_find(name);
        if (verb == VERB_NONE) return help_option_print(to, name, help_width());
    } else if (name && model_find(name, &model) != OK) {
        model = NULL; /* not a model: help about all */
    }
    help_print(to, verb, model,
               options->help_debug ? LEVEL_DEBUG
               : options->help_all ? LEVEL_ADVANCED
                                   : LEVEL_BASIC,
               help_width());
    return OK;
}

Status man_command(const Options *options, JobFiles *files, FILE *to)
{
    const char *name = options->argument_count ? options->arguments[0] : NULL;
    Verb verb = name ? verb_find(name) : VERB_NONE;
    (void)files;
    if (options->json) return manual_json(to);
    if (name && verb == VERB_NONE) return FAIL(ERR_ARG, "unknown command '%s'; 'towers help' lists all commands", name);
    if (options->markdown)
        pages_print(to, verb);
    else
        manual_print(to, verb);
    return OK;
}

Status completion_command(const Options *options, JobFiles *files, FILE *to)
{
    (void)files;
    return completion_print(to, options->argument_count ? options->arguments[0] : NULL);
}

Status open_nothing(Options *options, JobFiles *files)
{
    (void)options, (void)files;
    return OK;
}

/* ---- */

static const struct {
    OpenFunction *open;
    CommandFunction *run;
} commands[VERB_COUNT] = {
    [VERB_NONE] = {open_nothing, help_command},
#define COMMAND(id, name, open, run, ...) [VERB_##id] = {open, run},
#include "inception/options/commands.def"
};

static Status verb_run(Options *options, Ending *ending)
{
    JobFiles files = {0};
    if (options->version) return version_command(options, &files, stdout);
    if (help_wanted(options)) return help_command(options, &files, stdout);
    Status st = commands[options->verb].open(options, &files);
    if (st == OK && options->print_config) {
        if (hosts_lead(&files)) options_print_config(options, stdout);
    } else if (st == OK) {
        st = commands[options->verb].run(options, &files, stdout);
    }
    *ending = files.ending;
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
    if (!verb_info(options->verb)->computes || help_wanted(options) || options->threads == 1) return;
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2 || getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY")) return;
    if (setenv("GOMP_SPINCOUNT", "2000", 1) == 0) execv("/proc/self/exe", argv);
}

/* In builds for tests a code that the command's row does not list is a bug, so that each test of a command compares the two. */
static Status exit_compare(Verb verb, Status st, const Ending *ending)
{
#ifdef TOWERS_FAULTS
    int code = ending_exit_code(st, ending);
    bool any = verb == VERB_NONE || ending->coded;
    if (!any && !(code < 128 ? verb_exits(verb, code) : verb_exits_by_signal(verb)))
        return FAIL(ERR_INTERNAL, "towers %s ends with %d, which its row in commands.def does not list: %s",
                    verb_info(verb)->name, code, status_message());
#else
    (void)verb, (void)ending;
#endif
    return st;
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
    program_commit = TOWERS_COMMIT;
    weights_of_network = network_values_open;
    signal(SIGCHLD, SIG_DFL); /* ignored by whoever starts this program, it would leave no child to wait for */
    signal(SIGXFSZ, SIG_IGN); /* exceeding a file size limit becomes a write error */
    Options options;
    Ending ending = {0};
    Verb verb = VERB_NONE;
    Status st = options_parse(argc, argv, environ, &options);
    if (st == OK) {
        verb = options.verb;
        image_pixels_limit(options.max_pixels);
        short_spins(&options, argv);
        st = verb_run(&options, &ending);
        if (st != OK) st = options_as_typed(&options, st);
        options_close(&options);
    }
    /* Check that all output was written. If its reader has gone, end silently by SIGPIPE like other programs, even if
     * that signal was ignored; any other error is reported. */
    if (st == OK || st == ERR_IO) st = output_end(st, &ending);
    if (st == ERR_INTERRUPTED && ending.signal == SIGPIPE) {
        outlets_finish();
        signal(SIGPIPE, SIG_DFL);
        raise(SIGPIPE);
    }
    if (st == OK) return 0;
    st = exit_compare(verb, st, &ending);
    fflush(stdout); /* what was printed stands before why it ended */
    status_print(stderr, st, getenv("TOWERS_TRACE") != NULL);
    hosts_error_file(st);
    return ending_exit_code(st, &ending);
}
