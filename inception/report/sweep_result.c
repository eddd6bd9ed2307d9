/* Scores and values of a sweep's settings; see sweep_result.h. */
#include "inception/report/sweep_result.h"

#include "towers/files/json.h"
#include "towers/record/statistics.h"

SweepScore sweep_score(const SweepRow *const *rows, int repeats, int rung)
{
    SweepScore s = {.kind = NOT_SCORED, .mean = ABSENT, .deviation = ABSENT};
    double *values = calloc((size_t)repeats + 1, sizeof *values);
    for (int r = 0; values && rung >= 0 && r < repeats; r++) {
        if (rows[r]->failed || !isfinite(rows[r]->score[rung])) continue;
        if (s.kind == NOT_SCORED) s.kind = rows[r]->kind[rung];
        if (rows[r]->kind[rung] == s.kind) values[s.count++] = rows[r]->score[rung];
    }
    if (s.count) s.mean = series_mean(values, s.count);
    if (s.count > 1) s.deviation = sqrt(series_variance(values, s.count));
    free(values);
    return s;
}

SweepScore setting_result(const SweepResult *result, int setting)
{
    const SweepSetting *one = &result->settings[setting];
    return sweep_score(one->rows, result->repeats, one->rung);
}

const SweepRow *sweep_failure(const SweepSetting *setting, int repeats)
{
    for (int r = 0; r < repeats; r++)
        if (setting->rows[r]->failed) return setting->rows[r];
    return NULL;
}

int64_t sweep_epochs(const SweepSetting *setting, int repeats)
{
    int64_t most = 0;
    for (int r = 0; r < repeats; r++)
        if (setting->rows[r]->epochs > most) most = setting->rows[r]->epochs;
    return most;
}

/* ---- values */

const char *setting_value(const SweepSetting *setting, const char *option)
{
    return json_word(setting->values, option);
}

bool option_has_words(const SweepResult *result, const char *option)
{
    for (int i = 0; i < result->count; i++) {
        const char *text = setting_value(&result->settings[i], option);
        char *end;
        strtod(text, &end);
        if (end == text || *end) return true;
    }
    return false;
}

double setting_place(const SweepResult *result, int setting, const char *option, bool words)
{
    const char *own = setting_value(&result->settings[setting], option);
    int different = 0;
    if (!words) return strtod(own, NULL);
    for (int i = 0; i < result->count; i++) {
        const char *one = setting_value(&result->settings[i], option);
        bool before = false;
        for (int k = 0; k < i && !before; k++) before = !strcmp(setting_value(&result->settings[k], option), one);
        if (!strcmp(one, own)) return different;
        different += !before;
    }
    return different;
}
