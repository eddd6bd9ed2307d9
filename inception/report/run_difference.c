/* Compare two runs: losses over the same images, accuracies, speeds, KID; see run_difference.h. */
#include "inception/report/run_difference.h"

#include "kernels/text.h"

#include <jansson.h>

/* ---- loss, by images seen */

typedef struct StepSpan { /* the images of a step: those after `from`, up to `to` */
    int64_t from, to;
} StepSpan;

/* The images seen by each step of a run. Steps that are not recorded (before a branch, or left out) count as many
 * images as the next recorded one. */
static Status spans_create(const Run *run, StepSpan **made)
{
    int64_t seen = 0, before = 0;
    StepSpan *spans = calloc((size_t)run->steps + 1, sizeof *spans);
    if (!spans) return FAIL(ERR_MEMORY, "no memory for the images of %" PRId64 " steps", run->steps);
    for (int64_t i = 0; i < run->steps; i++) {
        const RunStep *step = &run->step[i];
        seen += (step->step - before - 1) * step->images;
        spans[i] = (StepSpan){seen, seen + step->images};
        seen = spans[i].to;
        before = step->step;
    }
    *made = spans;
    return OK;
}

/* Mean loss over the images of `wanted`, weighting each step by the images that it has in common; NaN if a step is
 * missing or its loss is not finite. The search starts at `*first`, for calls with ascending spans. */
static double loss_over(const Run *run, const StepSpan *spans, StepSpan wanted, int64_t *first)
{
    double sum = 0;
    int64_t covered = 0, i = *first;
    while (i < run->steps && spans[i].to <= wanted.from) i++;
    *first = i;
    for (; i < run->steps && spans[i].from < wanted.to; i++) {
        int64_t from = spans[i].from > wanted.from ? spans[i].from : wanted.from,
                to = spans[i].to < wanted.to ? spans[i].to : wanted.to;
        if (!isfinite(run->step[i].mean_loss)) return NAN;
        if (spans[i].from == wanted.from && spans[i].to == wanted.to) return run->step[i].mean_loss;
        sum += run->step[i].mean_loss * (double)(to - from);
        covered += to - from;
    }
    return covered == wanted.to - wanted.from ? sum / (double)covered : NAN;
}

static int64_t images_in_all(const Run *run, const StepSpan *spans)
{
    return run->steps ? spans[run->steps - 1].to : 0;
}

/* For each step of the run with larger steps, the other run's loss over the same images. Writes b - a, a's loss and the
 * images of each pair; returns the number of pairs. */
static int64_t loss_pairs(const Run *a, const StepSpan *as, const Run *b, const StepSpan *bs, double *pair,
                          double *a_loss, StepSpan *images)
{
    int64_t count = 0, a_first = 0, b_first = 0;
    bool by_a = (double)images_in_all(a, as) * (double)b->steps >= (double)images_in_all(b, bs) * (double)a->steps;
    const Run *coarse = by_a ? a : b;
    for (int64_t i = 0; i < coarse->steps; i++) {
        StepSpan span = by_a ? as[i] : bs[i];
        double x = loss_over(a, as, span, &a_first), y = loss_over(b, bs, span, &b_first);
        if (span.from == span.to || !isfinite(x) || !isfinite(y)) continue;
        images[count] = span;
        a_loss[count] = x;
        pair[count++] = y - x;
    }
    return count;
}

static Status loss_compare(const Run *a, const Run *b, RunDifference *d)
{
    Status st = OK;
    StepSpan *as = NULL, *bs = NULL, *images = NULL;
    double *pair = NULL;
    int64_t most = a->steps > b->steps ? a->steps : b->steps;
    TRY_OUT(spans_create(a, &as));
    TRY_OUT(spans_create(b, &bs));
    pair = calloc((size_t)(2 * most + 1), sizeof *pair);
    images = calloc((size_t)most + 1, sizeof *images);
    if (!pair || !images) TRY_OUT(FAIL(ERR_MEMORY, "no memory for %" PRId64 " pairs of losses", most));
    int64_t count = loss_pairs(a, as, b, bs, pair, pair + most, images), first = count / 2;
    d->same = count > 0 && a->steps == b->steps;
    for (int64_t i = 0; d->same && i < a->steps; i++) d->same = as[i].from == bs[i].from && as[i].to == bs[i].to;
    for (int64_t i = 0; i < count; i++) d->same &= pair[i] == 0;
    d->steps = count - first;
    if (d->steps) {
        d->loss.change = series_estimate(pair + first, d->steps);
        d->loss.a = series_mean(pair + most + first, d->steps);
        d->loss.b = d->loss.a + d->loss.change.mean;
        d->images_from = images[first].from;
        d->images_to = images[count - 1].to;
    }
out:
    free(as);
    free(bs);
    free(pair);
    free(images);
    return st;
}

Status run_loss_over(const Run *run, int64_t from, int64_t to, double *loss)
{
    StepSpan *spans = NULL;
    double sum = 0;
    int64_t images = 0;
    TRY(spans_create(run, &spans));
    for (int64_t i = 0; i < run->steps; i++) {
        if (spans[i].from < from || spans[i].to > to || !isfinite(run->step[i].mean_loss)) continue;
        sum += run->step[i].mean_loss * (double)run->step[i].images;
        images += run->step[i].images;
    }
    free(spans);
    *loss = images ? sum / (double)images : NAN;
    return OK;
}

Status run_images(const Run *run, int64_t *images)
{
    StepSpan *spans = NULL;
    TRY(spans_create(run, &spans));
    *images = images_in_all(run, spans);
    free(spans);
    return OK;
}

double steps_mean(const Run *run, int64_t first, size_t place)
{
    double sum = 0;
    int64_t count = 0;
    for (int64_t i = first; i < run->steps; i++) {
        double value = *(const double *)((const char *)&run->step[i] + place);
        if (isfinite(value)) sum += value, count++;
    }
    return count ? sum / (double)count : NAN;
}

/* ---- accuracy */

const EpochRecord *run_last_test(const Run *run)
{
    for (int64_t i = run->epochs; i > 0; i--)
        if (isfinite(run->epoch[i - 1].test_top1)) return &run->epoch[i - 1];
    return NULL;
}

/* Number of samples of an evaluation: the sum of the confusion matrix. */
static int64_t test_samples(const Run *run)
{
    int64_t count = 0;
    for (int i = 0; i < run->classes * run->classes; i++) count += run->confusion[i];
    return count;
}

/* ---- generated images */

const RunKid *run_last_kid(const Run *run)
{
    for (int64_t i = run->kids; i > 0; i--)
        if (isfinite(run->kid[i - 1].kid)) return &run->kid[i - 1];
    return NULL;
}

static void kid_compare(const Run *a, const Run *b, RunDifference *d)
{
    const RunKid *x = run_last_kid(a), *y = run_last_kid(b);
    if (x) d->kid.a = x->kid;
    if (y) d->kid.b = y->kid;
    if (!x || !y) return;
    d->other_features = strcmp(a->features_name[x->features], b->features_name[y->features]) != 0;
    if (d->other_features) return;
    double mean = y->kid - x->kid, error = hypot(x->deviation, y->deviation);
    d->kid.change.mean = mean;
    if (!(error > 0)) return;
    double reach = student_quantile(0.975, INFINITY) * error;
    d->kid.change = (Estimate){mean, error, INFINITY, mean - reach, mean + reach, student_tail(mean / error, INFINITY)};
}

/* ---- speed */

/* Logarithms of the images per second, without the first tenth of the steps (warm-up of caches, clocks and memory).
 * Outliers, caused by other programs or the file system, are clamped to three deviations from the median, so that a few
 * of them determine neither the difference nor its interval. */
static Status speeds(const Run *run, double **made, int64_t *count)
{
    double *x = calloc(2 * (size_t)run->steps + 1, sizeof *x), *copy = x + run->steps;
    int64_t n = 0;
    if (!x) return FAIL(ERR_MEMORY, "no memory for the speeds of %" PRId64 " steps", run->steps);
    for (int64_t i = run->steps / 10; i < run->steps; i++)
        if (isfinite(run->step[i].images_per_sec) && run->step[i].images_per_sec > 0)
            x[n++] = log(run->step[i].images_per_sec);
    for (int64_t i = 0; i < n; i++) copy[i] = x[i];
    double middle = series_median(copy, n);
    double reach = 3 * series_scatter(copy, n).jitter;
    for (int64_t i = 0; i < n; i++) x[i] = fmin(fmax(x[i], middle - reach), middle + reach);
    *made = x;
    *count = n;
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
        d->speed = (Measured){exp(series_mean(x, x_count)), exp(series_mean(y, y_count)),
                              series_difference(y, y_count, x, x_count)};
        /* Convert a difference of logarithms, a ratio, to images per second at a's speed. */
        Estimate *logs = &d->speed.change;
        logs->mean = d->speed.a * expm1(logs->mean);
        logs->low = d->speed.a * expm1(logs->low);
        logs->high = d->speed.a * expm1(logs->high);
        logs->error *= d->speed.a;
    }
out:
    free(x);
    free(y);
    return st;
}

/* ---- the summary */

static bool differs(const Measured *m)
{
    return m->change.p < DIFFERENCE_LEVEL;
}

/* Begins a sentence, or goes on with it, if the runs differ in this. `*left`: how many differences are to be said. */
static bool is_said(Text *verdict, const Measured *m, int *left)
{
    if (differs(m)) text_add(verdict, !verdict->used ? "The second run differs: " : (*left)-- > 1 ? ", " : " and ");
    return differs(m);
}

static void difference_verdict(RunDifference *d)
{
    Text verdict = text_start(d->verdict, sizeof d->verdict);
    const Estimate *kid = &d->kid.change, *loss = &d->loss.change, *accuracy = &d->accuracy.change,
                   *speed = &d->speed.change;
    int left = differs(&d->kid) + differs(&d->loss) + differs(&d->accuracy) + differs(&d->speed) - 1;
    if (is_said(&verdict, &d->kid, &left))
        text_add(&verdict, "the KID of its images is %.3g %s the data (p = %.2g)", fabs(kid->mean),
                 kid->mean < 0 ? "lower, so they are closer to" : "higher, so they are farther from", kid->p);
    if (is_said(&verdict, &d->loss, &left))
        text_add(&verdict, "its loss after the same number of images is %.3g %s (p = %.2g)", fabs(loss->mean),
                 loss->mean < 0 ? "lower" : "higher", loss->p);
    if (is_said(&verdict, &d->accuracy, &left))
        text_add(&verdict,
                 "its test accuracy is %.2f points %s (p = %.2g for these weights; one run each does not show the "
                 "variation between seeds)",
                 100 * fabs(accuracy->mean), accuracy->mean < 0 ? "lower" : "higher", accuracy->p);
    if (is_said(&verdict, &d->speed, &left))
        text_add(&verdict, "it is %.1f %% %s (p = %.2g)", 100 * fabs(speed->mean / d->speed.a),
                 speed->mean < 0 ? "slower" : "faster", speed->p);
    bool none = !verdict.used;
    if (none && !d->same) text_add(&verdict, "No difference that is statistically significant");
    if (none && d->same) text_add(&verdict, "No difference: all losses are equal bit for bit");
    text_add(&verdict, none || !d->same ? "." : ". All losses are equal bit for bit.");
}

const char *const loss_formulas[LOSS_FORMULAS][2] = {
    {"loss", "softmax"}, {"smoothing", "0"}, {"class-weights", "0"}, {"mixup", "0"}, {"cutmix", "0"}};

static void losses_report(const Run *a, const Run *b, Text *to)
{
    bool differ = false;
    for (int i = 0; i < LOSS_FORMULAS; i++) {
        const char *name = loss_formulas[i][0], *off = loss_formulas[i][1];
        char x[64], y[64];
        if (!run_argument(a, name, x, sizeof x)) snprintf(x, sizeof x, "%s", off);
        if (!run_argument(b, name, y, sizeof y)) snprintf(y, sizeof y, "%s", off);
        if (!strcmp(x, y)) continue;
        if (!differ) text_add(to, "%sThe runs differ in ", to->used ? " " : "");
        text_add(to, "%s%s (%s, %s)", differ ? ", " : "", name, x, y);
        differ = true;
    }
    if (differ) text_add(to, ": their losses do not measure the same thing.");
}

bool subjects_equal(const Run *a, const Run *b, char text[VERDICT_BYTES])
{
    static const char *const keys[] = {"model", "data", "classes"};
    json_t *then = json_loads(a->environment, 0, NULL), *now = json_loads(b->environment, 0, NULL);
    Text subjects = text_start(text, VERDICT_BYTES);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *x = json_object_get(then, keys[i]), *y = json_object_get(now, keys[i]);
        if (!x || !y || json_equal(x, y)) continue;
        text_add(&subjects, "%s%s", *text ? ", " : "The runs differ in ", keys[i]);
        if (json_is_string(x) && json_is_string(y))
            text_add(&subjects, " (%s, %s)", json_string_value(x), json_string_value(y));
    }
    if (*text) text_add(&subjects, ": their numbers do not measure the same thing.");
    json_decref(then);
    json_decref(now);
    return !*text;
}

/* ---- the comparison */

Status run_difference(const Run *a, const Run *b, RunDifference *d)
{
    static const Measured unknown = {NAN, NAN, {NAN, INFINITY, 1, -INFINITY, INFINITY, 1}};
    *d = (RunDifference){unknown, unknown, unknown, unknown};
    TRY(loss_compare(a, b, d));
    int64_t an = test_samples(a), bn = test_samples(b);
    Measured *accuracy = &d->accuracy;
    const EpochRecord *last_a = run_last_test(a), *last_b = run_last_test(b);
    bool alike = a->several == b->several; /* mAP is no accuracy */
    if (alike && last_a) accuracy->a = last_a->test_top1;
    if (alike && last_b) accuracy->b = last_b->test_top1;
    if (an && bn && isfinite(accuracy->a) && isfinite(accuracy->b))
        accuracy->change =
            share_difference(llround(accuracy->b * (double)bn), bn, llround(accuracy->a * (double)an), an);
    else
        accuracy->change.mean = accuracy->b - accuracy->a;
    kid_compare(a, b, d);
    TRY(speed_compare(a, b, d));
    difference_verdict(d);
    subjects_equal(a, b, d->subjects);
    Text subjects = text_behind(d->subjects, sizeof d->subjects);
    losses_report(a, b, &subjects);
    return OK;
}
