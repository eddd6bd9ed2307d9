/* The header of a run and the commands to run after it; see introduction.h. */
#include "towers/train/introduction.h"

#include "nccl_sync/hosts/control.h"
#include "towers/store/weights.h"
#include "towers/train/stopping.h"

enum { COUNT_TEXT = 32 };

/* 1234567 -> "1,234,567". */
static const char *count_text(int64_t count, char text[COUNT_TEXT])
{
    char digits[COUNT_TEXT];
    int length = snprintf(digits, sizeof digits, "%" PRId64, count), used = 0;
    for (int i = 0; i < length && used < COUNT_TEXT - 2; i++) {
        if (i > 0 && (length - i) % 3 == 0) text[used++] = ',';
        text[used++] = digits[i];
    }
    text[used] = 0;
    return text;
}

/* ---- model and data */

static Status params_count(const TrainJob *job, int64_t *all, int64_t *frozen)
{
    Layout *layout;
    *all = *frozen = 0;
    TRY(program_layout(&job->program, 1, &layout));
    for (int i = 0; i < layout->param_count; i++) {
        *all += (int64_t)layout->params[i].count;
        if (!layout->params[i].moves) *frozen += (int64_t)layout->params[i].count;
    }
    layout_destroy(layout);
    return OK;
}

static void data_print(const TrainJob *job, FILE *to)
{
    char text[COUNT_TEXT];
    const SourceInfo *train = source_info(job->train), *test = job->test ? source_info(job->test) : NULL;
    const char *path = job->data_path && strcmp(job->data_path, train->name) != 0 ? job->data_path : NULL;
    fprintf(to, "data           %s (%s%s%s): %s training", train->name, train->format, path ? ", " : "",
            path ? path : "", count_text(train->count, text));
    if (test) fprintf(to, " and %s evaluation", count_text(test->count, text));
    fputs(" images", to);
    if (train->h > 0) fprintf(to, ", %d x %d x %d", train->w, train->h, train->c);
    if (job->program.model->classes) fprintf(to, ", %d classes", train->classes);
    if (train->multi_label) fputs(", any number for an image", to);
    fputc('\n', to);
}

/* The largest class of training, and its part of what is evaluated. */
void guess_print(const TrainJob *job, FILE *to)
{
    const SourceInfo *train = source_info(job->train);
    const Source *evaluated = job->test ? job->test : job->train;
    if (job->program.model->phases || train->multi_label || train->classes < 2 || source_info(evaluated)->count == 0)
        return;
    int64_t *counts = calloc(2 * ((size_t)train->classes + 1), sizeof *counts),
            *evaluations = counts + train->classes + 1;
    int largest = 0;
    if (!counts || source_info(evaluated)->classes > train->classes) goto out;
    source_classes_count(job->train, counts);
    source_classes_count(evaluated, evaluations);
    for (int k = 1; k < train->classes; k++)
        if (counts[k] > counts[largest]) largest = k;
    double share = 100 * (double)evaluations[largest] / (double)source_info(evaluated)->count;
    text_printf(to, "guessing       %.3g %% are right if all %s images are taken for ", share,
                job->test ? "evaluation" : "training");
    if (train->class_names && train->class_names[largest] && *train->class_names[largest])
        text_printf(to, "%s, the largest class\n", train->class_names[largest]);
    else
        fprintf(to, "class %d, the largest\n", largest);
out:
    free(counts);
}

/* ---- towers and steps */

/* Whether --max-steps ends the run before its last epoch does. */
static bool is_cut(const TrainJob *job)
{
    return job_total_steps(job) < job->epochs * job_steps_per_epoch(job);
}

static void steps_print(const TrainJob *job, FILE *to)
{
    char text[COUNT_TEXT];
    int64_t per_epoch = job_steps_per_epoch(job), total = job_total_steps(job);
    fprintf(to, "steps          %s", count_text(total, text));
    if (is_cut(job))
        fprintf(to, " (--max-steps), %s per epoch\n", count_text(per_epoch, text));
    else
        fprintf(to, " = %" PRId64 " epoch%s of %s\n", job->epochs, job->epochs == 1 ? "" : "s",
                count_text(per_epoch, text));
}

/* "phases         critic 5, generator 1: 6 steps in a cycle; each update of the critic takes the next batch" */
static void phases_print(const TrainJob *job, FILE *to)
{
    int phases = program_phases(job->program.model);
    if (phases == 1) return;
    fputs("phases        ", to);
    for (int p = 0; p < phases; p++)
        fprintf(to, "%s %s %d", p ? "," : "", job_phase(job, p)->name, job_repeats(job, p));
    fprintf(to, ": %d steps in a cycle, %s\n", job_cycle(job),
            job->same_batch ? "with one batch of images" : "each with the next batch of images");
}

/* A network from a file may have been trained with another one. */
static void normalization_print(const Model *model, const ModelOptions *options, FILE *to)
{
    const float *mean = model_mean(model, options), *std = model_std(model, options);
    fprintf(to, "pixels         in [0, 1], minus");
    for (int i = 0; i < options->channels; i++) fprintf(to, "%s%.6g", i ? "," : " ", (double)mean[i]);
    fprintf(to, ", divided by");
    for (int i = 0; i < options->channels; i++) fprintf(to, "%s%.6g", i ? "," : " ", (double)std[i]);
    fputc('\n', to);
}

/* ---- the header */

Status introduction_print(const TrainJob *job, const char *device, const char *sums, FILE *to)
{
    char text[COUNT_TEXT];
    int64_t params, frozen;
    const ModelOptions *options = &job->program.options;
    TRY(params_count(job, &params, &frozen));
    fprintf(to, "model          %s%s%s, %s parameters", job->program.model->name, *options->variant ? " " : "",
            options->variant, count_text(params, text));
    if (frozen) fprintf(to, " (%s frozen)", count_text(frozen, text));
    fprintf(to, ", input %d x %d, %s%s\n", options->side, options->side, dtype_name(job->program.compute),
            job->device.tf32 ? " (TF32 products)" : "");
    if (job->program.model->file) normalization_print(job->program.model, options, to);
    if (job->initial_weights) fprintf(to, "weights        %s\n", job->initial_weights);
    data_print(job, to);
    guess_print(job, to);
    if (job->survey_lines) fputs(job->survey_lines, to);
    if (job->recipe) fprintf(to, "recipe         %s\n", job->recipe);
    const LocalBatches *local = &job->local_batches;
    bool equal = true;
    for (int t = 1; t < local->towers; t++) equal &= local->batch[t] == local->batch[0];
    fprintf(to, "towers         %d x batch ", local->towers);
    for (int t = 0; t < (equal ? 1 : local->towers); t++) fprintf(to, "%s%d", t ? "+" : "", local->batch[t]);
    fprintf(to, " = %" PRId64 " images per step", global_batch_of(local) * job->accumulate);
    if (job->accumulate > 1) fprintf(to, " (gradients of %d batches accumulated)", job->accumulate);
    fprintf(to, ", in %d process%s\n", job->processes, job->processes == 1 ? "" : "es");
    if (job->control) {
        fprintf(to, "hosts          ");
        for (int r = 0; r < control_ranks(job->control); r++)
            fprintf(to, "%s%s", r ? ", " : "", control_host(job->control, r));
        fprintf(to, "; ranks 0..%d from %s\n", control_ranks(job->control) - 1, job->launcher);
    }
    fprintf(to, "device         %s: %s%s%s\n", job->backend->name, device, *sums ? "; " : "", sums);
    steps_print(job, to);
    phases_print(job, to);
    stopping_print(job, to);
    fprintf(to, "run directory  %s\n", job->run_dir);
    return OK;
}

/* What lets a run train on that has ended by this rule, or after its last step. */
static const char *continuation(const TrainJob *job, EndingRule rule)
{
    static const char *const words[] = {[ENDS_BY_PATIENCE] = " and a larger --patience, or --patience 0",
                                        [ENDS_AT_STOP_EPOCH] = " and a larger --stop-epoch, or --stop-epoch 0"};
    if (rule == ENDS_AT_STOP_AT)
        return job->stopping.monitor == MONITOR_ACCURACY ? " and a higher --stop-at" : " and a lower --stop-at";
    if (rule != ENDS_AT_LAST_STEP) return words[rule];
    return is_cut(job) ? " and a larger --max-steps" : " and more --epochs";
}

void next_steps_print(const TrainJob *job, bool finished, EndingRule rule, FILE *to)
{
    ScheduleKind kind = job->schedule.kind;
    /* more steps would be those of another schedule */
    bool fixed_length = rule == ENDS_AT_LAST_STEP && (kind == SCHEDULE_COSINE || kind == SCHEDULE_POLYNOMIAL ||
                                                      kind == SCHEDULE_RISE_FALL || kind == SCHEDULE_ONE_CYCLE);
    Draft word;
    if (draft_begin(&word, "a word") != OK) return;
    text_shell(word.to, job->run_dir);
    const char *run = draft_end(&word, OK) == OK ? word.text : job->run_dir;
    if (finished) {
        if (job->program.model->generate)
            fprintf(to, "to generate:  towers generate %s -o samples.png\n", run);
        else
            fprintf(to, "to evaluate:  towers eval %s\n", run);
        fprintf(to, "to export:    towers export %s model.onnx\n", run);
        fprintf(to, "to compare:   towers compare %s OTHER_RUN\n", run);
    }
    if (!finished || !fixed_length)
        fprintf(to, "to continue:  the same command with --resume %s%s\n", run,
                finished ? continuation(job, rule) : "");
    free(word.text);
}
