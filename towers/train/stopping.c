/* When evaluations end a run or lower its learning rate; see stopping.h. */
#include "towers/train/stopping.h"

static const double PLATEAU_EPS = 1e-8; /* a smaller change of the rate is not made */

bool stopping_is_off(const TrainJob *job)
{
    return job->stopping.monitor == MONITOR_AUTO;
}

/* "accuracy", "mAP", "test loss" or "KID": the monitored number. */
static const char *monitor_name(const TrainJob *job)
{
    if (job->stopping.monitor == MONITOR_ACCURACY) return job->program.multi_label ? "mAP" : "accuracy";
    return job->stopping.monitor == MONITOR_LOSS ? "test loss" : "KID";
}

static bool higher_is_better(const TrainJob *job)
{
    return job->stopping.monitor == MONITOR_ACCURACY;
}

void stopping_print(const TrainJob *job, FILE *to)
{
    const StoppingRules *rules = &job->stopping;
    const char *name = monitor_name(job), *better = higher_is_better(job) ? "higher" : "lower";
    if (stopping_is_off(job)) return;
    fputs("stopping       ", to);
    if (rules->patience) {
        fprintf(to, "after %" PRId64 " evaluation%s without a %s %s", rules->patience, rules->patience == 1 ? "" : "s",
                better, name);
        if (rules->min_delta > 0) fprintf(to, " (by more than %g)", rules->min_delta);
    }
    if (rules->stop_at >= 0)
        fprintf(to, "%sat %s %g or %s", rules->patience ? ", or " : "", name, rules->stop_at, better);
    if (job->schedule.kind == SCHEDULE_PLATEAU)
        fprintf(to, "%slearning rate x %g after more than %" PRId64 " evaluation%s without a %s %s",
                rules->patience || rules->stop_at >= 0 ? "; " : "", job->schedule.decay_rate, rules->plateau_patience,
                rules->plateau_patience == 1 ? "" : "s", better, name);
    fputc('\n', to);
}

/* ---- the plateau */

/* PyTorch's _is_better; before the first value its best is infinite, ours NaN. */
static bool plateau_better(const StoppingRules *rules, bool higher, double value, double best)
{
    double threshold = rules->plateau_threshold, sign = higher ? 1 : -1;
    if (isnan(best)) best = -sign * INFINITY;
    double limit = rules->plateau_mode == THRESHOLD_REL ? best * (1 + sign * threshold) : best + sign * threshold;
    return higher ? value > limit : value < limit;
}

bool plateau_step(const StoppingRules *rules, const Schedule *schedule, bool higher, double value, Stopping *state)
{
    if (plateau_better(rules, higher, value, state->plateau_best)) {
        state->plateau_best = value;
        state->plateau_bad = 0;
    } else {
        state->plateau_bad++;
    }
    if (state->plateau_cooldown > 0) {
        state->plateau_cooldown--;
        state->plateau_bad = 0;
    }
    if (state->plateau_bad <= rules->plateau_patience) return false;
    double rate = isnan(state->plateau_lr) ? schedule->lr : state->plateau_lr;
    double lower = fmax(rate * schedule->decay_rate, schedule->min_lr);
    state->plateau_cooldown = rules->plateau_cooldown;
    state->plateau_bad = 0;
    if (!(rate - lower > PLATEAU_EPS)) return false;
    state->plateau_lr = lower;
    return true;
}

static void plateau_take(TowerProcess *p, double value)
{
    const TrainJob *job = p->job;
    char text[256];
    if (job->schedule.kind != SCHEDULE_PLATEAU) return;
    if ((double)p->run.step < schedule_warmup(&job->schedule, p->steps_per_epoch)) return;
    double before = process_lr(p, p->run.step);
    if (!plateau_step(&job->stopping, &job->schedule, higher_is_better(job), value, &p->run.stopping)) return;
    if (!is_root(&p->place)) return;
    snprintf(text, sizeof text, "learning rate %g -> %g after step %" PRId64 ": the %s is %g, the best is %g", before,
             p->run.stopping.plateau_lr, p->run.step, monitor_name(job), value, p->run.stopping.plateau_best);
    ledger_inform(p->ledger, "%s", text);
    process_log(p, "%s", text);
}

/* ---- the end of the run */

void stopping_take(TowerProcess *p, const EpochRecord *epoch)
{
    const TrainJob *job = p->job;
    const StoppingRules *rules = &job->stopping;
    Stopping *state = &p->run.stopping;
    if (stopping_is_off(job)) return;
    const double numbers[] = {
        [MONITOR_ACCURACY] = epoch->test_top1, [MONITOR_LOSS] = epoch->test_loss, [MONITOR_KID] = epoch->kid};
    double value = numbers[rules->monitor], best = state->best;
    bool better = isnan(best)             ? isfinite(value)
                  : higher_is_better(job) ? value > best + rules->min_delta
                                          : value < best - rules->min_delta;
    state->last = value;
    state->bad = better ? 0 : state->bad + 1;
    if (better) state->best = value;
    plateau_take(p, value);
}

typedef struct Due {
    bool exhausted, reached, pauses; /* by --patience, --stop-at, --stop-epoch */
} Due;

static Due due_find(const TowerProcess *p)
{
    const StoppingRules *rules = &p->job->stopping;
    const Stopping *state = &p->run.stopping;
    bool off = stopping_is_off(p->job), higher = higher_is_better(p->job);
    bool epoch_ends = p->run.step % p->steps_per_epoch == 0;
    return (Due){
        .exhausted = !off && rules->patience > 0 && state->bad >= rules->patience,
        .reached =
            !off && rules->stop_at >= 0 && (higher ? state->last >= rules->stop_at : state->last <= rules->stop_at),
        .pauses = rules->stop_epoch && epoch_ends && p->run.step >= rules->stop_epoch * p->steps_per_epoch,
    };
}

bool stopping_is_due(const TowerProcess *p)
{
    Due due = due_find(p);
    return due.exhausted || due.reached || due.pauses;
}

bool stopping_has_reached(const TowerProcess *p)
{
    return due_find(p).reached;
}

void stopping_decide(TowerProcess *p)
{
    const TrainJob *job = p->job;
    const Stopping *state = &p->run.stopping;
    Due due = due_find(p);
    if (!stopping_is_due(p) || p->run.step >= p->total_steps) return;
    p->total_steps = p->run.step;
    if (!is_root(&p->place)) return;
    LedgerRun *run = &p->ledger->run;
    Text why = text_start(run->ending, sizeof run->ending);
    if (due.reached)
        text_add(&why, "the %s %g has reached --stop-at %g", monitor_name(job), state->last, job->stopping.stop_at);
    else if (due.exhausted)
        text_add(&why, "no %s %s than %g in %" PRId64 " evaluation%s (--patience)",
                 higher_is_better(job) ? "higher" : "lower", monitor_name(job), state->best, state->bad,
                 state->bad == 1 ? "" : "s");
    else
        text_add(&why, "epoch %" PRId64 " of %" PRId64 " (--stop-epoch)", p->run.step / p->steps_per_epoch,
                 job->epochs);
    run->rule = due.reached ? ENDS_AT_STOP_AT : due.exhausted ? ENDS_BY_PATIENCE : ENDS_AT_STOP_EPOCH;
    atomic_store(&run->steps, p->total_steps);
    process_log(p, "ended after step %" PRId64 ": %s", p->run.step, run->ending);
}
