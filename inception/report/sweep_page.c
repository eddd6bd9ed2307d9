/* Drawing and writing the page of a sweep, which is self-contained, as the report of a run is; see sweep_table.h.
 *
 * Curves: a line for each run, so that repetitions of a setting show their own spread, and one that ended early does not bend a
 * mean of theirs.
 *
 * Scores: a plot for each option that was varied, with a dot for each setting at its value of the option and its score. An axis of
 * positive numbers over a power of ten or more is logarithmic; one of words has them at equal distances, in the order in which
 * they occur. */
#include "inception/report/sweep_table.h"

#include "inception/report/figure.h"
#include "inception/report/report.h"
#include "inception/report/report_data.h"
#include "towers/files/files.h"

enum { NAMED = 3 /* the best, whose lines have names */, WORDS_MOST = 24 /* of an axis */ };
static const double WIDE_RANGE = 10, MARGIN = 0.04; /* of an axis, beside its outermost dots */

static int tint_of(int rank)
{
    return rank < NAMED ? rank : 5; /* gray */
}

/* The name of a run in the plots: that of its setting, with the place of the three best. */
static void name_of(const SweepResult *result, int rank, int repetition, char text[48])
{
    Text name = text_start(text, 48);
    if (rank < NAMED) text_add(&name, "%d: ", rank + 1);
    text_add(&name, "t%03d", result->settings[rank].number);
    if (repetition) text_add(&name, ", run %d", repetition + 1);
}

/* The words of an option at their places. */
static int words_of(const SweepResult *result, const char *option, const char *words[WORDS_MOST])
{
    int count = 0;
    for (int i = 0; i < result->count; i++) {
        int place = (int)setting_place(result, i, option, true);
        if (place < WORDS_MOST) words[place] = setting_value(&result->settings[i], option);
        if (place < WORDS_MOST && place >= count) count = place + 1;
    }
    return count;
}

/* The axis of an option, and that of the scores. */
static SvgFrame scores_frame(const SweepResult *result, const char *option, ScoreKind kind,
                             const char *words[WORDS_MOST])
{
    SvgFrame frame = figure_frame(option, option);
    bool all_words = option_has_words(result, option);
    frame.x_low = INFINITY, frame.x_high = -INFINITY;
    for (int i = 0; i < result->count; i++) {
        double place = setting_place(result, i, option, all_words),
               score = run_score_scale(kind) * setting_result(result, i).mean;
        svg_extent(&place, 1, &frame.x_low, &frame.x_high);
        svg_extent(&score, 1, &frame.y_low, &frame.y_high);
    }
    double margin = MARGIN * (frame.x_high - frame.x_low);
    frame.x_log = !all_words && frame.x_low > 0 && frame.x_high >= WIDE_RANGE * frame.x_low;
    frame.y_log = kind > SCORED_BY_MAP && frame.y_low > 0 && frame.y_high > 50 * frame.y_low;
    if (!frame.x_log) frame.x_low -= margin, frame.x_high += margin;
    frame.bare = true;
    if (all_words) frame.category_count = words_of(result, option, words);
    if (all_words) frame.categories = words;
    return frame;
}

/* The worst first, so that the best lie above the others. */
static void scores_draw(const SweepResult *result, const Figures *figures, const char *option)
{
    char note[160], name[32];
    const char *words[WORDS_MOST];
    SvgPlot plot;
    ScoreKind kind = setting_result(result, 0).kind;
    SvgFrame frame = scores_frame(result, option, kind, words);
    if (!(frame.y_low <= frame.y_high) || !(frame.x_low < frame.x_high)) return;
    snprintf(note, sizeof note, "A dot is a setting: %s%s by its value of %.60s%s.", run_score_name(kind),
             kind <= SCORED_BY_MAP ? " in per cent" : "", option, frame.x_log ? ", on a logarithmic axis" : "");
    figure_open(figures, false, &plot, &frame, option, note);
    for (int i = result->count - 1; i >= 0; i--) {
        double place = setting_place(result, i, option, frame.categories != NULL),
               score = run_score_scale(kind) * setting_result(result, i).mean;
        snprintf(name, sizeof name, "t%03d", result->settings[i].number);
        if (!isfinite(score)) continue;
        svg_dots(&plot, &place, &score, 1, tint_of(i));
        svg_values(&plot, &place, &score, NULL, 1, tint_of(i), name);
    }
    figure_close(figures, &plot);
}

/* The scores of a run's epochs, as the plot shows them, up to the last one. */
static int64_t curve_of(const SweepRow *row, ScoreKind kind, double *x, double *y)
{
    int64_t count = 0;
    for (int64_t i = 0; i < row->epoch_count; i++) {
        x[i] = (double)row->epoch[i].epoch;
        y[i] = run_score_scale(kind) * epoch_score(&row->epoch[i], kind);
        if (isfinite(y[i])) count = i + 1;
    }
    return count;
}

static void curves_draw(const SweepResult *result, const Figures *figures, ScoreKind kind, double *x, double *y)
{
    char note[256], name[48];
    SvgPlot plot;
    SvgFrame frame = figure_frame("Curves", "epoch");
    frame.height = FIGURE_TALL;
    frame.x_whole = true;
    frame.x_low = INFINITY, frame.x_high = -INFINITY;
    for (int i = 0; i < result->count * result->repeats; i++) {
        int64_t count = curve_of(result->settings[i / result->repeats].rows[i % result->repeats], kind, x, y);
        svg_extent(x, count, &frame.x_low, &frame.x_high);
        svg_extent(y, count, &frame.y_low, &frame.y_high);
    }
    if (!(frame.y_low <= frame.y_high)) return;
    frame.y_log = kind > SCORED_BY_MAP && frame.y_low > 0 && frame.y_high > 50 * frame.y_low;
    snprintf(note, sizeof note,
             "After each epoch: %s%s%s. A line is a run; the dot is where it ended%s. The three best settings have "
             "names, thick lines and colors of their own.",
             kind == SCORED_BY_LOSS ? "training " : "", run_score_name(kind),
             kind <= SCORED_BY_MAP ? " in per cent" : "", result->rungs > 1 ? ", or halving stopped it" : "");
    figure_open(figures, true, &plot, &frame, frame.title, note);
    for (int i = result->count - 1; i >= 0; i--)
        for (int r = 0; r < result->repeats; r++) {
            int64_t count = curve_of(result->settings[i].rows[r], kind, x, y);
            name_of(result, i, r, name);
            (i < NAMED && !r ? svg_line : svg_curve)(&plot, x, y, count, tint_of(i), i < NAMED ? 2.2 : 1, name);
            if (count) svg_dots(&plot, x + count - 1, y + count - 1, 1, tint_of(i));
        }
    figure_close(figures, &plot);
}

static Status curves_write(const SweepResult *result, const Figures *figures)
{
    int64_t most = 1;
    for (int i = 0; i < result->count * result->repeats; i++) {
        const SweepRow *row = result->settings[i / result->repeats].rows[i % result->repeats];
        if (row->epoch_count > most) most = row->epoch_count;
    }
    double *x = calloc(2 * (size_t)most, sizeof *x);
    if (!x) return FAIL(ERR_MEMORY, "no memory for curves of %" PRId64 " epochs", most);
    curves_draw(result, figures, setting_result(result, 0).kind, x, x + most);
    free(x);
    return OK;
}

static void ranking_row(const SweepResult *result, int rank, FILE *to)
{
    const SweepSetting *setting = &result->settings[rank];
    SweepScore score = setting_result(result, rank);
    char best[48] = "-", deviation[32] = "-", epochs[32];
    const char *key;
    json_t *value;
    if (score.count) run_score_text(score.kind, score.mean, best, sizeof best);
    if (score.count > 1) snprintf(deviation, sizeof deviation, "%.3g", run_score_scale(score.kind) * score.deviation);
    snprintf(epochs, sizeof epochs, "%" PRId64, sweep_epochs(setting, result->repeats));
    fprintf(to, "<tr><th>t%03d", setting->number);
    for (int r = 0; r < result->repeats; r++)
        if (setting->rows[r]->epoch_count)
            svg_printf(to, " <a href=\"%s/report.html\">run %d</a>", setting->rows[r]->run.name, r + 1);
    fputs("</th>", to);
    cell_write(to, "n", best);
    cell_write(to, "n", deviation);
    cell_write(to, "n", epochs);
    json_object_foreach(setting->values, key, value) cell_write(to, "n", json_string_value(value));
    const SweepRow *failure = sweep_failure(setting, result->repeats);
    cell_write(to, "o", failure ? failure->run.why : "");
    fputs("</tr>", to);
}

static void ranking_write(const SweepResult *result, FILE *to)
{
    const char *key;
    json_t *value;
    section_open(to, "Ranking");
    fputs("<table><tr><th>setting</th>", to);
    static const char *const heads[] = {"best", "deviation", "epochs"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) cell_write(to, "n o", heads[i]);
    json_object_foreach(result->settings[0].values, key, value) cell_write(to, "n o", key);
    cell_write(to, "o", "failed");
    fputs("</tr>", to);
    for (int i = 0; i < result->count; i++) ranking_row(result, i, to);
    fputs("</table></section>\n", to);
}

static void effects_write(const SettingEffects *effects, FILE *to)
{
    if (!effects->count) return;
    section_open(to, "Settings that mattered");
    svg_printf(
        to,
        "<p>What the values of an option explain of the spread of the scores, %s. It is a share of what the other "
        "options leave, less what chance brings. p: how often chance explains as much. Trend: +1 if more is always "
        "better, &minus;1 if less is. By ranks: an additive model, permutations within the other options, partial "
        "correlation. -: it cannot be told from the other options.</p><table><tr><th>option</th>",
        effects->of);
    static const char *const heads[] = {"explains", "p", "trend", "best"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) cell_write(to, "n o", heads[i]);
    fputs("</tr>", to);
    for (int i = 0; i < effects->count; i++) {
        const SettingEffect *e = &effects->row[i];
        char explained[NUMBER_TEXT], p[NUMBER_TEXT], trend[NUMBER_TEXT];
        svg_printf(to, "<tr><th>%s</th>", e->option);
        cell_write(to, "n", number_text(100 * e->explained, "%.0f %%", explained));
        cell_write(to, "n", number_text(e->p, "%.3f", p));
        cell_write(to, "n", number_text(e->trend, "%+.2f", trend));
        cell_write(to, "n", e->best);
        fputs("</tr>", to);
    }
    fputs("</table></section>\n", to);
}

static Status content_write(const void *context, FILE *to)
{
    const SweepResult *result = context;
    Figures figures = {.to = to};
    SettingEffects effects;
    const char *option;
    json_t *value;
    TRY(setting_effects(result, &effects));
    svg_printf(to, "<header><p class=\"eyebrow\">Sweep</p><h1>%s</h1><p>%d settings, %d run%s of each</p></header>\n",
               result->folder, result->count, result->repeats, result->repeats == 1 ? "" : "s");
    sweep_answer(result, &effects, to);
    fputs("<section class=\"grid\">\n", to);
    json_object_foreach(result->settings[0].values, option, value) scores_draw(result, &figures, option);
    TRY(curves_write(result, &figures));
    fputs("</section>\n<section class=\"part\"><div class=\"grid\">\n", to);
    effects_write(&effects, to);
    ranking_write(result, to);
    fputs("</div></section>\n", to);
    return OK;
}

Status sweep_page(const SweepResult *result)
{
    Draft page;
    TRY(draft_begin(&page, "the page of the sweep"));
    Status st = page_frame(page.to, result->folder,
                           "the records of its runs; the command of the sweep, given again, regenerates it.",
                           content_write, result);
    return draft_replace(&page, st, result->folder, "sweep.html");
}
