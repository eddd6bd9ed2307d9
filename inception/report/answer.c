/* The sentences of the paragraph; see answer.h. */
#include "inception/report/answer.h"

#include "inception/report/class_scores.h"
#include "inception/report/run_difference.h"
#include "inception/report/runs.h"
#include "towers/files/files.h"
#include "towers/files/json.h"
#include "towers/files/utf8.h"

enum { WEAKEST = 3 };

const char *class_name(const json_t *environment, const Run *run, int class, char text[CLASS_NAME_BYTES])
{
    const json_t *names = json_object_get(environment, "class_names");
    const char *name = json_string_value(json_array_get(names, (size_t) class));
    if (name && *name && (!run->classes || json_array_size(names) == (size_t)run->classes))
        utf8_escape(text, CLASS_NAME_BYTES, name);
    else
        snprintf(text, CLASS_NAME_BYTES, "class %d", class);
    return text;
}

static const char *plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

/* ---- accuracy */

static void accuracy_sentence(const Run *run, const Advice *advice, Text *answer)
{
    const EpochRecord *best = run_best_epoch(run);
    const char *score = run->multi_label ? "mean average precision" : "test accuracy";
    if (!best) {
        if (!run->phase) text_add(answer, "The run has no evaluation, so its accuracy is not known. ");
        return;
    }
    text_add(answer, "The %s is %.2f %%", score, 100 * best->test_top1);
    if (advice->images &&
        fabs((double)advice->right - best->test_top1 * (double)advice->images) < 1) { /* not of other weights */
        Estimate share = share_estimate(advice->right, advice->images);
        text_add(answer,
                 " of %" PRId64
                 " images (95 %% interval %.1f to %.1f %%; always naming the most frequent class: %.1f %%)",
                 advice->images, 100 * share.low, 100 * share.high,
                 100 * (double)advice->most_images / (double)advice->images);
    }
    if (run->epochs > 1)
        text_add(answer, ", with the weights of epoch %" PRId64 " of %" PRId64, best->epoch,
                 run->epoch[run->epochs - 1].epoch);
    text_add(answer, ". ");
}

/* The change from the evaluation before to the last one; too few of them have no trend. */
static void few_sentence(const Run *run, const Trend *trend, Text *answer)
{
    const EpochRecord *last = run_last_test(run), *before = NULL;
    for (const EpochRecord *e = run->epoch; e < last; e++)
        if (isfinite(e->test_top1)) before = e;
    if (before)
        text_add(answer,
                 "From the evaluation before to the last one it went from %.2f to %.2f %%; %" PRId64
                 " evaluations are too few to say whether it still rises. ",
                 100 * before->test_top1, 100 * last->test_top1, trend->evaluations);
}

static void trend_sentence(const Run *run, const Trend *trend, Text *answer)
{
    if (!trend->evaluations) return;
    if (trend->evaluations < TREND_LEAST) {
        few_sentence(run, trend, answer);
        return;
    }
    if (trend->up < DIFFERENCE_LEVEL)
        text_add(answer, "It still rises%s, by %.2f points from an evaluation to the next",
                 trend->rate_kept < RATE_FALLEN ? " while the learning rate falls" : "", 100 * trend->slope);
    else if (trend->down < DIFFERENCE_LEVEL)
        text_add(answer, "It falls, by %.2f points from an evaluation to the next", -100 * trend->slope);
    else
        text_add(answer, "It no longer clearly rises");
    text_add(answer, " (over the last %" PRId64 " evaluations). ", trend->used);
}

static void loss_sentence(const Run *run, Text *answer)
{
    double first = ABSENT, last = steps_mean(run, run->steps > 50 ? run->steps - 50 : 0, offsetof(RunStep, mean_loss));
    for (int64_t i = 0; i < run->steps && !isfinite(first); i++) first = run->step[i].mean_loss;
    if (isfinite(first) && isfinite(last))
        text_add(answer, "%s went from %.4g to %.4g in %" PRId64 " step%s. ",
                 run->phase ? "The loss of its first phase" : "The training loss", first, last,
                 run->step[run->steps - 1].step, plural(run->step[run->steps - 1].step));
}

/* Of a run that generates images. */
static void kid_sentence(const Run *run, Text *answer)
{
    const RunKid *last = run_last_kid(run);
    if (!run->phase) return;
    if (!last) {
        text_add(answer, "The generated images were not measured; --features CLASSIFIER measures them by KID. ");
        return;
    }
    text_add(answer, "The KID of the generated images is %.4g after step %" PRId64, last->kid, last->step);
    if (run->kids > 1) text_add(answer, ", from %.4g at first", run->kid[0].kid);
    text_add(answer, "; lower is closer to the training images. ");
}

/* ---- classes */

/* Whether the class is recognized less often than all others together, so clearly that chance shows no such class of all in most
 * runs. */
static bool is_weak(const Run *run, const Advice *advice, const ClassScore *s)
{
    Estimate gap = share_difference(s->right, s->samples, advice->right - s->right, advice->images - s->samples);
    return gap.mean < 0 && gap.p < DIFFERENCE_LEVEL / run->classes;
}

/* "Shirt (64.90 % of 1000, mostly taken for Coat)" */
static void weak_class(const Run *run, const json_t *environment, const ClassScore *s, Text *answer)
{
    char name[CLASS_NAME_BYTES];
    int most = -1;
    const int64_t *row = run->confusion + (int64_t)s->class * run->classes;
    for (int c = 0; c < run->classes; c++)
        if (c != s->class && row[c] && (most < 0 || row[c] > row[most])) most = c;
    text_add(answer, "%s (%.1f %% of %" PRId64, class_name(environment, run, s->class, name), 100 * class_recall(s),
             s->samples);
    if (most >= 0)
        text_add(answer, ", most often taken for %s: %" PRId64 " time%s", class_name(environment, run, most, name),
                 row[most], plural(row[most]));
    text_add(answer, ")");
}

static void classes_sentence(const Run *run, const json_t *environment, const Advice *advice, Text *answer)
{
    int n = run->classes, rows = 0, weak = 0;
    ClassScore *row = n > 1 ? calloc((size_t)n, sizeof *row) : NULL;
    if (!row) return;
    for (int c = 0; c < n; c++) {
        row[rows] = class_score(run, c);
        rows += row[rows].samples > 0;
    }
    class_scores_sort(row, rows);
    while (weak < WEAKEST && weak < rows && is_weak(run, advice, &row[weak])) weak++;
    if (weak) text_add(answer, weak == 1 ? "The weakest class is " : "The weakest classes are ");
    for (int i = 0; i < weak; i++) {
        text_add(answer, i == 0 ? "" : i == weak - 1 ? " and " : ", ");
        weak_class(run, environment, &row[i], answer);
    }
    text_add(answer, weak ? ". " : rows > 1 ? "No class is clearly weaker than the others. " : "");
    free(row);
}

/* ---- damage */

static void damage_sentence(const Run *whole, const Advice *advice, Text *answer)
{
    const RunStep *first = advice->first_damaged;
    if (!first) {
        text_add(answer, "No step was damaged. ");
    } else {
        bool loss = is_not_finite(first->mean_loss), some = false;
        int tower = 0;
        for (int t = whole->towers - 1; t >= 0; t--)
            if (!first->finite[t]) tower = t, some = true;
        text_add(answer, "%s%" PRId64 " of %" PRId64 " steps %s damaged, first step %" PRId64,
                 whole->rows > whole->steps ? "At least " : "", advice->damaged, whole->step[whole->steps - 1].step,
                 advice->damaged == 1 ? "was" : "were", first->step);
        if (some || loss) text_add(answer, ", whose loss or gradient was not finite");
        if (some && whole->towers > 1) text_add(answer, " in tower %d", tower);
        text_add(answer, first->skipped ? "; it was refused and changed no weight. " : "; the weights have taken it. ");
    }
    if (advice->overflows)
        text_add(answer, "%" PRId64 " step%s overflowed in fp16 and %s left out. ", advice->overflows,
                 plural(advice->overflows), advice->overflows == 1 ? "was" : "were");
}

/* ---- advice */

/* The capsule of the first damaged step, if the run has one. */
static void damaged_advice(const Run *run, const Advice *advice, Text *answer)
{
    char name[96], path[PATH_BYTES];
    const RunStep *first = advice->first_damaged;
    for (int t = 0; t < run->towers; t++) {
        snprintf(name, sizeof name, "nan-step-%" PRId64 "-tower-%d", first->step, t);
        if (path_join(path, run->path, name) != OK || access(path, R_OK) != 0) continue;
        text_add(answer, "find out where it began: towers replay %s.", path);
        return;
    }
    if (run_has(run, "nan-check", "off") || run_has(run, "nan-check", "last"))
        text_add(answer, "train with --nan-check all, which refuses such a step and keeps it for towers replay.");
    else
        text_add(answer, "a lower --lr, or --clip-norm 1.");
}

static void overfits_advice(const Run *run, Text *answer)
{
    const EpochRecord *last = run_last_test(run), *best = last;
    for (const EpochRecord *e = run->epoch; e < last; e++)
        if (isfinite(e->test_loss) && e->test_loss < best->test_loss) best = e;
    text_add(answer,
             "it overfits, as the test loss has risen from %.3g in epoch %" PRId64
             " to %.3g while the training loss fell: ",
             best->test_loss, best->epoch, last->test_loss);
    if (run_has(run, "augment", "false") && run_has(run, "auto-augment", "none"))
        text_add(answer, "--augment, or more images.");
    else if (run_has(run, "mixup", "0"))
        text_add(answer, "--mixup 0.2, or more images.");
    else
        text_add(answer, "a larger --weight-decay, or more images.");
}

static void advice_sentence(const Run *run, const Advice *advice, Text *answer)
{
    const Balance *b = &advice->balance;
    const Trend *t = &advice->trend;
    switch (advice->kind) {
    case ADVICE_NONE: break;
    case ADVICE_DAMAGED: damaged_advice(run, advice, answer); break;
    case ADVICE_LEARNED_NOTHING:
        text_add(answer, "another rate, which --lr auto looks for, as the network has learned nothing that shows.");
        break;
    case ADVICE_FEW_IMAGES:
        text_add(answer, "more images for evaluation, as %" PRId64 " are too few to tell this from guessing.",
                 advice->images);
        break;
    case ADVICE_RATE:
        text_add(answer, "a lower --lr, as the training loss rose from %.3g to %.3g within the run.",
                 advice->best_tenth, advice->last_tenth);
        break;
    case ADVICE_OVERFITS: overfits_advice(run, answer); break;
    case ADVICE_UNBALANCED:
        text_add(answer,
                 "--class-weights auto, as classes with few training images are recognized less often (%.1f %% of "
                 "their test images, %.1f %% of the others).",
                 100 * (double)b->rare_right / (double)b->rare, 100 * (double)b->others_right / (double)b->others);
        break;
    case ADVICE_SHORT:
        text_add(answer, "more --epochs, as %s rose to the end.", run->multi_label ? "precision" : "accuracy");
        break;
    case ADVICE_FEW:
        text_add(answer,
                 t->evaluations ? "at least %d evaluations, which show where accuracy leads."
                                : "a run that is evaluated, at least %d times.",
                 TREND_LEAST);
        break;
    case ADVICE_NOTHING: text_add(answer, "nothing stands out in the records."); break;
    }
}

void answer_make(const Run *run, const Run *whole, const json_t *environment, const Advice *advice, RunAnswer *answer)
{
    Text found = text_start(answer->found, ANSWER_BYTES), next = text_start(answer->next, ANSWER_BYTES);
    accuracy_sentence(run, advice, &found);
    trend_sentence(run, &advice->trend, &found);
    kid_sentence(run, &found);
    if (!advice->trend.evaluations) loss_sentence(run, &found);
    if (advice->images) classes_sentence(run, environment, advice, &found);
    damage_sentence(whole, advice, &found);
    advice_sentence(run, advice, &next);
}
