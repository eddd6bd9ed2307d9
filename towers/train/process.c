/* The life of a tower process from start to end: training, evaluation or timed steps. */

#include "towers/train/process.h"
#include "towers/guard/digest.h"
#include "towers/guard/forensics.h"
#include "towers/guard/stack.h"
#include "towers/replica/hooks.h"
#include "towers/replica/snapshot.h"
#include "towers/train/epoch.h"
#include "towers/train/evaluate.h"
#include "towers/train/mlperf_log.h"
#include "towers/train/process_open.h"
#include "towers/train/step.h"
#include "towers/train/stopping.h"
#include "towers/train/summary.h"

#include <signal.h>
#include <sys/mman.h>

/* ---- training */

/* The end of processes of another stage than that of `step`. */
static Status stage_end(TowerProcess *p, int64_t step)
{
    summary_finish(p);
    if (p->metrics) metrics_flush(p->metrics);
    process_activity(p, p->run.step, ACTIVITY_DONE);
    atomic_store(&p->ledger->run.stage, step + 1);
    return OK;
}

/* After a refused step all ranks have the weights before it and are at the same step, so finite weights are saved. If
 * replicas differ, none is saved, because it is unknown which one is right; `words` then says so. */
static Status refused_save(TowerProcess *p, StatusText *words)
{
    bool finite = false, moved = p->job->gate.check == NAN_CHECK_LAST; /* checked after the update */
    char drift[DRIFT_TEXT] = "";
    TRY(forensics_state(p, &finite));
    summary_finish(p);
    TRY(snapshot_settle(p, false));
    if (digest_is_due(p, true) && p->job->sdc_policy != SDC_POLICY_WARN) TRY(digest_compare(p, drift));
    Text why = text_behind(words->message, sizeof words->message);
    if (*drift) text_add(&why, "\n  %s; this state was not saved", drift);
    if (finite && !moved && !*drift) TRY(snapshot_save(p, false));
    return snapshot_settle(p, true);
}

static Status train_process(TowerProcess *p, CommShared *shared)
{
    TRY(process_open(p, shared));
    if (p->complete) return OK;
    if (!p->loader) return stage_end(p, p->stage);
    StepOutcome outcome = CONTINUE;
    Status st = epochs_run(p, &outcome);
    if (st == ERR_NUMERIC || outcome == DRIFTED) {
        StatusText words;
        status_keep(&words);
        Status saved = outcome == DRIFTED ? OK : refused_save(p, &words);
        process_log(p, "stopped: %s%s", words.message, saved == OK ? "" : " (and no checkpoint could be written)");
        return status_restore(st, &words);
    }
    TRY(st);
    bool over = p->run.step == p->total_steps; /* also by --patience, or by --stop-epoch */
    if (outcome != STOP && !over && job_stage_ends(p->job, p->run.step)) return stage_end(p, p->run.step);
    TRY(summary_data(p));
    mlperf_log_close(p,
                     p->job->stopping.stop_at < 0 ? p->run.step == job_total_steps(p->job) : stopping_has_reached(p));
    TRY(snapshot_export(p, "last.safetensors"));
    summary_finish(p);
    if (p->metrics) metrics_flush(p->metrics);
    process_activity(p, p->run.step, ACTIVITY_DONE);
    int stop = atomic_load(&p->ledger->run.stop_signal);
    char name[SIGNAL_TEXT_BYTES];
    if (outcome == STOP && (p->run.step < p->total_steps || epoch_end_is_owed(p)))
        return stop ? FAIL(ERR_INTERRUPTED, "stopped by %s after step %" PRId64 "; --resume auto continues",
                           signal_text(stop, name), p->run.step)
                    : FAIL(ERR_INTERRUPTED,
                           "stopped by a signal to another host after step %" PRId64 "; --resume auto continues",
                           p->run.step);
    return OK;
}

/* ---- evaluation, and timed steps */

static Status eval_process(TowerProcess *p, CommShared *shared)
{
    EvalResult result;
    bool whole;
    StepOutcome outcome = CONTINUE;
    TRY(process_open_eval(p, shared));
    TRY(evaluate(p, &result, &whole, &outcome));
    if (!whole) return FAIL(ERR_INTERRUPTED, "evaluation stopped by a signal");
    if (is_root(&p->place)) p->ledger->eval = result;
    return comm_barrier(p->comm);
}

static Status timed_process(TowerProcess *p, CommShared *shared)
{
    TRY(process_open_timed(p, shared));
    int64_t before = clock_ns();
    StepOutcome outcome = CONTINUE;
    double loss = ABSENT; /* of the last step of the first phase */
    while (p->done < p->total_steps && outcome != STOP) {
        int64_t done = p->done;
        bool last = p->run.step == p->total_steps ||
                    digest_is_due(p, false); /* wait for its result before starting another step */
        Status st = last && done < p->run.step ? step_take(p, &outcome) : step_run(p, &outcome);
        if (st == ERR_NUMERIC && p->job->goes_on) return OK;
        TRY(st);
        if (p->done == p->run.step) TRY(replicas_compare(p, false, &outcome));
        if (p->done == done) continue;
        int64_t now = clock_ns();
        if (job_phase_of(p->job, p->done - 1) == 0)
            loss = p->run.epoch_count ? p->run.epoch_sum / p->run.epoch_weight : ABSENT;
        p->run.epoch_sum = p->run.epoch_constant_sum = p->run.epoch_weight = 0;
        p->run.epoch_count = p->run.epoch_correct = p->run.epoch_steps = 0;
        if (is_root(&p->place) && p->job->on_step)
            p->job->on_step(p->job->on_step_context, p->ledger, p->done, (double)(now - before) * 1e-9, loss);
        if (p->job->goes_on && !p->job->goes_on(p->job->on_step_context, leads_node(&p->place), p->done, loss))
            p->total_steps = p->run.step; /* those that have begun */
        before = now;
    }
    return outcome == STOP ? FAIL(ERR_INTERRUPTED, "benchmark interrupted after step %" PRId64, p->done) : OK;
}

/* ---- libraries that crash when memory runs out */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

static Ledger *crash_ledger;
static int crash_rank;

/* oneDNN 2.6 and 3.7 call abort, or dereference a null pointer, when one of their allocations fails. A crash in an
 * activity in which an allocation failed, or when none is possible, is reported as a lack of memory. Only calls that
 * are allowed in a signal handler. */
static void crash_caught(int number)
{
    enum { PROBE_BYTES = 8 << 20 };
    bool refused = errno == ENOMEM;
    void *probe = refused ? MAP_FAILED : mmap(NULL, PROBE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    signal(number, SIG_DFL);
    if (probe == MAP_FAILED) {
        LedgerProcess *row = &crash_ledger->process[crash_rank];
        int nobody = 0;
        atomic_store(&row->status, ERR_MEMORY); /* crash_watch has prepared the message */
        atomic_compare_exchange_strong(&crash_ledger->first_failed, &nobody, crash_rank + 1);
        _exit(status_exit_code(ERR_MEMORY));
    }
    raise(number);
}

static void crash_watch(const TrainJob *job, Ledger *ledger, int rank)
{
    StatusText *words = &ledger->process[rank].words;
    char who[64];
    crash_ledger = ledger;
    crash_rank = rank;
    towers_text(job, rank, who, sizeof who);
    snprintf(words->message, sizeof words->message,
             "%s: memory ran out inside a library, which crashed (try a smaller batch, or fewer --processes)", who);
    if (SANITIZED) return;
    signal(SIGABRT, crash_caught);
    signal(SIGSEGV, crash_caught);
    signal(SIGBUS, crash_caught);
}

/* ---- common frame */

/* Write a failure to the ledger for the supervisor, and release peers that wait. */
static Status process_live(const TrainJob *job, int rank, Ledger *ledger, CommShared *shared,
                           Status (*life)(TowerProcess *, CommShared *))
{
    TowerProcess p = {.job = job, .ledger = ledger, .place = job_placement(job, rank)};
    int process = process_in_node(&p.place); /* shared memory has a slot for each process of the node */
    progress_to(comm_shared_progress(shared, process));
    crash_watch(job, ledger, rank);
    stack_watch(job, rank, ledger);
    Status st = hooks_load();
    if (st == OK) st = life(&p, shared);
    if (st != OK) {
        ledger_fail(ledger, rank, st, st == ERR_COMM && comm_shared_follows(shared, process));
        if (st != ERR_INTERRUPTED && st != ERR_NUMERIC) {
            comm_shared_abort(shared, process);
            comm_abort(p.comm); /* an unfinished collective would block the releases below */
        }
    }
    StatusText words;
    status_keep(&words);
    if (p.comm && comm_barrier(p.comm) != OK) comm_abort(p.comm); /* end together: rank 0 may still be writing */
    process_close(&p);
    progress_to(NULL);
    return st == OK ? OK : status_restore(st, &words);
}

Status tower_process_train(const TrainJob *job, int rank, Ledger *ledger, CommShared *shared)
{
    return process_live(job, rank, ledger, shared, train_process);
}

Status tower_process_eval(const TrainJob *job, int rank, Ledger *ledger, CommShared *shared)
{
    return process_live(job, rank, ledger, shared, eval_process);
}

Status tower_process_timed(const TrainJob *job, int rank, Ledger *ledger, CommShared *shared)
{
    return process_live(job, rank, ledger, shared, timed_process);
}
