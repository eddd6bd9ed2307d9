/* A run in an object store; see remote_run.h. */
#include "inception/job/remote_run.h"

#include "inception/job/notes.h"
#include "inception/job/run_argument.h"
#include "inception/options/settle.h"
#include "kernels/base/clock.h"
#include "towers/run_store/bring.h"

typedef struct RunShown {
    const Options *options;
    bool tty, begun;
    int64_t at; /* ns: of the last line */
} RunShown;

static void run_show(void *context, const char *name, int64_t done, int64_t all)
{
    enum { EVERY_MS = 200 };
    RunShown *shown = context;
    int64_t now = clock_ns();
    if (!shown->tty || now - shown->at < EVERY_MS * INT64_C(1000000)) return;
    shown->at = now;
    shown->begun = true;
    text_printf(stderr, "\rbringing the run: %s, %.1f of %.1f MB\33[K", name, (double)done / 1e6,
                (double)(all < 0 ? done : all) / 1e6);
    fflush(stderr);
}

static void run_again(void *context, const char *line)
{
    const RunShown *shown = context;
    if (shown->tty) fputs("\r\33[K", stderr);
    text_printf(stderr, "%s\n", line);
}

/* Whoever may write to the bucket could run commands here. What --upload copies has none, as the two exclude each other. */
static Status command_refuse(void *context, const char *folder)
{
    const RunShown *shown = context;
    Options then;
    char *settings = NULL;
    size_t bytes;
    TRY(options_copy(shown->options, &then));
    Status st = run_settings_apply(&then, folder, &settings, &bytes);
    bool theirs = then.origin[OPTION_ID_after_checkpoint] == ORIGIN_RUN;
    if (st == OK && theirs && then.after_checkpoint && strcmp(then.after_checkpoint, "none") != 0)
        st = FAIL(ERR_ARG,
                  "--resume %s: the run in the store has --after-checkpoint '%s', and a command from a store is not "
                  "run: give it, or none, with --after-checkpoint",
                  then.resume, then.after_checkpoint);
    free(settings);
    options_close(&then);
    return st;
}

Status remote_run_bring(Options *o, const char *root, JobFiles *files)
{
    char path[PATH_BYTES];
    BroughtRun brought;
    RunShown shown = {.options = o, .tty = isatty(STDERR_FILENO)};
    TRY(run_store_check(o->resume, "--resume"));
    if (o->dry_run || o->print_config)
        return FAIL(
            ERR_ARG,
            "--resume %s: this call downloads nothing; the same without --dry-run and --print-config brings the "
            "run to this machine",
            o->resume);
    const RunStore store = {.address = o->resume,
                            .endpoint = o->s3_endpoint,
                            .net_timeout = o->net_timeout,
                            .stall_seconds = o->stall,
                            .progress = o->quiet ? NULL : run_show,
                            .again = o->quiet ? NULL : run_again,
                            .check = command_refuse,
                            .context = &shown};
    TRY(path_join(path, root, o->experiment ? o->experiment : strrchr(o->resume, '/') + 1));
    Status st = run_bring(&store, path, &brought);
    if (shown.begun) fputs("\r\33[K", stderr);
    TRY(st);
    if (brought.here)
        job_note(files, "%s is here already, up to step %" PRId64 ", in %s: nothing was brought", o->resume,
                 brought.step, path);
    else
        job_note(files, "%s was brought to %s: step %" PRId64 ", %d files, %.1f MB", o->resume, path, brought.step,
                 brought.files, (double)brought.bytes / 1e6);
    if (*brought.note) job_note(files, "warning: %s", brought.note);
    return option_settle_text(o, OPTION_ID_resume, path);
}

Status remote_run_settle(Options *o, const char *address)
{
    if (o->origin[OPTION_ID_upload] != ORIGIN_RUN || !o->upload || !strcmp(o->upload, "none")) return OK;
    return option_settle_text(o, OPTION_ID_upload, address);
}
