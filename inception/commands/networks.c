/* Opening the generator of a run and the classifier of --features. */
#include "inception/commands/networks.h"

#include "inception/job/cores.h"
#include "inception/job/run_argument.h"
#include "inception/models/models.h"
#include "inception/options/config.h"
#include "towers/store/pretrained.h"

enum { FID_CLASSES = 1008 /* outputs of pt_inception-2015-12-05 */ };

Status networks_device(const TrainJob *job, Device *device)
{
    DeviceConfig config = job_device(job, 0);
    config.threads = job->device.threads > 1 ? job->device.threads : cores_allowed();
    return job->backend->open(&config, device);
}

/* ---- the generator */

Status generator_find(Options *o, JobFiles *files, char weights[PATH_BYTES])
{
    const char *given = o->argument_count ? o->arguments[0] : "";
    TRY(run_argument_apply(o));
    TRY(job_model(o, files));
    const Model *model = files->job.program.model;
    bool run = strcmp(given, model->name) != 0;
    if (!model->generate)
        return FAIL(ERR_ARG, "%s%s%s%s is a classifier and generates no images; give a run of a model with a generator",
                    run ? given : "", run ? ", a run of " : "", model->name, run ? "," : "");
    if (!o->weights)
        return FAIL(ERR_ARG, "towers %s needs weights: use RUN, or %s with --weights FILE", verb_info(o->verb)->name,
                    model->name);
    return job_weights(o, o->weights, weights, PATH_BYTES);
}

Status generator_load(const TrainJob *job, const char *weights, Device *device, int32_t batch, Generator *generator)
{
    SafeTensors *file;
    TRY(weights_open(weights, &file));
    NetworkWeights from = {.file = file, .path = weights};
    ModelOptions options = job->program.options;
    options.channels = file_channels(file, job->program.model);
    Status st = generator_open(job->program.model, &options, &from, device, batch, generator);
    safetensors_close(file);
    return st;
}

/* ---- the classifier */

/* The image size and variant of a run, from its args.yaml; nothing for a file. */
static Status run_options(const char *given, ModelOptions *options)
{
    char path[PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    Options run;
    struct stat info;
    if (stat(given, &info) != 0 || !S_ISDIR(info.st_mode)) return OK;
    TRY(path_join(path, given, "args.yaml"));
    if (access(path, F_OK) != 0) return OK; /* a checkpoint */
    TRY(config_load(path, &text, &bytes));
    options_init(&run);
    run.verb = VERB_EVAL;
    Status st = options_apply_bytes(&run, text, bytes, ORIGIN_RUN, path);
    if (st == OK && run.img_size > 0) options->side = (int32_t)run.img_size;
    options_close(&run);
    free(text);
    return st;
}

static Status model_of_file(const SafeTensors *file, const char *path, const Model **model, const char **variant)
{
    const char *name = safetensors_metadata(file, "model");
    if (name) {
        TRY(model_find(name, model));
        const ModelVariant *form = model_variant(*model, safetensors_metadata(file, "variant"));
        *variant = form ? form->name : "";
        return OK;
    }
    if (head_classes(file, "fc.") != FID_CLASSES)
        return FAIL(ERR_CHECKPOINT,
                    "%s does not say which model its weights belong to; expected a file of this program, or the "
                    "converted weights pt_inception-2015-12-05 with fc.weight of %d rows",
                    path, FID_CLASSES);
    *model = &model_inception_v3;
    *variant = "fid2015";
    return OK;
}

Status classifier_find(const char *given, FeatureConfig *config, char weights[PATH_BYTES])
{
    Status st = OK;
    SafeTensors *file = NULL;
    HeadNames heads;
    const Model *model;
    const char *variant;
    *config = (FeatureConfig){.weights = weights};
    TRY(job_weights(NULL, given, weights, PATH_BYTES));
    TRY_OUT(weights_open(weights, &file));
    TRY_OUT(model_of_file(file, weights, &model, &variant));
    if (!model->build)
        TRY_OUT(FAIL(ERR_ARG, "--features %s: %s has a generator, but features need a classifier", given, model->name));
    config->model = model;
    config->options = (ModelOptions){.classes = model->classes,
                                     .side = model->side,
                                     .channels = model->adapts ? file_channels(file, model) : model->channels,
                                     .variant = variant};
    TRY_OUT(run_options(given, &config->options));
    ProgramConfig program = {.model = model, .options = config->options, .data_channels = config->options.channels};
    program.canvas = model->side;
    TRY_OUT(head_names(&program, &heads));
    int classes = heads.count ? head_classes(file, heads.classifier[0]) : 0;
    if (classes) config->options.classes = classes;
out:
    safetensors_close(file);
    return st;
}
