/* Compare two runs: losses over the same images, accuracies, speeds, KID; see run_difference.h. */
#include "inception/report/run_difference.h"

#include "kernels/base/text.h"
#include "towers/data/classes/class_match.h"
#include "towers/files/json.h"

/* ---- loss and speed, by images seen */

/* What both runs have recorded of the same images. */
typedef struct Pairs {
    StepSpan *images; /* owned: [most], as are the next */
    double *a_loss, *b_loss, *a_speed, *b_speed;
    int64_t count, most;
} Pairs;

static void pairs_free(Pairs *pairs)
{
    free(pairs->images);
    free(pairs->a_loss);
    *pairs = (Pairs){0};
}

/* For each step of the run with larger steps, what the other run has recorded of the same images. */
static Status pairs_make(SeenSteps seen[2], Pairs *pairs)
{
    SeenSteps *coarse = seen_coarsest(seen, 2);
    int64_t most = coarse ? coarse->run->steps : 0;
    *pairs = (Pairs){.images = calloc((size_t)most + 1, sizeof *pairs->images),
                     .a_loss = calloc(4 * (size_t)most + 1, sizeof *pairs->a_loss),
                     .most = most};
    if (!pairs->images || !pairs->a_loss) {
        pairs_free(pairs);
        return FAIL(ERR_MEMORY, "no memory for %" PRId64 " pairs of steps", most);
    }
    pairs->b_loss = pairs->a_loss + most, pairs->a_speed = pairs->b_loss + most, pairs->b_speed = pairs->a_speed + most;
    for (int64_t i = 0; i < most; i++) {
        if (coarse->span[i].from == coarse->span[i].to) continue;
        SpanMeans a = seen_means(&seen[0], coarse->span[i]), b = seen_means(&seen[1], coarse->span[i]);
        if (is_absent(a.loss) || is_absent(b.loss)) continue;
        int64_t k = pairs->count++;
        pairs->images[k] = coarse->span[i];
        pairs->a_loss[k] = a.loss, pairs->b_loss[k] = b.loss;
        pairs->a_speed[k] = a.speed, pairs->b_speed[k] = b.speed;
    }
    return OK;
}

/* Whether both runs have the same steps, with equal losses. */
static bool losses_same(const SeenSteps seen[2], const Pairs *pairs)
{
    const Run *a = seen[0].run, *b = seen[1].run;
    bool same = pairs->count == a->steps && a->steps == b->steps && a->steps > 0;
    for (int64_t i = 0; same && i < a->steps; i++)
        same = seen[0].span[i].from == seen[1].span[i].from && seen[0].span[i].to == seen[1].span[i].to &&
               pairs->a_loss[i] == pairs->b_loss[i];
    return same;
}

/* The mean of the later half of `count` losses; NaN if the run has diverged: its last one is not finite. */
static double later_loss(const double *loss, int64_t count)
{
    double sum = 0;
    int64_t finite = 0;
    if (!isfinite(loss[count - 1])) return NAN;
    for (int64_t i = count / 2; i < count; i++)
        if (isfinite(loss[i])) sum += loss[i], finite++;
    return sum / (double)finite;
}

/* The change is that of the later half of the pairs in which both losses are finite. */
static Status loss_compare(const Pairs *pairs, RunDifference *d)
{
    int64_t count = 0, *of = calloc((size_t)pairs->count + 1, sizeof *of);
    double *change = calloc((size_t)pairs->count + 1, sizeof *change);
    Status st = of && change ? OK : FAIL(ERR_MEMORY, "no memory for %" PRId64 " pairs of losses", pairs->count);
    for (int64_t i = 0; st == OK && i < pairs->count; i++) {
        d->a_lost += !isfinite(pairs->a_loss[i]), d->b_lost += !isfinite(pairs->b_loss[i]);
        if (!isfinite(pairs->a_loss[i]) || !isfinite(pairs->b_loss[i])) continue;
        of[count] = i;
        change[count++] = pairs->b_loss[i] - pairs->a_loss[i];
    }
    if (st == OK && pairs->count) {
        d->loss.a = later_loss(pairs->a_loss, pairs->count), d->loss.b = later_loss(pairs->b_loss, pairs->count);
    }
    int64_t first = count / 2;
    if (count && isfinite(d->loss.a) && isfinite(d->loss.b)) {
        d->steps = count - first;
        d->loss.change = series_estimate(change + first, d->steps);
        d->loss.a = d->loss.b = 0;
        for (int64_t i = first; i < count; i++) {
            d->loss.a += pairs->a_loss[of[i]] / (double)d->steps;
            d->loss.b += pairs->b_loss[of[i]] / (double)d->steps;
        }
        d->images_from = pairs->images[of[first]].from;
        d->images_to = pairs->images[of[count - 1]].to;
    }
    free(of);
    free(change);
    return st;
}

Number steps_mean(const Run *run, int64_t first, size_t place)
{
    double sum = 0;
    int64_t count = 0;
    for (int64_t i = first; i < run->steps; i++) {
        double value = *(const double *)((const char *)&run->step[i] + place);
        if (isfinite(value)) sum += value, count++;
    }
    return count ? sum / (double)count : ABSENT;
}

/* ---- accuracy */

const EpochRecord *run_last_test(const Run *run)
{
    for (int64_t i = run->epochs; i > 0; i--)
        if (isfinite(run->epoch[i - 1].test_top1)) return &run->epoch[i - 1];
    return NULL;
}

/* Number of samples of an evaluation: the sum of the confusion matrix, which a run without a best epoch lacks, or what the run
 * says about its data; 0: not known. */
static int64_t test_samples(const Run *run)
{
    int64_t count = 0;
    for (int i = 0; i < run->classes * run->classes; i++) count += run->confusion[i];
    if (count) return count;
    json_t *environment = json_loads(run->environment, 0, NULL);
    count = json_whole(json_object_get(environment, "evaluation_data"), "images");
    json_decref(environment);
    return count;
}

/* Whether a number of right answers is what results.csv says. */
static bool is_share(int64_t right, int64_t count, double share)
{
    return fabs((double)right / (double)count - share) * (double)count < 0.5;
}

static Status accuracy_compare(const Run *a, const Run *b, RunDifference *d)
{
    Measured *accuracy = &d->accuracy;
    const EpochRecord *last_a = run_last_test(a), *last_b = run_last_test(b);
    if (a->multi_label != b->multi_label) return OK; /* mAP is no accuracy */
    if (last_a) accuracy->a = last_a->test_top1;
    if (last_b) accuracy->b = last_b->test_top1;
    accuracy->change.mean = accuracy->b - accuracy->a;
    if (!last_a || !last_b || a->multi_label) return OK;
    int64_t an = test_samples(a), bn = test_samples(b);
    TRY(paired_accuracy(a, b, &d->paired));
    PairedAccuracy *p = &d->paired;
    if (p->images && !(is_share(p->right_a, p->images, accuracy->a) && is_share(p->right_b, p->images, accuracy->b)))
        *p = (PairedAccuracy){0}; /* of other evaluations */
    if (p->images)
        accuracy->change = paired_share_difference(p->only_b, p->only_a, p->images);
    else if (an && bn)
        accuracy->change =
            share_difference(llround(accuracy->b * (double)bn), bn, llround(accuracy->a * (double)an), an);
    return OK;
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
    d->kid.change = normal_estimate(mean, error);
}

/* ---- speed */

/* Logarithms of the images per second; outliers, caused by other programs or the file system, are clamped to three deviations from the
 * median, so that a few of them determine neither the difference nor its interval. `copy`: room. */
static void speeds_take(const double *speed, int64_t count, double *x, double *copy)
{
    for (int64_t i = 0; i < count; i++) copy[i] = x[i] = log(speed[i]);
    double middle = series_median(copy, count);
    double reach = 3 * series_scatter(copy, count).jitter;
    for (int64_t i = 0; i < count; i++) x[i] = fmin(fmax(x[i], middle - reach), middle + reach);
}

/* Without the first tenth of the images (warm-up of caches, clocks and memory). */
static Status speed_compare(const Pairs *pairs, RunDifference *d)
{
    int64_t first = pairs->count / 10, n = 0;
    double *x = calloc(5 * (size_t)(pairs->count - first) + 1, sizeof *x), *y = x + (pairs->count - first),
           *a = y + (pairs->count - first), *b = a + (pairs->count - first), *copy = b + (pairs->count - first);
    if (!x) return FAIL(ERR_MEMORY, "no memory for %" PRId64 " speeds", pairs->count);
    for (int64_t i = first; i < pairs->count; i++) {
        if (!(isfinite(pairs->a_speed[i]) && isfinite(pairs->b_speed[i]) && pairs->a_speed[i] > 0 &&
              pairs->b_speed[i] > 0))
            continue;
        a[n] = pairs->a_speed[i];
        b[n++] = pairs->b_speed[i];
    }
    if (n) {
        speeds_take(a, n, x, copy);
        speeds_take(b, n, y, copy);
        d->speed = (Measured){exp(series_mean(x, n)), exp(series_mean(y, n)), series_difference(y, n, x, n)};
        /* Convert a difference of logarithms, a ratio, to images per second at a's speed. */
        Estimate *logs = &d->speed.change;
        logs->mean = d->speed.a * expm1(logs->mean);
        logs->low = d->speed.a * expm1(logs->low);
        logs->high = d->speed.a * expm1(logs->high);
        logs->error *= d->speed.a;
    }
    free(x);
    return OK;
}

static Status steps_compare(const Run *a, const Run *b, RunDifference *d)
{
    Status st = OK;
    SeenSteps seen[2] = {{0}, {0}};
    Pairs pairs = {0};
    TRY_OUT(seen_steps_make(a, &seen[0]));
    TRY_OUT(seen_steps_make(b, &seen[1]));
    d->images_known = seen[0].span && seen[1].span;
    TRY_OUT(pairs_make(seen, &pairs));
    d->same = losses_same(seen, &pairs);
    TRY_OUT(loss_compare(&pairs, d));
    TRY_OUT(speed_compare(&pairs, d));
out:
    pairs_free(&pairs);
    seen_steps_free(&seen[0]);
    seen_steps_free(&seen[1]);
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

static bool was_tested(const RunDifference *d)
{
    return !is_absent(d->loss.change.p) || !is_absent(d->accuracy.change.p) || !is_absent(d->kid.change.p);
}

/* What the verdict cannot say: a sentence for each number that was not tested although both runs have one, or would have. */
static void untested_write(const RunDifference *d, Text *to)
{
    bool a = is_not_finite(d->loss.a), b = is_not_finite(d->loss.b);
    if (a || b)
        text_add(to, "%sThe loss of %s is not finite at the end, so losses were not compared.", to->used ? " " : "",
                 a && b ? "both runs"
                 : a    ? "the first run"
                        : "the second run");
    if (!d->multi_label && isfinite(d->accuracy.a) && isfinite(d->accuracy.b) && is_absent(d->accuracy.change.p))
        text_add(to,
                 "%sTheir test accuracies were not tested for a difference: on how many images they were measured is "
                 "not recorded.",
                 to->used ? " " : "");
    if (!to->used) text_add(to, "Nothing was recorded by which the runs could be compared.");
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
    if (none && d->same) text_add(&verdict, "No difference: all losses are equal bit for bit");
    if (none && !d->same && was_tested(d)) text_add(&verdict, "No difference that is statistically significant");
    if (verdict.used) text_add(&verdict, none || !d->same ? "." : ". All losses are equal bit for bit.");
    untested_write(d, &verdict);
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

/* Whether the data of two runs have the same classes, as far as they name them. */
static bool classes_equal(const json_t *then, const json_t *now)
{
    const json_t *of = json_object_get(then, "class_names"), *among = json_object_get(now, "class_names");
    int count = (int)json_array_size(of);
    if (!count || json_array_size(among) != (size_t)count) return true;
    const char **own = json_texts(of), **other = json_texts(among);
    int32_t *map = calloc((size_t)count, sizeof *map);
    const ClassList a = {.whose = "one run", .names = own, .count = count},
                    b = {.whose = "the other", .names = other, .count = count};
    bool equal = !own || !other || !map || class_match(&a, &b, CLASSES_SPELLED, map, NULL) == OK;
    free(own);
    free(other);
    free(map);
    return equal;
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
    if (!classes_equal(then, now))
        text_add(&subjects, "%s", *text ? ", names of classes" : "The runs differ in the names of their classes");
    if (*text) text_add(&subjects, ": their numbers do not measure the same thing.");
    json_decref(then);
    json_decref(now);
    return !*text;
}

/* ---- the comparison */

void subjects_compare(const Run *a, const Run *b, char text[VERDICT_BYTES])
{
    subjects_equal(a, b, text);
    Text subjects = text_behind(text, VERDICT_BYTES);
    losses_report(a, b, &subjects);
}

Status run_difference(const Run *a, const Run *b, RunDifference *d)
{
    const Measured unknown = {ABSENT, ABSENT, unknown_estimate(ABSENT, 0)};
    *d = (RunDifference){unknown, unknown, unknown, unknown, .multi_label = a->multi_label};
    TRY(steps_compare(a, b, d));
    TRY(accuracy_compare(a, b, d));
    kid_compare(a, b, d);
    difference_verdict(d);
    subjects_compare(a, b, d->subjects);
    return OK;
}
