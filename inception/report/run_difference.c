/* Two runs side by side: pairs of losses, shares of hits, series of speeds; see run_difference.h. */
#include "inception/report/run_difference.h"

#include <math.h>
#include <stdlib.h>

/* ---- loss, step by step */

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
    if (!pair) return FAIL(ERR_MEMORY, "no memory for %lld pairs of losses", (long long)most);
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

/* ---- accuracy */

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

/* ---- speed */

/* Images per second of every step but the first tenth (caches, clocks and pages warm up). */
static Status speeds(const Run *run, double **made, int64_t *count)
{
    *made = calloc((size_t)run->steps + 1, sizeof **made);
    if (!*made) return FAIL(ERR_MEMORY, "no memory for speeds of %lld steps", (long long)run->steps);
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

/* ---- the sentence */

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

/* ---- all of it */

static Estimate no_estimate(void)
{
    return (Estimate){.mean = NAN, .error = INFINITY, .freedom = 1, .low = -INFINITY, .high = INFINITY, .p = 1};
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
