/* The report page of a run: its answer, key figures, and a part for each subject with plots and tables; see report.h. */
#include "inception/report/report.h"

#include <openssl/evp.h>

#include "inception/report/answer.h"
#include "inception/report/class_scores.h"
#include "inception/report/page/svg.h"
#include "inception/report/report_data.h"
#include "inception/report/report_plots.h"
#include "inception/report/run_difference.h"
#include "inception/report/runs.h"
#include "towers/files/files.h"
#include "towers/record/run_view.h"
#include "towers/record/setting_line.h"

enum { CLASS_ROWS = 40, ENDING_STEPS = 50, METRICS_BYTES = 64 << 20 /* on the page */ };

typedef struct Page {
    const Run *run, *whole; /* the first phase, all phases */
    LossTruth truth;
    Advice advice;
    json_t *environment, *memory; /* NULL if missing */
} Page;

/* ---- head of the page */

static void title_write(const Page *page, FILE *to)
{
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

static void answer_write(const Page *page, FILE *to)
{
    RunAnswer answer;
    answer_make(page->run, page->whole, page->environment, &page->advice, &answer);
    svg_printf(to, "<p class=\"answer\">%s", answer.found);
    if (*answer.next) svg_printf(to, "<b>What to try next:</b> %s", answer.next);
    fputs("</p>\n", to);
}

__attribute__((format(printf, 3, 4))) static void card(FILE *to, const char *what, const char *format, ...)
{
    va_list args;
    fputs("<div><b>", to);
    va_start(args, format);
    vfprintf(to, format, args);
    va_end(args);
    fprintf(to, "</b><span>%s</span></div>", what);
}

static void accuracy_cards(const Run *run, FILE *to)
{
    const EpochRecord *best = run_best_epoch(run), *last = run_last_test(run);
    if (!best) return;
    bool same = best->test_top1 == last->test_top1, multi_label = run->multi_label;
    const char *first = multi_label ? "test mAP, best epoch" : "test accuracy, best epoch";
    card(to, same ? (multi_label ? "test mAP" : "test accuracy") : first, "%.2f&nbsp;%%", 100 * best->test_top1);
    if (!same)
        card(to, multi_label ? "test mAP at the end" : "test accuracy at the end", "%.2f&nbsp;%%",
             100 * last->test_top1);
    if (isfinite(best->test_loss)) card(to, same ? "test loss" : "test loss, best epoch", "%.4g", best->test_loss);
}

/* Images of all steps by their time, without evaluations and what else comes between them. */
static double speed_of(const Run *run)
{
    double images = 0, seconds = 0;
    for (int64_t i = 0; i < run->steps; i++) {
        double took = (double)run->step[i].images / run->step[i].images_per_sec;
        if (isfinite(took)) images += (double)run->step[i].images, seconds += took;
    }
    return seconds > 0 ? images / seconds : ABSENT;
}

static void cards_write(const Page *page, FILE *to)
{
    const Run *run = page->run;
    const RunStep *last = &run->step[run->steps - 1];
    double seconds = 0, speed = speed_of(run);
    for (int64_t i = 0; i < run->epochs; i++)
        if (isfinite(run->epoch[i].seconds)) seconds += run->epoch[i].seconds;
    fputs("<section class=\"cards\">", to);
    accuracy_cards(run, to);
    card(to, "mean_loss at the end", "%.4f",
         steps_mean(run, run->steps > ENDING_STEPS ? run->steps - ENDING_STEPS : 0, offsetof(RunStep, mean_loss)));
    card(to, run->towers == 1 ? "tower" : "towers", "%d", run->towers);
    card(to, last->step == 1 ? "step" : "steps", "%" PRId64, last->step);
    if (isfinite(speed)) card(to, "images per second, training alone", "%.0f", speed);
    if (seconds >= 5400)
        card(to, "epochs, with evaluations", "%.1f&nbsp;h", seconds / 3600);
    else if (seconds >= 90)
        card(to, "epochs, with evaluations", "%.1f&nbsp;min", seconds / 60);
    else if (seconds > 0)
        card(to, "epochs, with evaluations", seconds < 10 ? "%.2g&nbsp;s" : "%.0f&nbsp;s", seconds);
    fputs("</section>\n", to);
}

/* What the numbers of this page are those of, if not of all steps. */
static void origin_write(const Page *page, FILE *to)
{
    bool thinned = page->whole->rows > page->whole->steps;
    if (!page->run->phase && !thinned) return;
    fputs("<p class=\"note\">", to);
    if (page->run->phase) svg_printf(to, "Losses and speed are those of the phase %s. ", page->run->phase);
    if (thinned)
        fprintf(to,
                "Curves and statistics are those of %" PRId64 " of %" PRId64
                " recorded steps: evenly spaced ones, the last ones, and those that were refused or not finite.",
                page->whole->steps, page->whole->rows);
    fputs("</p>\n", to);
}

/* ---- tables */

static void row_write(FILE *to, const char *key, const char *value)
{
    svg_printf(to, "<tr><th>%s</th><td>%s</td></tr>", key, value);
}

static void bad_table(const Page *page, FILE *to)
{
    const LossTruth *truth = &page->truth;
    if (!truth->bad_count) return;
    section_open(to, "Values that are not finite");
    fputs("<table>", to);
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
        row_write(to, what, seen);
        /* The finding of the forensic search, from the capsule. */
        char name[96], command[PATH_BYTES + 128];
        snprintf(name, sizeof name, "nan-step-%" PRId64 "-tower-%d/state.json", bad->step, bad->tower);
        json_t *state = json_of_run(page->run->path, name);
        const char *text = json_word(json_object_get(state, "found"), "text");
        snprintf(command, sizeof command, "towers replay %s/nan-step-%" PRId64 "-tower-%d", page->run->path, bad->step,
                 bad->tower);
        if (text && *text) row_write(to, "first in", text);
        if (text) row_write(to, "to replay it", command);
        json_decref(state);
    }
    fputs("</table></section>\n", to);
}

static void share_write(FILE *to, double share)
{
    fprintf(to, isfinite(share) ? "<td class=\"n\">%.1f %%</td>" : "<td class=\"n\">-</td>", 100 * share);
}

/* A bar as long as the share, behind its number. */
static void share_bar(FILE *to, double share)
{
    if (!isfinite(share)) {
        share_write(to, share);
        return;
    }
    fprintf(to, "<td class=\"n bar\" style=\"--share:%.1f%%\">%.1f %%</td>", 100 * share, 100 * share);
}

static void classes_table(const Page *page, FILE *to)
{
    const Run *run = page->run;
    int n = run->classes, rows = 0;
    char name[CLASS_NAME_BYTES];
    ClassScore *row = n ? calloc((size_t)n, sizeof *row) : NULL;
    if (!row) return;
    for (int t = 0; t < n; t++) {
        row[rows] = class_score(run, t);
        rows += row[rows].samples > 0;
    }
    class_scores_sort(row, rows);
    section_open(to, "By recall, with the weights of the best epoch");
    fputs("<table><tr><th>class</th><td class=\"n o\">recall</td><td class=\"n o\">precision</td><td class=\"n "
          "o\">F1</td><td class=\"n o\">test images</td></tr>",
          to);
    for (int i = 0; i < rows && i < CLASS_ROWS; i++) {
        svg_printf(to, "<tr><th>%s</th>", class_name(page->environment, run, row[i].class, name));
        share_bar(to, class_recall(&row[i]));
        share_write(to, class_precision(&row[i]));
        share_write(to, class_f1(&row[i]));
        fprintf(to, "<td class=\"n\">%" PRId64 "</td></tr>", row[i].samples);
    }
    fputs("</table>", to);
    if (rows > CLASS_ROWS) fprintf(to, "<p>and %d more classes with a higher recall</p>", rows - CLASS_ROWS);
    fputs("</section>\n", to);
    free(row);
}

static void memory_table(const Page *page, FILE *to)
{
    const char *what;
    json_t *bytes;
    char text[48];
    if (!page->memory) return;
    section_open(to, "Memory of one tower process");
    fputs("<table>", to);
    json_object_foreach(page->memory, what, bytes)
    {
        double mib = json_number_value(bytes) / (1 << 20);
        if (!(mib > 0)) continue;
        snprintf(text, sizeof text, mib < 0.1 ? "%.1f KiB" : "%.1f MiB", mib < 0.1 ? 1024 * mib : mib);
        row_write(to, what, text);
    }
    fputs("</table></section>\n", to);
}

/* "cat 0.5, dog 2": as many as fit. */
static void weights_text(const Page *page, const json_t *weights, char *text, size_t bytes)
{
    char name[CLASS_NAME_BYTES];
    Text all = text_start(text, bytes);
    for (size_t i = 0; i < json_array_size(weights); i++)
        text_add(&all, "%s%s %.4g", i ? ", " : "", class_name(page->environment, page->run, (int)i, name),
                 json_number_value(json_array_get(weights, i)));
}

static void environment_table(const Page *page, FILE *to)
{
    const char *key, *command = json_word_or_empty(page->environment, "command");
    json_t *value;
    char text[1024];
    if (*command) {
        section_open(to, "Command");
        svg_printf(to, "<pre>%s</pre></section>\n", command);
    }
    if (!page->environment) return;
    section_open(to, "Environment");
    fputs("<table>", to);
    json_object_foreach(page->environment, key, value)
    {
        if (!strcmp(key, "command") || !strcmp(key, "class_names")) continue;
        char *made = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        snprintf(text, sizeof text, "%s", json_is_string(value) ? json_string_value(value) : made ? made : "");
        free(made);
        if (!strcmp(key, "class_weights")) weights_text(page, value, text, sizeof text);
        row_write(to, key, text);
    }
    fputs("</table></section>\n", to);
}

static void setting_rows(const Page *page, bool defaults, FILE *to)
{
    SettingLine setting;
    fputs("<table>", to);
    for (const char *line = page->run->args; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (setting_line_read(line, &setting) && !strcmp(setting.origin, "default") == defaults)
            svg_printf(to, "<tr><th>%s</th><td>%s</td><td class=\"o\">%s</td></tr>", setting.key, setting.value,
                       defaults ? "" : setting.origin);
    fputs("</table>", to);
}

static void settings_table(const Page *page, FILE *to)
{
    if (!*page->run->args) return;
    section_open(to, "Settings");
    setting_rows(page, false, to);
    fputs("<details><summary>Defaults</summary>", to);
    setting_rows(page, true, to);
    fputs("</details></section>\n", to);
}

/* ---- the page */

typedef Status PartContent(const Page *page, FILE *to);

static Status curves_part(const Page *page, FILE *to)
{
    Figures f;
    bool found = true;
    TRY(figures_open(&f, to, page->run, &page->truth));
    figures_curves(&f);
    figures_close(&f);
    /* The loss and the terms of a phase behind the first, whose losses are on the page. */
    for (int phase = 1; found; phase++) {
        Run view;
        TRY(run_phase(page->whole, phase, &view, &found));
        Status st = found ? figures_open(&f, to, &view, &page->truth) : OK;
        if (found && st == OK) {
            figure_phase(&f);
            figure_terms(&f);
            figures_close(&f);
        }
        run_view_free(&view);
        TRY(st);
    }
    return OK;
}

static Status figures_part(const Page *page, FILE *to, FiguresWrite *write)
{
    Figures f;
    TRY(figures_open(&f, to, page->run, &page->truth));
    f.environment = page->environment;
    write(&f);
    figures_close(&f);
    return OK;
}

static Status classes_part(const Page *page, FILE *to)
{
    classes_table(page, to);
    return figures_part(page, to, figures_classes);
}

static Status damage_part(const Page *page, FILE *to)
{
    bad_table(page, to);
    return OK;
}

static Status generated_part(const Page *page, FILE *to)
{
    generated_html(page->run, to);
    return OK;
}

static Status mistakes_part(const Page *page, FILE *to)
{
    mistakes_html(page->run, to);
    return OK;
}

static Status data_part(const Page *page, FILE *to)
{
    data_html(page->run, to);
    return OK;
}

static Status towers_part(const Page *page, FILE *to)
{
    if (page->run->towers == 1) return OK;
    svg_printf(to, "<p class=\"note wide\">%s</p>\n", page->truth.verdict);
    TRY(figures_part(page, to, figures_towers));
    waiting_html(page->run, to);
    norm_drift_html(page->run, to);
    return OK;
}

static Status speed_part(const Page *page, FILE *to)
{
    TRY(figures_part(page, to, figures_speed));
    memory_table(page, to);
    return OK;
}

static Status layers_part(const Page *page, FILE *to)
{
    return figures_part(page, to, figure_layers);
}

static Status run_part(const Page *page, FILE *to)
{
    restarts_html(page->run, to);
    settings_table(page, to);
    environment_table(page, to);
    return OK;
}

/* Nothing if the run has no records for it. */
static Status part_write(const Page *page, const char *title, const char *id, PartContent *content, FILE *to)
{
    Draft part;
    TRY(draft_begin(&part, "a part of a report"));
    TRY(draft_end(&part, content(page, part.to)));
    if (part.bytes) {
        fprintf(to, "<section class=\"part\" id=\"%s\"><h2>%s</h2>\n<div class=\"grid\">\n", id, title);
        fwrite(part.text, 1, part.bytes, to);
        fputs("</div></section>\n", to);
    }
    free(part.text);
    return OK;
}

static Status content_write(const void *context, FILE *to)
{
    static const struct {
        const char *title, *id;
        PartContent *content;
    } parts[] = {
        {"Damaged steps", "damaged", damage_part}, {"Generated images", "generated", generated_part},
        {"Curves", "curves", curves_part},         {"Classes", "classes", classes_part},
        {"Mistakes", "mistakes", mistakes_part},   {"Data", "data", data_part},
        {"Towers", "towers", towers_part},         {"Speed and memory", "speed", speed_part},
        {"Layers", "layers", layers_part},         {"The run", "run", run_part},
    };
    const Page *page = context;
    title_write(page, to);
    answer_write(page, to);
    cards_write(page, to);
    origin_write(page, to);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        TRY(part_write(page, parts[i].title, parts[i].id, parts[i].content, to));
    return OK;
}

static const char *embedded(const char *name)
{
    const EmbeddedText *text = report_texts;
    while (strcmp(text->name, name) != 0) text++;
    return text->text;
}

/* The only script that the page's policy allows, by its digest. */
static void script_digest(FILE *to, const char *script)
{
    unsigned char digest[EVP_MAX_MD_SIZE], text[2 * EVP_MAX_MD_SIZE];
    unsigned size = 0;
    if (EVP_Digest(script, strlen(script), digest, &size, EVP_sha256(), NULL) != 1)
        size = 0; /* the page works without it */
    EVP_EncodeBlock(text, digest, (int)size);
    fprintf(to, "%s", (const char *)text);
}

/* page.html, with its places filled. */
Status page_frame(FILE *to, const char *title, const char *origin, PageContent *content, const void *context)
{
    const char *at = embedded("page");
    for (const char *place; (place = strstr(at, "{{")); at = strstr(place, "}}") + 2) {
        fwrite(at, 1, (size_t)(place - at), to);
        if (!strncmp(place, "{{title", 7)) svg_text(to, title);
        if (!strncmp(place, "{{style", 7)) fputs(embedded("report"), to);
        if (!strncmp(place, "{{digest", 8)) script_digest(to, embedded("readings"));
        if (!strncmp(place, "{{script", 8)) fputs(embedded("readings"), to);
        if (!strncmp(place, "{{content", 9)) TRY(content(context, to));
        if (!strncmp(place, "{{version", 9)) fputs(TOWERS_VERSION, to);
        if (!strncmp(place, "{{origin", 8)) fputs(origin, to);
    }
    fputs(at, to);
    return OK;
}

static Status page_draft(const Run *run, const Run *whole, Draft *draft)
{
    Page page = {.run = run, .whole = whole};
    TRY(loss_truth(run, &page.truth));
    page.environment = json_of_run(run->path, "env.json");
    page.memory = json_of_run(run->path, "memory.json");
    advice_make(run, whole, page.environment, &page.advice);
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
    if (png) TRY(report_png(run_dir));
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
