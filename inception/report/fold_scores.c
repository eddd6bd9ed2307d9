/* Scores over the folds of a cross-validation, or over seeds: mean and deviation of each setting, and whether settings differ; see
 * compare.h.
 *
 * Settings are compared by the differences of their scores in the same folds or seeds (repeated_mean). */
#include "inception/report/compare.h"

#include "inception/report/run_difference.h"
#include "towers/record/statistics.h"

/* What repeats a setting. */
typedef struct Repetition {
    const char *word;
    OptionId option;
} Repetition;
static const Repetition by_fold = {"fold", OPTION_ID_fold}, by_seed = {"seed", OPTION_ID_seed};

typedef struct ScoredRun {
    const Run *run;
    int64_t repeat; /* the fold, or the seed */
    int folds;      /* 0: it is a seed */
    int setting;
    double score;
} ScoredRun;

typedef struct FoldDifference {
    Estimate mean; /* of the repetitions that both settings have */
    Number deviation;
} FoldDifference;

/* False if the run has no fold, or no score. */
static bool scored_read(const Run *run, const Repetition *by, ScoredRun *scored)
{
    char text[64];
    int fold;
    *scored = (ScoredRun){.run = run, .score = ABSENT};
    if (!run_argument(run, by->word, text, sizeof text)) return false;
    if (by == &by_fold) {
        if (sscanf(text, "%d/%d", &fold, &scored->folds) != 2 || scored->folds < 2) return false;
        scored->repeat = fold;
    } else {
        scored->repeat = strtoll(text, NULL, 10);
    }
    const EpochRecord *last = run_last_test(run);
    if (last) scored->score = last->test_top1;
    return last;
}

/* Whether the run is a repetition that this setting, of runs before it, has not yet. */
static bool setting_lacks(const ScoredRun *all, int before, const ScoredRun *one, const Repetition *by, int setting)
{
    bool like = false;
    char subjects[VERDICT_BYTES];
    for (int k = 0; k < before; k++) {
        if (all[k].setting != setting) continue;
        if (all[k].repeat == one->repeat || all[k].folds != one->folds) return false;
        const Run *first = all[k].run;
        like = like || (subjects_equal(first, one->run, subjects) && settings_equal(first, one->run, by->option));
    }
    return like;
}

/* Numbers the settings in the order of their first runs; a repetition that occurs again begins another. Returns their number. */
static int settings_number(ScoredRun *all, int count, const Repetition *by)
{
    int settings = 0;
    for (int i = 0; i < count; i++) {
        int s = 0;
        while (s < settings && !setting_lacks(all, i, &all[i], by, s)) s++;
        all[i].setting = s;
        settings += s == settings;
    }
    return settings;
}

static FoldDifference settings_compare(const ScoredRun *all, int count, int other, double *differences)
{
    int folds = 0, found = 0;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < count; k++) {
            bool pair = all[i].setting == 0 && all[k].setting == other && all[i].repeat == all[k].repeat &&
                        all[i].folds == all[k].folds;
            if (!pair) continue;
            differences[found++] = all[k].score - all[i].score;
            folds = all[i].folds;
        }
    return (FoldDifference){.mean = repeated_mean(differences, found, folds ? 1.0 / (folds - 1) : 0),
                            .deviation = found > 1 ? sqrt(series_variance(differences, found)) : ABSENT};
}

static void setting_report(const ScoredRun *all, int count, const Repetition *by, int setting, double *scores,
                           json_t *rows, FILE *to)
{
    const ScoredRun *first = NULL;
    char text[32] = "-", of[32] = "", key[16];
    int found = 0;
    for (int i = 0; i < count; i++) {
        if (all[i].setting != setting) continue;
        if (!found) first = &all[i];
        scores[found++] = all[i].score;
    }
    double mean = series_mean(scores, found), deviation = found > 1 ? sqrt(series_variance(scores, found)) : ABSENT;
    snprintf(key, sizeof key, "%ss", by->word);
    if (rows) {
        json_t *row = json_pack("{s:o, s:i, s:o, s:o}", "run", json_text(first->run->path), key, found, "mean",
                                json_finite(mean), "deviation", json_finite(deviation));
        if (row && first->folds) json_object_set_new(row, "of", json_integer(first->folds));
        json_array_append_new(rows, row);
        return;
    }
    if (isfinite(deviation)) snprintf(text, sizeof text, "%.3f", 100 * deviation);
    if (first->folds) snprintf(of, sizeof of, "of %d", first->folds);
    text_printf(to, "  %7c  %3d %-6s  %12.3f  %9s   %s\n", 'A' + setting % 26, found, of, 100 * mean, text,
                first->run->path);
}

static void difference_report(const FoldDifference *d, const Repetition *by, int number, json_t *rows, FILE *to)
{
    char key[16];
    const Estimate *e = &d->mean;
    int count = (int)e->count, letter = 'A' + number % 26;
    snprintf(key, sizeof key, "%ss", by->word);
    if (rows)
        json_array_append_new(rows,
                              json_pack("{s:i, s:i, s:o, s:o, s:o, s:o, s:o}", "setting", number, key, count, "mean",
                                        json_finite(e->mean), "deviation", json_finite(d->deviation), "low",
                                        json_finite(e->low), "high", json_finite(e->high), "p", json_finite(e->p)));
    else if (count < 2)
        text_printf(to, "  %c - A: %d %s%s in both, too few for a test\n", letter, count, by->word,
                    count == 1 ? "" : "s");
    else if (is_absent(e->p))
        text_printf(to, "  %c - A over %d %s: %+.3f in each of them, which does not show what chance does\n", letter,
                    count, key, 100 * e->mean);
    else
        text_printf(to, "  %c - A over %d %s: %+.3f, deviation %.3f, 95 %% interval %+.3f to %+.3f, p = %.2g\n", letter,
                    count, key, 100 * e->mean, 100 * d->deviation, 100 * e->low, 100 * e->high, e->p);
}

static void settings_report(const ScoredRun *all, int count, const Repetition *by, int settings, double *numbers,
                            json_t *root, FILE *to)
{
    char key[16];
    json_t *rows = root ? json_array() : NULL, *differences = root ? json_array() : NULL;
    snprintf(key, sizeof key, "%ss", by->word);
    if (!root)
        text_printf(to, "\nOver %s\n\n  setting       %s  %12s  deviation   first run\n", key, key,
                    all[0].run->multi_label ? "test mAP, %" : "accuracy, %");
    for (int s = 0; s < settings; s++) setting_report(all, count, by, s, numbers, rows, to);
    for (int s = 1; s < settings; s++) {
        FoldDifference d = settings_compare(all, count, s, numbers);
        difference_report(&d, by, s, differences, to);
    }
    if (root) json_object_set_new(root, key, json_pack("{s:o, s:o}", "settings", rows, "differences", differences));
}

/* Whether there are so many runs with this kind of repetition that a setting has several; then they are reported. */
static bool repetitions_report(const Run *const *runs, int count, const Repetition *by, ScoredRun *all, double *numbers,
                               json_t *root, FILE *to)
{
    int found = 0;
    for (int i = 0; i < count; i++) found += scored_read(runs[i], by, &all[found]);
    int settings = settings_number(all, found, by);
    if (found < 2 || (by == &by_seed && settings == found)) return false;
    settings_report(all, found, by, settings, numbers, root, to);
    return true;
}

Status fold_scores(const Run *const *runs, int count, json_t *root, FILE *to)
{
    Status st = OK;
    ScoredRun *all = calloc((size_t)count, sizeof *all);
    double *numbers = calloc((size_t)count, sizeof *numbers);
    if (!all || !numbers) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the repetitions of %d runs", count));
    if (!repetitions_report(runs, count, &by_fold, all, numbers, root, to))
        (void)repetitions_report(runs, count, &by_seed, all, numbers, root, to);
out:
    free(all);
    free(numbers);
    return st;
}
