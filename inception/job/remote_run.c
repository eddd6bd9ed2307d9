/* A run in an object store; see remote_run.h. */
#include "inception/job/remote_run.h"

#include "inception/job/foreign_settings.h"
#include "inception/job/notes.h"
#include "inception/job/progress_line.h"
#include "inception/options/settle.h"
#include "towers/run_store/bring.h"

typedef struct RunShown {
    const Options *options;
    ProgressLine line;
    char left[1024]; /* settings that are left out, "": none */
} RunShown;

static void run_show(void *context, const char *name, int64_t done, int64_t all)
{
    RunShown *shown = context;
    if (!progress_line_due(&shown->line)) return;
    text_printf(stderr, "bringing the run: %s, %.1f of %.1f MB", name, (double)done / 1e6,
                (double)(all < 0 ? done : all) / 1e6);
    progress_line_flush();
}

static void run_again(void *context, const char *line)
{
    const RunShown *shown = context;
    progress_line_message(&shown->line, line);
}

static void foreign_note(void *context, const char *flag, const char *value)
{
    RunShown *shown = context;
    Text text = text_behind(shown->left, sizeof shown->left);
    text_add(&text, "%s--%s '%s'", text.used ? ", " : "", flag, value);
}

/* Whoever may write to the bucket may not write, read and run here what they like. */
static Status settings_check(void *context, const char *folder)
{
    RunShown *shown = context;
    return foreign_settings_close(shown->options, folder, foreign_note, shown);
}

Status remote_run_bring(Options *o, const char *root, JobFiles *files)
{
    char path[PATH_BYTES];
    BroughtRun brought;
    RunShown shown = {.options = o, .line = progress_line()};
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
                            .check = settings_check,
                            .context = &shown};
    TRY(path_join(path, root, o->experiment ? o->experiment : strrchr(o->resume, '/') + 1));
    Status st = run_bring(&store, path, &brought);
    progress_line_end(&shown.line);
    TRY(st);
    if (brought.here) TRY(foreign_commands_refuse(o, path));
    if (brought.here)
        job_note(files, "%s is here already, up to step %" PRId64 ", in %s: nothing was brought", o->resume,
                 brought.step, path);
    else
        job_note(files, "%s was brought to %s: step %" PRId64 ", %d files, %.1f MB", o->resume, path, brought.step,
                 brought.files, (double)brought.bytes / 1e6);
    if (*shown.left)
        job_note(
            files,
            "%s of the run in the store is left out: a place that this call does not name. Give it to have it here",
            shown.left);
    if (*brought.note) job_note(files, "warning: %s", brought.note);
    return option_settle_text(o, OPTION_ID_resume, path);
}

Status remote_run_settle(Options *o, const char *address)
{
    if (o->origin[OPTION_ID_upload] != ORIGIN_RUN || !o->upload || !strcmp(o->upload, "none")) return OK;
    return option_settle_text(o, OPTION_ID_upload, address);
}
