/* A trained classifier; see classifier.h. */
#include "inception/library/classifier.h"

#include "inception/job/calibration.h"
#include "inception/job/facts.h"
#include "inception/job/run_argument.h"
#include "inception/job/transforms.h"
#include "inception/options/settle.h"
#include "kernels/base/cores.h"
#include "towers/files/json.h"

/* ---- what is known of the classes and the images */

/* `own`: the weights are those of the run whose names are known; other weights know their own classes, or none. */
static Status facts_take(Options *o, const char *weights, bool own, Classifier *c)
{
    json_t *facts;
    TRY(facts_read(o, weights, &facts));
    const char *crop = json_word(facts, "crop"), *multi_label = json_word(facts, "several_classes"),
               *classes = json_word(facts, "classes");
    json_t *names = json_object_get(facts, "class_names");
    if (names || !own) {
        json_decref(c->names);
        c->names = json_incref(names);
    }
    if (crop) c->photos = strcmp(crop, "whole") != 0;
    if (multi_label) c->multi_label = !strcmp(multi_label, "true");
    if (o->classes <= 0 && classes) option_settle_int(o, OPTION_ID_classes, strtoll(classes, NULL, 10));
    if (o->classes <= 0) option_settle_int(o, OPTION_ID_classes, (int64_t)json_array_size(c->names));
    json_decref(facts);
    return OK;
}

/* Class names and the kind of data of a run, from RUN/env.json. */
static void environment_take(Options *o, Classifier *c)
{
    struct stat info;
    const char *run = o->arguments[0];
    c->photos = true;
    if (stat(run, &info) != 0 || !S_ISDIR(info.st_mode)) return;
    json_t *root = json_of_run(run, "env.json");
    json_t *names = json_object_get(root, "class_names");
    const char *format = json_word(root, "data_format");
    int64_t classes = json_whole(root, "classes");
    if (json_is_array(names) && json_array_size(names) > 0) c->names = json_incref(names);
    c->multi_label = json_is_true(json_object_get(root, "several_classes"));
    if (format) c->photos = strcmp(format, "IDX") != 0 && strcmp(format, "generated") != 0;
    if (o->classes <= 0)
        option_settle_int(o, OPTION_ID_classes, classes > 0 ? classes : (int64_t)json_array_size(c->names));
    json_decref(root);
}

Status classifier_open(Options *o, JobFiles *files, Classifier *c)
{
    *c = (Classifier){.files = files};
    bool own = !o->weights;
    environment_take(o, c);
    TRY(run_argument_apply(o));
    if (!o->weights) return FAIL(ERR_ARG, "predict needs weights: towers predict RUN, or MODEL with --weights FILE");
    TRY(job_weights(o, o->weights, c->weights, sizeof c->weights));
    TRY(facts_take(o, c->weights, own, c));
    TRY(job_model(o, files));
    job_transforms(o, &files->job, c->photos);
    if (files->job.program.loss == LOSS_SOFTMAX) TRY(calibration_read(o, c->weights, &files->job.temperature));
    return OK;
}

/* ---- the network */

Status classifier_load(const Options *o, int32_t channels, const int32_t *sizes, Classifier *c)
{
    TrainJob *job = &c->files->job;
    TRY(job_channels(o, job, channels));
    job->data.eval.gray = job->program.options.channels < channels; /* it learned from gray images */
    if (job->data.eval.gray) job->program.data_channels = 1;
    ReplicaConfig config = {
        .backend = job->backend, .device = job_device(job, 0), .program = job->program, .local = 1, .eval_n = sizes};
    config.device.threads = o->threads > 0 ? (int)o->threads : cores_allowed();
    TRY(replica_create(&config, &c->replica));
    return inference_weights(c->replica, &job->program, c->weights, job->reset_head ? HEAD_RESET : HEAD_READ);
}

/* No probability of a damaged network is passed on as if it were one. */
static Status answers_check(const Classifier *c, const Source *source, const Inferred *found)
{
    int64_t classes = c->files->job.program.options.classes;
    char where[PATH_BYTES];
    for (int32_t i = 0; i < found->batch.n; i++)
        for (int64_t k = 0; found->batch.labels[i] != LABEL_NONE && k < classes; k++)
            if (!isfinite(found->prob[i * found->pitch + k])) {
                source_where(source, found->batch.ids[i], where, sizeof where);
                return FAIL(ERR_NUMERIC,
                            "'%s' computes numbers that are not finite from %s: probability %" PRId64
                            " is %g; use earlier weights, or compute without --amp",
                            c->weights, where, k, (double)found->prob[i * found->pitch + k]);
            }
    return OK;
}

static Status result_take(const Classifier *c, Inference *inference, const Source *source, InferredTake take,
                          void *context)
{
    const Inferred *found;
    TRY(inference_end(inference, &found));
    TRY(answers_check(c, source, found));
    return take(context, found);
}

Status classifier_run(const Classifier *c, const Source *source, int32_t batch, int workers, InferredTake take,
                      void *context)
{
    Status st = OK;
    Loader *loader = NULL;
    Inference *inference = NULL;
    const TrainJob *job = &c->files->job;
    int64_t count = source_info(source)->count;
    LoaderConfig config = {.source = source,
                           .local_batches = {.towers = 1, .batch = &batch},
                           .local = 1,
                           .targets = job->program.targets ? job_targets(job, false) : (TargetRule){0},
                           .transform = job_transform(job, false),
                           .bad = BAD_SKIP,
                           .workers = workers,
                           .depth = 4};
    config.max_steps = steps_per_epoch_of(&config.local_batches, count);
    TRY_OUT(loader_create(&config, &loader));
    TRY_OUT(inference_open(c->replica, loader, true, job->tta, job->temperature, &inference));
    for (int64_t done = 0; done < count;) {
        const Batch *next;
        TRY_OUT(loader_next(loader, &next));
        TRY_OUT(inference_begin(inference, next));
        done += next->n;
        if (inference_pending(inference) <= inference_ahead(inference)) continue;
        TRY_OUT(result_take(c, inference, source, take, context));
    }
    while (inference_pending(inference)) TRY_OUT(result_take(c, inference, source, take, context));
out:
    inference_close(inference);
    loader_destroy(loader);
    return st;
}

void classifier_close(Classifier *c)
{
    replica_destroy(c->replica);
    json_decref(c->names);
    *c = (Classifier){0};
}
