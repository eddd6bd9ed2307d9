/* Running the command of --after-checkpoint, or the copy of --upload; see after_checkpoint.h.
 *
 * The process that runs it looks, a few times each second, at what is on offer, at its command, at the order of the supervisor, and
 * whether that is still its parent. It is forked while the supervisor has one thread, and alone opens files and forks, which storage
 * may delay. Stop signals are none of its affairs, nor of the command's: a terminal sends them to the group of the run. */
#include "towers/supervisor/after_checkpoint.h"
#include "kernels/base/outlet.h"
#include "kernels/base/pause.h"
#include "kernels/base/place.h"
#include "nccl_sync/hosts/control.h"
#include "towers/run_store/upload.h"
#include "towers/supervisor/stop_signals.h"
#include "towers/train/outcome.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

static const char shell[] = "/bin/sh";
enum { ENDING_TEXT = 64, FILES_MOST = 1 << 16, UPLOAD_NICE = 10 };
enum { UPLOAD_TAKEN = 2 /* exit code of a copy whose place is somebody else's by now */ };

bool upload_is_on(const TrainJob *job)
{
    return job->upload && strcmp(job->upload, "none") != 0;
}

static const char *option_of(const TrainJob *job)
{
    return upload_is_on(job) ? "--upload" : "--after-checkpoint";
}

static const char *log_of(const TrainJob *job)
{
    return upload_is_on(job) ? UPLOAD_LOG : AFTER_CHECKPOINT_LOG;
}

static RunStore store_of(const TrainJob *job)
{
    return (RunStore){.address = job->upload,
                      .endpoint = job->s3_endpoint,
                      .net_timeout = job->net_timeout,
                      .stall_seconds = job->stall};
}

/* ---- the process that runs the command */

typedef struct CommandProcess {
    Offers *offers; /* shared */
    const TrainJob *job;
    const char *command; /* NULL: the run is copied to job->upload */
    char run_dir[PATH_BYTES], log[PATH_BYTES];
    pid_t self, parent;
    pid_t pid; /* of the command, and its process group; 0: none runs */
    bool last; /* it is, or was, that of the end */
    int64_t taken, began_ns;
} CommandProcess;

static const char *ending_text(int ending, char text[ENDING_TEXT])
{
    char name[SIGNAL_TEXT_BYTES];
    if (ending == -1)
        snprintf(text, ENDING_TEXT, "could not be started");
    else if (WIFSIGNALED(ending))
        snprintf(text, ENDING_TEXT, "was killed by %s", signal_text(WTERMSIG(ending), name));
    else
        snprintf(text, ENDING_TEXT, "ended with exit code %d", WEXITSTATUS(ending));
    return text;
}

/* A log that cannot be written ends nothing: the command is what matters. */
static void log_line(const CommandProcess *c, const char *what)
{
    char line[256], now[32];
    now_text(now);
    int bytes = snprintf(line, sizeof line, "%s %s of step %" PRId64 " %s\n", now, c->last ? "end" : "checkpoint",
                         atomic_load(&c->offers->reads), what);
    (void)!run_file_append(c->log, line, (size_t)bytes);
}

static void environment_set(const CommandProcess *c)
{
    char step[32], checkpoint[PATH_BYTES + 64];
    int64_t reads = atomic_load(&c->offers->reads);
    snprintf(step, sizeof step, "%" PRId64, reads);
    snprintf(checkpoint, sizeof checkpoint, "%s/ckpt/step-%010" PRId64, c->run_dir, reads);
    if (setenv("TOWERS_RUN_DIR", c->run_dir, 1) != 0 || setenv("TOWERS_CHECKPOINT", checkpoint, 1) != 0 ||
        setenv("TOWERS_STEP", step, 1) != 0 || setenv("TOWERS_EVENT", c->last ? "end" : "checkpoint", 1) != 0)
        _exit(127);
}

static void upload_progress(void *context, int64_t sent, int64_t all)
{
    Offers *offers = context;
    atomic_store(&offers->sent, sent);
    atomic_store(&offers->whole, all);
}

static void upload_again(void *context, const char *line)
{
    char now[32];
    (void)context;
    now_text(now);
    dprintf(STDERR_FILENO, "%s %s\n", now, line);
}

/* In the child. Training comes first where both want the processor. */
static _Noreturn void upload_become(const CommandProcess *c)
{
    RunStore store = store_of(c->job);
    Offers *offers = c->offers;
    UploadCount count;
    const UploadWatch watch = {upload_progress, offers};
    store.again = upload_again;
    (void)setpriority(PRIO_PROCESS, 0, UPLOAD_NICE);
    upload_progress(offers, 0, 0);
    Status st = upload_run(&store, c->job->run_dir, atomic_load(&offers->reads), &watch, &count);
    dprintf(STDERR_FILENO, "%d of %d files sent, %.1f MB\n", count.sent, count.files, (double)count.came / 1e6);
    if (count.left_out)
        dprintf(STDERR_FILENO,
                "%d files left out: links, pipes, folders in more than %d others, and names that no address has\n",
                count.left_out, RUN_STORE_DEPTH);
    if (st == OK) _exit(0);
    snprintf(offers->why, sizeof offers->why, "%s", status_message());
    dprintf(STDERR_FILENO, "%s\n", offers->why);
    _exit(count.taken ? UPLOAD_TAKEN : 1);
}

/* In the child. A session of its own: tools that would ask for a password find no terminal and fail. Its standard input is that of
 * this process, /dev/null. */
static _Noreturn void command_become(const CommandProcess *c, int log)
{
    static const int defaults[] = {SIGHUP, SIGPIPE, SIGXFSZ};
    sigset_t none;
    sigemptyset(&none);
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) signal(defaults[i], SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != c->self || setsid() < 0) _exit(127);
    if (log >= 0 && (dup2(log, STDOUT_FILENO) < 0 || dup2(log, STDERR_FILENO) < 0)) _exit(127);
    if (!c->command) upload_become(c);
    long most = sysconf(_SC_OPEN_MAX);
    for (int fd = STDERR_FILENO + 1; fd < (most > 0 && most < FILES_MOST ? most : FILES_MOST); fd++) close(fd);
    environment_set(c);
    execl(shell, "sh", "-c", c->command, (char *)NULL);
    dprintf(STDERR_FILENO, "%s: %s\n", shell, strerror(errno));
    _exit(127);
}

static void command_ended(CommandProcess *c, int ending)
{
    char text[ENDING_TEXT], line[2 * ENDING_TEXT];
    bool failed = ending == -1 || !WIFEXITED(ending) || WEXITSTATUS(ending) != 0;
    snprintf(line, sizeof line, "%s after %.1f s", ending_text(ending, text),
             (double)(clock_ns() - c->began_ns) * 1e-9);
    if (failed) {
        CommandFailure failure = {atomic_load(&c->offers->reads), c->last, ending, ""};
        snprintf(failure.why, sizeof failure.why, "%s", c->offers->why);
        offers_fail(c->offers, &failure);
    }
    if (!failed && c->last) atomic_store(&c->offers->finished, true);
    log_line(c, line); /* after what the supervisor reads, because storage may delay it */
    atomic_store(&c->offers->reads, NO_STEP);
    c->pid = 0;
}

/* For the checkpoint in `reads`. */
static void command_start(CommandProcess *c)
{
    int log = -1;
    c->began_ns = clock_ns();
    atomic_fetch_add(&c->offers->run, 1);
    *c->offers->why = 0;
    log_line(c, "begins");
    if (run_file_open(c->log, true, false, &log) == OK) (void)fcntl(log, F_SETFL, O_APPEND);
    pid_t pid = fork();
    if (pid == 0) command_become(c, log);
    if (log >= 0) close(log);
    c->pid = pid;
    if (pid < 0) command_ended(c, -1);
}

/* Ends the command with its process group, which may outlive the shell. Nothing is sent to ids that others may have by now: that of the
 * shell once it is reaped, and that of the group once it is empty, too. */
static void command_end(CommandProcess *c)
{
    int ending = 0;
    pid_t group = c->pid;
    pid_t ended = 0;
    bool left = true;
    int64_t until = clock_ns() + COMMAND_LEAVE_MS * 1000000ll;
    kill(-group, SIGTERM);
    kill(group, SIGTERM); /* which may not have its group yet */
    for (; left && clock_ns() < until; pause_ms(COMMAND_LOOK_MS / 10)) {
        if (!ended) ended = waitpid(group, &ending, WNOHANG);
        left = !ended || kill(-group, 0) == 0;
    }
    if (left) kill(-group, SIGKILL);
    if (!ended && kill(group, SIGKILL) == 0) waitpid(group, &ending, 0);
    command_ended(c, ending);
}

static _Noreturn void command_process_run(CommandProcess *c)
{
    sigset_t child;
    struct timespec look = {0, COMMAND_LOOK_MS * 1000000l};
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    for (;; (void)sigtimedwait(&child, NULL, &look)) {
        int ending, order = atomic_load(&c->offers->order);
        bool leaves = order == OFFERS_LEAVE || getppid() != c->parent;
        if (c->pid && waitpid(c->pid, &ending, WNOHANG) == c->pid) command_ended(c, ending);
        if (leaves && c->pid) command_end(c);
        if (leaves || (order == OFFERS_FINISH && c->last && !c->pid)) break;
        if (c->pid) continue;
        if (offers_take(c->offers, &c->taken)) {
            command_start(c);
        } else if (order == OFFERS_FINISH) {
            c->last = true;
            atomic_store(&c->offers->reads, offers_newest(c->offers));
            command_start(c);
        }
    }
    atomic_fetch_add(&c->offers->skipped, atomic_load(&c->offers->count) - c->taken);
    _exit(0);
}

/* In the child. Nothing that it says may reach a console, and no reader of a pipe waits for it. */
static _Noreturn void command_process_become(CommandProcess *c, const TrainJob *job)
{
    control_forget(job->control);
    if (setpgid(0, 0) != 0 || getppid() != c->parent) _exit(1);
    prctl(PR_SET_NAME, "after_ckpt");
    int null = place_open("/dev/null", O_RDWR);
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (null < 0 || dup2(null, fd) < 0) _exit(1);
    c->self = getpid();
    command_process_run(c);
}

static void claim_again(void *context, const char *line)
{
    const TrainJob *job = context;
    if (!job->quiet) text_printf(stderr, "%s\n", line);
}

Status upload_claim(TrainJob *job)
{
    if (!upload_is_on(job)) return OK;
    RunStore store = store_of(job);
    store.again = claim_again;
    store.context = job;
    return run_store_claim(&store, job->run_dir);
}

Status after_checkpoint_start(TrainJob *job)
{
    bool copies = upload_is_on(job);
    CommandProcess c = {.job = job, .command = copies ? NULL : job->after_checkpoint, .parent = getpid()};
    sigset_t all, before;
    if (!copies && (!c.command || !strcmp(c.command, "none"))) return OK;
    if (!copies && place_access(shell, X_OK) != 0)
        return FAIL(ERR_UNSUPPORTED, "--after-checkpoint needs %s, which this machine does not have: %s", shell,
                    strerror(errno));
    if (!realpath(job->run_dir, c.run_dir))
        return FAIL(ERR_IO, "cannot find the directory '%s': %s", job->run_dir, strerror(errno));
    TRY(path_join(c.log, job->run_dir, log_of(job))); /* by the name that the held directory has */
    TRY(offers_create(&c.offers));
    fflush(NULL);
    sigfillset(&all);
    outlets_pause();
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = fork();
    if (pid == 0) command_process_become(&c, job);
    int error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    outlets_resume();
    if (pid < 0) {
        offers_destroy(c.offers);
        return FAIL(ERR_MEMORY, "cannot start the process of %s: %s", option_of(job), strerror(error));
    }
    c.offers->pid = pid;
    job->offers = c.offers;
    return OK;
}

/* ---- in the supervisor */

void after_checkpoint_reaped(const TrainJob *job, pid_t pid)
{
    if (job->offers && job->offers->pid == pid) job->offers->pid = 0;
}

static void failure_warn(const TrainJob *job, const CommandFailure *failure, Console *console)
{
    char text[ENDING_TEXT];
    const char *ending = ending_text(failure->ending, text);
    bool taken = failure->ending != -1 && WIFEXITED(failure->ending) && WEXITSTATUS(failure->ending) == UPLOAD_TAKEN;
    if (upload_is_on(job))
        console_warn(console, "--upload: the checkpoint of step %" PRId64 " was not copied: %s%s", failure->step,
                     *failure->why ? failure->why : ending, taken ? "" : "; the next copy has all that is missing");
    else
        console_warn(console,
                     "--after-checkpoint: the command for the checkpoint of step %" PRId64
                     " %s; its output is in %s/%s",
                     failure->step, ending, job->run_dir, AFTER_CHECKPOINT_LOG);
}

void after_checkpoint_look(const TrainJob *job, Console *console)
{
    Offers *o = job->offers;
    if (!o) return;
    for (int64_t failed = atomic_load(&o->failed); o->reported < failed; o->reported++) {
        const CommandFailure *failure = &o->failure[o->reported % FAILURES_KEPT];
        bool replaced = o->reported < failed - FAILURES_KEPT / 2; /* or it may be while it is read */
        if (failure->last || replaced) continue;                  /* of the last, after_checkpoint_end has the words */
        failure_warn(job, failure, console);
    }
    if (atomic_load(&o->skipped) && !o->skips_reported) {
        o->skips_reported = true;
        console_warn(console,
                     "%s: a %s took longer than the time between two checkpoints; those that come "
                     "meanwhile are skipped, and the newest is next",
                     option_of(job), upload_is_on(job) ? "copy" : "command");
    }
    if (!o->pid && !o->death_reported && atomic_load(&o->order) == OFFERS_GO_ON) {
        o->death_reported = true;
        console_warn(console, "%s: its process was killed; no checkpoint is taken any more", option_of(job));
    }
}

/* Whether the process has ended; it is a child, and nobody else reaps any more. */
static bool process_has_ended(Offers *o)
{
    if (o->pid && waitpid(o->pid, NULL, WNOHANG) != 0) o->pid = 0;
    return !o->pid;
}

static int64_t limit_of(const TrainJob *job)
{
    return upload_is_on(job) ? job->upload_timeout : job->after_checkpoint_timeout;
}

static void wait_show(const TrainJob *job, int64_t waited_ns, int64_t *shown_ns)
{
    int64_t first = COMMAND_SAID_MS * 1000000ll,
            again = job->tty ? COMMAND_SHOWN_MS * 1000000ll : COMMAND_AGAIN_MS * 1000000ll;
    if (job->quiet || waited_ns < first || (*shown_ns && waited_ns - *shown_ns < again)) return;
    *shown_ns = waited_ns;
    char moved[96] = "";
    const Offers *o = job->offers;
    if (upload_is_on(job))
        snprintf(moved, sizeof moved, ", %.1f of %.1f MB sent", (double)atomic_load(&o->sent) / 1e6,
                 (double)atomic_load(&o->whole) / 1e6);
    fprintf(stderr, "%swaiting for %s for %.0f s, at most %" PRId64 " s%s; a signal ends the wait%s",
            job->tty ? "\r\033[J" : "", option_of(job), (double)waited_ns * 1e-9, limit_of(job), moved,
            job->tty ? "" : "\n");
    fflush(stderr);
}

/* Why the process was left before it has ended: "" if it was not. */
static void process_wait(const TrainJob *job, char *why, size_t bytes)
{
    Offers *o = job->offers;
    sigset_t stops, before;
    struct timespec look = {0, COMMAND_LOOK_MS * 1000000l};
    char name[SIGNAL_TEXT_BYTES];
    int64_t began = clock_ns(), shown = 0, limit = limit_of(job) * 1000000000;
    stop_signals(job, &stops);
    pthread_sigmask(SIG_BLOCK, &stops, &before);
    while (!process_has_ended(o) && !*why) {
        int number = sigtimedwait(&stops, NULL, &look);
        int64_t waited = clock_ns() - began;
        if (number > 0)
            snprintf(why, bytes, "%s ended the wait after %.0f s", signal_text(number, name), (double)waited * 1e-9);
        else if (waited >= limit)
            snprintf(why, bytes, "it did not end within %" PRId64 " s (%s-timeout)", limit_of(job), option_of(job));
        else
            wait_show(job, waited, &shown);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (shown && job->tty) fputs("\r\033[J", stderr);
}

/* It ends its command first. One that a system call holds is left: it ends when it sees that its parent has gone. */
static void process_leave(Offers *o)
{
    int64_t until = clock_ns() + LEAVE_MS * 1000000ll;
    atomic_store(&o->order, OFFERS_LEAVE);
    while (!process_has_ended(o) && clock_ns() < until) pause_ms(COMMAND_LOOK_MS / 10);
}

Status after_checkpoint_end(const TrainJob *job, bool waits)
{
    Offers *o = job->offers;
    char why[FAILURE_BYTES + 128] = "", text[ENDING_TEXT];
    if (!o) return OK;
    bool finishes = waits && atomic_load(&o->count) > 0;
    if (finishes) atomic_store(&o->order, OFFERS_FINISH);
    if (finishes) process_wait(job, why, sizeof why);
    process_leave(o);
    int64_t failed = atomic_load(&o->failed);
    const CommandFailure *failure = &o->failure[(failed + FAILURES_KEPT - 1) % FAILURES_KEPT];
    bool finished = !finishes || atomic_load(&o->finished);
    if (failed && failure->last && !*why && *failure->why)
        snprintf(why, sizeof why, "%s", failure->why);
    else if (failed && failure->last && !*why)
        snprintf(why, sizeof why, "it %s", ending_text(failure->ending, text));
    after_checkpoint_look(job, &(Console){0});
    if (!job->quiet && atomic_load(&o->count))
        fprintf(stderr, "%s: %" PRId64 " %s, %" PRId64 " failed, %" PRId64 " checkpoints skipped\n",
                upload_is_on(job) ? "upload" : "after checkpoints", atomic_load(&o->run),
                upload_is_on(job) ? "copies" : "commands", failed, atomic_load(&o->skipped));
    if (finished) return OK;
    if (upload_is_on(job))
        return FAIL(ERR_IO,
                    "the run has ended, and %s has all of it, but its last copy to %s is not complete: %s (" UPLOAD_LOG
                    " there says more; --resume %s copies what is missing)",
                    job->run_dir, job->upload, *why ? why : "the process of --upload was killed", job->run_dir);
    return FAIL(
        ERR_IO,
        "the run has ended, and %s has all of it, but the last command of --after-checkpoint has not succeeded: %s "
        "(its output is in %s/%s)",
        job->run_dir, *why ? why : "the process that runs it was killed", job->run_dir, AFTER_CHECKPOINT_LOG);
}
