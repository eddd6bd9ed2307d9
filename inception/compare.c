/* Loss truth of a run and difference of two; see compare.h. */
#include "inception/compare.h"

#include "inception/norm_drift.h"
#include "inception/waiting.h"

#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- which steps count */

/* The usual share of every tower: that of the largest step. */
static void shares_find(const Run *run, LossTruth *truth)
{
    int64_t most = -1;
    for (int64_t i = 0; i < run->steps; i++) {
        if (run->step[i].images <= most) continue;
        most = run->step[i].images;
        for (int t = 0; t < run->towers; t++) truth->tower[t].share = run->step[i].count[t];
    }
    truth->last = truth->first = -1;
    for (int t = 0; t < run->towers; t++) {
        if (truth->tower[t].share == 0) continue;
        truth->tower[t].expected = (double)most / (double)truth->tower[t].share;
        truth->last = t;
        if (truth->first < 0) truth->first = t;
    }
}

static bool step_full(const LossTruth *truth, const RunStep *step)
{
    if (!isfinite(step->mean_loss)) return false;
    for (int t = 0; t < truth->towers; t++)
        if (step->count[t] != truth->tower[t].share || (step->count[t] && !isfinite(step->loss[t]))) return false;
    return true;
}

/* Series of the full steps: mean_loss, then every tower's loss. */
typedef struct Series {
    int64_t count;
    double *mean, **tower, *spare; /* owned; tower: pointers into one piece */
} Series;

static void series_free(Series *series)
{
    free(series->mean);
    free(series->tower);
    *series = (Series){0};
}

static Status series_make(const Run *run, const LossTruth *truth, Series *series)
{
    size_t room = run->steps ? (size_t)run->steps : 1, rows = (size_t)run->towers;
    *series = (Series){.mean = calloc(room * (rows + 2), sizeof(double)), .tower = calloc(rows, sizeof(double *))};
    if (!series->mean || !series->tower) {
        series_free(series);
        return FAIL(ERR_MEMORY, "losses of %lld steps of %d towers", (long long)run->steps, run->towers);
    }
    for (size_t t = 0; t < rows; t++) series->tower[t] = series->mean + room * (t + 1);
    series->spare = series->mean + room * (rows + 1);
    for (int64_t i = 0; i < run->steps; i++) {
        if (!step_full(truth, &run->step[i])) continue;
        series->mean[series->count] = run->step[i].mean_loss;
        for (size_t t = 0; t < rows; t++) series->tower[t][series->count] = run->step[i].loss[t];
        series->count++;
    }
    return OK;
}

/* The tower's loss minus mean_loss, in series->spare. */
static const double *deviation(Series *series, int tower)
{
    for (int64_t i = 0; i < series->count; i++) series->spare[i] = series->tower[tower][i] - series->mean[i];
    return series->spare;
}

/* ---- noise */

static double mean_correlation(const LossTruth *truth, const Series *series)
{
    double sum = 0;
    int pairs = 0;
    for (int a = 0; a < truth->towers; a++) {
        for (int b = a + 1; b < truth->towers; b++) {
            if (!truth->tower[a].share || !truth->tower[b].share) continue;
            sum += noise_correlation(series->tower[a], series->tower[b], series->count);
            pairs++;
        }
    }
    return pairs ? sum / pairs : NAN;
}

static void noise_measure(LossTruth *truth, Series *series)
{
    double mean_variance = noise_variance(series->mean, series->count);
    for (int t = 0; t < truth->towers; t++) {
        TowerTruth *tower = &truth->tower[t];
        if (!tower->share) continue;
        tower->ratio = noise_ratio(series->tower[t], series->mean, series->count);
        tower->bias = series_estimate(deviation(series, t), series->count);
    }
    truth->mean_noise = sqrt(mean_variance);
    truth->last_noise = sqrt(noise_variance(series->tower[truth->last], series->count));
    truth->correlation = mean_correlation(truth, series);
    /* The deviation of one tower from the mean has 1 - share of the variance of the tower's own noise, and
     * no course. */
    double own = 1 - 1 / truth->tower[truth->last].expected;
    truth->window = own > 0 ? smoothing_window(deviation(series, truth->last), series->count, mean_variance * own) : 1;
}

/* ---- NaN and Inf */

/* Does the run itself show what a check of the last tower does? Only if bad steps were committed. */
static bool run_goes_on(const Run *run)
{
    char check[16];
    return run_argument(run, "nan-check", check, sizeof check) && (!strcmp(check, "last") || !strcmp(check, "off"));
}

/* After an update with a gradient that is not finite every weight is, so the next loss of every tower shows it. */
static int64_t later_of(const Run *run, const LossTruth *truth, int64_t index, const BadStep *bad, bool *measured)
{
    const RunStep *step = &run->step[index];
    bool seen = truth->last >= 0 && step->count[truth->last] && !isfinite(step->loss[truth->last]);
    *measured = seen || (run_goes_on(run) && index + 1 < run->steps);
    if (seen) return 0;
    if (!*measured) return bad->gradient ? 1 : -1;
    for (int64_t i = index + 1; i < run->steps; i++)
        if (!isfinite(run->step[i].last_loss)) return run->step[i].step - step->step;
    return -1;
}

static Status bad_add(LossTruth *truth, const BadStep *bad)
{
    BadStep *grown = realloc(truth->bad, (size_t)(truth->bad_count + 1) * sizeof *grown);
    if (!grown) return FAIL(ERR_MEMORY, "list of %lld bad steps", (long long)truth->bad_count);
    truth->bad = grown;
    truth->bad[truth->bad_count++] = *bad;
    return OK;
}

/* Only the first step of an outage: what follows it in a run that went on is its consequence. */
static Status bad_find(const Run *run, LossTruth *truth)
{
    bool before = false;
    for (int64_t i = 0; i < run->steps; i++) {
        const RunStep *step = &run->step[i];
        bool any = false;
        for (int t = 0; t < run->towers; t++) {
            BadStep bad = {.step = step->step, .tower = t};
            bad.loss = step->count[t] && !isfinite(step->loss[t]);
            bad.gradient = !step->finite[t] && (!isfinite(step->grad_norms[t]) || !bad.loss);
            if (!bad.loss && step->finite[t]) continue;
            any = true;
            bad.later = later_of(run, truth, i, &bad, &bad.measured);
            if (!before || step->skipped) TRY(bad_add(truth, &bad));
        }
        before = any;
    }
    return OK;
}

/* ---- the sentence */

static void verdict_bad(LossTruth *truth, size_t used)
{
    int64_t late = 0, never = 0, others = 0;
    for (int64_t i = 0; i < truth->bad_count; i++) {
        others += truth->bad[i].tower != truth->last;
        late += truth->bad[i].later > 0;
        never += truth->bad[i].later < 0;
    }
    if (!truth->bad_count) return;
    snprintf(truth->verdict + used, sizeof truth->verdict - used,
             " %lld value%s not finite, %lld in other towers than the last: a check of the last tower would have seen "
             "%lld at once, %lld after an update had already spoilt the weights, %lld never.",
             (long long)truth->bad_count, truth->bad_count == 1 ? " was" : "s were", (long long)others,
             (long long)(truth->bad_count - late - never), (long long)late, (long long)never);
}

static size_t verdict_noise(LossTruth *truth)
{
    const TowerTruth *last = &truth->tower[truth->last];
    bool biased = last->bias.p < DIFFERENCE_LEVEL,
         expected = last->ratio.low <= last->expected && last->expected <= last->ratio.high;
    int used =
        snprintf(truth->verdict, sizeof truth->verdict,
                 "Over %lld steps of %d towers the last tower's loss is %s against mean_loss (%+.2g +- %.2g) and "
                 "%.2f times as noisy in variance (%.2f to %.2f; %g expected%s)",
                 (long long)truth->used, truth->towers, biased ? "biased" : "unbiased", last->bias.mean,
                 last->bias.high - last->bias.mean, last->ratio.mean, last->ratio.low, last->ratio.high,
                 round(last->expected * 100) / 100, expected ? "" : ", so batches are not independent");
    if (truth->window > 1)
        used += snprintf(truth->verdict + used, sizeof truth->verdict - (size_t)used,
                         ": averaged over %lld steps it shows what mean_loss shows at once.", (long long)truth->window);
    else
        used += snprintf(truth->verdict + used, sizeof truth->verdict - (size_t)used, ".");
    return (size_t)used < sizeof truth->verdict ? (size_t)used : sizeof truth->verdict - 1;
}

static void verdict_write(LossTruth *truth)
{
    size_t used = 0;
    int with_samples = 0;
    for (int t = 0; t < truth->towers; t++) with_samples += truth->tower[t].share > 0;
    if (with_samples < 2)
        used = (size_t)snprintf(truth->verdict, sizeof truth->verdict,
                                "With one tower the last tower's loss is mean_loss.");
    else if (!isfinite(truth->tower[truth->last].ratio.mean) || !isfinite(truth->tower[truth->last].bias.error))
        used = (size_t)snprintf(truth->verdict, sizeof truth->verdict,
                                "%lld full steps are too few to tell the last tower's loss from mean_loss.",
                                (long long)truth->used);
    else
        used = verdict_noise(truth);
    verdict_bad(truth, used);
}

Status loss_truth(const Run *run, LossTruth *truth)
{
    Status st = OK;
    Series series = {0};
    *truth = (LossTruth){.towers = run->towers, .steps = run->steps};
    if (run->steps == 0) return FAIL(ERR_FORMAT, "'%s' has no step yet", run->path);
    truth->tower = calloc((size_t)run->towers, sizeof *truth->tower);
    if (!truth->tower) return FAIL(ERR_MEMORY, "numbers of %d towers", run->towers);
    shares_find(run, truth);
    if (truth->last < 0) {
        st = FAIL(ERR_FORMAT, "'%s': no tower has samples", run->path);
        goto out;
    }
    TRY_OUT(series_make(run, truth, &series));
    truth->used = series.count;
    noise_measure(truth, &series);
    TRY_OUT(bad_find(run, truth));
    verdict_write(truth);
out:
    series_free(&series);
    if (st != OK) loss_truth_clear(truth);
    return st;
}

void loss_truth_clear(LossTruth *truth)
{
    free(truth->tower);
    free(truth->bad);
    *truth = (LossTruth){0};
}

/* ---- two runs */

static Estimate no_estimate(void)
{
    return (Estimate){.mean = NAN, .error = INFINITY, .freedom = 1, .low = -INFINITY, .high = INFINITY, .p = 1};
}

/* Steps that both have, with finite losses. Writes b - a, and returns their number. */
static int64_t loss_pairs(const Run *a, const Run *b, double *pair, double *a_loss)
{
    int64_t count = 0;
    for (int64_t i = 0, j = 0; i < a->steps && j < b->steps;) {
        const RunStep *x = &a->step[i], *y = &b->step[j];
        i += x->step <= y->step;
        j += y->step <= x->step;
        if (x->step != y->step || !isfinite(x->mean_loss) || !isfinite(y->mean_loss)) continue;
        a_loss[count] = x->mean_loss;
        pair[count++] = y->mean_loss - x->mean_loss;
    }
    return count;
}

static Status loss_compare(const Run *a, const Run *b, RunDifference *d)
{
    int64_t most = a->steps < b->steps ? a->steps : b->steps;
    double *pair = calloc((size_t)(2 * most + 1), sizeof *pair);
    if (!pair) return FAIL(ERR_MEMORY, "%lld pairs of losses", (long long)most);
    int64_t count = loss_pairs(a, b, pair, pair + most), first = count / 2;
    d->same = count > 0 && a->steps == b->steps;
    for (int64_t i = 0; i < count; i++) d->same &= pair[i] == 0;
    d->steps = count - first;
    if (d->steps) {
        d->loss = series_estimate(pair + first, d->steps);
        d->a_loss = series_mean(pair + most + first, d->steps);
        d->b_loss = d->a_loss + d->loss.mean;
    }
    free(pair);
    return OK;
}

/* The last evaluation: hits of all test samples, which the confusion matrix counts. */
static double last_accuracy(const Run *run)
{
    for (int64_t i = run->epochs; i > 0; i--)
        if (isfinite(run->epoch[i - 1].test_top1)) return run->epoch[i - 1].test_top1;
    return NAN;
}

static int64_t test_samples(const Run *run)
{
    int64_t count = 0;
    for (int i = 0; i < run->classes * run->classes; i++) count += run->confusion[i];
    return count;
}

static void accuracy_compare(const Run *a, const Run *b, RunDifference *d)
{
    int64_t an = test_samples(a), bn = test_samples(b);
    d->a_accuracy = last_accuracy(a);
    d->b_accuracy = last_accuracy(b);
    if (an && bn && isfinite(d->a_accuracy) && isfinite(d->b_accuracy))
        d->accuracy =
            share_difference(llround(d->b_accuracy * (double)bn), bn, llround(d->a_accuracy * (double)an), an);
    else
        d->accuracy.mean = d->b_accuracy - d->a_accuracy;
}

/* Images per second of every step but the first tenth (caches, clocks and pages warm up). */
static Status speeds(const Run *run, double **made, int64_t *count)
{
    *made = calloc((size_t)run->steps + 1, sizeof **made);
    if (!*made) return FAIL(ERR_MEMORY, "speeds of %lld steps", (long long)run->steps);
    *count = 0;
    for (int64_t i = run->steps / 10; i < run->steps; i++)
        if (isfinite(run->step[i].images_per_sec)) (*made)[(*count)++] = run->step[i].images_per_sec;
    return OK;
}

static Status speed_compare(const Run *a, const Run *b, RunDifference *d)
{
    Status st = OK;
    double *x = NULL, *y = NULL;
    int64_t x_count = 0, y_count = 0;
    TRY_OUT(speeds(a, &x, &x_count));
    TRY_OUT(speeds(b, &y, &y_count));
    if (x_count && y_count) {
        d->a_speed = series_mean(x, x_count);
        d->b_speed = series_mean(y, y_count);
        d->speed = series_difference(y, y_count, x, x_count);
    }
out:
    free(x);
    free(y);
    return st;
}

static void difference_verdict(RunDifference *d)
{
    char part[3][256] = {"", "", ""};
    int parts = 0;
    if (d->loss.p < DIFFERENCE_LEVEL)
        snprintf(part[parts++], sizeof part[0], "its loss is %.3g %s (p = %.2g)", fabs(d->loss.mean),
                 d->loss.mean < 0 ? "lower" : "higher", d->loss.p);
    if (d->accuracy.p < DIFFERENCE_LEVEL)
        snprintf(
            part[parts++], sizeof part[0],
            "its test accuracy is %.2f points %s (p = %.2g for these weights; how much another seed changes, one run "
            "each cannot tell)",
            100 * fabs(d->accuracy.mean), d->accuracy.mean < 0 ? "lower" : "higher", d->accuracy.p);
    if (d->speed.p < DIFFERENCE_LEVEL)
        snprintf(part[parts++], sizeof part[0], "it is %.1f %% %s (p = %.2g)", 100 * fabs(d->speed.mean / d->a_speed),
                 d->speed.mean < 0 ? "slower" : "faster", d->speed.p);
    if (parts == 0)
        snprintf(d->verdict, sizeof d->verdict, "%s",
                 d->same ? "No difference: every loss is equal, bit for bit."
                         : "No difference that one can be sure of.");
    else
        snprintf(d->verdict, sizeof d->verdict, "The second run differs: %s%s%s%s%s.%s", part[0],
                 parts > 1 ? (parts > 2 ? ", " : " and ") : "", part[1], parts > 2 ? " and " : "", part[2],
                 d->same ? " Every loss is equal, bit for bit." : "");
}

Status run_difference(const Run *a, const Run *b, RunDifference *d)
{
    *d = (RunDifference){.loss = no_estimate(),
                         .accuracy = no_estimate(),
                         .speed = no_estimate(),
                         .a_loss = NAN,
                         .b_loss = NAN,
                         .a_accuracy = NAN,
                         .b_accuracy = NAN,
                         .a_speed = NAN,
                         .b_speed = NAN};
    TRY(loss_compare(a, b, d));
    accuracy_compare(a, b, d);
    TRY(speed_compare(a, b, d));
    difference_verdict(d);
    return OK;
}

/* ---- text */

static void tower_row(const LossTruth *truth, int t, FILE *to)
{
    const TowerTruth *tower = &truth->tower[t];
    const char *mark = t == truth->last ? "last" : t == truth->first ? "first" : "";
    if (!tower->share) {
        fprintf(to, "  %3d %-5s %7d   no samples\n", t, "", 0);
        return;
    }
    fprintf(to, "  %3d %-5s %7lld   %+10.5f  %+9.5f to %+9.5f   %6.3f  %6.3f to %6.3f   %6.3g\n", t, mark,
            (long long)tower->share, tower->bias.mean, tower->bias.low, tower->bias.high, tower->ratio.mean,
            tower->ratio.low, tower->ratio.high, tower->expected);
}

static void bad_row(const BadStep *bad, FILE *to)
{
    fprintf(to, "  step %lld, tower %d: %s not finite; a check of the last tower's loss ", (long long)bad->step,
            bad->tower,
            bad->loss && bad->gradient ? "loss and gradient"
            : bad->loss                ? "the loss is"
                                       : "the gradient is");
    const char *would = bad->measured ? "saw it" : "would see it";
    if (bad->later < 0)
        fprintf(to, bad->measured ? "never saw it\n" : "would never see it\n");
    else if (bad->later == 0)
        fprintf(to, "%s in the same step, after the update\n", would);
    else
        fprintf(to, "%s %lld step%s later, with spoilt weights\n", would, (long long)bad->later,
                bad->later == 1 ? "" : "s");
}

static void truth_print(const Run *run, const LossTruth *truth, FILE *to)
{
    fprintf(to, "%s: %lld steps, %lld of them full%s\n", run->path, (long long)truth->steps, (long long)truth->used,
            run->cut ? " (the last line was cut short and is left out)" : "");
    if (truth->towers > 1) {
        fprintf(to, "\n  tower     samples   bias against mean_loss, 95 %% interval     noise variance / that of "
                    "mean_loss   expected\n");
        for (int t = 0; t < truth->towers; t++) tower_row(truth, t, to);
        fprintf(to,
                "\n  noise of one step (standard deviation)   mean_loss %.4g, last tower %.4g\n"
                "  correlation of the towers' noise         %+.3f\n",
                truth->mean_noise, truth->last_noise, truth->correlation);
        if (truth->window > 1)
            fprintf(to, "  averaged over %lld steps the last tower's curve is as quiet as mean_loss\n",
                    (long long)truth->window);
    }
    for (int64_t i = 0; i < truth->bad_count; i++) bad_row(&truth->bad[i], to);
    waiting_text(run, to);
    norm_drift_text(run, to);
    fprintf(to, "\n%s\n", truth->verdict);
}

static void difference_row(const char *what, double a, double b, const Estimate *e, double unit, FILE *to)
{
    fprintf(to, "  %-22s %12.5g %12.5g   ", what, a * unit, b * unit);
    if (isfinite(e->error))
        fprintf(to, "%+10.4g   %+9.4g to %+9.4g   p = %.3g\n", e->mean * unit, e->low * unit, e->high * unit, e->p);
    else
        fprintf(to, "%+10.4g   not enough data for an interval\n", e->mean * unit);
}

static void difference_print(const Run *a, const Run *b, const RunDifference *d, FILE *to)
{
    fprintf(to, "\nA %s\nB %s\n\n  %-22s %12s %12s   %10s   95 %% interval\n", a->path, b->path, "", "A", "B", "B - A");
    difference_row("mean_loss", d->a_loss, d->b_loss, &d->loss, 1, to);
    difference_row("test accuracy, %", d->a_accuracy, d->b_accuracy, &d->accuracy, 100, to);
    difference_row("images per second", d->a_speed, d->b_speed, &d->speed, 1, to);
    fprintf(to, "  (losses paired by step, the later %lld steps)\n\n%s\n", (long long)d->steps, d->verdict);
}

/* ---- JSON */

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *estimate_json(const Estimate *e)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "value", number(e->mean), "error", number(e->error), "low",
                     number(e->low), "high", number(e->high), "p", number(e->p));
}

static json_t *towers_json(const LossTruth *truth)
{
    json_t *all = json_array();
    for (int t = 0; t < truth->towers; t++) {
        const TowerTruth *tower = &truth->tower[t];
        json_t *row = json_pack("{s:i, s:I}", "tower", t, "samples", (json_int_t)tower->share);
        if (tower->share) {
            json_object_set_new(row, "bias", estimate_json(&tower->bias));
            json_object_set_new(row, "variance_ratio", estimate_json(&tower->ratio));
            json_object_set_new(row, "expected_ratio", number(tower->expected));
        }
        json_array_append_new(all, row);
    }
    return all;
}

static json_t *bad_json(const LossTruth *truth)
{
    json_t *all = json_array();
    for (int64_t i = 0; i < truth->bad_count; i++) {
        const BadStep *bad = &truth->bad[i];
        json_t *later = bad->later < 0 ? json_null() : json_integer(bad->later);
        json_array_append_new(all, json_pack("{s:I, s:i, s:b, s:b, s:o, s:b}", "step", (json_int_t)bad->step, "tower",
                                             bad->tower, "loss", bad->loss, "gradient", bad->gradient,
                                             "last_tower_check_later", later, "measured", bad->measured));
    }
    return all;
}

static json_t *truth_json(const Run *run, const LossTruth *truth)
{
    return json_pack("{s:s, s:I, s:I, s:i, s:i, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:s}", "run", run->path,
                     "steps", (json_int_t)truth->steps, "full_steps", (json_int_t)truth->used, "towers", truth->towers,
                     "last_tower", truth->last, "tower", towers_json(truth), "mean_noise", number(truth->mean_noise),
                     "last_noise", number(truth->last_noise), "correlation", number(truth->correlation),
                     "smoothing_window", (json_int_t)truth->window, "not_finite", bad_json(truth), "slow",
                     waiting_json(run), "norm_drift", norm_drift_json(run), "verdict", truth->verdict);
}

static json_t *difference_json(const Run *a, const Run *b, const RunDifference *d)
{
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:b, s:s}", "a", a->path, "b",
                     b->path, "a_loss", number(d->a_loss), "b_loss", number(d->b_loss), "loss", estimate_json(&d->loss),
                     "a_accuracy", number(d->a_accuracy), "b_accuracy", number(d->b_accuracy), "accuracy",
                     estimate_json(&d->accuracy), "a_images_per_sec", number(d->a_speed), "b_images_per_sec",
                     number(d->b_speed), "images_per_sec", estimate_json(&d->speed), "paired_steps",
                     (json_int_t)d->steps, "same", d->same, "verdict", d->verdict);
}

/* ---- the verb */

static Status one_run(const Run *run, json_t *list, FILE *to)
{
    LossTruth truth;
    TRY(loss_truth(run, &truth));
    if (list)
        json_array_append_new(list, truth_json(run, &truth));
    else
        truth_print(run, &truth, to);
    loss_truth_clear(&truth);
    return OK;
}

static Status one_pair(const Run *a, const Run *b, json_t *list, FILE *to)
{
    RunDifference difference;
    TRY(run_difference(a, b, &difference));
    if (list)
        json_array_append_new(list, difference_json(a, b, &difference));
    else
        difference_print(a, b, &difference, to);
    return OK;
}

static Status json_write(json_t *root, FILE *to)
{
    bool whole = root && json_dumpf(root, to, JSON_INDENT(2)) == 0 && fputc('\n', to) != EOF;
    return whole ? OK : FAIL(ERR_IO, "the comparison could not be written");
}

Status compare_runs(char *const *paths, int count, bool json, FILE *to)
{
    Status st = OK;
    Run *first = NULL, *other = NULL;
    json_t *runs = json ? json_array() : NULL, *pairs = json ? json_array() : NULL,
           *root = json ? json_pack("{s:O, s:O}", "runs", runs, "differences", pairs) : NULL;
    if (count < 1) {
        st = FAIL(ERR_ARG, "which run? (towers compare RUN, or towers compare RUN RUN)");
        goto out;
    }
    TRY_OUT(run_read(paths[0], &first));
    TRY_OUT(one_run(first, runs, to));
    for (int i = 1; i < count; i++) {
        TRY_OUT(run_read(paths[i], &other));
        if (!json) fputc('\n', to);
        TRY_OUT(one_run(other, runs, to));
        TRY_OUT(one_pair(first, other, pairs, to));
        run_destroy(other);
        other = NULL;
    }
    if (json) TRY_OUT(json_write(root, to));
out:
    run_destroy(first);
    run_destroy(other);
    json_decref(root);
    json_decref(runs);
    json_decref(pairs);
    return st;
}
