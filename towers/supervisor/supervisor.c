/* The supervisor; see supervisor.h.
 *
 * It uses no device and waits for nothing that a tower does, so it can always report: a dead tower is noticed at once
 * (its exit wakes the loop), a hanging one by its missing heartbeat. The first failure is the root cause and determines
 * the exit code. A tower that does not end even when killed, because of a blocked system call, is abandoned after
 * LEAVE_MS, or DEVICE_LEAVE_MS.
 *
 * There is one loop, in the thread that has forked the towers, from their start to the end that all nodes agree on. One turn of it
 * (loop_turn) waits for a stop signal, the end of a child or the next look, at most TICK_MS, and serves the control plane; deadlines are
 * compared with the clock at each turn. It waits for no one else: what it prints goes to an outlet, files of the run are written by
 * threads (outcome.c, host_files.c), devices are read by one (device_watch.c), and names are looked up before it begins. Nothing else
 * sends the heartbeats of a node, so that they stop if this loop does, and the other nodes name it.
 *
 * With several nodes (launch.h) each has a supervisor of its own, for its processes only. They share their
 * heartbeats, the first failure, stop requests and the result through the control plane. It is served at turns, not whenever a frame
 * comes: of thousands of nodes one sends something at any time. */
#include "towers/supervisor/supervisor.h"
#include "kernels/base/outlet.h"
#include "kernels/base/silence.h"
#include "nccl_sync/comm_record.h"
#include "nccl_sync/hosts/control.h"
#include "towers/guard/stack.h"
#include "towers/supervisor/after_checkpoint.h"
#include "towers/supervisor/device_watch.h"
#include "towers/supervisor/host_files.h"
#include "towers/supervisor/stop_signals.h"
#include "towers/train/console.h"
#include "towers/train/outcome.h"
#include "towers/train/process.h"

#include <sys/resource.h>
#include <sys/wait.h>

typedef struct Supervisor {
    const TrainJob *job;   /* borrowed */
    ControlPlane *control; /* borrowed; NULL: this is the only node */
    Children towers;       /* this owns their memory */
    Silence awake;         /* between ticks: silence is counted from when this process itself was last continued */
    int64_t kill_at_ns;    /* 0: no process has failed yet */
    int64_t failed_ns;     /* when the ledger's first failure was noticed */
    int hung;              /* the process that the run ends for because it was silent; -1: none */
    int signals, interrupts, last_signal; /* received: all; SIGINT; number of the last */
    int64_t second_ns;                    /* when the second came; 0: not yet */
    bool stop_at_once;                    /* nothing to save: the first signal ends the run */
    Status status;                        /* root cause */
    StatusText words;                     /* its message */
    int taken;                            /* the process + 1 whose failure it is in the ledger; 0: none */
    bool secondary;       /* a tower failed because another node has left; that one knows the root cause */
    int64_t others_ns;    /* the last sign of life of other nodes' towers that this one's know of */
    bool elsewhere;       /* the failure of another node has been noticed */
    Heartbeat *heartbeat; /* owned; NULL: there is none */
    bool moved;           /* the run directory has gone from its name */
    DeviceWatch *devices; /* owned; NULL: they are not watched */
    bool device_reported; /* the failure of a device is the root cause */
    HostFiles *files;     /* owned: rank 0 takes the records of the others; NULL elsewhere */
    time_t started;
    Console console;
    sigset_t old_mask, watched;
} Supervisor;

/* ---- watching */

static ControlEnd end_of(const Supervisor *s)
{
    ControlEnd end = {.status = (int32_t)s->status, .secondary = s->secondary};
    end.rank = s->control ? control_rank(s->control) : 0;
    end.signal = s->towers.ledger ? atomic_load(&s->towers.ledger->run.stop_signal) : 0;
    snprintf(end.message, sizeof end.message, "%.*s", CONTROL_TEXT_BYTES - 1, s->words.message);
    return end;
}

static void root_cause(Supervisor *s, Status status)
{
    if (s->status != OK) return;
    s->status = status;
    status_keep(&s->words);
    ControlEnd end = end_of(s);
    if (s->control && !s->secondary) control_fail(s->control, &end);
}

/* The failure that process `first` has written to the ledger is the root cause. */
static void failure_take(Supervisor *s, int first)
{
    const LedgerProcess *failed = &s->towers.ledger->process[first];
    if (s->status != OK) return;
    s->secondary = s->control && atomic_load(&failed->status) == ERR_COMM;
    s->taken = first + 1;
    root_cause(s, status_restore((Status)atomic_load(&failed->status), &failed->words));
}

/* A failure on which all towers agree. They save then, which may take any time. */
static bool is_agreed(Status status)
{
    return status == ERR_NUMERIC || status == ERR_INTERRUPTED;
}

/* Why a process was killed that has used so many seconds of CPU time: the system does that at the hard limit. */
static void death_explain(int number, double seconds, char *why, size_t bytes)
{
    struct rlimit limit;
    if (number != SIGKILL) return;
    bool spent = getrlimit(RLIMIT_CPU, &limit) == 0 && limit.rlim_max != RLIM_INFINITY &&
                 seconds + 0.5 >= (double)limit.rlim_max;
    if (spent)
        snprintf(why, bytes, "; it has used the %ju s of CPU time that its limit allows: raise it (ulimit -t)",
                 (uintmax_t)limit.rlim_max);
    else
        snprintf(why, bytes, "; if no user did this, the machine ran out of memory (see dmesg)");
}

static double cpu_seconds(const struct rusage *used)
{
    return (double)(used->ru_utime.tv_sec + used->ru_stime.tv_sec) +
           1e-6 * (double)(used->ru_utime.tv_usec + used->ru_stime.tv_usec);
}

/* `seconds`: of CPU time that it has used. */
static void failure_note(Supervisor *s, int r, int wait_status, double seconds)
{
    ChildPlace at = child_place(&s->towers, r);
    int first = ledger_failed(s->towers.ledger);
    Status written = first < 0 ? OK : (Status)atomic_load(&s->towers.ledger->process[first].status);
    bool in_leaving = first == s->towers.first + r && !is_agreed(written); /* it was killed after it had failed */
    if (written != OK && (WIFEXITED(wait_status) || in_leaving)) {
        failure_take(s, first);
    } else if (WIFSIGNALED(wait_status)) {
        int number = WTERMSIG(wait_status);
        char why[128] = "";
        death_explain(number, seconds, why, sizeof why);
        root_cause(s, FAIL(ERR_COMM, "%s: killed by signal %d (%s)%s", at.text, number, strsignal(number), why));
    } else {
        root_cause(s, FAIL(ERR_COMM, "%s: ended unexpectedly with exit code %d", at.text, WEXITSTATUS(wait_status)));
    }
}

/* A cause may be written down after what followed from it; and be explained, until all towers have ended. */
static void failure_settle(Supervisor *s)
{
    int first = ledger_failed(s->towers.ledger);
    if (!s->taken || (s->taken == first + 1 && s->towers.alive > 0)) return;
    if (s->hung != first - s->towers.first) s->hung = -1; /* the calls that it was in do not explain this failure */
    s->device_reported = false;                           /* what a device says is added again */
    s->status = OK;
    failure_take(s, first);
}

/* Does the process that failed first still look for a batch that fits? */
static bool failure_explains(const Supervisor *s)
{
    int first = ledger_failed(s->towers.ledger);
    return first >= 0 && s->towers.child[first - s->towers.first].pid &&
           atomic_load(&s->towers.ledger->process[first].explains);
}

static void kill_in(Supervisor *s, int64_t ms)
{
    if (!s->kill_at_ns) s->kill_at_ns = clock_ns() + ms * 1000000;
}

static void others_abort(Supervisor *s, int r)
{
    comm_shared_abort(s->towers.shared, r);
    kill_in(s, GRACE_MS);
}

static int64_t warn_after_ns(const Supervisor *s)
{
    int64_t half = s->job->comm.timeout_ms / 2;
    return (half < WARN_MS ? half : WARN_MS) * 1000000ll;
}

/* Warn once per silence. */
static void silence_warn(Supervisor *s, int64_t now)
{
    int silent = children_silent(&s->towers, now, warn_after_ns(s));
    if (silent < 0) return;
    int64_t life = child_life(&s->towers, silent);
    if (s->towers.child[silent].warned_ns == life) return;
    s->towers.child[silent].warned_ns = life;
    console_warn(&s->console, "%s: no sign of life for %.0f s%s; the run ends after %.0f s (--comm-timeout)",
                 child_place(&s->towers, silent).text, (double)(now - life) * 1e-9,
                 child_loads(&s->towers, silent) ? ": it is waiting for its data loader; check the storage of the data"
                                                 : "",
                 (double)s->job->comm.timeout_ms * 1e-3);
}

/* Storage that does not answer ends no run: a file server comes back, and until then a run has nothing else to do. Warn once per
 * wait. */
static void storage_warn(Supervisor *s, int64_t now)
{
    for (int r = 0; r < s->towers.count; r++) {
        int64_t since = child_storage(&s->towers, r);
        if (!s->towers.child[r].pid || !since || now - since < warn_after_ns(s) ||
            s->towers.child[r].warned_ns == since)
            continue;
        s->towers.child[r].warned_ns = since;
        console_warn(
            &s->console,
            "%s: has waited for storage for %.0f s; the run goes on when it answers, and a second signal ends it "
            "(check the storage of %s)",
            child_place(&s->towers, r).text, (double)(now - since) * 1e-9,
            s->job->run_dir ? s->job->run_dir : "the data");
    }
}

/* The process whose failure is the ledger's first, or -1. */
static int failed_first(const Supervisor *s)
{
    int first = ledger_failed(s->towers.ledger);
    return first >= 0 && !is_agreed((Status)atomic_load(&s->towers.ledger->process[first].status)) ? first : -1;
}

/* A process that has failed may hang before it ends, in ncclCommAbort or in the driver of a lost device. That does not end
 * the run while another one shows signs of life: it may be saving. */
static bool failed_hangs(Supervisor *s, int64_t now)
{
    int64_t limit = warn_after_ns(s);
    if (failed_first(s) < 0) return false;
    if (!s->failed_ns) s->failed_ns = now;
    return now - s->failed_ns > limit && now - s->awake.since_ns > limit && children_all_stalled(&s->towers, limit);
}

static void silence_end(Supervisor *s, int silent, int64_t limit)
{
    ChildPlace at = child_place(&s->towers, silent);
    if (failed_first(s) == s->towers.first + silent) {
        failure_take(s, failed_first(s));
        console_warn(&s->console, "%s: has failed, but has not ended for %.0f s; ending the run", at.text,
                     (double)limit * 1e-9);
    } else {
        root_cause(s, FAIL(ERR_COMM, "%s: no sign of life for %.1f s (--comm-timeout); ending the run", at.text,
                           (double)limit * 1e-9));
    }
    s->hung = silent;
    kill(s->towers.child[silent].pid, STACK_SIGNAL); /* it writes its call stack, if it can before it is killed */
    others_abort(s, silent);
}

static void silence_check(Supervisor *s)
{
    int64_t now = clock_ns(), limit = s->job->comm.timeout_ms * 1000000ll, warn = warn_after_ns(s);
    int64_t awake = silence_look(&s->awake, 0);
    children_look(&s->towers, now);
    if (s->kill_at_ns) return;
    if (failed_hangs(s, now)) {
        silence_end(s, failed_first(s) - s->towers.first, warn);
        return;
    }
    if (awake > warn) silence_warn(s, now);
    storage_warn(s, now);
    int silent = awake > limit ? children_silent(&s->towers, now, limit) : -1;
    if (silent >= 0) silence_end(s, silent, limit);
}

/* Append to the message about a process that hung the name of the file with its call stack. */
static void hung_stack_add(Supervisor *s)
{
    char path[PATH_BYTES];
    if (s->hung < 0 || !atomic_load(&s->towers.ledger->process[s->towers.first + s->hung].stack_written)) return;
    if (stack_path(s->job, s->towers.first + s->hung, path) != OK) return;
    Text words = text_behind(s->words.message, sizeof s->words.message);
    text_add(&words, "; the calls it was in are in %s", path);
}

/* End a run whose device cannot go on. If a tower has failed before, that is likely why, and the message says so. */
static void devices_check(Supervisor *s)
{
    const char *why;
    int r = device_watch_failed(s->devices, &why);
    if (r < 0 || s->device_reported) return;
    s->device_reported = true;
    if (s->status != OK) {
        Text words = text_behind(s->words.message, sizeof s->words.message);
        text_add(&words, "; %s", why);
        return;
    }
    root_cause(s, FAIL(ERR_DEVICE, "%s: %s", child_place(&s->towers, r).text, why));
    others_abort(s, r);
}

/* After a collective that hung: in which one each process is. */
static void collectives_report(Supervisor *s)
{
    char text[1024];
    if (s->status == ERR_COMM && s->towers.shared &&
        comm_record_text(s->towers.shared, s->towers.first, s->job->comm.timeout_ms / 2, text, sizeof text))
        console_warn(&s->console, "collectives: %s", text);
}

/* A killed process ends at once, unless it is blocked in a system call by a disk or network file system that does not
 * answer. Such a process cannot be ended, and is not waited for. */
static bool towers_are_stuck(Supervisor *s)
{
    int64_t leave_ms = s->job->backend->on_host ? LEAVE_MS : DEVICE_LEAVE_MS;
    if (!s->towers.killed_ns || clock_ns() - s->towers.killed_ns < leave_ms * 1000000) return false;
    for (int r = 0; r < s->towers.count; r++) {
        if (!s->towers.child[r].pid) continue;
        ChildPlace at = child_place(&s->towers, r);
        console_warn(&s->console,
                     "%s: killed, but process %ld does not end because a system call blocks (check the storage of %s)",
                     at.text, (long)s->towers.child[r].pid, s->job->run_dir ? s->job->run_dir : "the data");
        root_cause(s, FAIL(ERR_COMM, "%s: does not end when it is killed", at.text));
    }
    return true;
}

/* ---- other nodes of the run */

/* Adopt the failure of another node as the root cause. `s` may already have failed as a consequence of it. */
static void failure_adopt(Supervisor *s, const ControlEnd *failure)
{
    if (failure->rank == control_rank(s->control) || (s->status != OK && !s->secondary)) return;
    s->secondary = false;
    s->taken = 0;
    s->status = is_agreed((Status)failure->status) ? FAIL((Status)failure->status, "%s", failure->message)
                                                   : FAIL((Status)failure->status, "rank %d on %s: %s", failure->rank,
                                                          control_host(s->control, failure->rank), failure->message);
    status_keep(&s->words);
}

/* If the channel has received the failure of another node, release the towers that wait for its towers. */
static void failure_receive(Supervisor *s)
{
    ControlEnd failure;
    if (!s->control || s->elsewhere || !control_failed(s->control, &failure)) return;
    s->elsewhere = true;
    failure_adopt(s, &failure);
    if (failure.rank == control_rank(s->control)) return;
    comm_shared_abort_by(s->towers.shared, s->words.message);
    kill_in(s, GRACE_MS);
}

/* Heartbeats in both directions, with who is behind, and stop requests of others. */
static void control_plane_serve(Supervisor *s)
{
    int64_t life = 0;
    for (int r = 0; r < s->towers.count; r++)
        if (s->towers.child[r].pid && child_life(&s->towers, r) > life) life = child_life(&s->towers, r);
    if (s->towers.shared) control_come(s->control, comm_shared_come_to(s->towers.shared));
    control_serve(s->control, life);
    if (s->towers.shared) comm_shared_behind(s->towers.shared, control_behind(s->control));
    int64_t others = control_others_alive(s->control);
    if (others > s->others_ns + JITTER_MS * 1000000ll) { /* else deadlines would move with the network's delays */
        s->others_ns = others;
        if (s->towers.shared) comm_shared_peers_progress(s->towers.shared, others);
    }
    int none = 0, number = control_stop_asked(s->control);
    if (number && s->towers.ledger) atomic_compare_exchange_strong(&s->towers.ledger->run.stop_signal, &none, number);
}

/* ---- the loop */

/* Takes the stop signals that have come; without any waits for one, or for the end of a child. The first one makes the towers save and
 * end. */
static void signals_take(Supervisor *s, int ms)
{
    struct timespec wait = {0, ms * 1000000l};
    for (int number; (number = sigtimedwait(&s->watched, NULL, &wait)) > 0; wait.tv_nsec = 0) {
        if (number == SIGCHLD) continue;
        s->last_signal = number;
        s->interrupts += number == SIGINT;
        if (++s->signals == 2) s->second_ns = clock_ns();
        if (s->signals == 1 && s->towers.ledger) atomic_store(&s->towers.ledger->run.stop_signal, number);
        if (s->control) control_stop(s->control, number);
    }
}

static void loop_turn(Supervisor *s, int ms)
{
    signals_take(s, ms);
    if (s->control) control_plane_serve(s);
}

/* A second signal ends a wait for storage or for other nodes. */
static bool wait_is_over(const Supervisor *s)
{
    int64_t limit = BLOCKED_MS * 1000000ll;
    return s->second_ns && clock_ns() - s->second_ns > limit && children_all_stalled(&s->towers, limit);
}

/* A thread that the driver blocks is left alone: false. */
static bool devices_end(Supervisor *s)
{
    int64_t until = clock_ns() + DEVICE_WATCH_LEAVE_SECONDS * 1000000000ll;
    device_watch_ask(s->devices);
    while (!device_watch_ended(s->devices) && clock_ns() < until) loop_turn(s, CONTROL_SERVE_MS);
    return device_watch_leave(s->devices);
}

/* If rank 0 takes nothing any more the thread that brings files ends by itself, unless storage holds it. */
static Status files_bring(Supervisor *s)
{
    HostSender *sender;
    int64_t limit = (CONTROL_STALL_MS + FILES_LEAVE_MS) * 1000000ll, wanted_ns = clock_ns();
    TRY(host_sender_start(s->job, s->started, &sender));
    while (!host_sender_ended(sender) && clock_ns() - wanted_ns < limit && !wait_is_over(s)) {
        loop_turn(s, CONTROL_SERVE_MS);
        if (!control_over(s->control)) wanted_ns = clock_ns();
    }
    return host_sender_leave(sender);
}

/* All nodes end with the same result, and so with the same exit code. */
static void results_share(Supervisor *s, TrainResult *result)
{
    ControlEnd mine = end_of(s), all;
    if (s->second_ns) s->second_ns = clock_ns(); /* the wait that it limits begins now */
    if (control_rank(s->control) > 0 && files_bring(s) != OK)
        console_warn(&s->console, "records of rank %d stay on %s: %s", control_rank(s->control), s->job->host,
                     status_message());
    while (!control_end(s->control, &mine, &all)) {
        loop_turn(s, CONTROL_SERVE_MS);
        if (wait_is_over(s)) control_leave(s->control);
    }
    if (all.status != OK) failure_adopt(s, &all);
    if (!result->signal) result->signal = all.signal;
}

/* ---- watching, at each turn */

static void stop_check(Supervisor *s)
{
    int number = s->last_signal;
    char name[SIGNAL_TEXT_BYTES];
    if (!s->signals || s->towers.killed_ns) return;
    if (s->stop_at_once)
        root_cause(s, FAIL(ERR_INTERRUPTED, "stopped by %s", signal_text(number, name)));
    else if (atomic_load(&s->towers.ledger->run.steps) == 0) /* run_announce has not run: there is nothing to save */
        root_cause(s, FAIL(ERR_INTERRUPTED, "stopped by %s before the first step", signal_text(number, name)));
    else if (s->interrupts > 1)
        root_cause(s, FAIL(ERR_INTERRUPTED, "interrupted twice: stopped without saving"));
    else if (s->signals > 1 && children_all_stalled(&s->towers, STUCK_MS * 1000000ll))
        root_cause(s, FAIL(ERR_INTERRUPTED,
                           "%s was the second, and no tower has shown a sign of life for %d s: stopped without "
                           "saving",
                           signal_text(number, name), STUCK_MS / 1000));
    else
        return;
    children_kill(&s->towers);
}

/* A run whose directory has gone from its name saves there, wherever that is, and ends. Other nodes would wait for this one's
 * towers, and so end at once. */
static void directory_check(Supervisor *s)
{
    const char *why = s->moved ? NULL : heartbeat_moved(s->heartbeat);
    if (!why) return;
    int none = 0;
    s->moved = true;
    root_cause(s, FAIL(ERR_IO, "%s", why));
    atomic_compare_exchange_strong(&s->towers.ledger->run.stop_signal, &none, SIGTERM);
    if (s->control) comm_shared_abort_by(s->towers.shared, s->words.message);
    if (s->control) kill_in(s, GRACE_MS);
}

static void tick(Supervisor *s)
{
    int wait_status;
    struct rusage used;
    loop_turn(s, TICK_MS);
    stop_check(s);
    failure_receive(s);
    for (pid_t pid; (pid = wait4(-1, &wait_status, WNOHANG, &used)) > 0;) {
        after_checkpoint_reaped(s->job, pid);
        for (int r = 0; r < s->towers.count; r++) {
            if (s->towers.child[r].pid != pid) continue;
            s->towers.child[r].pid = 0;
            s->towers.alive--;
            if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) continue;
            failure_note(s, r, wait_status, cpu_seconds(&used));
            /* Those that agreed leave MPI together: Slurm kills a step that a process leaves without that. */
            if (WIFEXITED(wait_status) && (is_agreed(s->status) || (s->moved && !s->control)))
                kill_in(s, AGREED_MS);
            else
                others_abort(s, r);
        }
    }
    failure_settle(s);
    directory_check(s);
    silence_check(s);
    devices_check(s);
    int64_t grace_ns = failure_explains(s) ? EXPLAIN_MS * 1000000ll : 0;
    if (s->kill_at_ns && clock_ns() > s->kill_at_ns + grace_ns) children_kill(&s->towers);
    after_checkpoint_look(s->job, &s->console);
    console_update(&s->console);
}

/* ---- the run */

static void result_fill(const Supervisor *s, TrainResult *result)
{
    const LedgerRun *run = &s->towers.ledger->run;
    bool tested = run->tested.epoch > 0;
    *result = (TrainResult){.step = atomic_load(&run->step),
                            .test_top1 = tested ? run->tested.test_top1 : -1,
                            .test_top5 = tested && top5_says(s->job) ? run->tested.test_top5 : -1,
                            .best_step = run->best_step,
                            .bad_samples = atomic_load(&run->bad_samples),
                            .signal = atomic_load(&run->stop_signal),
                            .rule = run->rule,
                            .begun = atomic_load(&run->steps) > 0,
                            .complete = run->complete,
                            .stage = atomic_load(&run->stage),
                            .first_step = atomic_load(&run->first_step)};
    memcpy(result->best, run->best, sizeof result->best);
    memcpy(result->ending, run->ending, sizeof result->ending);
}

/* Stop signals and SIGCHLD are taken by the loop; a closed console does not end a run. */
static void signals_block(Supervisor *s)
{
    stop_signals(s->job, &s->watched);
    sigaddset(&s->watched, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &s->watched, &s->old_mask);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
}

/* The towers, and what is started beside them. What fails is the root cause, and ends the towers that have begun. */
static Status run_start(Supervisor *s, TowerMain tower_main)
{
    const TrainJob *job = s->job;
    Status st = children_create(job, &s->towers);
    if (st == OK) console_start(&s->console, job, s->towers.ledger);
    outlet_open(OUTLET_STDERR);
    outlets_pause();
    if (st == OK) st = children_start(&s->towers, tower_main, &s->old_mask);
    outlets_resume();
    if (st == OK && s->control && control_rank(s->control) == 0) st = host_files_open(job, &s->files);
    if (st == OK && s->control) control_watch(s->control);
    if (st != OK) {
        root_cause(s, st);
        children_kill(&s->towers);
        return st;
    }
    if (tower_main == tower_process_train) s->heartbeat = heartbeat_start(job, s->towers.ledger);
    if (tower_main != tower_process_eval)
        s->devices = device_watch_start(job, s->towers.ledger, s->towers.first, s->towers.count);
    return OK;
}

/* Why the run has ended, on all nodes alike. */
static void cause_settle(Supervisor *s, TrainResult *result)
{
    if (s->towers.ledger) failure_settle(s);
    if (s->status != OK) devices_check(s);
    result->unanswered = !devices_end(s);
    hung_stack_add(s);
    collectives_report(s);
    result->saved = s->status == ERR_INTERRUPTED && s->towers.ledger && atomic_load(&s->towers.ledger->first_failed);
    if (s->control) results_share(s, result);
}

/* What a tower that cannot be ended, or a thread that still reads, may use stays. */
static void memory_release(Supervisor *s, const TrainResult *result, bool beats, Ledger **ledger)
{
    children_free(&s->towers);
    pthread_sigmask(SIG_SETMASK, &s->old_mask, NULL);
    if (!result->abandoned) comm_shared_destroy(s->towers.shared);
    if (ledger && s->towers.ledger)
        *ledger = s->towers.ledger;
    else if (!result->abandoned && !beats && !result->unanswered)
        ledger_destroy(s->towers.ledger);
}

Status supervise(const TrainJob *job, TowerMain tower_main, TrainResult *result, Ledger **ledger)
{
    Supervisor s = {.job = job,
                    .control = job->control,
                    .hung = -1,
                    .stop_at_once = tower_main != tower_process_train,
                    .started = time(NULL)};
    char problems[2048];
    bool stuck = false;
    signals_block(&s);
    Status started = run_start(&s, tower_main);
    while (s.towers.alive > 0 && !(stuck = towers_are_stuck(&s))) tick(&s);
    if (s.towers.ledger && started == OK) {
        result_fill(&s, result);
        console_end(&s.console);
    }
    cause_settle(&s, result);
    bool beats = !heartbeat_end(s.heartbeat);
    host_files_close(s.files, problems, sizeof problems);
    signals_take(&s, 0); /* what has come meanwhile is meant for this run */
    if (*problems) console_warn(&s.console, "%s", problems);
    result->abandoned = stuck;
    result->moved = s.moved;
    if (!s.control && !result->signal) result->signal = s.last_signal;
    if (s.moved) result->signal = 0; /* nobody has sent one */
    memory_release(&s, result, beats, ledger);
    return s.status == OK ? OK : status_restore(s.status, &s.words);
}
