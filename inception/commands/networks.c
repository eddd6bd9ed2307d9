/* Opening the generator of a run and the classifier of --features. */
#include "inception/commands/networks.h"

#include "inception/job/facts.h"
#include "inception/job/named_model.h"
#include "inception/job/run_argument.h"
#include "inception/models/models.h"
#include "inception/options/values.h"
#include "kernels/base/cores.h"
#include "towers/store/pretrained.h"

enum { FID_CLASSES = 1008 /* outputs of pt_inception-2015-12-05 */, SIDE_MAX = 4096 };

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
        return FAIL(ERR_ARG, "towers %s needs weights: use RUN, or %s with --weights FILE", options_command(o),
                    model->name);
    return job_weights(o, o->weights, weights, PATH_BYTES);
}

Status generator_load(const TrainJob *job, const char *weights, Device *device, int32_t batch, Generator *generator)
{
    SafeTensors *file;
    TRY(weights_open(weights, &file));
    NetworkWeights from = {.file = file, .path = weights};
    ModelOptions options = job->program.options;
    options.channels = file_channels(file, &job->program);
    Status st = generator_open(job->program.model, &options, &from, device, batch, generator);
    safetensors_close(file);
    return st;
}

/* ---- the classifier */

/* Size and normalization of its input, as far as the file says them. */
static Status input_of_file(const SafeTensors *file, const char *path, ModelOptions *options)
{
    const char *text = safetensors_metadata(file, "img_size"), *mean = safetensors_metadata(file, "mean"),
               *std = safetensors_metadata(file, "std");
    int64_t side = options->side;
    if (text && (text_to_int(text, &side) != VALUE_OK || side < 1 || side > SIDE_MAX))
        return FAIL(ERR_CHECKPOINT, "%s: the metadata img_size is '%s'; expected 1 to %d", path, text, SIDE_MAX);
    options->side = (int32_t)side;
    if (!mean || !std) return OK;
    TRY(channels_parse("the metadata mean", mean, -10, options->mean));
    return channels_parse("the metadata std", std, 1e-6, options->std);
}

/* The program that has the names of a classifier's weights. */
static ProgramConfig classifier_program(const Model *model, const char *variant)
{
    const ModelOptions options = {
        .classes = model->classes, .side = model->side, .channels = model->channels, .variant = variant};
    return (ProgramConfig){
        .model = model, .options = options, .data_channels = options.channels, .canvas = model->side};
}

static Status model_of_file(SafeTensors *file, const char *path, const Model **model, const char **variant)
{
    const char *name = safetensors_metadata(file, "model");
    if (name) {
        TRY(model_of_weights(name, path, model));
        const ModelVariant *form = model_variant(*model, safetensors_metadata(file, "variant"));
        *variant = form ? form->name : "";
        return OK;
    }
    WeightPart part;
    const ProgramConfig fid = classifier_program(&model_inception_v3, "fid2015");
    TRY(pretrained_narrow(&fid, HEAD_READ, path, file, &part));
    if (head_classes(file, "fc.weight") != FID_CLASSES)
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
    ProgramConfig program = classifier_program(model, variant);
    WeightPart part;
    TRY_OUT(pretrained_narrow(&program, HEAD_READ, weights, file, &part));
    config->model = model;
    config->options = program.options;
    if (model->adapts) config->options.channels = file_channels(file, &program);
    TRY_OUT(input_of_file(file, weights, &config->options));
    TRY_OUT(head_names(&program, &heads));
    int classes = heads.count ? head_classes(file, heads.weight[0]) : 0;
    if (classes) config->options.classes = classes;
out:
    safetensors_close(file);
    return st;
}
