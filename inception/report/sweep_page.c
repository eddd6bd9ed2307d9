/* Drawing and writing the page of a sweep; see sweep_page.h.
 *
 * Parallel coordinates (Inselberg 1985): an axis for each option that was varied and one for the score, from the lowest to
 * the highest value; a setting is a line that crosses each axis at its value. An axis of positive numbers over two powers
 * of ten or more is logarithmic; one of words has them at equal distances, in the order in which they occur. */
#include "inception/report/sweep_page.h"

#include "inception/report/figure.h"
#include "inception/report/report.h"
#include "towers/files/files.h"

enum { AXES_MOST = 17, AXIS_BYTES = 128, NAMED = 3 /* the best, whose lines have names */ };
static const double WIDE_RANGE = 100;

typedef struct Axes {
    int count;                         /* with that of the score, the last */
    char label[AXES_MOST][AXIS_BYTES]; /* "lr 0.0001 to 0.1", "opt momentum to adam" */
    const char *labels[AXES_MOST];
    double *at; /* owned: [settings][count], from 0 to 1; NaN: no score */
} Axes;

static const char *value_of(const SweepResult *result, int setting, const char *key)
{
    return json_string_value(json_object_get(result->settings[setting].values, key));
}

/* The number of a value: its own, or if it is a word, which of the different words it is. */
static double place_of(const SweepResult *result, int setting, const char *key, bool words)
{
    const char *own = value_of(result, setting, key);
    int different = 0;
    if (!words) return strtod(own, NULL);
    for (int i = 0; i < result->count; i++) {
        const char *one = value_of(result, i, key);
        bool before = false;
        for (int k = 0; k < i && !before; k++) before = !strcmp(value_of(result, k, key), one);
        if (!strcmp(one, own)) return different;
        different += !before;
    }
    return different;
}

static bool has_words(const SweepResult *result, const char *key)
{
    for (int i = 0; i < result->count; i++) {
        const char *text = value_of(result, i, key);
        char *end;
        strtod(text, &end);
        if (end == text || *end) return true;
    }
    return false;
}

/* Scale the values of an axis, which are in axes->at, to 0 .. 1. */
static void axis_scale(const SweepResult *result, Axes *axes, int axis, bool words)
{
    double low = INFINITY, high = -INFINITY;
    for (int i = 0; i < result->count; i++) svg_extent(&axes->at[i * axes->count + axis], 1, &low, &high);
    bool logarithmic = !words && low > 0 && high / low >= WIDE_RANGE;
    for (int i = 0; i < result->count; i++) {
        double *v = &axes->at[i * axes->count + axis];
        *v = !(high > low) && isfinite(*v) ? 0.5
             : logarithmic                 ? log(*v / low) / log(high / low)
                                           : (*v - low) / (high - low);
    }
}

static void option_axis(const SweepResult *result, Axes *axes, int axis, const char *key)
{
    int low = 0, high = 0;
    bool words = has_words(result, key);
    double *at = axes->at + axis;
    for (int i = 0; i < result->count; i++) {
        at[i * axes->count] = place_of(result, i, key, words);
        if (at[i * axes->count] < at[low * axes->count]) low = i;
        if (at[i * axes->count] > at[high * axes->count]) high = i;
    }
    snprintf(axes->label[axis], AXIS_BYTES, "%.60s %.20s to %.20s", key, value_of(result, low, key),
             value_of(result, high, key));
    axis_scale(result, axes, axis, words);
}

static SweepScore score_of(const SweepResult *result, int setting)
{
    const SweepSetting *one = &result->settings[setting];
    return sweep_score(one->rows, result->repeats, one->rung);
}

static Status axes_make(const SweepResult *result, Axes *axes)
{
    const char *key;
    json_t *value;
    int axis = 0;
    *axes = (Axes){.count = (int)json_object_size(result->settings[0].values) + 1};
    axes->at = calloc((size_t)result->count * (size_t)axes->count, sizeof *axes->at);
    if (!axes->at) return FAIL(ERR_MEMORY, "no memory for the plot of %d settings", result->count);
    json_object_foreach(result->settings[0].values, key, value)
    {
        option_axis(result, axes, axis++, key);
    }
    for (int i = 0; i < result->count; i++) axes->at[i * axes->count + axis] = score_of(result, i).mean;
    axis_scale(result, axes, axis, true);
    snprintf(axes->label[axis], AXIS_BYTES, "%s", run_score_name(score_of(result, 0).kind));
    for (int k = 0; k < axes->count; k++) axes->labels[k] = axes->label[k];
    return OK;
}

/* The worst first, so that the best lie above the others. */
static void lines_draw(const SweepResult *result, const Axes *axes, FILE *to)
{
    double x[AXES_MOST], y[AXES_MOST];
    char name[32];
    SvgPlot plot;
    SvgFrame frame = {.title = "parallel coordinates",
                      .width = FIGURE_WIDE,
                      .height = FIGURE_TALL,
                      .y_low = 0,
                      .y_high = 1,
                      .categories = axes->labels,
                      .category_count = axes->count};
    svg_open(&plot, to, &frame);
    for (int i = result->count - 1; i >= 0; i--) {
        bool best = i < NAMED;
        for (int k = 0; k < axes->count; k++) x[k] = k, y[k] = axes->at[i * axes->count + k];
        snprintf(name, sizeof name, "%d: t%03d", i + 1, result->settings[i].number);
        svg_line(&plot, x, y, axes->count, best ? 0 : 1, best ? 2.5 : 1, best ? name : NULL);
    }
    svg_close(&plot);
}

static void cell(FILE *to, const char *kind, const char *text)
{
    svg_printf(to, "<td class=\"%s\">%s</td>", kind, text);
}

static void ranking_row(const SweepResult *result, int rank, FILE *to)
{
    const SweepSetting *setting = &result->settings[rank];
    SweepScore score = score_of(result, rank);
    char best[48] = "-", deviation[32] = "-", epochs[32];
    const char *key;
    json_t *value;
    if (score.count) run_score_text(score.kind, score.mean, best, sizeof best);
    if (score.count > 1) snprintf(deviation, sizeof deviation, "%.3g", run_score_scale(score.kind) * score.deviation);
    snprintf(epochs, sizeof epochs, "%lld", (long long)sweep_epochs(setting, result->repeats));
    fprintf(to, "<tr><th>t%03d</th>", setting->number);
    cell(to, "n", best);
    cell(to, "n", deviation);
    cell(to, "n", epochs);
    json_object_foreach(setting->values, key, value)
    {
        cell(to, "n", json_string_value(value));
    }
    const SweepRow *failure = sweep_failure(setting, result->repeats);
    cell(to, "o", failure ? failure->run.why : "");
    fputs("</tr>", to);
}

static void ranking_write(const SweepResult *result, FILE *to)
{
    const char *key;
    json_t *value;
    fputs("<section class=\"table\"><h2>Ranking</h2><table><tr><th>setting</th>", to);
    static const char *const heads[] = {"best", "deviation", "epochs"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) cell(to, "n o", heads[i]);
    json_object_foreach(result->settings[0].values, key, value)
    {
        cell(to, "n o", key);
    }
    cell(to, "o", "failed");
    fputs("</tr>", to);
    for (int i = 0; i < result->count; i++) ranking_row(result, i, to);
    fputs("</table></section>\n", to);
}

static Status content_write(const void *context, FILE *to)
{
    const SweepResult *result = context;
    Figures figures = {.to = to};
    Axes axes;
    TRY(axes_make(result, &axes));
    svg_printf(to,
               "<header><p class=\"eyebrow\">Sweep</p><h1>%s</h1><p>%d settings, %d run%s of each</p></header>\n"
               "<section class=\"grid\">\n",
               result->folder, result->count, result->repeats, result->repeats == 1 ? "" : "s");
    figure_begin(&figures, true, "Settings and scores",
                 "A line is a setting; it crosses each axis at its value, from the lowest (0) to the highest (1). "
                 "Axes over two powers of ten or more are logarithmic. The three best are drawn thick.");
    lines_draw(result, &axes, to);
    figure_end(&figures);
    fputs("</section>\n", to);
    ranking_write(result, to);
    free(axes.at);
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
