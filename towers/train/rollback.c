/* Return to the last good checkpoint; see rollback.h. */
#include "towers/train/rollback.h"
#include "towers/replica/snapshot.h"
#include "towers/train/mlperf_log.h"
#include "towers/train/process_open.h"
#include "towers/train/samples_log.h"
#include "towers/train/step.h"
#include "towers/train/summary.h"

static bool non_finite_before(const Finding *found)
{
    return found->place == FOUND_WEIGHT || found->place == FOUND_AVERAGE || found->place == FOUND_STATISTIC ||
           found->place == FOUND_OPTIMIZER_STATE;
}

static Status refuse_return(const TowerProcess *p, int64_t refused, int64_t blamed, int64_t good)
{
    const char *report = p->ledger->search.report;
    if (p->run.rollbacks >= p->job->gate.skips_max || p->run.rollbacks >= ROLLBACKS_MAX)
        return FAIL(ERR_NUMERIC,
                    "step %" PRId64 " is not finite, after %" PRId64 " rollbacks to a checkpoint (--nan-limit)%s",
                    refused, p->run.rollbacks, report);
    if (good < 0)
        return FAIL(ERR_NUMERIC, "step %" PRId64 " is not finite, and this run has no checkpoint to return to%s",
                    refused, report);
    if (good >= blamed || rollback_leaves_out(&p->run, blamed))
        return FAIL(ERR_NUMERIC,
                    "step %" PRId64 " is not finite, and returning to step %" PRId64 " without step %" PRId64
                    " cannot help%s",
                    refused, good, blamed, report);
    return OK;
}

/* Only rank 0 has records. Rows of the steps that will run again are removed, as after a resume. */
static Status records_return(TowerProcess *p)
{
    if (!is_root(&p->place)) return OK;
    summary_finish(p);
    metrics_close(p->metrics);
    p->metrics = NULL;
    if (epoch_end_is_owed(p)) TRY(metrics_forget_end(p->job->run_dir, p->run.step));
    return metrics_open(p->job->run_dir, p->run.step, p->job->metrics_interval, p->job->scalar_interval,
                        p->job->program.multi_label, &p->metrics);
}

/* Restore the checkpoint of step `good` and continue without step `left_out` (-1: with all steps). */
static Status state_return(TowerProcess *p, int64_t good, int64_t left_out)
{
    RunState before = p->run;
    TRY(snapshot_return(p, good));
    p->run.rollbacks = before.rollbacks;
    memcpy(p->run.left_out, before.left_out, sizeof p->run.left_out);
    p->run.left_out[p->run.rollbacks++] = left_out;
    p->compared_step = 0; /* steps that come again have other replicas */
    epoch_clock_start(p);
    TRY(steps_restart(p));
    TRY(process_restart_loader(p));
    TRY(records_return(p));
    TRY(samples_forget(p, true));
    TRY(mlperf_log_return(p));
    atomic_store(&p->ledger->run.step, p->run.step);
    return OK;
}

Status rollback_run(TowerProcess *p, int64_t refused)
{
    TRY(snapshot_settle(p, false));
    int64_t good = p->good_step, blamed = refused - non_finite_before(&p->ledger->search.found);
    const char *report = p->ledger->search.report;
    TRY(comm_broadcast(p->comm, &good, sizeof good, 0)); /* only rank 0 knows which saves succeeded */
    TRY(refuse_return(p, refused, blamed, good));
    TRY(state_return(p, good, blamed));
    if (is_root(&p->place))
        ledger_note(p->ledger,
                    "step %" PRId64 " is not finite: back to the checkpoint of step %" PRId64 " (%" PRId64
                    " of %d), step %" PRId64 " will be left out%s",
                    refused, good, p->run.rollbacks, p->job->gate.skips_max, blamed, report);
    process_log(p, "step %" PRId64 " is not finite: back to step %" PRId64 ", step %" PRId64 " is left out%s", refused,
                good, blamed, report);
    return comm_barrier(p->comm);
}

Status rollback_drift(TowerProcess *p, const char *why)
{
    TRY(snapshot_settle(p, false));
    int64_t good = p->good_step;
    TRY(comm_broadcast(p->comm, &good, sizeof good, 0));
    if (good < 0) return FAIL(ERR_NUMERIC, "%s; this run has no checkpoint to return to", why);
    if (p->run.rollbacks >= ROLLBACKS_MAX || p->run.rollbacks >= p->job->gate.skips_max)
        return FAIL(ERR_NUMERIC, "%s, after %" PRId64 " rollbacks to a checkpoint (--nan-limit)", why,
                    p->run.rollbacks);
    TRY(state_return(p, good, -1));
    if (is_root(&p->place))
        ledger_note(p->ledger, "%s; back to the checkpoint of step %" PRId64 " (%" PRId64 " of %d)", why, good,
                    p->run.rollbacks, p->job->gate.skips_max);
    process_log(p, "%s; back to step %" PRId64, why, good);
    return comm_barrier(p->comm);
}
