/* The supervisor: makes the shared memory, starts one process per tower, watches them, shows the console, and ends them
 * together.
 *
 * It touches no device and waits for nothing that a tower does, so it can always report: a dead tower is noticed at
 * once (its exit wakes the loop), a silent one by its heartbeat. The first failure of all is the root cause and decides
 * the exit code. */
#include "towers/train/console.h"
#include "towers/train/process.h"
#include "towers/train/train.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TICK_MS = 50, GRACE_MS = 1500 /* for the others, after one tower is gone */, PAUSE_MS = 1000 };

typedef Status (*TowerMain)(const TrainJob *job, int rank, Ledger *ledger, CommShared *shared);

typedef struct Child {
    pid_t pid; /* 0 once it is reaped */
} Child;

typedef struct Supervisor {
    const TrainJob *job; /* borrowed */
    Ledger *ledger;      /* owned */
    CommShared *shared;  /* owned */
    Child child[TOWERS_MAX];
    int alive;
    int64_t ticked_ns, awake_ns; /* the last tick; since when silence counts: when this process itself went on */
    int64_t kill_at_ns;          /* 0: nobody has failed yet */
    int signals;                 /* stop signals received */
    bool stop_at_once;           /* there is nothing to save: the first one ends the run */
    Status status;               /* root cause */
    StatusText words;            /* of it */
    Console console;
    sigset_t old_mask, watched;
} Supervisor;

/* ---- starting */

static Status shared_create(Supervisor *s)
{
    /* The layout is not known before a graph is built: build one here, without a device. */
    const TrainJob *job = s->job;
    Program program;
    Layout *layout = NULL;
    ProgramConfig config = job->program;
    config.training = true;
    TRY(program_graph(&config, 1, &program));
    Status st = layout_create(program.graph, &layout);
    size_t room = st == OK ? job_comm_room(job, layout) : 0;
    layout_destroy(layout);
    program_destroy(&program);
    TRY(st);
    TRY(ledger_create(job->shares.towers, job->processes, &s->ledger));
    return comm_shared_create(job->shares.towers, job->processes, room, &s->shared);
}

static void child_main(Supervisor *s, TowerMain tower_main, int rank, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* towers never outlive their supervisor */
    if (getppid() != parent) _exit(1);
    char name[16];
    snprintf(name, sizeof name, "tower%d", job_first_tower(s->job, rank));
    prctl(PR_SET_NAME, name);
    /* Stop signals are the supervisor's to handle: a terminal sends them to the whole group. */
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGUSR2, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    sigprocmask(SIG_SETMASK, &s->old_mask, NULL);
    Status st = tower_main(s->job, rank, s->ledger, s->shared);
    fflush(NULL);
    _exit(st == OK ? 0 : status_exit_code(st));
}

static Status children_start(Supervisor *s, TowerMain tower_main)
{
    pid_t parent = getpid();
    fflush(NULL);
    for (int r = 0; r < s->job->processes; r++) {
        pid_t pid = fork();
        if (pid < 0)
            return FAIL(ERR_MEMORY, "cannot start tower process %d of %d: %s", r, s->job->processes, strerror(errno));
        if (pid == 0) child_main(s, tower_main, r, parent);
        s->child[r].pid = pid;
        s->alive++;
    }
    return OK;
}

/* ---- watching */

static void root_cause(Supervisor *s, Status status)
{
    if (s->status != OK) return;
    s->status = status;
    status_keep(&s->words);
}

/* Where a process is, by the tower whose turn it is: "tower 1 (process 1), step 5, phase forward". */
static void where_text(const Supervisor *s, int rank, char *text, size_t bytes)
{
    int tower = job_first_tower(s->job, rank);
    for (int t = tower + 1; t < job_first_tower(s->job, rank + 1); t++)
        if (atomic_load(&s->ledger->tower[t].heartbeat_ns) > atomic_load(&s->ledger->tower[tower].heartbeat_ns))
            tower = t;
    const LedgerTower *row = &s->ledger->tower[tower];
    snprintf(text, bytes, "tower %d (process %d), step %lld, phase %s", tower, rank, (long long)atomic_load(&row->step),
             phase_name((Phase)atomic_load(&row->phase)));
}

static void failure_note(Supervisor *s, int rank, int wait_status)
{
    char where[128];
    int first = atomic_load(&s->ledger->first_failed) - 1;
    where_text(s, rank, where, sizeof where);
    if (first >= 0 && atomic_load(&s->ledger->process[first].status) != OK && WIFEXITED(wait_status)) {
        const LedgerProcess *failed = &s->ledger->process[first];
        root_cause(s, status_restore((Status)atomic_load(&failed->status), &failed->words));
    } else if (WIFSIGNALED(wait_status)) {
        int number = WTERMSIG(wait_status);
        root_cause(s, FAIL(ERR_COMM, "%s: killed by signal %d (%s)%s", where, number, strsignal(number),
                           number == SIGKILL ? "; if nobody did, the machine ran out of memory (see dmesg)" : ""));
    } else {
        root_cause(s, FAIL(ERR_COMM, "%s: ended unexpectedly with exit code %d", where, WEXITSTATUS(wait_status)));
    }
}

static void others_abort(Supervisor *s, int rank)
{
    comm_shared_abort(s->shared, rank);
    if (!s->kill_at_ns) s->kill_at_ns = clock_ns() + GRACE_MS * 1000000ll;
}

static void children_reap(Supervisor *s)
{
    int wait_status;
    for (pid_t pid; (pid = waitpid(-1, &wait_status, WNOHANG)) > 0;) {
        for (int r = 0; r < s->job->processes; r++) {
            if (s->child[r].pid != pid) continue;
            s->child[r].pid = 0;
            s->alive--;
            if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) continue;
            failure_note(s, r, wait_status);
            others_abort(s, r);
        }
    }
}

static void children_kill(Supervisor *s)
{
    for (int r = 0; r < s->job->processes; r++)
        if (s->child[r].pid > 0) kill(s->child[r].pid, SIGKILL);
}

/* The tower that has been silent longest, if that is too long. One that waits in the all-reduce is a victim, not the
 * cause. */
static void silence_check(Supervisor *s)
{
    int64_t now = clock_ns(), limit = s->job->comm_timeout_ms * 1000000ll, worst = 0;
    int silent = -1;
    if (now - s->ticked_ns > PAUSE_MS * 1000000ll) s->awake_ns = now; /* stopped, as the towers may have been */
    s->ticked_ns = now;
    if (now - s->awake_ns <= limit) return;
    for (int r = 0; r < s->job->processes; r++) {
        if (!s->child[r].pid) continue;
        int64_t quiet = INT64_MAX;
        bool waiting = false;
        for (int t = job_first_tower(s->job, r); t < job_first_tower(s->job, r + 1); t++) {
            int64_t since = now - atomic_load(&s->ledger->tower[t].heartbeat_ns);
            if (since < quiet) quiet = since;
            waiting |= atomic_load(&s->ledger->tower[t].phase) == PHASE_REDUCE;
        }
        if (quiet > limit && quiet - (waiting ? limit / 2 : 0) > worst) {
            worst = quiet - (waiting ? limit / 2 : 0);
            silent = r;
        }
    }
    if (silent < 0 || s->kill_at_ns) return;
    char where[128];
    where_text(s, silent, where, sizeof where);
    root_cause(s, FAIL(ERR_COMM, "%s: no sign of life for %.1f s (--comm-timeout); ending the run", where,
                       (double)limit * 1e-9));
    others_abort(s, silent);
}

/* ---- signals */

static void signals_block(Supervisor *s)
{
    sigemptyset(&s->watched);
    sigaddset(&s->watched, SIGINT);
    sigaddset(&s->watched, SIGTERM);
    sigaddset(&s->watched, SIGUSR2);
    sigaddset(&s->watched, SIGCHLD);
    sigprocmask(SIG_BLOCK, &s->watched, &s->old_mask);
    signal(SIGPIPE, SIG_IGN); /* a closed console does not end a run */
    signal(SIGHUP, SIG_IGN);
}

static void stop_asked(Supervisor *s, int number)
{
    bool first = s->signals++ == 0;
    if (first) atomic_store(&s->ledger->run.stop_signal, number);
    if (s->stop_at_once)
        root_cause(s, FAIL(ERR_INTERRUPTED, "stopped by signal %d", number));
    else if (!first && number == SIGINT)
        root_cause(s, FAIL(ERR_INTERRUPTED, "interrupted twice: stopped without saving"));
    else
        return;
    children_kill(s);
}

static void tick(Supervisor *s)
{
    struct timespec wait = {0, TICK_MS * 1000000l};
    int number = sigtimedwait(&s->watched, NULL, &wait);
    if (number == SIGINT || number == SIGTERM || number == SIGUSR2) stop_asked(s, number);
    children_reap(s);
    silence_check(s);
    if (s->kill_at_ns && clock_ns() > s->kill_at_ns) children_kill(s);
    console_update(&s->console);
}

/* ---- the run */

static void result_fill(const Supervisor *s, TrainResult *result)
{
    const LedgerRun *run = &s->ledger->run;
    bool tested = run->tested.epoch > 0;
    *result = (TrainResult){.step = atomic_load(&run->step),
                            .test_top1 = tested ? run->tested.test_top1 : -1,
                            .test_top5 = tested ? run->tested.test_top5 : -1,
                            .best_top1 = run->best_top1,
                            .signal = atomic_load(&run->stop_signal)};
}

static Status supervise(const TrainJob *job, TowerMain tower_main, TrainResult *result, Ledger **ledger)
{
    Supervisor s = {.job = job, .ticked_ns = clock_ns(), .stop_at_once = tower_main != tower_process_train};
    signals_block(&s);
    Status st = shared_create(&s);
    if (st == OK) st = children_start(&s, tower_main);
    if (st != OK) {
        root_cause(&s, st);
        children_kill(&s);
    } else {
        console_start(&s.console, job, s.ledger);
    }
    while (s.alive > 0) tick(&s);
    if (s.ledger && st == OK) {
        result_fill(&s, result);
        console_end(&s.console);
    }
    sigprocmask(SIG_SETMASK, &s.old_mask, NULL);
    comm_shared_destroy(s.shared);
    if (ledger && s.ledger)
        *ledger = s.ledger;
    else
        ledger_destroy(s.ledger);
    return s.status == OK ? OK : status_restore(s.status, &s.words);
}

Status train_run(const TrainJob *job, TrainResult *result)
{
    return supervise(job, tower_process_train, result, NULL);
}

Status train_timed(const TrainJob *job, int *signal_number)
{
    TrainResult result = {0};
    Status st = supervise(job, tower_process_timed, &result, NULL);
    *signal_number = result.signal;
    return st;
}

Status eval_run(const TrainJob *job, const char *weights, EvalResult *result, int *signal_number)
{
    TrainJob copy = *job;
    TrainResult ended = {0};
    Ledger *ledger = NULL;
    copy.initial_weights = weights;
    copy.bn_stats = BN_STATS_FIRST; /* all towers have the file's statistics */
    copy.quiet = true;
    Status st = supervise(&copy, tower_process_eval, &ended, &ledger);
    if (st == OK) *result = ledger->eval;
    *signal_number = ended.signal;
    ledger_destroy(ledger);
    return st;
}
