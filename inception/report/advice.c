/* Measuring what the rules ask, and asking them in order; see advice.h. */
#include "inception/report/advice.h"

#include "inception/report/class_scores.h"
#include "inception/report/run_difference.h"

enum { TENTHS = 10, STEPS_LEAST = 200 /* for tenths whose means have intervals */, UNEQUAL = 3 };

bool run_has(const Run *run, const char *option, const char *value)
{
    char text[64];
    return run_argument(run, option, text, sizeof text) && !strcmp(text, value);
}

/* ---- damaged steps */

static bool step_damaged(const Run *run, const RunStep *step)
{
    bool finite = true;
    for (int t = 0; t < run->towers; t++) finite &= step->finite[t];
    return !step->overflow && (!finite || step->skipped || is_not_finite(step->mean_loss));
}

static void damage_count(const Run *whole, Advice *advice)
{
    for (int64_t i = 0; i < whole->steps; i++) {
        const RunStep *step = &whole->step[i];
        advice->overflows += step->overflow;
        if (!step_damaged(whole, step)) continue;
        if (!advice->damaged++) advice->first_damaged = step;
    }
}

/* ---- the training loss by tenths of the steps */

static int64_t tenth_take(const Run *run, int tenth, double *loss)
{
    int64_t count = 0;
    for (int64_t i = run->steps * tenth / TENTHS; i < run->steps * (tenth + 1) / TENTHS; i++)
        if (isfinite(run->step[i].mean_loss)) loss[count++] = run->step[i].mean_loss;
    return count;
}

/* The noise is that around the course, whose own change is what is asked for. */
static bool is_below(const double *last, int64_t last_count, const double *first, int64_t first_count)
{
    double error = sqrt(noise_variance(last, last_count) / (double)last_count +
                        noise_variance(first, first_count) / (double)first_count);
    return series_mean(first, first_count) - series_mean(last, last_count) > 3 * error;
}

/* Whether the last tenth is above the best one (`rose`), and not below the first one (`stayed`). */
static void tenths_compare(const Run *run, Advice *advice, bool *rose, bool *stayed)
{
    double *best = run->steps >= STEPS_LEAST ? calloc((size_t)run->steps, sizeof *best) : NULL, *last, mean;
    int64_t best_count = 0, last_count;
    *rose = *stayed = false;
    if (!best) return;
    last = best + run->steps / 2;
    last_count = tenth_take(run, TENTHS - 1, last);
    advice->last_tenth = last_count ? series_mean(last, last_count) : ABSENT;
    for (int k = 0; k < TENTHS - 1; k++) {
        int64_t count = tenth_take(run, k, best);
        mean = count ? series_mean(best, count) : ABSENT;
        if (k == 0) *stayed = !is_below(last, last_count, best, count);
        if (isfinite(mean) && !(advice->best_tenth <= mean)) advice->best_tenth = mean, best_count = k + 1;
    }
    if (best_count && isfinite(advice->last_tenth)) {
        int64_t count = tenth_take(run, (int)best_count - 1, best);
        Estimate change = series_difference(last, last_count, best, count);
        *rose = change.p < DIFFERENCE_LEVEL / (TENTHS - 1) && change.mean > 0.1 * fabs(advice->best_tenth);
    }
    free(best);
}

/* ---- evaluations */

/* The rows of the epochs with an evaluation, the last `most` of them. */
static int64_t evaluations_take(const Run *run, int64_t most, const EpochRecord **row)
{
    int64_t count = 0, at = 0, all = 0;
    for (int64_t i = 0; i < run->epochs; i++) all += isfinite(run->epoch[i].test_top1);
    for (int64_t i = 0; i < run->epochs; i++)
        if (isfinite(run->epoch[i].test_top1) && at++ >= all - most) row[count++] = &run->epoch[i];
    return count;
}

static double rising_of(const EpochRecord *const *row, int64_t count, size_t place, double sign)
{
    double value[TREND_MOST];
    for (int64_t i = 0; i < count; i++) value[i] = sign * *(const double *)((const char *)row[i] + place);
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(value[i])) return 1;
    return series_rising(value, count);
}

static Trend trend_of(const Run *run)
{
    const EpochRecord *row[TREND_MOST];
    double accuracy[TREND_MOST];
    Trend trend = {.up = 1, .down = 1, .slope = ABSENT, .loss_up = 1, .train_down = 1, .rate_kept = ABSENT};
    for (int64_t i = 0; i < run->epochs; i++) trend.evaluations += isfinite(run->epoch[i].test_top1);
    if (trend.evaluations < TREND_LEAST) return trend;
    trend.used = (trend.evaluations + 1) / 2;
    if (trend.used < TREND_LEAST) trend.used = TREND_LEAST;
    if (trend.used > TREND_MOST) trend.used = TREND_MOST;
    evaluations_take(run, trend.used, row);
    for (int64_t i = 0; i < trend.used; i++) accuracy[i] = row[i]->test_top1;
    trend.up = rising_of(row, trend.used, offsetof(EpochRecord, test_top1), 1);
    trend.down = rising_of(row, trend.used, offsetof(EpochRecord, test_top1), -1);
    trend.slope = series_slope(accuracy, trend.used);
    trend.loss_up = rising_of(row, trend.used, offsetof(EpochRecord, test_loss), 1);
    trend.train_down = rising_of(row, trend.used, offsetof(EpochRecord, train_loss), -1);
    trend.rate_kept = row[trend.used - 1]->lr / row[0]->lr;
    return trend;
}

static bool is_short(const Run *run, const Trend *trend)
{
    const EpochRecord *last = run_last_test(run);
    return trend->up < DIFFERENCE_LEVEL && !(trend->rate_kept < RATE_FALLEN && last->train_loss < last->test_loss);
}

/* ---- classes */

static void test_count(const Run *run, Advice *advice)
{
    for (int c = 0; c < run->classes; c++) {
        ClassScore score = class_score(run, c);
        advice->right += score.right;
        advice->images += score.samples;
        if (score.samples > advice->most_images) advice->most_images = score.samples;
    }
}

static Balance balance_of(const Run *run, const json_t *environment)
{
    Balance b = {.least = INT64_MAX};
    int64_t all = 0;
    const json_t *images = json_object_get(json_object_get(environment, "training_data"), "class_images");
    if (!run->classes || json_array_size(images) != (size_t)run->classes) return (Balance){0};
    for (int c = 0; c < run->classes; c++) {
        int64_t count = json_integer_value(json_array_get(images, (size_t)c));
        if (count < 1) continue; /* nothing could be learned of it */
        all += count;
        if (count > b.most) b.most = count;
        if (count < b.least) b.least = count;
    }
    for (int c = 0; c < run->classes; c++) {
        int64_t count = json_integer_value(json_array_get(images, (size_t)c));
        ClassScore score = class_score(run, c);
        if (count < 1) continue;
        bool rare = (double)count * run->classes < 0.5 * (double)all;
        *(rare ? &b.rare : &b.others) += score.samples;
        *(rare ? &b.rare_right : &b.others_right) += score.right;
    }
    return b;
}

static bool is_unbalanced(const Run *run, const Balance *b)
{
    char weights[64];
    if (b->most < UNEQUAL * b->least || run_argument(run, "class-weights", weights, sizeof weights)) return false;
    if (run_has(run, "sampler", "balanced")) return false;
    Estimate gap = share_difference(b->others_right, b->others, b->rare_right, b->rare);
    return gap.mean > 0 && gap.p < DIFFERENCE_LEVEL;
}

/* ---- the rules */

void advice_make(const Run *run, const Run *whole, const json_t *environment, Advice *advice)
{
    bool rose, stayed;
    *advice = (Advice){.best_tenth = ABSENT, .last_tenth = ABSENT};
    damage_count(whole, advice);
    tenths_compare(run, advice, &rose, &stayed);
    test_count(run, advice);
    advice->trend = trend_of(run);
    advice->balance = balance_of(run, environment);
    const Trend *trend = &advice->trend;
    bool guessed = false, unclear = false;
    if (advice->images && !run->multi_label) {
        Estimate share = share_estimate(advice->right, advice->images);
        double guessing = (double)advice->most_images / (double)advice->images;
        guessed = share.low <= guessing;
        unclear = guessed && share.high > guessing + GUESSING_MARGIN;
    }
    advice->kind = advice->damaged                                                             ? ADVICE_DAMAGED
                   : run->phase                                                                ? ADVICE_NONE
                   : unclear                                                                   ? ADVICE_FEW_IMAGES
                   : guessed || (!trend->evaluations && stayed)                                ? ADVICE_LEARNED_NOTHING
                   : rose                                                                      ? ADVICE_RATE
                   : trend->loss_up < DIFFERENCE_LEVEL && trend->train_down < DIFFERENCE_LEVEL ? ADVICE_OVERFITS
                   : is_unbalanced(run, &advice->balance)                                      ? ADVICE_UNBALANCED
                   : trend->evaluations && is_short(run, trend)                                ? ADVICE_SHORT
                   : trend->evaluations < TREND_LEAST                                          ? ADVICE_FEW
                                                                                               : ADVICE_NOTHING;
}
