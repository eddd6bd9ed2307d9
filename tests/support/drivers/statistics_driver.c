/* Statistics that are printed, for a comparison with other programs. Standard input has a question in each line, standard output the
 * numbers of its answer, "-" for one that is absent: "tail T FREEDOM", "quantile P FREEDOM", "shares A OF B OF" and "paired
 * ONLY_A ONLY_B OF" (mean, low, high, p), "normal MEAN ERROR" and "repeated SHARED N X..." (the same), "series N X..." (mean, variance, median), "effects N OPTIONS" followed by N lines with the
 * values of the options and the score (explained, p and trend of each option, in their order). */
#include "inception/report/setting_effects.h"
#include "towers/record/statistics.h"

enum { MOST = 4096, OPTIONS_MOST = 8 };

static void answer(int count, const Number *numbers)
{
    char text[NUMBER_TEXT];
    for (int i = 0; i < count; i++) printf("%s%s", i ? " " : "", number_text(numbers[i], "%.17g", text));
    printf("\n");
}

static void estimate_answer(Estimate e)
{
    answer(4, (Number[]){e.mean, e.low, e.high, e.p});
}

static bool numbers_read(double x[MOST], int *count)
{
    if (scanf("%d", count) != 1 || *count < 0 || *count > MOST) return false;
    for (int i = 0; i < *count; i++)
        if (scanf("%lf", &x[i]) != 1) return false;
    return true;
}

static bool repeated_answer(void)
{
    static double x[MOST];
    double shared;
    int count;
    if (scanf("%lf", &shared) != 1 || !numbers_read(x, &count)) return false;
    estimate_answer(repeated_mean(x, count, shared));
    return true;
}

static bool series_answer(void)
{
    static double x[MOST];
    int count;
    if (!numbers_read(x, &count)) return false;
    double mean = series_mean(x, count), variance = series_variance(x, count);
    answer(3, (Number[]){mean, variance, series_median(x, count)});
    return true;
}

static bool setting_read(SweepSetting *setting, SweepRow *row, const SweepRow **rows, int options)
{
    char key[24], value[64];
    *setting = (SweepSetting){.rows = rows, .values = json_object()};
    *rows = row;
    for (int k = 0; k < options; k++) {
        if (scanf("%63s", value) != 1) return false;
        snprintf(key, sizeof key, "option%d", k);
        json_object_set_new(setting->values, key, json_string(value));
    }
    *row = (SweepRow){.kind = {SCORED_BY_ACCURACY}};
    return scanf("%lf", &row->score[0]) == 1;
}

static bool effects_answer(void)
{
    static SweepSetting setting[MOST];
    static SweepRow row[MOST];
    static const SweepRow *rows[MOST];
    SweepResult result = {.rungs = 1, .repeats = 1, .settings = setting};
    SettingEffects effects;
    int options;
    if (scanf("%d %d", &result.count, &options) != 2 || result.count > MOST || options > OPTIONS_MOST) return false;
    for (int i = 0; i < result.count; i++)
        if (!setting_read(&setting[i], &row[i], &rows[i], options)) return false;
    if (setting_effects(&result, &effects) != OK) return false;
    Number numbers[3 * OPTIONS_MOST];
    for (int i = 0; i < 3 * options; i++) numbers[i] = ABSENT;
    for (int i = 0; i < effects.count; i++) {
        Number *own = numbers + 3 * atoi(effects.row[i].option + strlen("option"));
        own[0] = effects.row[i].explained, own[1] = effects.row[i].p, own[2] = effects.row[i].trend;
    }
    answer(3 * options, numbers);
    for (int i = 0; i < result.count; i++) json_decref(setting[i].values);
    return true;
}

int main(void)
{
    char question[16];
    while (scanf("%15s", question) == 1) {
        double x, y;
        int64_t n[4];
        bool good = false;
        if ((!strcmp(question, "tail") || !strcmp(question, "quantile")) && (good = scanf("%lf %lf", &x, &y) == 2))
            answer(1, (Number[]){*question == 't' ? student_tail(x, y) : student_quantile(x, y)});
        else if (!strcmp(question, "shares") &&
                 (good = scanf("%" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64, &n[0], &n[1], &n[2], &n[3]) == 4))
            estimate_answer(share_difference(n[0], n[1], n[2], n[3]));
        else if (!strcmp(question, "paired") &&
                 (good = scanf("%" SCNd64 " %" SCNd64 " %" SCNd64, &n[0], &n[1], &n[2]) == 3))
            estimate_answer(paired_share_difference(n[0], n[1], n[2]));
        else if (!strcmp(question, "normal") && (good = scanf("%lf %lf", &x, &y) == 2))
            estimate_answer(normal_estimate(x, y));
        else if (!strcmp(question, "repeated"))
            good = repeated_answer();
        else if (!strcmp(question, "series"))
            good = series_answer();
        else if (!strcmp(question, "effects"))
            good = effects_answer();
        if (!good) return 2;
    }
    return 0;
}
