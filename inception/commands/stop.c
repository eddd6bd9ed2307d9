/* towers stop: asks a run that goes on, from whatever terminal it was started, to save and end, as Ctrl-C there does, and waits for it. */
#include "inception/commands/commands.h"

#include "inception/report/runs.h"
#include "kernels/base/pause.h"
#include "kernels/base/place.h"
#include "kernels/base/timeouts.h"
#include "towers/files/json.h"
#include "towers/store/run_dir.h"

#include <signal.h>

static Status running_find(const char *run, pid_t *pid)
{
    char below[PATH_BYTES];
    if (!is_run(run)) {
        bool there = !strchr(run, '/') && path_join(below, "runs", run) == OK && is_run(below);
        return FAIL(ERR_ARG, "'%s' is no run%s%s%s; 'towers runs' lists them", run, there ? "; did you mean " : "",
                    there ? below : "", there ? "?" : "");
    }
    if (!run_dir_taken(run)) return FAIL(ERR_ARG, "%s does not go on: there is nothing to stop", run);
    *pid = run_dir_holder(run);
    if (*pid) return OK;
    return FAIL(ERR_ARG,
                "%s goes on, but no process here has it: it is on another machine, in another container or of another "
                "user; stop it there",
                run);
}

/* Whether that process still has the run, or its towers do (no holder): another command may take it as soon as it ends. */
static bool goes_on(const char *run, pid_t pid)
{
    pid_t holder = run_dir_taken(run) ? run_dir_holder(run) : -1;
    return holder == pid || holder == 0;
}

/* When outcome.json was written; 0: there is none. */
static struct timespec outcome_time(const char *run)
{
    char path[PATH_BYTES];
    struct stat info;
    bool there = path_join(path, run, "outcome.json") == OK && place_stat(path, &info) == 0;
    return there ? info.st_mtim : (struct timespec){0};
}

Status stop_command(const Options *o, JobFiles *files, FILE *to)
{
    pid_t pid;
    (void)files;
    if (o->argument_count == 0) return FAIL(ERR_ARG, "no run given; usage: towers stop RUN");
    const char *run = o->arguments[0];
    TRY(running_find(run, &pid));
    struct timespec before = outcome_time(run);
    if (kill(pid, SIGTERM) != 0 && errno != ESRCH)
        return FAIL(ERR_ARG, "cannot stop %s, which is pid %ld: %s", run, (long)pid, strerror(errno));
    text_printf(stderr, "%s saves and ends (pid %ld)\n", run, (long)pid);
    while (goes_on(run, pid)) pause_ms(WAIT_LOOK_MS);
    struct timespec now = outcome_time(run);
    bool written = now.tv_sec != before.tv_sec || now.tv_nsec != before.tv_nsec; /* else it is that of an earlier end */
    json_t *outcome = written ? json_of_run(run, "outcome.json") : NULL;
    const char *message = json_word(outcome, "message");
    text_printf(to, "%s: %s\n", run, message && *message ? message : "ended");
    json_decref(outcome);
    return OK;
}
