/* The report page of a run: title, key figures, summary, plots, tables; see report.h. */
#include "inception/report/report.h"

#include "inception/report/class_scores.h"
#include "inception/report/report_data.h"
#include "inception/report/report_plots.h"
#include "inception/report/run_difference.h"
#include "inception/report/runs.h"
#include "inception/report/svg.h"
#include "towers/files/files.h"
#include "towers/record/run_view.h"
#include "towers/record/setting_line.h"

enum { CLASS_NAMES = 64, CLASS_ROWS = 40, ENDING_STEPS = 50, METRICS_BYTES = 64 << 20 /* on the page */ };

typedef struct Page {
    FILE *to;
    const Run *run, *whole; /* the first phase, all phases */
    LossTruth truth;
    json_t *environment, *memory; /* NULL if missing */
    const char *classes[CLASS_NAMES];
    int class_count;
} Page;

/* ---- head of the page */

static void title_write(const Page *page)
{
    FILE *to = page->to;
    const json_t *e = page->environment;
    const char *model = json_word_or_empty(e, "model"), *data = json_word_or_empty(e, "data"),
               *started = json_word_or_empty(e, "started"), *backend = json_word_or_empty(e, "backend");
    svg_printf(to, "<header><p class=\"eyebrow\">Training run</p><h1>%s%s%s</h1><p>%s",
               *model ? model : page->run->name, *data ? " on " : "", data, page->run->name);
    if (strlen(started) > 16) /* "2016-07-23T14:05:06..." */
        svg_printf(to, " &middot; started %.10s, %.5s", started, started + 11);
    if (*backend) svg_printf(to, " &middot; %s", backend);
    fputs("</p></header>\n", to);
}

__attribute__((format(printf, 3, 4))) static void card(const Page *page, const char *what, const char *format, ...)
{
    va_list args;
    fputs("<div><b>", page->to);
    va_start(args, format);
    vfprintf(page->to, format, args);
    va_end(args);
    fprintf(page->to, "</b><span>%s</span></div>", what);
}

static double ending_mean(const Run *run, size_t place)
{
    return steps_mean(run, run->steps > ENDING_STEPS ? run->steps - ENDING_STEPS : 0, place);
}

static void accuracy_cards(const Page *page)
{
    const EpochRecord *best = run_best_epoch(page->run), *last = run_last_test(page->run);
    if (!best) return;
    bool same = best->test_top1 == last->test_top1, several = page->run->several;
    if (!same)
        card(page, several ? "test mAP at the end" : "test accuracy at the end", "%.2f %%", 100 * last->test_top1);
    const char *first = several ? "test mAP, best epoch" : "test accuracy, best epoch";
    card(page, same ? (several ? "test mAP" : "test accuracy") : first, "%.2f %%", 100 * best->test_top1);
    if (isfinite(best->test_loss)) card(page, same ? "test loss" : "test loss, best epoch", "%.4g", best->test_loss);
}

/* A run of one tower has no towers to compare: summarize its progress instead. */
static void headline_write(const Page *page)
{
    const Run *run = page->run;
    const EpochRecord *best = run_best_epoch(run);
    double first = ABSENT, last = ending_mean(run, offsetof(RunStep, mean_loss));
    for (int64_t i = 0; i < run->steps && !isfinite(first); i++) first = run->step[i].mean_loss;
    if (run->phase) svg_printf(page->to, "Losses and speed are those of the phase %s. ", run->phase);
    if (run->towers > 1 || page->truth.bad_count) {
        svg_text(page->to, page->truth.verdict);
        return;
    }
    fprintf(page->to, "The loss went from %.4g to %.4g in %" PRId64 " step%s", first, last,
            run->step[run->steps - 1].step, run->step[run->steps - 1].step == 1 ? "" : "s");
    if (best)
        fprintf(page->to, "; the best weights are those of epoch %" PRId64 ", with a test %s of %.2f %%", best->epoch,
                run->several ? "mAP" : "accuracy", 100 * best->test_top1);
    fputs(".", page->to);
}

static void cards_write(const Page *page)
{
    const Run *run = page->run;
    const RunStep *last = &run->step[run->steps - 1];
    double seconds = 0;
    for (int64_t i = 0; i < run->epochs; i++)
        if (isfinite(run->epoch[i].seconds)) seconds += run->epoch[i].seconds;
    fputs("<section class=\"cards\">", page->to);
    accuracy_cards(page);
    card(page, "mean_loss at the end", "%.4f", ending_mean(run, offsetof(RunStep, mean_loss)));
    card(page, run->towers == 1 ? "tower" : "towers", "%d", run->towers);
    card(page, last->step == 1 ? "step" : "steps", "%" PRId64, last->step);
    card(page, "images per second", "%.0f", ending_mean(run, offsetof(RunStep, images_per_sec)));
    if (seconds >= 5400)
        card(page, "total time of epochs", "%.1f h", seconds / 3600);
    else if (seconds >= 90)
        card(page, "total time of epochs", "%.1f min", seconds / 60);
    else if (seconds > 0)
        card(page, "total time of epochs", seconds < 10 ? "%.2g s" : "%.0f s", seconds);
    fputs("</section>\n<p class=\"verdict\">", page->to);
    headline_write(page);
    if (page->whole->rows > page->whole->steps)
        fprintf(page->to,
                " Curves and statistics are those of %" PRId64 " of %" PRId64
                " recorded steps: evenly spaced ones, the last ones, and those that were refused or not finite.",
                page->whole->steps, page->whole->rows);
    fputs("</p>\n", page->to);
}

/* ---- tables */

static void row_write(const Page *page, const char *key, const char *value)
{
    svg_printf(page->to, "<tr><th>%s</th><td>%s</td></tr>", key, value);
}

static void bad_table(const Page *page)
{
    const LossTruth *truth = &page->truth;
    if (!truth->bad_count) return;
    section_open(page->to, "Values that are not finite");
    fputs("<table>", page->to);
    for (int64_t i = 0; i < truth->bad_count && i < 100; i++) {
        const BadStep *bad = &truth->bad[i];
        char what[64], seen[96];
        snprintf(what, sizeof what, "step %" PRId64 ", tower %d", bad->step, bad->tower);
        snprintf(seen, sizeof seen,
                 bad->later < 0    ? "%s: the last tower's loss never shows it"
                 : bad->later == 0 ? "%s: the last tower's loss shows it at once"
                                   : "%s: the last tower's loss shows it %" PRId64 " steps later",
                 bad->loss && bad->gradient ? "loss and gradient"
                 : bad->loss                ? "loss"
                                            : "gradient",
                 bad->later);
        row_write(page, what, seen);
        /* The finding of the forensic search, from the capsule. */
        char name[96], command[PATH_BYTES + 128];
        snprintf(name, sizeof name, "nan-step-%" PRId64 "-tower-%d/state.json", bad->step, bad->tower);
        json_t *state = json_of_run(page->run->path, name);
        const char *text = json_word(json_object_get(state, "found"), "text");
        snprintf(command, sizeof command, "towers replay %s/nan-step-%" PRId64 "-tower-%d", page->run->path, bad->step,
                 bad->tower);
        if (text && *text) row_write(page, "first in", text);
        if (text) row_write(page, "to replay it", command);
        json_decref(state);
    }
    fputs("</table></section>\n", page->to);
}

static void share_write(const Page *page, double share)
{
    fprintf(page->to, isfinite(share) ? "<td class=\"n\">%.1f %%</td>" : "<td class=\"n\">-</td>", 100 * share);
}

static void classes_table(const Page *page)
{
    const Run *run = page->run;
    int n = run->classes, rows = 0;
    char number[32];
    ClassScore *row = n ? calloc((size_t)n, sizeof *row) : NULL;
    if (!row) return;
    for (int t = 0; t < n; t++) {
        row[rows] = class_score(run, t);
        rows += row[rows].samples > 0;
    }
    class_scores_sort(row, rows);
    section_open(page->to, "Classes, with the weights of the best epoch");
    fputs("<table><tr><th>class</th><td class=\"n o\">recall</td><td class=\"n o\">precision</td><td class=\"n "
          "o\">F1</td><td class=\"n o\">test images</td></tr>",
          page->to);
    for (int i = 0; i < rows && i < CLASS_ROWS; i++) {
        bool named = row[i].class < page->class_count && page->class_count == n;
        snprintf(number, sizeof number, "class %d", row[i].class);
        svg_printf(page->to, "<tr><th>%s</th>", named ? page->classes[row[i].class] : number);
        share_write(page, class_recall(&row[i]));
        share_write(page, class_precision(&row[i]));
        share_write(page, class_f1(&row[i]));
        fprintf(page->to, "<td class=\"n\">%" PRId64 "</td></tr>", row[i].samples);
    }
    fputs("</table>", page->to);
    if (rows > CLASS_ROWS) fprintf(page->to, "<p>and %d more classes with a higher recall</p>", rows - CLASS_ROWS);
    fputs("</section>\n", page->to);
    free(row);
}

static void memory_table(const Page *page)
{
    const char *what;
    json_t *bytes;
    char text[48];
    if (!page->memory) return;
    section_open(page->to, "Memory of one tower process");
    fputs("<table>", page->to);
    json_object_foreach(page->memory, what, bytes)
    {
        double mib = json_number_value(bytes) / (1 << 20);
        if (!(mib > 0)) continue;
        snprintf(text, sizeof text, mib < 0.1 ? "%.1f KiB" : "%.1f MiB", mib < 0.1 ? 1024 * mib : mib);
        row_write(page, what, text);
    }
    fputs("</table></section>\n", page->to);
}

/* "cat 0.5, dog 2": as many as fit. */
static void weights_text(const Page *page, const json_t *weights, char *text, size_t bytes)
{
    Text all = text_start(text, bytes);
    for (size_t i = 0; i < json_array_size(weights); i++) {
        char number[32];
        snprintf(number, sizeof number, "class %zu", i);
        text_add(&all, "%s%s %.4g", i ? ", " : "", i < (size_t)page->class_count ? page->classes[i] : number,
                 json_number_value(json_array_get(weights, i)));
    }
}

static void environment_table(const Page *page)
{
    const char *key, *command = json_word_or_empty(page->environment, "command");
    json_t *value;
    char text[1024];
    if (*command) {
        section_open(page->to, "Command");
        svg_printf(page->to, "<pre>%s</pre></section>\n", command);
    }
    if (!page->environment) return;
    section_open(page->to, "Environment");
    fputs("<table>", page->to);
    json_object_foreach(page->environment, key, value)
    {
        if (!strcmp(key, "command") || !strcmp(key, "class_names")) continue;
        char *made = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        snprintf(text, sizeof text, "%s", json_is_string(value) ? json_string_value(value) : made ? made : "");
        free(made);
        if (!strcmp(key, "class_weights")) weights_text(page, value, text, sizeof text);
        row_write(page, key, text);
    }
    fputs("</table></section>\n", page->to);
}

static void setting_rows(const Page *page, bool defaults)
{
    SettingLine setting;
    fputs("<table>", page->to);
    for (const char *line = page->run->args; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (setting_line_read(line, &setting) && !strcmp(setting.origin, "default") == defaults)
            svg_printf(page->to, "<tr><th>%s</th><td>%s</td><td class=\"o\">%s</td></tr>", setting.key, setting.value,
                       defaults ? "" : setting.origin);
    fputs("</table>", page->to);
}

static void settings_table(const Page *page)
{
    if (!*page->run->args) return;
    section_open(page->to, "Settings");
    setting_rows(page, false);
    fputs("<details><summary>Defaults</summary>", page->to);
    setting_rows(page, true);
    fputs("</details></section>\n", page->to);
}

/* ---- the page */

/* The loss and the terms of a phase behind the first, whose losses are on the page. */
static Status phase_write(const Page *page, int phase, bool *found)
{
    Run view;
    Figures f;
    TRY(run_phase(page->whole, phase, &view, found));
    Status st = *found ? figures_open(&f, page->to, &view, &page->truth) : OK;
    if (*found && st == OK) {
        figure_phase(&f);
        figure_terms(&f);
        figures_close(&f);
    }
    run_view_free(&view);
    return st;
}

static Status content_write(const void *context, FILE *to)
{
    const Page *page = context;
    (void)to; /* page->to */
    title_write(page);
    cards_write(page);
    Figures f;
    TRY(figures_open(&f, page->to, page->run, &page->truth));
    f.classes = page->classes;
    f.class_count = page->class_count;
    fputs("<section class=\"grid\">\n", page->to);
    figures_write(&f);
    figures_close(&f);
    bool found = true;
    for (int phase = 1; found; phase++) TRY(phase_write(page, phase, &found));
    fputs("</section>\n", page->to);
    bad_table(page);
    classes_table(page);
    data_sections(page->run, page->to);
    waiting_html(page->run, page->to);
    norm_drift_html(page->run, page->to);
    memory_table(page);
    settings_table(page);
    environment_table(page);
    return OK;
}

static const char *embedded(const char *name)
{
    const EmbeddedText *text = report_texts;
    while (strcmp(text->name, name) != 0) text++;
    return text->text;
}

/* page.html, with its places filled. */
Status page_frame(FILE *to, const char *title, const char *origin, PageContent *content, const void *context)
{
    const char *at = embedded("page");
    for (const char *place; (place = strstr(at, "{{")); at = strstr(place, "}}") + 2) {
        fwrite(at, 1, (size_t)(place - at), to);
        if (!strncmp(place, "{{title", 7)) svg_text(to, title);
        if (!strncmp(place, "{{style", 7)) fputs(embedded("report"), to);
        if (!strncmp(place, "{{content", 9)) TRY(content(context, to));
        if (!strncmp(place, "{{version", 9)) fputs(TOWERS_VERSION, to);
        if (!strncmp(place, "{{origin", 8)) fputs(origin, to);
    }
    fputs(at, to);
    return OK;
}

static Status page_draft(const Run *run, const Run *whole, Draft *draft)
{
    Page page = {.run = run, .whole = whole, .to = draft->to};
    TRY(loss_truth(run, &page.truth));
    page.environment = json_of_run(run->path, "env.json");
    page.memory = json_of_run(run->path, "memory.json");
    /* Class names come from env.json; without them, or if they are invalid, the report shows numbers. */
    const json_t *names = json_object_get(page.environment, "class_names");
    for (size_t i = 0; i < json_array_size(names) && i < CLASS_NAMES; i++) {
        const char *name = json_string_value(json_array_get(names, i));
        page.classes[page.class_count++] = name ? name : "";
    }
    Status st = page_frame(draft->to, run->name,
                           "metrics.jsonl, results.csv and other records of this run; <b>towers report</b> regenerates "
                           "it, <b>towers compare</b> prints its numbers.",
                           content_write, &page);
    json_decref(page.environment);
    json_decref(page.memory);
    loss_truth_clear(&page.truth);
    return st;
}

Status report_write(const char *run_dir)
{
    Run *run = NULL, view = {0};
    bool found;
    Draft draft;
    TRY(draft_begin(&draft, "the report of the run")); /* first, so that the records are read in the C locale, too */
    Status st = run_read(run_dir, METRICS_BYTES, &run);
    if (st == OK) st = run_phase(run, 0, &view, &found); /* losses of several phases have no curve in common */
    if (st == OK) st = page_draft(&view, run, &draft);
    st = draft_replace(&draft, st, run_dir, "report.html");
    run_view_free(&view);
    run_destroy(run);
    return st;
}

/* ---- the report command */

Status report_run(const char *run_dir, bool png, bool json, bool quiet, FILE *to)
{
    TRY(report_write(run_dir));
    if (png) TRY(report_picture(run_dir));
    if (json) {
        char path[PATH_BYTES];
        TRY(path_join(path, run_dir, "report.html"));
        return json_emit(json_pack("{s:o}", "report", json_text(path)), JSON_COMPACT, to);
    }
    if (!quiet) {
        fprintf(to, "%s/report.html\n", run_dir);
        if (png) fprintf(to, "%s/report.png\n", run_dir);
    }
    return OK;
}
