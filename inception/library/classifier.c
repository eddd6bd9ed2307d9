/* A trained classifier; see classifier.h. */
#include "inception/library/classifier.h"

#include "inception/job/calibration.h"
#include "inception/job/cores.h"
#include "inception/job/facts.h"
#include "inception/job/run_argument.h"
#include "towers/files/json.h"

/* ---- what is known of the classes and the images */

static Status facts_take(Options *o, const char *weights, Classifier *c)
{
    json_t *facts;
    TRY(facts_read(o, weights, &facts));
    const char *crop = json_word(facts, "crop"), *several = json_word(facts, "several_classes"),
               *classes = json_word(facts, "classes");
    if (!c->names) c->names = json_incref(json_object_get(facts, "class_names"));
    if (crop) c->photos = strcmp(crop, "whole") != 0;
    if (several) c->several = !strcmp(several, "true");
    if (o->classes <= 0 && classes) o->classes = strtoll(classes, NULL, 10);
    if (o->classes <= 0) o->classes = (int64_t)json_array_size(c->names);
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
    c->several = json_is_true(json_object_get(root, "several_classes"));
    if (format) c->photos = strcmp(format, "IDX") != 0 && strcmp(format, "generated") != 0;
    if (o->classes <= 0) o->classes = classes > 0 ? classes : c->names ? (int64_t)json_array_size(c->names) : 0;
    json_decref(root);
}

Status classifier_open(Options *o, JobFiles *files, Classifier *c)
{
    *c = (Classifier){.files = files};
    environment_take(o, c);
    TRY(run_argument_apply(o));
    if (!o->weights) return FAIL(ERR_ARG, "predict needs weights: towers predict RUN, or MODEL with --weights FILE");
    TRY(job_weights(o, o->weights, c->weights, sizeof c->weights));
    TRY(facts_take(o, c->weights, c));
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
    ReplicaConfig config = {.backend = job->backend, .device = job_device(job, 0), .program = job->program, .local = 1};
    config.device.threads = o->threads > 0 ? (int)o->threads : cores_allowed();
    for (int i = 0; sizes[i]; i++) config.eval_n[i] = sizes[i];
    TRY(replica_create(&config, &c->replica));
    return inference_weights(c->replica, &job->program, c->weights);
}

Status classifier_run(const Classifier *c, const Source *source, int32_t batch, int workers, InferredTake take,
                      void *context)
{
    Status st = OK;
    Loader *loader = NULL;
    Inference *inference = NULL;
    const TrainJob *job = &c->files->job;
    const Inferred *found;
    int64_t count = source_info(source)->count;
    LoaderConfig config = {.source = source,
                           .shares = {.towers = 1, .batch = {batch}},
                           .local = 1,
                           .targets = job->program.targets ? job_targets(job, false) : (TargetRule){0},
                           .transform = job_transform(job, false),
                           .bad = BAD_SKIP,
                           .workers = workers,
                           .depth = 4};
    config.max_steps = shares_steps_per_epoch(&config.shares, count);
    TRY_OUT(loader_create(&config, &loader));
    TRY_OUT(inference_open(c->replica, loader, true, job->tta, job->temperature, &inference));
    for (int64_t done = 0; done < count;) {
        const Batch *next;
        TRY_OUT(loader_next(loader, &next));
        TRY_OUT(inference_begin(inference, next));
        done += next->n;
        if (inference_pending(inference) <= inference_ahead(inference)) continue;
        TRY_OUT(inference_end(inference, &found));
        TRY_OUT(take(context, found));
    }
    while (inference_pending(inference)) {
        TRY_OUT(inference_end(inference, &found));
        TRY_OUT(take(context, found));
    }
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
