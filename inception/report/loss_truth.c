/* Select full steps, estimate noise and bias of each tower's loss, find values that are not finite, and summarize; see
 * loss_truth.h. */
#include "inception/report/loss_truth.h"
#include "kernels/base/array.h"
#include "kernels/base/text.h"

/* ---- full steps */

static bool step_full(const LossTruth *truth, const RunStep *step)
{
    if (!isfinite(step->mean_loss)) return false;
    for (int t = 0; t < truth->towers; t++)
        if (step->tower_count[t] != truth->tower[t].share || (step->tower_count[t] && !isfinite(step->tower_loss[t])))
            return false;
    return true;
}

/* Losses of the full steps: mean_loss and every tower's loss. */
typedef struct Series {
    int64_t count, room;
    double *mean;          /* owned: [room] */
    double *spare, *tower; /* behind it: [room]; [towers][room] */
} Series;

static Status series_make(const Run *run, const LossTruth *truth, Series *series)
{
    *series =
        (Series){.room = run->steps, .mean = calloc((size_t)run->steps, (size_t)(run->towers + 2) * sizeof(double))};
    if (!series->mean)
        return FAIL(ERR_MEMORY, "no memory for losses of %" PRId64 " steps of %d towers", run->steps, run->towers);
    series->spare = series->mean + series->room;
    series->tower = series->spare + series->room;
    for (int64_t i = 0; i < run->steps; i++) {
        if (!step_full(truth, &run->step[i])) continue;
        series->mean[series->count] = run->step[i].mean_loss;
        for (int t = 0; t < run->towers; t++)
            series->tower[t * series->room + series->count] = run->step[i].tower_loss[t];
        series->count++;
    }
    return OK;
}

static const double *tower_losses(const Series *series, int tower)
{
    return series->tower + tower * series->room;
}

/* The tower's loss minus mean_loss, in series->spare. */
static const double *deviation(Series *series, int tower)
{
    const double *losses = tower_losses(series, tower);
    for (int64_t i = 0; i < series->count; i++) series->spare[i] = losses[i] - series->mean[i];
    return series->spare;
}

/* ---- noise */

static void noise_measure(LossTruth *truth, Series *series)
{
    double mean_variance = noise_variance(series->mean, series->count);
    for (int t = 0; t < truth->towers; t++) {
        TowerTruth *tower = &truth->tower[t];
        if (!tower->share) continue;
        tower->ratio = noise_ratio(tower_losses(series, t), series->mean, series->count);
        tower->bias = series_estimate(deviation(series, t), series->count);
    }
    truth->mean_noise = sqrt(mean_variance);
    truth->last_noise = sqrt(noise_variance(tower_losses(series, truth->last), series->count));
    double sum = 0;
    int pairs = 0;
    for (int a = 0; a < truth->towers; a++)
        for (int b = a + 1; b < truth->towers; b++) {
            if (!truth->tower[a].share || !truth->tower[b].share) continue;
            sum += noise_correlation(tower_losses(series, a), tower_losses(series, b), series->count);
            pairs++;
        }
    truth->correlation = pairs ? sum / pairs : ABSENT;
    /* The deviation of one tower from the mean has no trend, and has 1 - share of the variance of the tower's own
     * noise. */
    double own = 1 - 1 / truth->tower[truth->last].expected;
    truth->window = own > 0 ? smoothing_window(deviation(series, truth->last), series->count, mean_variance * own) : 1;
}

/* ---- NaN and Inf */

/* After an update with a gradient that is not finite no weight is finite, and every tower's next loss shows it. */
static int64_t later_of(const Run *run, const LossTruth *truth, int64_t index, const BadStep *bad, bool *measured)
{
    char check[16];
    const RunStep *step = &run->step[index];
    bool seen = truth->last >= 0 && step->tower_count[truth->last] && !isfinite(step->tower_loss[truth->last]);
    /* If bad steps were committed, later steps of this run show what checking only the last tower does. */
    bool committed = !seen && index + 1 < run->steps && run_argument(run, "nan-check", check, sizeof check) &&
                     (!strcmp(check, "last") || !strcmp(check, "off"));
    *measured = seen || committed;
    if (seen) return 0;
    if (!*measured) return bad->gradient ? 1 : -1;
    for (int64_t i = index + 1; i < run->steps; i++)
        if (!isfinite(run->step[i].last_tower_loss)) return run->step[i].step - step->step;
    return -1;
}

/* Only the first bad step of a series counts: in a run that continued, those after it are its consequence. */
static Status bad_find(const Run *run, LossTruth *truth)
{
    bool before = false;
    for (int64_t i = 0; i < run->steps; i++) {
        const RunStep *step = &run->step[i];
        bool any = false;
        for (int t = 0; t < run->towers; t++) {
            BadStep bad = {.step = step->step, .tower = t};
            bad.loss = step->tower_count[t] && !isfinite(step->tower_loss[t]);
            bad.gradient = !step->finite[t] && (!isfinite(step->tower_grad_norm[t]) || !bad.loss);
            if (!bad.loss && step->finite[t]) continue;
            any = true;
            bad.later = later_of(run, truth, i, &bad, &bad.measured);
            if (!before || step->skipped) {
                TRY(array_grow(&truth->bad, truth->bad_count, sizeof *truth->bad, "the list of bad steps"));
                truth->bad[truth->bad_count++] = bad;
            }
        }
        before = any;
    }
    return OK;
}

/* ---- the summary */

static void verdict_noise(const LossTruth *truth, Text *verdict)
{
    const TowerTruth *last = &truth->tower[truth->last];
    bool biased = last->bias.p < DIFFERENCE_LEVEL,
         expected = last->ratio.low <= last->expected && last->expected <= last->ratio.high;
    text_add(verdict,
             "Over %" PRId64 " steps of %d towers the last tower's loss is %s (%+.2g +- %.2g), with %.2f times its "
             "noise variance (%.2f to %.2f; %g expected%s)",
             truth->used, truth->towers,
             biased ? "a biased estimate of mean_loss" : "an estimate of mean_loss in which no bias is found",
             last->bias.mean, last->bias.high - last->bias.mean, last->ratio.mean, last->ratio.low, last->ratio.high,
             round(last->expected * 100) / 100, expected ? "" : ", so batches are not independent");
    if (truth->window > 1)
        text_add(verdict, "; it must be averaged over %" PRId64 " steps to be as precise as mean_loss.", truth->window);
    else
        text_add(verdict, ".");
}

static void verdict_write(LossTruth *truth)
{
    Text verdict = text_start(truth->verdict, sizeof truth->verdict);
    int with_samples = 0;
    for (int t = 0; t < truth->towers; t++) with_samples += truth->tower[t].share > 0;
    if (with_samples < 2)
        text_add(&verdict, "With one tower the last tower's loss is mean_loss.");
    else if (!isfinite(truth->tower[truth->last].ratio.mean) || !isfinite(truth->tower[truth->last].bias.error))
        text_add(&verdict, "%" PRId64 " full steps are too few to compare the last tower's loss with mean_loss.",
                 truth->used);
    else
        verdict_noise(truth, &verdict);
    int64_t late = 0, never = 0, others = 0;
    for (int64_t i = 0; i < truth->bad_count; i++) {
        others += truth->bad[i].tower != truth->last;
        late += truth->bad[i].later > 0;
        never += truth->bad[i].later < 0;
    }
    if (!truth->bad_count) return;
    text_add(&verdict,
             " %" PRId64 " value%s not finite, %" PRId64
             " of them not in the last tower. Checking only the last tower would have shown %" PRId64
             " at once, %" PRId64 " after an update had damaged the weights, %" PRId64 " never.",
             truth->bad_count, truth->bad_count == 1 ? " was" : "s were", others, truth->bad_count - late - never, late,
             never);
}

Status loss_truth(const Run *run, LossTruth *truth)
{
    Status st = OK;
    Series series = {0};
    *truth = (LossTruth){.towers = run->towers, .steps = run->steps};
    if (run->steps == 0) return FAIL(ERR_FORMAT, "'%s' has no recorded step yet", run->path);
    truth->tower = calloc((size_t)run->towers, sizeof *truth->tower);
    if (!truth->tower) return FAIL(ERR_MEMORY, "no memory for the statistics of %d towers", run->towers);
    /* The usual share of every tower: its share in the largest step. */
    int64_t most = -1;
    for (int64_t i = 0; i < run->steps; i++) {
        if (run->step[i].images <= most) continue;
        most = run->step[i].images;
        for (int t = 0; t < run->towers; t++) truth->tower[t].share = run->step[i].tower_count[t];
    }
    truth->last = truth->first = -1;
    for (int t = 0; t < run->towers; t++) {
        if (truth->tower[t].share == 0) continue;
        truth->tower[t].expected = (double)most / (double)truth->tower[t].share;
        truth->last = t;
        if (truth->first < 0) truth->first = t;
    }
    if (truth->last < 0) TRY_OUT(FAIL(ERR_FORMAT, "'%s': no tower has samples", run->path));
    TRY_OUT(series_make(run, truth, &series));
    truth->used = series.count;
    noise_measure(truth, &series);
    TRY_OUT(bad_find(run, truth));
    verdict_write(truth);
out:
    free(series.mean);
    if (st != OK) loss_truth_clear(truth);
    return st;
}

void loss_truth_clear(LossTruth *truth)
{
    free(truth->tower);
    free(truth->bad);
    *truth = (LossTruth){0};
}
