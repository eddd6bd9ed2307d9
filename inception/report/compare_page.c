/* Drawing and writing the page of a comparison; see compare.h. */
#include "inception/report/compare.h"

#include "inception/report/figure.h"
#include "inception/report/ranking.h"
#include "inception/report/report.h"
#include "inception/report/report_data.h"
#include "inception/report/run_difference.h"
#include "inception/report/runs.h"
#include "towers/files/files.h"
#include "towers/files/utf8.h"
#include "towers/record/run_view.h"

enum { POINTS = 200 /* of a curve over steps */, LABEL = 16 /* bytes of a name at the end of a line */ };
enum { NAMED = 6 /* runs and settings in a sentence */, NAME = 80 };

typedef struct Overlays {
    Run *const *run; /* borrowed, as are the views */
    Run *view;       /* [count]: their first phases */
    int count;
    Ranking ranking;
    json_t *settings; /* that differ; owned */
    double *x, *y;    /* room for a curve */
} Overlays;

/* A curve of a run: what `of` stands for is the function's. Returns the number of points. */
typedef int64_t CurveMake(const Run *run, size_t of, double *x, double *y);

/* A column of the steps, at `of` in RunStep, over the images seen: means of equally many rows. Nothing for a run of an older version
 * that did not record how many images it had seen. */
static int64_t curve_steps(const Run *run, size_t of, double *x, double *y)
{
    int64_t points = run->steps < POINTS ? run->steps : POINTS;
    for (int64_t i = 0; i < run->steps; i++)
        if (!run->step[i].images_seen && run->step[i].images) return 0;
    for (int64_t k = 0; k < points; k++) {
        double sum = 0;
        int64_t finite = 0;
        for (int64_t i = run->steps * k / points; i < run->steps * (k + 1) / points; i++) {
            const RunStep *s = &run->step[i];
            double value = *(const double *)((const char *)s + of);
            if (isfinite(value)) sum += value, finite++;
            x[k] = (double)s->images_seen;
        }
        y[k] = finite ? sum / (double)finite : ABSENT;
    }
    return points;
}

/* A score of the epochs; `of`: ScoreKind, NOT_SCORED: the test loss. */
static int64_t curve_epochs(const Run *run, size_t of, double *x, double *y)
{
    for (int64_t i = 0; i < run->epochs; i++) {
        const EpochRecord *e = &run->epoch[i];
        x[i] = (double)e->epoch;
        y[i] = of == NOT_SCORED ? e->test_loss : run_score_scale((ScoreKind)of) * epoch_score(e, (ScoreKind)of);
    }
    return run->epochs;
}

/* `logarithmic`: if the values need it. */
static void overlay(const Overlays *c, FILE *to, bool wide, const SvgFrame *like, bool logarithmic, const char *note,
                    CurveMake *make, size_t of)
{
    Figures figures = {.to = to};
    SvgFrame frame = *like;
    SvgPlot plot;
    frame.x_low = INFINITY, frame.x_high = -INFINITY;
    frame.x_whole = true;
    for (int i = 0; i < c->count; i++) {
        int64_t count = make(&c->view[i], of, c->x, c->y);
        svg_extent(c->x, count, &frame.x_low, &frame.x_high);
        svg_extent(c->y, count, &frame.y_low, &frame.y_high);
    }
    if (!(frame.y_low <= frame.y_high)) return;
    frame.y_log = logarithmic && frame.y_low > 0 && frame.y_high > 50 * frame.y_low;
    figure_open(&figures, wide, &plot, &frame, frame.title, note);
    for (int i = 0; i < c->count; i++) {
        char name[LABEL], label[SVG_LABEL_BYTES];
        int64_t count = make(&c->view[i], of, c->x, c->y);
        utf8_escape(name, sizeof name, c->view[i].name);
        snprintf(label, sizeof label, "%d %s", i + 1, name);
        svg_line(&plot, c->x, c->y, count, i, 1.6, label);
        if (count == 1) svg_dots(&plot, c->x, c->y, count, i);
    }
    figure_close(&figures, &plot);
}

static void overlays_write(const Overlays *c, FILE *to)
{
    static const char *const titles[] = {"Test accuracy", "Test mAP", "KID"};
    static const char *const notes[] = {"Per cent, after each epoch.", "Per cent, after each epoch.",
                                        "Of generated images against the training images: lower is closer."};
    char title[64] = "Training loss";
    for (int i = 0; i < c->count; i++)
        if (c->view[i].phase) snprintf(title, sizeof title, "Loss of the phase %s", c->view[i].phase);
    SvgFrame frame = figure_frame(title, "images seen");
    frame.height = FIGURE_TALL;
    fputs("<section class=\"grid\">\n", to);
    for (size_t kind = SCORED_BY_ACCURACY; kind <= SCORED_BY_KID; kind++) {
        SvgFrame scores = figure_frame(titles[kind], "epoch");
        overlay(c, to, false, &scores, kind == SCORED_BY_KID, notes[kind], curve_epochs, kind);
    }
    SvgFrame losses = figure_frame("Test loss", "epoch");
    overlay(c, to, false, &losses, true, "After each epoch.", curve_epochs, NOT_SCORED);
    overlay(c, to, true, &frame, true, "mean_loss over the images seen; long runs as 200 means of equally many steps.",
            curve_steps, offsetof(RunStep, mean_loss));
    frame = figure_frame("Learning rate", "images seen");
    overlay(c, to, false, &frame, false, "As used by the optimizer.", curve_steps, offsetof(RunStep, lr));
    frame = figure_frame("Throughput", "images seen");
    overlay(c, to, false, &frame, false, "Images per second.", curve_steps, offsetof(RunStep, images_per_sec));
    fputs("</section>\n", to);
}

/* ---- the answer */

/* "2, large (87.21 %, p = 0.3)" */
static void ranked_name(const Overlays *c, const RankedRun *row, Text *answer)
{
    char name[NAME], score[RANKING_TEXT];
    utf8_escape(name, sizeof name, row->run->name);
    ranked_score_text(&c->ranking, row, score);
    text_add(answer, "%d, %s (%s", row->number, name, score);
    if (isfinite(row->p)) text_add(answer, ", p = %.2g", row->p);
    text_add(answer, ")");
}

/* Of the runs behind the best those that are worse, or those that may not be. */
typedef enum Against { CLEARLY_WORSE, PERHAPS_EQUAL, UNTESTED } Against;

static Against against_best(const RankedRun *row)
{
    if (is_not_finite(row->score) || row->p < DIFFERENCE_LEVEL) return CLEARLY_WORSE;
    return is_absent(row->p) ? UNTESTED : PERHAPS_EQUAL;
}

static void others_sentence(const Overlays *c, Against against, Text *answer)
{
    static const char *const begin[] = {[CLEARLY_WORSE] = " Clearly worse: run ",
                                        [PERHAPS_EQUAL] = " No significant difference from it",
                                        [UNTESTED] = " Not tested against it: run "};
    int found = 0;
    for (int i = 1; i < c->count; i++) {
        const RankedRun *row = &c->ranking.row[i];
        if (against_best(row) != against) continue;
        if (found == 0) text_add(answer, "%s", begin[against]);
        if (found == 0 && against == PERHAPS_EQUAL) text_add(answer, " (p is not below %g): run ", DIFFERENCE_LEVEL);
        if (found < NAMED) {
            text_add(answer, found ? ", run " : "");
            ranked_name(c, row, answer);
        }
        found++;
    }
    if (found > NAMED) text_add(answer, " and %d more", found - NAMED);
    if (found) text_add(answer, against == PERHAPS_EQUAL ? "; chance alone may explain it." : ".");
}

static void settings_sentence(const Overlays *c, Text *answer)
{
    const char *key;
    json_t *values;
    size_t shown = 0, count = json_object_size(c->settings);
    if (count == 0) {
        text_add(answer, " No setting differs.");
        return;
    }
    text_add(answer, " The runs differ in ");
    json_object_foreach(c->settings, key, values)
    {
        if (shown == NAMED) break;
        text_add(answer, "%s%s", shown++ ? ", " : "", key);
    }
    if (count > NAMED) text_add(answer, " and %zu more settings", count - NAMED);
    text_add(answer, ".");
}

static void answer_write(const Overlays *c, FILE *to)
{
    char text[4096];
    Text answer = text_start(text, sizeof text);
    const Ranking *ranking = &c->ranking;
    if (c->count < 2) return;
    if (ranking->by == RANKED_BY_NOTHING) {
        text_add(
            &answer,
            c->view[0].phase
                ? "There is no ranking: the losses of phases that train against each other tell nothing about the "
                  "images, and no KID of the same features was measured for all runs."
                : "There is no ranking: not all runs were evaluated, and they have no recorded steps over the same "
                  "images.");
    } else {
        text_add(&answer, "By %s%s the best is run ", ranking_name(ranking),
                 ranking->by == RANKED_BY_LOSS ? " (not all runs were evaluated)" : "");
        ranked_name(c, &ranking->row[0], &answer);
        text_add(&answer, ".");
        for (Against against = CLEARLY_WORSE; against <= UNTESTED; against++) others_sentence(c, against, &answer);
    }
    settings_sentence(c, &answer);
    svg_printf(to, "<p class=\"answer\">%s</p>\n", text);
}

/* What keeps the numbers of runs from being compared. */
static void warnings_write(const Overlays *c, FILE *to)
{
    char text[VERDICT_BYTES];
    for (int i = 1; i < c->count; i++) {
        subjects_compare(&c->view[0], &c->view[i], text);
        if (*text) svg_printf(to, "<p class=\"note\">Runs 1 and %d: %s</p>\n", i + 1, text);
    }
}

/* The legend. */
static void runs_table(const Overlays *c, FILE *to)
{
    static const char *const heads[] = {"run", "model", "state", "step", "best", "against the best run"};
    section_open(to, "Runs");
    fputs("<table><tr><th>line</th>", to);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) cell_write(to, i < 3 ? "o" : "n o", heads[i]);
    fputs("</tr>", to);
    for (int i = 0; i < c->count; i++) {
        char path[PATH_BYTES], step[32], best[48] = "-", test[RANKING_TEXT] = "-";
        RunRow row;
        for (int k = 1; c->ranking.by != RANKED_BY_NOTHING && k < c->count; k++)
            if (c->ranking.row[k].number == i + 1) ranked_test_text(&c->ranking.row[k], test);
        run_row_of(c->run[i], c->run[i]->path, "", &row);
        utf8_escape(path, sizeof path, c->run[i]->path);
        snprintf(step, sizeof step, "%" PRId64, row.step);
        if (row.kind != NOT_SCORED) run_score_text(row.kind, row.score, best, sizeof best);
        fprintf(to, "<tr><th>%d ", i + 1);
        svg_sample(to, i);
        fputs("</th>", to);
        cell_write(to, "", path);
        cell_write(to, "", row.model);
        cell_write(to, "", row.state);
        cell_write(to, "n", step);
        cell_write(to, "n", best);
        cell_write(to, "n", test);
        fputs("</tr>", to);
    }
    fputs("</table></section>\n", to);
}

static void settings_table(const Overlays *c, FILE *to)
{
    const char *key;
    json_t *values;
    if (!json_object_size(c->settings)) return;
    section_open(to, "Settings that differ");
    fputs("<table><tr><th>setting</th>", to);
    for (int i = 0; i < c->count; i++) fprintf(to, "<td class=\"o\">%d</td>", i + 1);
    fputs("</tr>", to);
    json_object_foreach(c->settings, key, values)
    {
        svg_printf(to, "<tr><th>%s</th>", key);
        for (int i = 0; i < c->count; i++) cell_write(to, "", setting_text(values, i));
        fputs("</tr>", to);
    }
    fputs("</table></section>\n", to);
}

static Status content_write(const void *context, FILE *to)
{
    const Overlays *c = context;
    fprintf(to, "<header><p class=\"eyebrow\">Comparison</p><h1>%d run%s</h1></header>\n", c->count,
            c->count == 1 ? "" : "s");
    answer_write(c, to);
    warnings_write(c, to);
    overlays_write(c, to);
    fputs("<section class=\"part\"><div class=\"grid\">\n", to);
    runs_table(c, to);
    settings_table(c, to);
    fputs("</div></section>\n", to);
    return OK;
}

Status compare_page(Run *const *runs, int count, const char *path)
{
    Status st = OK;
    bool found;
    size_t most = POINTS;
    Draft page = {0};
    Overlays c = {.run = runs, .count = count, .view = calloc((size_t)count, sizeof *c.view)};
    for (int i = 0; i < count; i++)
        if ((size_t)runs[i]->epochs > most) most = (size_t)runs[i]->epochs;
    c.x = calloc(2 * most, sizeof *c.x);
    if (!c.view || !c.x) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the curves of %d runs", count));
    c.y = c.x + most;
    for (int i = 0; i < count; i++) TRY_OUT(run_phase(runs[i], 0, &c.view[i], &found));
    TRY_OUT(ranking_make(runs, count, &c.ranking));
    TRY_OUT(setting_differences((const Run *const *)runs, count, &c.settings));
    TRY_OUT(draft_begin(&page, "the page of the comparison"));
    st = page_frame(page.to, "Comparison of runs", "the records of the runs by <b>towers compare</b>.", content_write,
                    &c);
    st = draft_replace(&page, st, NULL, path);
out:
    for (int i = 0; c.view && i < count; i++) run_view_free(&c.view[i]);
    ranking_clear(&c.ranking);
    json_decref(c.settings);
    free(c.view);
    free(c.x);
    return st;
}
