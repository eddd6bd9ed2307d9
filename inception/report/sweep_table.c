/* Ranking and printing the settings of a sweep; see sweep_table.h. */
#include "inception/report/sweep_table.h"

#include "inception/report/run_difference.h"
#include "kernels/base/text.h"
#include "towers/files/json.h"

/* ---- the order */

static int by_rank(const void *a, const void *b, void *repeats)
{
    const SweepSetting *x = a, *y = b;
    SweepScore of_x = sweep_score(x->rows, *(const int *)repeats, x->rung),
               of_y = sweep_score(y->rows, *(const int *)repeats, y->rung);
    if (!of_x.count != !of_y.count) return !of_x.count - !of_y.count;
    if (x->rung != y->rung) return y->rung - x->rung;
    if (run_scores_better(of_x.kind, of_x.mean, of_y.kind, of_y.mean)) return -1;
    if (run_scores_better(of_y.kind, of_y.mean, of_x.kind, of_x.mean)) return 1;
    return x->number - y->number;
}

/* ---- the table */

static void setting_print(const SweepResult *result, int rank, FILE *to)
{
    const SweepSetting *setting = &result->settings[rank];
    SweepScore score = setting_result(result, rank);
    const SweepRow *failure = sweep_failure(setting, result->repeats);
    char place[16] = "-", best[48] = "-", deviation[32] = "-", runs[32];
    const char *key;
    json_t *value;
    if (score.count) snprintf(place, sizeof place, "%d", rank + 1);
    if (score.count) run_score_text(score.kind, score.mean, best, sizeof best);
    if (score.count > 1) snprintf(deviation, sizeof deviation, "%.3g", run_score_scale(score.kind) * score.deviation);
    snprintf(runs, sizeof runs, "%d/%d", score.count, result->repeats);
    text_printf(to, "%4s  t%03d     %5s  %6" PRId64 "  %-17s  %9s", place, setting->number, runs,
                sweep_epochs(setting, result->repeats), best, deviation);
    json_object_foreach(setting->values, key, value) text_printf(to, "  %12.12s", json_string_value(value));
    if (failure) text_printf(to, "  %s failed: %s", failure->run.name, failure->run.why);
    fputc('\n', to);
}

/* ---- JSON */

static json_t *row_json(const SweepRow *row)
{
    return json_pack("{s:o, s:o, s:b, s:o, s:I, s:o, s:o}", "run", json_text(row->run.name), "state",
                     json_text(row->run.state), "failed", row->failed, "why", json_text(row->run.why), "epochs",
                     (json_int_t)row->epochs, "score", json_finite(row->run.score), "seconds",
                     json_finite(row->run.seconds));
}

static json_t *setting_json(const SweepResult *result, int rank)
{
    const SweepSetting *setting = &result->settings[rank];
    SweepScore score = setting_result(result, rank);
    json_t *runs = json_array();
    for (int r = 0; r < result->repeats; r++) json_array_append_new(runs, row_json(setting->rows[r]));
    return json_pack("{s:o, s:i, s:O, s:i, s:I, s:s, s:o, s:o, s:o}", "rank",
                     score.count ? json_integer(rank + 1) : json_null(), "setting", setting->number, "values",
                     setting->values, "rung", setting->rung, "epochs",
                     (json_int_t)sweep_epochs(setting, result->repeats), "scored_by", run_score_name(score.kind),
                     "score", json_finite(score.mean), "deviation", json_finite(score.deviation), "runs", runs);
}

/* Without an evaluation settings are ranked by training losses, whose formulas may differ. */
static void formulas_warn(const SweepResult *result)
{
    char names[128] = "";
    Text text = text_start(names, sizeof names);
    for (int k = 0; k < LOSS_FORMULAS; k++) {
        const char *first = NULL;
        bool differ = false;
        for (int i = 0; i < result->count; i++) {
            const char *value = setting_value(&result->settings[i], loss_formulas[k][0]);
            if (!value || setting_result(result, i).kind != SCORED_BY_LOSS) continue;
            differ |= first && strcmp(first, value) != 0;
            first = value;
        }
        if (differ) text_add(&text, "%s--%s", text.used ? ", " : "", loss_formulas[k][0]);
    }
    if (*names)
        fprintf(stderr,
                "warning: the ranking compares training losses of different %s, which do not measure the same thing; "
                "rank by an evaluation, e.g. with val-split: 0.1 and without eval-interval: 0\n",
                names);
}

Status sweep_table(SweepResult *result, bool json, FILE *to)
{
    SettingEffects effects;
    const char *key;
    json_t *value;
    qsort_r(result->settings, (size_t)result->count, sizeof *result->settings, by_rank, &result->repeats);
    TRY(setting_effects(result, &effects));
    formulas_warn(result);
    if (!json) {
        text_printf(to, "rank  setting  %5s  epochs  %-17s  %9s", "runs", "best", "deviation");
        json_object_foreach(result->settings[0].values, key, value) text_printf(to, "  %12.12s", key);
        fputc('\n', to);
        for (int i = 0; i < result->count; i++) setting_print(result, i, to);
        setting_effects_print(&effects, to);
        return OK;
    }
    json_t *all = json_array(), *rungs = json_array();
    for (int i = 0; i < result->count; i++) json_array_append_new(all, setting_json(result, i));
    for (int k = 0; k < result->rungs; k++)
        json_array_append_new(rungs, result->rung[k] == INT64_MAX ? json_null() : json_integer(result->rung[k]));
    return json_emit(json_pack("{s:o, s:o, s:o, s:o}", "sweep", json_text(result->folder), "rungs", rungs, "settings",
                               all, "effects", setting_effects_json(&effects)),
                     JSON_INDENT(2), to);
}
