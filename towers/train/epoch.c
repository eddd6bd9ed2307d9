/* The sequence of steps, and what follows each step and each epoch: evaluation, records, the best weights, checkpoints,
 * comparisons of replicas, rollbacks. The step itself is in step.c. */
#include "towers/train/epoch.h"
#include "towers/guard/digest.h"
#include "towers/guard/forensics.h"
#include "towers/replica/norm_running.h"
#include "towers/replica/snapshot.h"
#include "towers/train/evaluate.h"
#include "towers/train/mlperf_log.h"
#include "towers/train/observe.h"
#include "towers/train/rollback.h"
#include "towers/train/samples_log.h"
#include "towers/train/step.h"
#include "towers/train/stopping.h"
#include "towers/train/summary.h"

/* ---- replicas that differ */

static Status drift_act(TowerProcess *p, const char *text, StepOutcome *outcome)
{
    StepOutcome before = *outcome;
    if (p->job->sdc_policy == SDC_POLICY_WARN) {
        if (is_root(&p->place)) ledger_note(p->ledger, "%s", text);
        process_log(p, "%s", text);
        return OK;
    }
    *outcome = DRIFTED;
    if (p->job->sdc_policy == SDC_POLICY_ROLLBACK) {
        TRY(rollback_drift(p, text));
        *outcome = before;
        return OK;
    }
    return FAIL(ERR_NUMERIC,
                "%s; this state was not saved, and earlier checkpoints were compared before they were saved "
                "(--resume auto continues from the last one); check that device for faulty memory, or continue with "
                "--sdc-policy warn",
                text);
}

Status replicas_compare(TowerProcess *p, bool now, StepOutcome *outcome)
{
    char drift[DRIFT_TEXT];
    if (!digest_is_due(p, now)) return OK;
    TRY(steps_drain(p, outcome));
    if (*outcome == GO_BACK) return OK;
    TRY(digest_compare(p, drift));
    return *drift ? drift_act(p, drift, outcome) : OK;
}

/* ---- the end of an epoch */

/* The weights are the best so far, and not saved as such yet. */
static bool best_is_owed(const TowerProcess *p)
{
    return p->run.best_step > 0 && p->run.best_step == p->run.step && p->best_written != p->run.step;
}

static double epoch_loss(const TowerProcess *p)
{
    const RunState *run = &p->run;
    if (!run->epoch_count) return ABSENT;
    if (p->job->divisor != LOSS_DIVISOR_GLOBAL_BATCH) return run->epoch_sum / run->epoch_weight;
    return run->epoch_constant_sum / (double)run->epoch_steps;
}

/* If a score is the best so far, so are the weights. There are none before the first step. */
static void score_take(TowerProcess *p, Score score, double value)
{
    RunState *run = &p->run;
    if (run->step == 0 || !score_better(score, value, run->best[score])) return;
    run->best[score] = value;
    run->best_step = run->step;
    if (!is_root(&p->place)) return;
    p->ledger->run.best[score] = value;
    p->ledger->run.best_step = run->step;
}

static double term_mean(const TowerProcess *p, int term)
{
    const RunState *run = &p->run;
    bool known = run->epoch_count && epoch_term_number(p, term) >= 0;
    return known ? run->epoch_term[term] / (double)run->epoch_count : ABSENT;
}

static void evaluation_fill(const TowerProcess *p, const EvalResult *test, EpochRecord *rec)
{
    double count = (double)test->count;
    if (!test->count) return;
    rec->test_loss = test->loss;
    if (!isfinite(test->loss)) { /* no answer was computed, so that none was right or wrong */
        if (is_root(&p->place))
            ledger_note(p->ledger,
                        "the evaluation after step %" PRId64 " has no score, as its loss is not finite (%g): these are "
                        "not the best weights; try a lower --lr",
                        p->run.step, test->loss);
        return;
    }
    rec->test_top1 = eval_score(test);
    if (top5_says(p->job)) rec->test_top5 = (double)test->correct[!test->multi_label] / count;
}

static Status epoch_record(TowerProcess *p, int64_t epoch, const EvalResult *test, bool evaluated)
{
    const RunState *run = &p->run;
    EpochRecord rec;
    bool observed = observation_is_due(p, true);
    epoch_clear(&rec);
    rec.epoch = epoch;
    rec.step = run->step;
    rec.multi_label = p->job->program.multi_label;
    rec.seconds = (double)(clock_ns() - p->epoch_started_ns) * 1e-9;
    rec.train_loss = epoch_loss(p);
    if (run->epoch_count && !p->job->program.model->phases)
        rec.train_top1 = (double)run->epoch_correct / (double)run->epoch_count;
    rec.lr = process_lr(p, run->step - 1);
    rec.images_per_sec = (double)(run->epoch_count - p->epoch_count_before) / rec.seconds;
#define EPOCH_TERM(key) rec.key = term_mean(p, EPOCH_TERM_##key);
#include "towers/record/epoch.def"
    if (evaluated) evaluation_fill(p, test, &rec);
    if (observed) TRY(observation_run(p, &rec.kid));
    score_take(p, SCORE_KID, rec.kid);
    if (evaluated) score_take(p, SCORE_ACCURACY, eval_score(test));
    if (is_root(&p->place)) {
        p->ledger->epoch[epoch % LEDGER_EPOCHS] = rec;
        if (evaluated) p->ledger->run.tested = rec;
        atomic_store(&p->ledger->run.epochs_done, epoch);
        metrics_epoch(p->metrics, &rec);
        if (evaluated) evaluation_export(p);
    }
    /* The evaluation at the end of a run does not count if a longer run, which may continue this one, makes none here. */
    bool counts = p->job->stopping.monitor == MONITOR_KID ? observed : evaluated && epoch % p->job->eval_interval == 0;
    if (counts && run->step % p->steps_per_epoch == 0) stopping_take(p, &rec);
    stopping_decide(p);
    return OK;
}

static Status epoch_end(TowerProcess *p, StepOutcome *outcome)
{
    const TrainJob *job = p->job;
    RunState *run = &p->run;
    int64_t epoch = (run->step + p->steps_per_epoch - 1) / p->steps_per_epoch;
    bool last = run->step == p->total_steps,
         wanted = job->eval_interval > 0 && (last || epoch % job->eval_interval == 0);
    bool evaluated = job->test && wanted, whole = true;
    EvalResult test = {0};
    TRY(summary_data(p));
    mlperf_log_epoch(p, epoch);
    double began = clock_date();
    if (evaluated) TRY(evaluate(p, &test, &whole, outcome));
    if (!whole) return OK;
    if (evaluated) mlperf_log_evaluation(p, epoch, began, eval_score(&test));
    TRY(epoch_record(p, epoch, &test, evaluated));
    TRY(norm_drift_record(p));
    run->epoch_told = run->step;
    if (run->step % p->steps_per_epoch == 0) { /* an incomplete epoch may be completed by a longer run */
        run->epoch_sum = run->epoch_constant_sum = run->epoch_weight = 0;
        memset(run->epoch_term, 0, sizeof run->epoch_term);
        run->epoch_count = run->epoch_correct = run->epoch_steps = 0;
        run->epoch_seconds = 0;
        epoch_clock_start(p);
    }
    return OK;
}

/* Behind the checkpoint in progress. */
static Status best_export(TowerProcess *p)
{
    TRY(snapshot_settle(p, false));
    p->best_written = p->run.step;
    Status st = snapshot_export(p, "best.safetensors");
    if (st != ERR_IO) return st;
    storage_note(p, "best.safetensors", p->run.step);
    return OK;
}

/* ---- checkpoints */

/* No step follows. */
static bool steps_end(const TowerProcess *p, StepOutcome outcome)
{
    return p->run.step == p->total_steps || outcome == STOP || job_stage_ends(p->job, p->run.step);
}

/* The best weights, if they are owed, follow this checkpoint. */
static Status checkpoint_write(TowerProcess *p, StepOutcome outcome)
{
    bool finite = true, last = steps_end(p, outcome), best = best_is_owed(p);
    TRY(snapshot_settle(p, false));
    p->checkpoint_ns = clock_ns();
    p->save_tried = true;
    TRY(forensics_state(p, &finite));
    if (!finite && p->job->gate.check == NAN_CHECK_OFF) { /* an evaluation need not show it: ReLU may make 0 of NaN */
        if (is_root(&p->place))
            ledger_note(p->ledger,
                        "the state after step %" PRId64 " is not finite and is saved because of --nan-check off; no "
                        "command reads weights that are not finite%s",
                        p->run.step, p->ledger->search.report);
    } else if (!finite) {
        if (last)
            return FAIL(ERR_NUMERIC, "the state at the end of the run, after step %" PRId64 ", is not finite%s",
                        p->run.step, p->ledger->search.report);
        if (is_root(&p->place))
            ledger_note(p->ledger, "the state after step %" PRId64 " is not finite and was not saved as a checkpoint%s",
                        p->run.step, p->ledger->search.report);
        return OK;
    }
    summary_finish(p); /* a run that resumes here has the rows of all its steps */
    TRY(samples_sync(p));
    TRY(snapshot_save(p, best));
    if (best) p->best_written = p->run.step;
    return last ? snapshot_settle(p, true) : OK;
}

/* Rank 0's clock decides; the others receive its decision by broadcast. */
static Status checkpoint_due(TowerProcess *p, StepOutcome outcome, bool epoch_ended, bool *due)
{
    const TrainJob *job = p->job;
    *due = steps_end(p, outcome);
    *due |= job->checkpoint.steps > 0 ? p->run.step % job->checkpoint.steps == 0 : epoch_ended;
    if (*due || job->checkpoint.minutes <= 0 || p->run.step % 16) return OK;
    char now = (double)(clock_ns() - p->checkpoint_ns) > job->checkpoint.minutes * 60e9;
    TRY(comm_broadcast(p->comm, &now, 1, 0));
    *due = now;
    return OK;
}

/* ---- the sequence of steps */

/* The work after a step; also done after a resume if it is still due for the last step. Code that reads weights first
 * waits for the steps in flight. */
static Status step_follow(TowerProcess *p, StepOutcome *outcome)
{
    bool ended = epoch_ended(p), due;
    int64_t step = p->run.step;
    if (snapshot_ended(p)) TRY(snapshot_settle(p, false));
    bool observed = !ended && observation_is_due(p, false);
    double kid = ABSENT;
    if (ended || observed) TRY(steps_drain(p, outcome));
    if (*outcome != GO_BACK) TRY(replicas_compare(p, ended, outcome)); /* compare before saving */
    if (*outcome == GO_BACK || p->run.step != step) return OK;
    if (ended) TRY(epoch_end(p, outcome));
    if (observed) TRY(observation_run(p, &kid));
    if (observed) score_take(p, SCORE_KID, kid);
    TRY(checkpoint_due(p, *outcome, ended, &due));
    due |= best_is_owed(p) && !p->save_tried; /* the first best weights need a checkpoint to resume from */
    if (due) TRY(steps_drain(p, outcome));
    if (due && *outcome != GO_BACK) TRY(replicas_compare(p, true, outcome));
    if (*outcome == GO_BACK || p->run.step != step) return OK;
    if (due) TRY(checkpoint_write(p, *outcome));
    return best_is_owed(p) ? best_export(p) : OK;
}

Status epochs_run(TowerProcess *p, StepOutcome *outcome)
{
    epoch_clock_start(p);
    p->checkpoint_ns = clock_ns();
    bool goes_back = p->job->nan_policy == NAN_POLICY_ROLLBACK || p->job->sdc_policy == SDC_POLICY_ROLLBACK;
    p->save_tried = p->run.step > 0;
    if (p->run.best_step > 0 && p->run.best_step == p->run.step)
        TRY(best_export(p)); /* exported only after the checkpoint */
    if (p->job->resume_path)
        TRY(checkpoint_write(p, *outcome)); /* rollbacks of a branch need a checkpoint of its own */
    if (epoch_end_is_owed(p)) TRY(step_follow(p, outcome));
    if (goes_back && p->run.step == 0) TRY(checkpoint_write(p, *outcome)); /* for rollbacks */
    double kid;
    if (p->run.step == 0 && observation_is_due(p, true)) TRY(observation_run(p, &kid));
    while (!steps_end(p, *outcome)) {
        mlperf_log_step(p);
        TRY(step_run(p, outcome));
        TRY(step_follow(p, outcome));
        if (*outcome == GO_BACK) {
            TRY(rollback_run(p, p->run.step + 1));
            *outcome = CONTINUE; /* a stop that was asked for ends the next step */
        }
        if (epoch_end_is_owed(p) && *outcome != STOP)
            TRY(step_follow(p, outcome)); /* the checkpoint returned to lacks its evaluation */
    }
    return snapshot_settle(p, true);
}
