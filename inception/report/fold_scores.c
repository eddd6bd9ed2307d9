/* Scores over the folds of a cross-validation: mean and deviation of each setting, and whether settings differ; see compare.h.
 *
 * Settings are compared by the differences of their scores in the same folds. The training sets of folds overlap, so these
 * differences are not independent: the variance of their mean is taken as (1/n + 1/(N - 1)) s^2 for n of N folds, the
 * corrected resampled t-test (Nadeau & Bengio, "Inference for the Generalization Error", 2003). */
#include "inception/report/compare.h"

#include "inception/report/run_difference.h"
#include "towers/record/statistics.h"

typedef struct ScoredRun {
    const Run *run;
    int fold, folds, setting;
    double score;
} ScoredRun;

typedef struct FoldDifference {
    int count; /* folds that both settings have */
    double mean, deviation, low, high, p;
} FoldDifference;

/* False if the run has no fold or no score. */
static bool scored_read(const Run *run, ScoredRun *scored)
{
    char text[64];
    *scored = (ScoredRun){.run = run, .score = ABSENT};
    if (!run_argument(run, "fold", text, sizeof text) || sscanf(text, "%d/%d", &scored->fold, &scored->folds) != 2)
        return false;
    const EpochRecord *last = run_last_test(run);
    if (last) scored->score = last->test_top1;
    return scored->folds >= 2 && last;
}

/* Whether the run is a fold that this setting, of runs before it, has not yet. */
static bool setting_lacks(const ScoredRun *all, int before, const ScoredRun *one, int setting)
{
    bool like = false;
    char subjects[VERDICT_BYTES];
    for (int k = 0; k < before; k++) {
        if (all[k].setting != setting) continue;
        if (all[k].fold == one->fold || all[k].folds != one->folds) return false;
        const Run *first = all[k].run;
        like = like || (subjects_equal(first, one->run, subjects) && settings_equal(first, one->run, OPTION_ID_fold));
    }
    return like;
}

/* Numbers the settings in the order of their first runs; a fold that occurs again begins another. Returns their number. */
static int settings_number(ScoredRun *all, int count)
{
    int settings = 0;
    for (int i = 0; i < count; i++) {
        int s = 0;
        while (s < settings && !setting_lacks(all, i, &all[i], s)) s++;
        all[i].setting = s;
        settings += s == settings;
    }
    return settings;
}

static FoldDifference settings_compare(const ScoredRun *all, int count, int other, double *differences)
{
    FoldDifference d = {.mean = ABSENT, .deviation = ABSENT, .low = ABSENT, .high = ABSENT, .p = ABSENT};
    int folds = 2;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < count; k++) {
            bool pair = all[i].setting == 0 && all[k].setting == other && all[i].fold == all[k].fold &&
                        all[i].folds == all[k].folds;
            if (!pair) continue;
            differences[d.count++] = all[k].score - all[i].score;
            folds = all[i].folds;
        }
    if (d.count) d.mean = series_mean(differences, d.count);
    if (d.count < 2) return d;
    double variance = series_variance(differences, d.count), freedom = d.count - 1;
    double error = sqrt((1.0 / d.count + 1.0 / (folds - 1)) * variance);
    d.deviation = sqrt(variance);
    d.low = d.mean - student_quantile(0.975, freedom) * error;
    d.high = d.mean + student_quantile(0.975, freedom) * error;
    d.p = error > 0 ? student_tail(d.mean / error, freedom) : d.mean == 0 ? 1 : 0;
    return d;
}

static void setting_report(const ScoredRun *all, int count, int setting, double *scores, json_t *rows, FILE *to)
{
    const ScoredRun *first = NULL;
    int found = 0;
    for (int i = 0; i < count; i++) {
        if (all[i].setting != setting) continue;
        if (!found) first = &all[i];
        scores[found++] = all[i].score;
    }
    double mean = series_mean(scores, found), deviation = found > 1 ? sqrt(series_variance(scores, found)) : ABSENT;
    char text[32] = "-";
    if (rows) {
        json_array_append_new(rows, json_pack("{s:o, s:i, s:i, s:o, s:o}", "run", json_text(first->run->path), "of",
                                              first->folds, "folds", found, "mean", json_finite(mean), "deviation",
                                              json_finite(deviation)));
        return;
    }
    if (isfinite(deviation)) snprintf(text, sizeof text, "%.3f", 100 * deviation);
    text_printf(to, "  %7c  %3d of %-3d  %12.3f  %9s   %s\n", 'A' + setting % 26, found, first->folds, 100 * mean, text,
                first->run->path);
}

static void difference_report(const FoldDifference *d, int number, json_t *rows, FILE *to)
{
    if (rows) {
        json_array_append_new(rows,
                              json_pack("{s:i, s:i, s:o, s:o, s:o, s:o, s:o}", "setting", number, "folds", d->count,
                                        "mean", json_finite(d->mean), "deviation", json_finite(d->deviation), "low",
                                        json_finite(d->low), "high", json_finite(d->high), "p", json_finite(d->p)));
    } else if (d->count < 2) {
        text_printf(to, "  %c - A: %d fold%s in both, too few for a test\n", 'A' + number % 26, d->count,
                    d->count == 1 ? "" : "s");
    } else {
        text_printf(to, "  %c - A over %d folds: %+.3f, deviation %.3f, 95 %% interval %+.3f to %+.3f, p = %.2g\n",
                    'A' + number % 26, d->count, 100 * d->mean, 100 * d->deviation, 100 * d->low, 100 * d->high, d->p);
    }
}

static void settings_report(const ScoredRun *all, int count, int settings, double *numbers, json_t *root, FILE *to)
{
    json_t *rows = root ? json_array() : NULL, *differences = root ? json_array() : NULL;
    if (!root)
        text_printf(to, "\nOver folds\n\n  setting       folds  %12s  deviation   first run\n",
                    all[0].run->several ? "test mAP, %" : "accuracy, %");
    for (int s = 0; s < settings; s++) setting_report(all, count, s, numbers, rows, to);
    for (int s = 1; s < settings; s++) {
        FoldDifference d = settings_compare(all, count, s, numbers);
        difference_report(&d, s, differences, to);
    }
    if (root) json_object_set_new(root, "folds", json_pack("{s:o, s:o}", "settings", rows, "differences", differences));
}

Status fold_scores(const Run *const *runs, int count, json_t *root, FILE *to)
{
    Status st = OK;
    int found = 0;
    ScoredRun *all = calloc((size_t)count, sizeof *all);
    double *numbers = calloc((size_t)count, sizeof *numbers);
    if (!all || !numbers) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the folds of %d runs", count));
    for (int i = 0; i < count; i++) found += scored_read(runs[i], &all[found]);
    if (found > 1) settings_report(all, found, settings_number(all, found), numbers, root, to);
out:
    free(all);
    free(numbers);
    return st;
}
