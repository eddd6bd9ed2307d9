/* towers eval: evaluates weights; prints accuracy, scores of each class, the list of mistakes. */
#include "inception/commands/commands.h"
#include "inception/commands/result_file.h"

#include "inception/job/calibration.h"
#include "inception/job/facts.h"
#include "inception/job/notes.h"
#include "inception/job/run_argument.h"
#include "inception/job/trained_classes.h"
#include "inception/options/settle.h"
#include "inception/report/class_scores.h"
#include "towers/files/csv.h"
#include "towers/files/files.h"
#include "towers/files/json.h"
#include "towers/guard/memory_check.h"
#include "towers/replica/temperature.h"
#include "towers/store/run_dir.h"
#include "towers/train/average_precision.h"
#include "towers/train/mistakes.h"

/* With any number of classes for an image, one is predicted if its probability is above 0.5; precision, recall and F1
 * are those of this, and average precision tells how well the probabilities sort the images. */
enum { CLASS_ROWS = 20 /* classes in the table on the terminal */, CONFUSION_MOST = 100, MATRIX_MOST = 10 };

/* The data to be evaluated, as one line on stderr. */
static void eval_introduce(const JobFiles *files)
{
    const SourceInfo *test = source_info(files->test);
    const char *path = files->job.data_path, *part = files->part ? files->part : "";
    if (path && !strcmp(path, test->name)) path = NULL;
    text_printf(stderr, "data           %s (%s%s%s): %" PRId64 " %s%simages, %d classes%s\n", test->name, test->format,
                path ? ", " : "", path ? path : "", test->count, part, *part ? " " : "", test->classes,
                test->multi_label ? ", any number for an image" : "");
    if (files->job.tta == TTA_FLIP)
        fprintf(stderr,
                "predictions    mean of the probabilities of each image and of its mirror image (--tta flip)\n");
}

/* Which of them have no images. */
static Status eval_classes_note(JobFiles *files)
{
    enum { SHOWN = 8 };
    const SourceInfo *test = source_info(files->test);
    char names[1024];
    Text text = text_start(names, sizeof names);
    int absent = 0;
    if (!*test->class_names[0]) return OK;
    int64_t *count = calloc((size_t)test->classes + 1, sizeof *count);
    if (!count) return FAIL(ERR_MEMORY, "no memory for the counts of %d classes", test->classes);
    source_classes_count(files->test, count);
    for (int c = 0; c < test->classes; c++) {
        if (count[c] || !strcmp(test->class_names[c], "background") || absent++ >= SHOWN) continue;
        text_add(&text, "%s%s", absent > 1 ? ", " : "", test->class_names[c]);
    }
    if (absent)
        job_note(files, "%s has no images of %d of the %d classes: %s%s", test->name, absent, test->classes, names,
                 absent > SHOWN ? ", ..." : "");
    free(count);
    return OK;
}

static void fingerprint_text(const Source *source, char text[33])
{
    const uint64_t *print = source_info(source)->fingerprint;
    snprintf(text, 33, "%016" PRIx64 "%016" PRIx64, print[0], print[1]);
}

/* Another division than that of the training lets images that were trained on be evaluated. */
static void eval_division_note(const Options *o, JobFiles *files)
{
    char now[33];
    const SourceInfo *test = source_info(files->test);
    json_t *env = json_of_run(o->weights, "env.json");
    const char *then = json_word(json_object_get(env, "evaluation_data"), "fingerprint");
    fingerprint_text(files->test, now);
    bool divided = (o->val_split > 0 || o->fold) && (o->split == PART_AUTO || o->split == PART_VAL),
         own = option_origin(o, "data-path") <= ORIGIN_RECIPE; /* the data are those of the run */
    if (then && divided && own && strcmp(then, now) != 0)
        job_note(files,
                 "warning: %s is divided otherwise than in the training, because its images or the settings of the "
                 "division have changed: some of these images may have been trained on",
                 test->name);
    json_decref(env);
}

/* ---- scores of classes */

typedef struct Scores {
    const SourceInfo *info;
    ClassScore *class;            /* owned: [count] */
    int count;                    /* classes of the network, which may be more than those of the data */
    double recall, precision, f1; /* means over the classes with samples: macro averages */
    bool multi_label;             /* samples have any number of classes; only then the next: */
    double micro_f1, hamming;     /* F1 of all answers together; share of wrong answers */
    /* If samples have one class, the next; the last two only with two classes, else NaN: */
    int64_t *confusion; /* owned: [label][predicted]; NULL with more than CONFUSION_MOST classes */
    double calibration, roc_auc, average_precision;
} Scores;

/* The counts of every class, from the probabilities. */
static Status multi_label_count(const JobFiles *files, const EvalSample *samples, const float *scores, Scores *s)
{
    int64_t right = 0, taken = 0, wanted = 0, answers = 0;
    double *average = malloc((size_t)s->count * sizeof *average), mean;
    if (!average) return FAIL(ERR_MEMORY, "no memory for the scores of %d classes", s->count);
    for (int64_t i = 0; i < s->info->count; i++) {
        const int32_t *labels;
        int32_t own = source_labels(files->test, i, &labels), next = 0;
        if (samples[i].label == LABEL_NONE) continue;
        for (int c = 0; c < s->count; c++) {
            bool has = next < own && labels[next] == c, takes = scores[i * s->count + c] > 0.5f;
            next += has;
            s->class[c].samples += has;
            s->class[c].taken += takes;
            s->class[c].right += has && takes;
        }
        answers += s->count;
    }
    Status st = average_precision(files->test, samples, scores, s->count, average, &mean);
    for (int c = 0; st == OK && c < s->count; c++) {
        s->class[c].average = average[c];
        right += s->class[c].right;
        taken += s->class[c].taken;
        wanted += s->class[c].samples;
    }
    s->micro_f1 = wanted + taken ? 2 * (double)right / (double)(wanted + taken) : ABSENT;
    s->hamming = answers ? (double)(wanted + taken - 2 * right) / (double)answers : ABSENT;
    free(average);
    return st;
}

/* ROC and precision-recall need the probabilities of all samples, of which each has one of two classes. */
static bool has_curves(const ProgramConfig *program)
{
    return program->options.classes == 2 && program->loss == LOSS_SOFTMAX && !program->multi_label;
}

/* The counts of every class, confusion, calibration, and the curves of two classes. */
static Status exclusive_count(const JobFiles *files, const EvalSample *samples, const float *probability, Scores *s)
{
    ReliabilityBin bins[RELIABILITY_BINS];
    int64_t images = s->info->count;
    if (s->count <= CONFUSION_MOST) {
        s->confusion = calloc((size_t)s->count * (size_t)s->count, sizeof *s->confusion);
        if (!s->confusion) return FAIL(ERR_MEMORY, "no memory for the confusion of %d classes", s->count);
    }
    for (int64_t i = 0; i < images; i++) {
        const EvalSample *one = &samples[i];
        if (one->label == LABEL_NONE) continue;
        s->class[one->label].samples++;
        s->class[one->predicted].taken++;
        s->class[one->label].right += !one->wrong;
        if (s->confusion) s->confusion[one->label * s->count + one->predicted]++;
    }
    s->calibration = calibration_error(samples, images, bins);
    return has_curves(&files->job.program)
               ? binary_curves(samples, probability, images, &s->roc_auc, &s->average_precision)
               : OK;
}

static Status scores_make(const JobFiles *files, const EvalSample *samples, const float *probability, Scores *s)
{
    int64_t with_samples = 0;
    *s = (Scores){.info = source_info(files->test),
                  .count = files->job.program.options.classes,
                  .multi_label = files->job.program.multi_label,
                  .roc_auc = ABSENT,
                  .average_precision = ABSENT};
    s->class = calloc((size_t)s->count, sizeof *s->class);
    if (!s->class) return FAIL(ERR_MEMORY, "no memory for the scores of %d classes", s->count);
    for (int c = 0; c < s->count; c++) s->class[c].class = c;
    TRY(s->multi_label ? multi_label_count(files, samples, probability, s)
                       : exclusive_count(files, samples, probability, s));
    for (int c = 0; c < s->count; c++) {
        const ClassScore *one = &s->class[c];
        if (!one->samples) continue;
        with_samples++;
        s->recall += class_recall(one);
        s->precision += one->taken ? class_precision(one) : 0; /* 0 for a class that is never predicted */
        s->f1 += class_f1(one);
    }
    s->recall /= (double)with_samples;
    s->precision /= (double)with_samples;
    s->f1 /= (double)with_samples;
    return OK;
}

/* The first number of a row is average precision, which only images with any number of classes have. */
static void table_row(const Scores *s, const char *name, const double number[4], int64_t images, FILE *to)
{
    text_printf(to, "%-24.24s", name);
    for (int k = s->multi_label ? 0 : 1; k < 4; k++)
        fprintf(to, isfinite(number[k]) ? "  %9.4f" : "          -", number[k]);
    fprintf(to, "  %9" PRId64 "\n", images);
}

static void number_print(double value, FILE *to)
{
    if (isfinite(value)) fprintf(to, "%.6f", value);
    fputc(',', to);
}

/* A value that was not measured becomes an empty field. */
static void scores_csv(const Scores *s, FILE *to)
{
    char number[16];
    text_printf(to, "class,name,precision,recall,f1,images,predicted,right%s\n",
                s->multi_label ? ",average_precision" : "");
    for (int c = 0; c < s->count; c++) {
        const ClassScore *one = &s->class[c];
        fprintf(to, "%d,", c);
        csv_text(to, class_text(s->info, c, number));
        fputc(',', to);
        number_print(class_precision(one), to);
        number_print(class_recall(one), to);
        number_print(class_f1(one), to);
        fprintf(to, "%" PRId64 ",%" PRId64 ",%" PRId64, one->samples, one->taken, one->right);
        if (s->multi_label) fputc(',', to);
        if (s->multi_label && isfinite(one->average)) fprintf(to, "%.6f", one->average);
        fputc('\n', to);
    }
}

static json_t *scores_json(const Scores *s)
{
    char number[16];
    json_t *all = json_array();
    for (int c = 0; c < s->count; c++) {
        const ClassScore *one = &s->class[c];
        json_t *row =
            json_pack("{s:i, s:o, s:o, s:o, s:o, s:I}", "class", c, "name", json_text(class_text(s->info, c, number)),
                      "precision", json_finite(class_precision(one)), "recall", json_finite(class_recall(one)), "f1",
                      json_finite(class_f1(one)), "examples", (json_int_t)one->samples);
        if (s->multi_label) json_object_set_new(row, "average_precision", json_finite(one->average));
        json_array_append_new(all, row);
    }
    return all;
}

/* A row for each class, a column for each prediction. */
static void confusion_print(const Scores *s, FILE *to)
{
    char number[16];
    text_printf(to, "\n%-24s  predicted as, in the same order\n", "class");
    for (int label = 0; label < s->count; label++) {
        text_printf(to, "%-24.24s", class_text(s->info, label, number));
        for (int c = 0; c < s->count; c++) fprintf(to, " %6" PRId64, s->confusion[label * s->count + c]);
        fputc('\n', to);
    }
}

/* ---- files */

/* `path` receives the list of mistakes or, with `scores`, the scores of all classes. */
static Status file_write(const char *path, const JobFiles *files, const EvalSample *samples, const float *probability,
                         const Scores *scores)
{
    const ProgramConfig *program = &files->job.program;
    int64_t *ids = NULL, found = 0;
    Draft draft;
    if (!scores) TRY(mistakes_find(samples, source_info(files->test)->count, &ids, &found));
    Status st = draft_begin(&draft, path);
    if (st == OK && scores)
        scores_csv(scores, draft.to);
    else if (st == OK)
        mistakes_print(files->test, samples, program->multi_label ? probability : NULL, program->options.classes, ids,
                       found, draft.to);
    free(ids);
    TRY(st);
    return draft_replace(&draft, OK, NULL, path);
}

/* ---- calibration */

/* --calibrate: fit the temperature, apply it to the results and store it. `scores`: logarithms of probabilities, from here on
 * the probabilities of the temperature. */
static Status calibrate(const Options *o, JobFiles *files, const char *weights, EvalResult *result, EvalSample *samples,
                        float *scores, Calibration *made)
{
    int64_t count = source_info(files->test)->count, classes = files->job.program.options.classes;
    Calibration c = {.images = result->count, .loss[0] = result->loss};
    TRY(temperature_fit(samples, scores, count, classes, &c.temperature));
    c.error[0] = calibration_error(samples, count, c.bins[0]);
    for (int64_t i = 0; i < count; i++) {
        float *score = scores + i * classes;
        if (samples[i].label == LABEL_NONE) continue;
        double loss = temperature_apply_logs(c.temperature, score, classes, samples[i].label);
        samples[i].probability = score[samples[i].predicted];
        samples[i].loss = (float)loss;
        c.loss[1] += loss / (double)result->count;
    }
    c.error[1] = calibration_error(samples, count, c.bins[1]);
    result->loss = c.loss[1];
    files->job.temperature = c.temperature;
    *made = c;
    return files->job.node ? OK : calibration_write(o, weights, &c);
}

/* ---- the result */

/* A loss that is not finite becomes null, because JSON has no NaN. */
static Status result_json(const TrainJob *job, const EvalResult *result, int64_t skipped, const Scores *scores,
                          const Calibration *made)
{
    double count = (double)result->count;
    double exact = (double)result->correct[0] / count, second = (double)result->correct[1] / count;
    json_t *root = json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "examples", (json_int_t)result->count, "skipped",
                             (json_int_t)skipped, "loss", json_finite(result->loss), "mean_precision",
                             json_finite(scores->precision), "mean_recall", json_finite(scores->recall), "mean_f1",
                             json_finite(scores->f1), "classes", scores_json(scores));
    if (scores->multi_label) {
        json_object_set_new(root, "map", json_finite(result->mean_precision));
        json_object_set_new(root, "exact_match", json_finite(exact));
        json_object_set_new(root, "micro_f1", json_finite(scores->micro_f1));
        json_object_set_new(root, "hamming_loss", json_finite(scores->hamming));
    } else {
        json_object_set_new(root, "top1", json_finite(exact));
        json_object_set_new(root, "top5", top5_says(job) ? json_finite(second) : json_null());
        json_object_set_new(root, "calibration_error", json_finite(scores->calibration));
        if (scores->count == 2) json_object_set_new(root, "roc_auc", json_finite(scores->roc_auc));
        if (scores->count == 2) json_object_set_new(root, "average_precision", json_finite(scores->average_precision));
        json_t *confusion = scores->confusion ? json_array() : NULL;
        for (int label = 0; confusion && label < scores->count; label++)
            json_array_append_new(confusion, json_counts(scores->confusion + label * scores->count, scores->count));
        if (confusion) json_object_set_new(root, "confusion", confusion);
    }
    if (job->tta == TTA_FLIP) json_object_set_new(root, "tta", json_string("flip"));
    if (job->temperature > 0) json_object_set_new(root, "temperature", json_real(job->temperature));
    if (made) {
        json_object_set_new(root, "loss_before", json_finite(made->loss[0]));
        json_object_set_new(root, "calibration_error_before", json_finite(made->error[0]));
    }
    return json_emit(root, JSON_REAL_PRECISION(17), stdout);
}

static void result_print(const Options *o, const EvalResult *result, bool top5, const Scores *scores)
{
    double count = (double)result->count;
    if (scores->multi_label)
        printf("mAP = %.4f Exact match = %.4f F1 = %.4f Hamming loss = %.4f", result->mean_precision,
               (double)result->correct[0] / count, scores->micro_f1, scores->hamming);
    else
        printf("Accuracy @ 1 = %.4f", (double)result->correct[0] / count);
    if (top5 && !scores->multi_label) printf(" Accuracy @ 5 = %.4f", (double)result->correct[1] / count);
    printf(" Loss = %.5f [%" PRId64 " examples]\n", result->loss, result->count);
    if (o->quiet) return;
    Draft table;
    if (draft_begin(&table, "a table") != OK) return; /* the accuracy has been printed; omit it */
    FILE *to = table.to;
    char number[16];
    text_printf(to, "%-24s%s  %9s  %9s  %9s  %9s\n", "class", scores->multi_label ? "         AP" : "", "precision",
                "recall", "F1", "images");
    for (int c = 0; c < scores->count && scores->count <= CLASS_ROWS; c++) {
        const ClassScore *one = &scores->class[c];
        table_row(scores, class_text(scores->info, c, number),
                  (const double[]){one->average, class_precision(one), class_recall(one), class_f1(one)}, one->samples,
                  to);
    }
    table_row(scores, "mean over classes",
              (const double[]){result->mean_precision, scores->precision, scores->recall, scores->f1}, result->count,
              to);
    if (isfinite(scores->roc_auc))
        text_printf(to, "area under the ROC curve %.4f, average precision %.4f (class %s)\n", scores->roc_auc,
                    scores->average_precision, class_text(scores->info, 1, number));
    if (!scores->multi_label)
        text_printf(to, "balanced accuracy %.4f, calibration error %.4f\n", scores->recall, scores->calibration);
    if (scores->confusion && scores->count <= MATRIX_MOST) confusion_print(scores, to);
    if (draft_end(&table, OK) == OK) text_print(stdout, table.text);
    free(table.text);
    if (scores->count > CLASS_ROWS && !o->class_scores)
        fprintf(stderr, "--class-scores FILE writes the scores of all %d classes\n", scores->count);
}

/* To stdout, then --errors and --class-scores to their files, which may fail. `samples` [of the test set], `probability` [of
 * the test set][classes] or NULL, as eval_run gives them. `made`: by --calibrate, or NULL. */
static Status eval_print(const Options *o, const JobFiles *files, const EvalResult *result, const EvalSample *samples,
                         const float *probability, const Calibration *made)
{
    Scores scores;
    int64_t skipped = source_info(files->test)->count - result->count;
    TRY(scores_make(files, samples, probability, &scores));
    Status st = OK;
    if (skipped > 0) fprintf(stderr, "%" PRId64 " damaged images were skipped (--bad-samples)\n", skipped);
    if (o->json)
        TRY_OUT(result_json(&files->job, result, skipped, &scores, made));
    else
        result_print(o, result, top5_says(&files->job), &scores);
    if (made && !o->json)
        printf("temperature %.4f: calibration error %.4f before and %.4f after, loss %.5f before and %.5f after\n",
               made->temperature, made->error[0], made->error[1], made->loss[0], made->loss[1]);
    if (o->errors) TRY_OUT(file_write(o->errors, files, samples, probability, NULL));
    if (o->class_scores) TRY_OUT(file_write(o->class_scores, files, samples, probability, &scores));
out:
    free(scores.class);
    free(scores.confusion);
    return st;
}

/* ---- */

/* Whether both are one file, which need not exist yet. */
static bool is_one_name(const char *a, const char *b)
{
    const char *paths[] = {a, b}, *names[2];
    char folders[2][PATH_BYTES];
    for (int i = 0; i < 2; i++) {
        const char *slash = strrchr(paths[i], '/');
        names[i] = slash ? slash + 1 : paths[i];
        snprintf(folders[i], PATH_BYTES, "%.*s", slash ? (int)(names[i] - paths[i]) : 1, slash ? paths[i] : ".");
    }
    return is_same_file(a, b) || (!strcmp(names[0], names[1]) && is_same_file(folders[0], folders[1]));
}

/* Whether the weights were trained with whole images: that does not depend on the data that they are evaluated with. */
static Status crop_read(const Options *o, const char *weights, bool *whole)
{
    json_t *facts;
    TRY(facts_read(o, weights, &facts));
    const char *crop = json_word(facts, "crop");
    *whole = crop && !strcmp(crop, "whole");
    json_decref(facts);
    return OK;
}

/* --no-calibrate, as it was typed. */
static bool calibration_goes(const Options *o)
{
    return !o->calibrate && option_origin(o, "calibrate") == ORIGIN_COMMAND_LINE;
}

/* A network is surer of images that it has learned than of any others, so a temperature that was fitted to them says too much. */
static Status calibration_check(const Options *o, const JobFiles *files)
{
    json_t *facts;
    char own[33];
    TRY(facts_read(o, files->trained, &facts));
    const char *trained = json_word(facts, "data_fingerprint");
    fingerprint_text(files->test, own);
    bool learned = o->split == PART_TRAIN || (trained && !strcmp(trained, own));
    json_decref(facts);
    return learned ? FAIL(ERR_ARG,
                          "--calibrate: %s are the images that the network has learned, of which it is too sure: give "
                          "others, as those of --split val",
                          source_info(files->test)->name)
                   : OK;
}

Status eval_open(Options *options, JobFiles *files)
{
    TRY(run_argument_apply(options));
    if (!options->weights) return FAIL(ERR_ARG, "eval needs weights: use --weights RUN or --weights FILE");
    if (options->errors && options->class_scores && is_one_name(options->errors, options->class_scores))
        return FAIL(ERR_ARG, "--errors and --class-scores are both written to %s; name two files", options->errors);
    if (options->errors) TRY(result_file_check("--errors", options->errors, RESULT_MISTAKES, NULL));
    if (options->class_scores) TRY(result_file_check("--class-scores", options->class_scores, RESULT_SCORES, NULL));
    files->uncalibrates = calibration_goes(options);
    if ((options->calibrate || files->uncalibrates) && !calibration_run(options)) {
        const char *word = files->uncalibrates ? "--no-calibrate" : "--calibrate";
        return FAIL(ERR_ARG,
                    "%s is for a run, which stores a temperature, but '%s' is no folder of one; use towers eval RUN %s",
                    word, options->weights, word);
    }
    TRY(job_weights(options, options->weights, files->trained, sizeof files->trained));
    TRY(crop_read(options, files->trained, &files->whole));
    if (options->classes <= 0) option_settle_int(options, OPTION_ID_classes, trained_count(options, files->trained));
    TRY(job_open(options, 0, files));
    if (files->job.program.loss != LOSS_SOFTMAX) option_settle_flag(options, OPTION_ID_calibrate, false);
    if (options->calibrate) TRY(calibration_check(options, files));
    files->job.keep_logs = options->calibrate;
    files->job.keep_scores = options->calibrate || has_curves(&files->job.program);
    return OK;
}

/* Scores of answers that are not finite would be those of class 0. */
static Status answers_check(const JobFiles *files, const char *weights, const EvalResult *result,
                            const EvalSample *samples)
{
    int64_t images = source_info(files->test)->count, bad = 0, first = 0;
    char where[PATH_BYTES];
    for (int64_t i = images; i-- > 0;)
        if (samples[i].label != LABEL_NONE && !isfinite(samples[i].probability)) bad++, first = i;
    if (!bad && isfinite(result->loss)) return OK;
    if (!bad) return FAIL(ERR_NUMERIC, "the loss of '%s' is %g; use earlier weights", weights, result->loss);
    source_where(files->test, first, where, sizeof where);
    return FAIL(ERR_NUMERIC,
                "'%s' computes numbers that are not finite from %" PRId64 " of %" PRId64
                " images, the first of them %s; use earlier weights, or compute without --amp",
                weights, bad, result->count, where);
}

static Status evaluate(const Options *options, JobFiles *files, FILE *to)
{
    EvalResult result;
    Calibration made;
    char weights[4096];
    (void)to;
    TRY(job_weights(options, options->weights, weights, sizeof weights));
    if (options->cam && files->job.program.multi_label)
        return FAIL(ERR_ARG, "eval --cam is for images of one class each; for others, use towers predict --cam");
    files->job.program.maps = options->cam != NULL; /* a network without maps ends here, not after the evaluation */
    TRY(memory_check(&files->job));
    files->job.program.maps = false;
    if (options->cam && !files->job.node) TRY(directory_create(options->cam));
    TRY(eval_classes_note(files));
    eval_division_note(options, files);
    if (!options->quiet) {
        text_print(stderr, files->notes);
        if (!files->job.node) TRY(job_weights_say(&files->job, weights));
        eval_introduce(files);
    }
    if (files->uncalibrates) TRY(calibration_remove(options, weights));
    if (!options->calibrate && files->job.program.loss == LOSS_SOFTMAX)
        TRY(calibration_read(options, weights, &files->job.temperature));
    files->job.program.logits =
        files->job.tta != TTA_NONE || files->job.temperature > 0 || options->calibrate || options->errors;
    bool keeps = files->job.program.multi_label || files->job.keep_scores;
    size_t count = (size_t)source_info(files->test)->count, classes = (size_t)files->job.program.options.classes;
    EvalSample *samples = calloc(count, sizeof *samples);
    float *scores = keeps ? calloc(count * classes, sizeof *scores) : NULL;
    Status st = samples && (scores || !keeps)
                    ? eval_run(&files->job, weights, &result, samples, scores, &files->ending.signal)
                    : FAIL(ERR_MEMORY, "no memory for the predictions of the evaluation");
    if (st == OK && !result.count)
        st = FAIL(ERR_FORMAT, "%s: none of its %zu images can be decoded; towers data check says why",
                  source_info(files->test)->name, count);
    if (st == OK) st = answers_check(files, weights, &result, samples);
    if (st == OK && options->calibrate) st = calibrate(options, files, weights, &result, samples, scores, &made);
    if (st == OK) st = eval_print(options, files, &result, samples, scores, options->calibrate ? &made : NULL);
    if (st == OK && options->cam && !files->job.node) st = mistake_maps_write(options, files, weights, samples);
    free(scores);
    free(samples);
    return st;
}

/* A temperature is of certain weights, which a training that goes on replaces. */
static Status idle_run_take(const Options *o, int *lock)
{
    const char *run = calibration_run(o);
    if (!run_dir_taken(run)) return run_dir_take(run, lock);
    return FAIL(ERR_ARG,
                "--%scalibrate: %s is in use, by a training that goes on or another call, and its weights may change: "
                "wait for its end, or let it save and end by 'towers stop %s'; other evaluations need not wait",
                o->calibrate ? "" : "no-", run, run);
}

Status eval_command(const Options *options, JobFiles *files, FILE *to)
{
    int lock = -1;
    bool marks = options->calibrate || files->uncalibrates;
    if (marks && !files->job.node) TRY(idle_run_take(options, &lock));
    Status st = evaluate(options, files, to);
    run_dir_release(lock);
    return st;
}
