/* Process the result of a step when it has arrived: count it, refuse it if it is not finite, record it; see step.h. */
#include "kernels/base/pause.h"
#include "towers/guard/forensics.h"
#include "towers/train/samples_log.h"
#include "towers/train/step.h"

Step *step_in_flight(const TowerProcess *p, int64_t number)
{
    return &p->queue->step[number % STEPS_IN_FLIGHT];
}

/* Wait until the results of a step have arrived, a peer has left, or the deadline of a collective has passed. */
static Status arrival_wait(TowerProcess *p, int64_t number)
{
    CommWait wait = {0};
    for (int polls = 0;; polls++) {
        bool here;
        TRY(gate_arrived(p->gate, number, &here));
        if (here) return OK;
        if (polls % 64 == 0) TRY(comm_look(p->comm, &wait));
        if (wait.left_ms <= 0)
            return FAIL(ERR_COMM, "the results of step %" PRId64 " did not arrive within %.1f s (--comm-timeout)",
                        number, (double)comm_config(p->comm)->timeout_ms / 1000);
        poll_pause(polls, POLL_NS);
    }
}

/* ---- the result */

/* The number of samples in the all-reduce must be that of the step; otherwise the towers are in different steps. */
static Status samples_check(TowerProcess *p, Step *step, int towers)
{
    const TrainJob *job = p->job;
    int64_t count = 0;
    for (int t = 0; t < towers; t++) count += p->queue->tower[t].count;
    step->skipped = step->samples - count;
    if (step->skipped > 0 && job->data.bad == BAD_SKIP) {
        p->run.bad_samples += step->skipped;
        if (p->run.bad_samples <= job->data.bad_limit) return OK;
        return FAIL(ERR_FORMAT,
                    "step %" PRId64 ": %" PRId64
                    " samples could not be decoded so far, more than --bad-samples limit:%" PRId64
                    "; they are listed in %s/" BAD_SAMPLES_FILE,
                    step->number, p->run.bad_samples, job->data.bad_limit, job->run_dir ? job->run_dir : "RUN");
    }
    if (count == step->samples) return OK;
    return FAIL(ERR_INTERNAL, "step %" PRId64 ": the towers processed %" PRId64 " samples, expected %" PRId64,
                step->number, count, step->samples);
}

static Status result_read(TowerProcess *p, Step *step, StepOutcome *outcome)
{
    GateResult result;
    RunState *run = &p->run;
    RunPhase *phase = &run->phase[step->phase];
    gate_read(p->gate, step->number, &result, p->queue->tower);
    step->grad_norm = result.report.grad_norm;
    step->l2 = result.l2;
    step->commit = result.report.commit;
    step->overflow = result.report.overflow;
    step->loss_scale = result.report.scale;
    step->unscale = result.report.refill / result.report.scale;
    step->culprit = step->overflow ? -1 : result.report.culprit;
    if (result.stop) outcome_raise(outcome, STOP);
    phase->loss_scale = result.report.next_scale;
    phase->scale_good = result.report.good;
    TRY(samples_check(p, step, p->ledger->towers));
    if (run->images_seen >= 0) run->images_seen += step->samples - step->skipped;
    run->updates += step->commit;
    phase->updates += step->commit;
    run->overflows += !step->commit && step->overflow;
    run->skipped += !step->commit && !step->overflow;
    if (step->commit)
        run->skipped_in_row = 0;
    else if (!step->overflow)
        run->skipped_in_row++;
    return OK;
}

/* ---- refused steps */

/* The error message of a refused step: which tower, which step, which of several phases, loss or gradient. */
static Status refusal(const TowerProcess *p, const Step *step)
{
    char phase[64] = "";
    if (p->replica->phases > 1) snprintf(phase, sizeof phase, " (%s)", job_phase(p->job, step->phase)->name);
    if (p->job->gate.check == NAN_CHECK_LAST)
        return FAIL(ERR_NUMERIC, "Model diverged with loss = NaN (last tower, step %" PRId64 ", after the update)%s",
                    step->number, p->ledger->search.report);
    if (step->culprit < 0)
        return FAIL(ERR_NUMERIC,
                    "step %" PRId64 "%s: the sum of the gradients over all towers is not finite, although each tower's "
                    "is; nothing was committed; try a lower --lr or --clip-norm%s",
                    step->number, phase, p->ledger->search.report);
    const TowerLoss *tower = &p->queue->tower[step->culprit];
    return FAIL(ERR_NUMERIC,
                "tower %d, step %" PRId64 "%s: %s not finite (loss %g, gradient norm %g); nothing was committed, the "
                "weights are those after step %" PRId64 "; try a lower --lr, or --nan-policy skip%s",
                step->culprit, step->number, phase,
                isfinite(tower->sum) ? "the gradient is"
                : tower->grad_finite ? "the loss is"
                                     : "loss and gradient are",
                tower_loss_mean(tower), tower->grad_norm, step->number - 1, p->ledger->search.report);
}

static Status skip(TowerProcess *p, const Step *step)
{
    const char *report = p->ledger->search.report;
    char who[64] = "only the sum of the gradients over all towers is not";
    if (step->culprit >= 0) snprintf(who, sizeof who, "tower %d is the first that failed", step->culprit);
    if (p->run.skipped_in_row > p->job->gate.skips_max)
        return FAIL(ERR_NUMERIC, "step %" PRId64 ": %" PRId64 " steps in a row were not finite (%s)%s", step->number,
                    p->run.skipped_in_row, who, report);
    if (!is_root(&p->place)) return OK;
    ledger_note(p->ledger, "step %" PRId64 " is not finite and is skipped (%" PRId64 " so far)%s", step->number,
                p->run.skipped, report);
    process_log(p, "step %" PRId64 " is skipped%s", step->number, report);
    return OK;
}

/* Called on every rank with the same step. OK: the run continues, or goes back. */
static Status refuse(TowerProcess *p, Step *step, StepOutcome *outcome)
{
    const TrainJob *job = p->job;
    bool moved = job->gate.check == NAN_CHECK_LAST;
    /* The weights are those before this step, unless the gate committed steps that were in flight. */
    bool open = job->nan_policy == NAN_POLICY_SKIP && p->run.skipped_in_row <= job->gate.skips_max;
    int64_t weights = open && p->run.step > step->number ? p->run.step : step->number - 1;
    TRY(arrival_wait(p, p->run.step)); /* the search waits for the device, which must not wait for a lost peer */
    TRY(forensics_search(
        p, &(Refusal){step->number, step->culprit, step->scale * step->loss_scale, moved, p->run.step, weights}));
    if (step->culprit >= 0) step->culprit = p->ledger->search.found.tower; /* may differ with --bn-stats sync */
    if (moved || job->nan_policy == NAN_POLICY_STOP) return refusal(p, step);
    if (job->nan_policy == NAN_POLICY_SKIP) return skip(p, step);
    outcome_raise(outcome, GO_BACK);
    return OK;
}

/* ---- its record */

/* A step that ends the run is recorded too, so that its towers' losses can be inspected; its error message is kept. */
static Status step_log(TowerProcess *p, const Step *step, Status refused)
{
    StatusText words;
    const char *why = captured_graphs_refusal(p->replica->captured);
    if (refused != OK) {
        status_keep(&words);
        TRY(step_record(p, step));
        return status_restore(refused, &words);
    }
    if (step->overflow)
        metrics_log(p->metrics,
                    "step %" PRId64
                    ": skipped because a gradient overflowed at loss scale %g; the loss scale is now %g",
                    step->number, (double)step->loss_scale, p->run.phase[step->phase].loss_scale);
    if (why && !p->queue->graphs_logged) metrics_log(p->metrics, "%s", why);
    p->queue->graphs_logged = why != NULL;
    return step_record(p, step);
}

/* Keeps the error of a step that ends the run. */
static Status rows_write_refused(TowerProcess *p, int64_t number, Status refused)
{
    StatusText words;
    status_keep(&words);
    Status st = step_rows_write(p, number);
    return refused == OK ? st : status_restore(refused, &words);
}

Status step_take(TowerProcess *p, StepOutcome *outcome)
{
    if (p->done == p->run.step) return OK;
    Step *step = step_in_flight(p, p->done + 1);
    TRY(arrival_wait(p, step->number));
    int64_t now = clock_ns(), since = step->started_ns > p->queue->taken_ns ? step->started_ns : p->queue->taken_ns;
    step->seconds = (double)(now - since) * 1e-9;
    step->wall = (double)(now - (p->queue->taken_ns ? p->queue->taken_ns : since)) * 1e-9;
    p->queue->taken_ns = now;
    RunState before = p->run;
    TRY(result_read(p, step, outcome));
    step_to_ledger(p, step);
    Status refused =
        (step->culprit < 0 && step->commit) || step->overflow || step->left_out ? OK : refuse(p, step, outcome);
    bool stays = refused == OK && *outcome != GO_BACK;
    if (stays) p->done = step->number;
    if (step->commit) step_to_epoch(p, step);
    Status logged = p->metrics ? step_log(p, step, refused) : refused;
    bool agreed = refused == OK || refused == ERR_NUMERIC; /* on all ranks */
    if (agreed && logged == refused && (!stays || *outcome == STOP || steps_are_due(p, step->number)))
        logged = rows_write_refused(p, step->number, refused);
    if (stays) return logged;
    p->run = before; /* a resumed run repeats this step; later ones have changed nothing */
    p->run.step = p->done;
    return logged;
}
