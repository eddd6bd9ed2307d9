/* Writing a model card, section by section; see report.h. Names of classes, paths and settings come from anywhere: they
 * are escaped, so that they remain text in Markdown and stay on their line. */
#include "inception/report/report.h"

#include "inception/models/models.h"
#include "inception/report/class_scores.h"
#include "inception/report/compare.h"
#include "inception/report/runs.h"
#include "towers/files/utf8.h"
#include "towers/record/setting_line.h"
#include "towers/train/summary.h"

enum { WORD_BYTES = 1024, NAMES_SHOWN = 12 };
enum { FEW_IMAGES = 30 /* of a class: its recall is uncertain by about a fifth */ };

typedef struct Card {
    FILE *to;
    const Run *run;
    RunRow row;
    json_t *environment, *calibration; /* owned; NULL if missing */
    bool generates, chooses;           /* images; one class for each image */
} Card;

/* ---- words */

static void words_put(FILE *to, const char *text)
{
    char clean[WORD_BYTES];
    utf8_escape(clean, sizeof clean, text);
    for (const char *p = clean; *p; p++) {
        if ((unsigned char)*p < ' ' || *p == 127)
            fprintf(to, "\\\\x%02x", (unsigned char)*p);
        else
            fprintf(to, strchr("\\`*_<>[]|#&~$", *p) ? "\\%c" : "%c", *p);
    }
}

/* Prints with the text of each %s escaped. */
__attribute__((format(printf, 2, 3))) static void put(const Card *card, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    text_vput(card->to, words_put, format, args);
    va_end(args);
}

static bool setting(const Card *card, const char *key, char text[WORD_BYTES])
{
    return run_argument(card->run, key, text, WORD_BYTES) && *text;
}

static void row(const Card *card, const char *what, const char *value)
{
    if (*value) put(card, "| %s | %s |\n", what, value);
}

static void class_word(const Card *card, int class)
{
    const char *name =
        json_string_value(json_array_get(json_object_get(card->environment, "class_names"), (size_t) class));
    if (name && *name)
        put(card, "%s", name);
    else
        fprintf(card->to, "class %d", class);
}

static void share(const Card *card, double value)
{
    fprintf(card->to, isfinite(value) ? " %.1f |" : " - |", 100 * value);
}

/* ---- what it is */

static void head_write(const Card *card)
{
    FILE *to = card->to;
    const char *model = json_word_or_empty(card->environment, "model"),
               *data = json_word_or_empty(card->environment, "data");
    put(card, "# %s%s%s", *model ? model : card->run->name, *data ? " on " : "", data);
    put(card, "\n\nRun %s", card->run->name);
    put(card, ": %s after step %" PRId64, card->row.state, card->row.step);
    if (card->run->epochs) fprintf(to, ", epoch %" PRId64, card->run->epoch[card->run->epochs - 1].epoch);
    if (*card->row.why) put(card, " (%s)", card->row.why);
    if (*card->row.started) put(card, "; started on %.10s", card->row.started);
    fputs(".\n", to);
}

/* ---- data */

/* A row of the table of data: `key` is an object of env.json. */
static void part_row(const Card *card, const char *what, const char *key)
{
    const json_t *part = json_object_get(card->environment, key);
    if (!part)
        put(card, "| %s | not recorded | |\n", what);
    else if (json_is_integer(json_object_get(part, "images")))
        put(card, "| %s | %" PRId64 " | %s |\n", what, json_whole(part, "images"),
            json_word_or_empty(part, "fingerprint"));
}

static void division_write(const Card *card)
{
    char text[WORD_BYTES];
    if (setting(card, "fold", text)) {
        put(card, "\nThe images for evaluation are fold %s of the training images", text);
        if (setting(card, "fold-group", text)) put(card, ", divided by groups: %s", text);
        fputs(".\n", card->to);
    } else if (setting(card, "val-split", text) && atof(text) > 0) {
        put(card, "\nThe images for evaluation are a share of %s of each class of the training images.\n", text);
    }
}

/* What the survey before the first step has found. */
static void survey_write(const Card *card)
{
    size_t i;
    json_t *row, *root = json_of_run(card->run->path, SURVEY_FILE), *findings = json_object_get(root, "findings");
    if (json_array_size(findings)) fputs("\nOf these images, before the first step:\n\n", card->to);
    json_array_foreach(findings, i, row) put(card, "- %s.\n", json_word_or_empty(row, "text"));
    json_decref(root);
}

static void data_write(const Card *card)
{
    char path[WORD_BYTES];
    const char *format = json_word_or_empty(card->environment, "data_format");
    fputs("\n## Data\n\n| part | images | fingerprint |\n|---|---:|---|\n", card->to);
    part_row(card, "training", "training_data");
    part_row(card, "evaluation", "evaluation_data");
    division_write(card);
    if (card->generates)
        fputs("\nLabels are not used", card->to);
    else
        fprintf(card->to, "\n%" PRId64 " classes", json_whole(card->environment, "classes"));
    if (json_is_true(json_object_get(card->environment, "several_classes")))
        fputs(", any number for an image", card->to);
    put(card, "; format: %s", *format ? format : "not recorded");
    if (setting(card, "data-path", path)) put(card, "; read from %s", path);
    fputs(".\n", card->to);
    survey_write(card);
}

/* ---- settings */

static void settings_write(const Card *card)
{
    SettingLine line;
    int rows = 0;
    fputs("\n## Settings that differ from the defaults\n\n", card->to);
    for (const char *at = card->run->args; *at; at += strcspn(at, "\n"), at += *at == '\n') {
        if (!setting_line_read(at, &line) || !setting_is_changed(&line)) continue;
        if (!rows++) fputs("| setting | value | from |\n|---|---|---|\n", card->to);
        put(card, "| %s | %s | %s |\n", line.key, line.value, line.origin);
    }
    if (!rows) fputs(*card->run->args ? "None.\n" : "Not recorded: the run has no args.yaml.\n", card->to);
}

/* ---- scores */

static void classes_write(const Card *card)
{
    const Run *run = card->run;
    const json_t *images = json_object_get(json_object_get(card->environment, "training_data"), "class_images");
    if (!run->classes) return;
    fputs("\n| class | recall, % | precision, % | F1, % | images for evaluation | training images |\n"
          "|---|---:|---:|---:|---:|---:|\n",
          card->to);
    for (int c = 0; c < run->classes; c++) {
        ClassScore one = class_score(run, c);
        const json_t *trained = json_array_get(images, (size_t)c);
        fputs("| ", card->to), class_word(card, c), fputs(" |", card->to);
        share(card, class_recall(&one));
        share(card, class_precision(&one));
        share(card, class_f1(&one));
        fprintf(card->to, " %" PRId64 " |", one.samples);
        fprintf(card->to, trained ? " %" JSON_INTEGER_FORMAT " |\n" : " - |\n", json_integer_value(trained));
    }
}

static void scores_write(const Card *card)
{
    const EpochRecord *best = run_best_epoch(card->run);
    fputs("\n## Scores\n\n", card->to);
    if (best) {
        fprintf(card->to, "The weights in `best.safetensors` are those of epoch %" PRId64 ": %s %.2f %%", best->epoch,
                card->run->multi_label ? "mAP" : "accuracy", 100 * best->test_top1);
        if (isfinite(best->test_loss)) fprintf(card->to, ", loss %.4g", best->test_loss);
        fputs(", on the images for evaluation.\n", card->to);
    } else if (card->row.kind != NOT_SCORED) {
        fprintf(card->to, "Best %s of an epoch: %.5g. No evaluation of predictions has a score.\n",
                run_score_name(card->row.kind), card->row.score);
    } else {
        fputs("The run has no score.\n", card->to);
    }
    classes_write(card);
}

static double pair_number(const json_t *object, const char *key, size_t i)
{
    return json_number_value(json_array_get(json_object_get(object, key), i));
}

static void calibration_write(const Card *card)
{
    const json_t *c = card->calibration;
    if (!card->chooses) return;
    fputs("\n## Calibration\n\n", card->to);
    if (json_is_real(json_object_get(c, "temperature")))
        fprintf(card->to,
                "Temperature %.4f, fitted on %" PRId64
                " images: calibration error %.4f before and %.4f after, loss %.4g before and %.4g after. It belongs to "
                "the weights for which it was fitted.\n",
                json_number_value(json_object_get(c, "temperature")), json_whole(c, "images"),
                pair_number(c, "calibration_error", 0), pair_number(c, "calibration_error", 1),
                pair_number(c, "loss", 0), pair_number(c, "loss", 1));
    else
        fputs("Not calibrated: a probability of the network is not the share of images for which it is right. `towers "
              "eval RUN --calibrate` fits a temperature.\n",
              card->to);
}

/* ---- limits */

/* A sentence about the classes that have fewer than `below` images for evaluation, and at least `least`. */
static void classes_below(const Card *card, int64_t least, int64_t below, const char *what)
{
    int found = 0;
    for (int c = 0; c < card->run->classes; c++) {
        ClassScore one = class_score(card->run, c);
        if (one.samples < least || one.samples >= below) continue;
        fputs(!found ? "- " : found < NAMES_SHOWN ? ", " : "", card->to);
        if (!found) fprintf(card->to, "%s: ", what);
        if (found++ < NAMES_SHOWN) class_word(card, c);
    }
    if (found > NAMES_SHOWN) fprintf(card->to, " and %d more", found - NAMES_SHOWN);
    if (found) fputs(".\n", card->to);
}

static void limits_write(const Card *card)
{
    FILE *to = card->to;
    char text[WORD_BYTES];
    const EpochRecord *best = run_best_epoch(card->run);
    fputs("\n## Limits\n\n", to);
    if (!best) {
        if (!card->generates) fputs("- It was not tested on any image.\n", to);
    } else {
        fputs("- It was tested on the images for evaluation only: not on other cameras, places, times or groups than "
              "theirs.\n",
              to);
        if (card->run->epochs > 1)
            fputs("- The best epoch was chosen by the same images, so its score is a little too good. Images that no "
                  "run has used (`towers eval RUN --split test`, `--data-path`) tell more.\n",
                  to);
        if (!card->run->classes && card->chooses)
            fputs("- The scores of single classes are not recorded: `towers eval RUN` prints them.\n", to);
        classes_below(card, 0, 1, "Without an image for evaluation, so not tested");
        classes_below(card, 1, FEW_IMAGES, "With fewer than 30 images for evaluation, so their scores are uncertain");
        if (setting(card, "fold", text))
            fputs("- This is one fold: `towers compare` of all folds has their mean and deviation.\n", to);
    }
    fputs("- This is one run with one seed: how much the score varies from seed to seed is not in its records.\n", to);
    if (card->chooses) fputs("- An image of none of the classes gets one of them nevertheless.\n", to);
    if (strcmp(card->row.state, "finished") != 0 && strcmp(card->row.state, "ended early") != 0)
        put(card, "- The run has not reached its end. Its state is: %s.\n", card->row.state);
}

/* ---- how to make it again */

static void origin_write(const Card *card)
{
    const json_t *e = card->environment;
    const char *command = json_word_or_empty(e, "command");
    fputs("\n## Reproducing it\n\n| | |\n|---|---|\n", card->to);
    row(card, "version", json_word_or_empty(e, "towers"));
    row(card, "commit", json_word_or_empty(e, "commit"));
    row(card, "compiler", json_word_or_empty(e, "compiler"));
    put(card, "| machine | %s %s, %s |\n", json_word_or_empty(e, "system"), json_word_or_empty(e, "release"),
        json_word_or_empty(e, "backend"));
    put(card, "| towers of the run | %" PRId64 " in %" PRId64 " processes of %" PRId64 " threads |\n",
        json_whole(e, "towers_count"), json_whole(e, "processes"), json_whole(e, "threads"));
    fputs("\n```sh\n", card->to);
    fputs(*command && !strpbrk(command, "\n`") ? command : "# the command is not recorded", card->to);
    fputs(card->generates ? "\ntowers generate " : "\ntowers eval ", card->to);
    if (strpbrk(card->run->path, "\n`"))
        fputs("RUN", card->to);
    else
        text_shell(card->to, card->run->path);
    fputs("\n```\n", card->to);
}

Status card_print(const char *run_dir, FILE *to)
{
    Run *run = NULL;
    Card card = {.to = to};
    const Model *model;
    char loss[WORD_BYTES];
    if (!is_run(run_dir))
        return FAIL(ERR_ARG, "'%s' is no run: expected a folder with args.yaml, as towers train makes it", run_dir);
    TRY(run_read(run_dir, RUN_BYTES, &run));
    card.run = run;
    run_row_of(run, run_dir, run->name, &card.row);
    card.environment = json_of_run(run_dir, "env.json");
    card.calibration = json_of_run(run_dir, "calibration.json");
    card.generates = model_find(json_word_or_empty(card.environment, "model"), &model) == OK && model->phases;
    card.chooses = !card.generates && !run->multi_label && !(setting(&card, "loss", loss) && !strcmp(loss, "bce"));
    static void (*const sections[])(const Card *) = {head_write,        data_write,   settings_write, scores_write,
                                                     calibration_write, limits_write, origin_write};
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) sections[i](&card);
    json_decref(card.environment);
    json_decref(card.calibration);
    run_destroy(run);
    return OK;
}
