/* What a sweep has come to, in words; see sweep_table.h.
 *
 * What mattered: options whose effect chance explains in less than MATTERS of all sweeps without any, over all options together.
 * What to try next, the first that applies: values beyond those tried, of an option that mattered, if the best setting has the
 * outermost and no run failed there; repetitions, if there are none; more of them, if chance may have put the best before the
 * second, by Student's test of the differences of their repetitions. */
#include "inception/report/sweep_table.h"

#include "inception/report/loss_truth.h"
#include "inception/report/page/svg.h"
#include "kernels/base/text.h"
#include "towers/files/json.h"
#include "towers/record/statistics.h"

enum { ANSWER = 4096 };
static const double MATTERS = 0.05, CLEAR_TREND = 0.5;

static void best_sentence(const SweepResult *result, Text *answer)
{
    SweepScore score = setting_result(result, 0);
    char text[48];
    const char *key, *before = ": ";
    json_t *value;
    run_score_text(score.kind, score.mean, text, sizeof text);
    text_add(answer, "The best setting is t%03d, with %s", result->settings[0].number, text);
    if (score.count > 1)
        text_add(answer, " (mean of %d runs, deviation %.3g)", score.count,
                 run_score_scale(score.kind) * score.deviation);
    json_object_foreach(result->settings[0].values, key, value)
    {
        text_add(answer, "%s%s %s", before, key, json_string_value(value));
        before = ", ";
    }
    text_add(answer, ". ");
}

static bool matters(const SettingEffects *effects, const SettingEffect *e)
{
    return e->explained > 0 && e->p < MATTERS / effects->count;
}

static void effects_sentence(const SettingEffects *effects, Text *answer)
{
    bool any = false;
    for (int i = 0; i < effects->count; i++) {
        const SettingEffect *e = &effects->row[i];
        if (!matters(effects, e)) continue;
        text_add(answer, "%s%s explains %.0f %% of the spread of the scores (p = %.3f)", any ? ", " : "", e->option,
                 100 * e->explained, e->p);
        any = true;
    }
    if (any)
        text_add(answer, ". ");
    else if (effects->count)
        text_add(answer, "No option explains the scores better than chance. ");
}

static void failures_sentence(const SweepResult *result, Text *answer)
{
    int failed = 0;
    for (int i = 0; i < result->count; i++) failed += sweep_failure(&result->settings[i], result->repeats) != NULL;
    if (failed) text_add(answer, "Runs of %d of %d settings failed. ", failed, result->count);
}

/* Whether the best setting has the outermost value tried, on the side to which scores rise. */
static bool is_outermost(const SweepResult *result, const SettingEffect *e)
{
    double best = setting_place(result, 0, e->option, false);
    for (int i = 1; i < result->count; i++) {
        double place = setting_place(result, i, e->option, false);
        if (e->trend > 0 ? place > best : place < best) return false;
    }
    return fabs(e->trend) >= CLEAR_TREND;
}

static bool beyond_sentence(const SweepResult *result, const SettingEffects *effects, Text *answer)
{
    for (int i = 0; i < effects->count; i++) {
        const SettingEffect *e = &effects->row[i];
        if (!matters(effects, e) || is_absent(e->trend) || !is_outermost(result, e)) continue;
        text_add(answer, "values of %s %s %s, the %s that was tried.", e->option, e->trend > 0 ? "above" : "below",
                 setting_value(&result->settings[0], e->option), e->trend > 0 ? "largest" : "smallest");
        return true;
    }
    return false;
}

/* How much better the best setting is than the second, over the repetitions that both have scored in. */
static Estimate second_difference(const SweepResult *result)
{
    const SweepSetting *a = &result->settings[0], *b = &result->settings[1];
    int rung = a->rung < b->rung ? a->rung : b->rung, count = 0;
    double *change = calloc((size_t)result->repeats, sizeof *change);
    for (int r = 0; change && rung >= 0 && r < result->repeats; r++) {
        double gap = a->rows[r]->score[rung] - b->rows[r]->score[rung];
        if (isfinite(gap) && a->rows[r]->kind[rung] == b->rows[r]->kind[rung]) change[count++] = gap;
    }
    Estimate e = repeated_mean(change, count, result->folds ? 1.0 / (result->folds - 1) : 0);
    free(change);
    return e;
}

static void next_sentence(const SweepResult *result, const SettingEffects *effects, Text *answer)
{
    if (beyond_sentence(result, effects, answer)) return;
    if (result->count < 2 || !setting_result(result, 1).count) {
        text_add(answer, "more settings, as only one has a score.");
    } else if (result->repeats < 2) {
        text_add(
            answer,
            "each setting with several seeds (seed: choices(1 | 2 | 3)), as one run of each does not show what chance "
            "alone does.");
    } else {
        Estimate second = second_difference(result);
        double p = second.p;
        if (second.count < 2)
            text_add(answer, "more seeds of the best two, as too few have scores of both.");
        else if (is_absent(p))
            text_add(answer,
                     "more seeds of the best two, as %d with the same difference do not show what chance alone does.",
                     (int)second.count);
        else if (p >= DIFFERENCE_LEVEL)
            text_add(answer, "more seeds of the best two, as chance may have put t%03d before t%03d (p = %.2g).",
                     result->settings[0].number, result->settings[1].number, p);
        else
            text_add(answer, "nothing stands out: t%03d is clearly before t%03d (p = %.2g).",
                     result->settings[0].number, result->settings[1].number, p);
    }
}

void sweep_answer(const SweepResult *result, const SettingEffects *effects, FILE *to)
{
    char found[ANSWER], next[ANSWER];
    Text answer = text_start(found, sizeof found), more = text_start(next, sizeof next);
    if (setting_result(result, 0).count) {
        best_sentence(result, &answer);
        effects_sentence(effects, &answer);
        next_sentence(result, effects, &more);
    }
    failures_sentence(result, &answer);
    svg_printf(to, "<p class=\"answer\">%s", found);
    if (*next) svg_printf(to, "<b>What to try next:</b> %s", next);
    fputs("</p>\n", to);
}
