/* Resolving options; see resolve.h. */
#include "inception/job/resolve.h"

#include "inception/job/cached_weights.h"
#include "inception/job/facts.h"
#include "inception/job/named_model.h"
#include "inception/job/notes.h"
#include "inception/job/own_network.h"
#include "inception/job/remote_data.h"
#include "inception/options/conditions.h"
#include "inception/options/recipe.h"
#include "inception/options/settle.h"
#include "towers/data/loading/fold.h"
#include "towers/guard/batch_max.h"

/* ---- the recipe and the orientation of photos */

/* The training photos, if they are encoded images of any size: "few" for a default recipe. None, too, of data that
 * cannot be opened, which job_data_open reports. */
typedef enum TrainingPhotos { PHOTOS_NONE, PHOTOS_FEW, PHOTOS_MANY } TrainingPhotos;

static TrainingPhotos training_photos(const Options *o, const JobFiles *files, const char *path, const Model *model)
{
    Source *train;
    SourceConfig config = job_source(o, files, path, model);
    config.whole = o->fold || !model->classes;
    config.group = o->fold_group && !fold_folder(o->fold_group) ? o->fold_group : NULL;
    if (!path || o->dataset == DATASET_SYNTHETIC || source_open(&config, SPLIT_TRAIN, &train) != OK) return PHOTOS_NONE;
    const SourceInfo *info = source_info(train);
    TrainingPhotos found = info->h ? PHOTOS_NONE : job_set_is_small(info) ? PHOTOS_FEW : PHOTOS_MANY;
    source_close(train);
    return found;
}

/* Whoever names a recipe asks for what it reproduces; without one, photos are turned upright, as the default recipes do. */
static Status upright_choose(Options *o)
{
    return options_apply_yaml(o, "exif: true\n", ORIGIN_DEFAULT_RECIPE, "pictures without a recipe");
}

/* A resumed run has the settings that it began with, and who chooses the optimizer chooses the rest, too; but all photos are turned
 * upright (--exif) if no recipe is named. */
static Status default_recipe_choose(Options *o, const Model *model, JobFiles *files)
{
    const char *name = o->pretrained ? "finetune" : "photos";
    const char *path;
    if (options_use(o) != USE_LEARN || o->recipe || job_resumes(files)) return OK;
    TRY(job_data_here(o, files, &path));
    TrainingPhotos photos = training_photos(o, files, path, model);
    if (photos == PHOTOS_NONE) return OK;
    if (photos == PHOTOS_MANY || model->classes == 0) return upright_choose(o);
    if (option_origin(o, "opt") < ORIGIN_RUN) {
        settled_note(files, "recipe %s, the default for a small set of pictures; without: --recipe none", name);
        return recipe_choose(o, name);
    }
    job_note(files, "no recipe, because the optimizer is given; to override single settings of one: --recipe %s", name);
    return upright_choose(o);
}

/* "exif" of the record that a conversion has left in its folder: its files have no orientation any more, so that later photos must be
 * turned as these were, unless --exif is given. */
static Status converted_follow(Options *o, JobFiles *files)
{
    char path[PATH_BYTES];
    const char *data;
    if (options_use(o) != USE_LEARN || job_resumes(files) || !o->data_path || option_origin(o, "exif") >= ORIGIN_RUN)
        return OK;
    TRY(job_data_here(o, files, &data));
    json_t *record = json_of_run(data, CONVERSION_FILE);
    const json_t *turned = json_object_get(record, "exif");
    bool known = json_is_boolean(turned), upright = json_is_true(turned), differs = known && upright != o->exif;
    json_decref(record);
    if (differs && upright)
        settled_note(files, "--exif, because %s holds pictures that towers data convert has turned upright",
                     o->data_path);
    if (differs && !upright)
        settled_note(
            files,
            "--no-exif, because %s holds pictures as they were stored (towers data convert --no-exif): originals "
            "are predicted in the same way",
            o->data_path);
    TRY(path_join(path, data, CONVERSION_FILE));
    return differs ? options_apply_yaml(o, upright ? "exif: true\n" : "exif: false\n", ORIGIN_RUN, path) : OK;
}

/* ---- what the device and the weights say */

static Status compute_dtype(const Options *o, const Backend *backend, Dtype *dtype)
{
    *dtype = DTYPE_F32;
    if (!o->amp) return OK;
    bool tf32 = o->amp_dtype == AMP_TF32;
    Dtype wanted = tf32 ? DTYPE_F32 : o->amp_dtype == AMP_BF16 ? DTYPE_BF16 : DTYPE_F16;
    if (tf32 && backend->on_host) return FAIL(ERR_UNSUPPORTED, "--amp-dtype tf32 needs a GPU; use bf16 on a CPU");
    if (!tf32 && backend->computes) TRY(backend->computes(wanted));
    *dtype = wanted;
    return OK;
}

/* Weights that were trained in a type that this machine lacks compute in f32 where they do not learn, unless the user asked for it. */
static Status dtype_resolve(Options *o, TrainJob *job)
{
    Use use = options_use(o);
    Status st = compute_dtype(o, job->backend, &job->program.compute);
    bool of_weights = use != USE_LEARN && use != USE_TIME && option_origin(o, "amp") <= ORIGIN_RECIPE;
    if (st == OK || !of_weights) return st;
    if (!o->quiet)
        text_printf(stderr, "the weights were trained with --amp; here they compute in f32: %s\n", status_message());
    option_settle_flag(o, OPTION_ID_amp, false);
    job->program.compute = DTYPE_F32;
    return OK;
}

/* Pretrained weights that know how their images were normalized are trained on with the same. Only rank 0 need have the
 * file. */
static Status pretrained_facts(Options *o, JobFiles *files, const Model *model)
{
    char path[PATH_BYTES];
    json_t *facts;
    if (!o->pretrained || job_resumes(files)) return OK;
    bool only_said = (o->dry_run || o->print_config) && access(o->pretrained, F_OK) != 0, missing = false;
    if (only_said)
        TRY(cached_missing(o, model->name, o->pretrained, &missing, files->would_fetch, sizeof files->would_fetch));
    if (options_use(o) != USE_LEARN || missing || model->phases) return OK;
    TRY(job_weights(o, o->pretrained, path, sizeof path));
    TRY(facts_read(o, path, &facts));
    Status st = facts_normalize(facts, path, model, o);
    json_decref(facts);
    return st;
}

/* --img-size-schedule: the last side becomes --img-size. */
static Status side_resolve(Options *o, TrainJob *job)
{
    TRY(job_sides(o, job));
    if (job->side_count) option_settle_int(o, OPTION_ID_img_size, job->sides[job->side_count - 1].side);
    return OK;
}

/* ---- all settings of a job */

Status job_resolve(Options *o, JobFiles *files)
{
    TrainJob *job = &files->job;
    const Model *model;
    Use use = options_use(o);
    if (o->argument_count < 1) return FAIL(ERR_ARG, "no model given; 'towers info' lists all models");
    if (o->batch_size == OPTION_MAX && use != USE_LEARN && use != USE_TIME)
        return FAIL(ERR_ARG, "--batch-size max works only with train and bench");
    if (isnan(o->lr) && use != USE_LEARN) return FAIL(ERR_ARG, "--lr auto works only with train");
    TRY(model_named(o->arguments[0], &model));
    if (model->defaults) TRY(options_apply_yaml(o, model->defaults, ORIGIN_MODEL, model->name));
    TRY(recipe_apply(o));
    if (isnan(o->lr) && o->origin[OPTION_ID_lr] == ORIGIN_RECIPE)
        return FAIL(ERR_ARG,
                    "'lr: auto' is no setting of a recipe; give --lr auto, or write it in the file of --config");
    bool typed = o->data_path && o->origin[OPTION_ID_data_path] == ORIGIN_COMMAND_LINE;
    if (typed && o->dataset == DATASET_SYNTHETIC && o->origin[OPTION_ID_dataset] < ORIGIN_COMMAND_LINE)
        option_settle_choice(o, OPTION_ID_dataset, DATASET_AUTO); /* not the random images of a run or a file */
    TRY(remote_settle(o));
    if (model->file) TRY(own_network_restore(o, files, &model));
    if (model->file) TRY(own_network_settle(o, model, files));
    TRY(default_recipe_choose(o, model, files));
    TRY(converted_follow(o, files));
    TRY(remote_window_settle(o, files));
    if (!option_is_set(o, "momentum")) option_settle_real(o, OPTION_ID_momentum, optimizer_choices[o->opt].momentum);
    if (o->reduce_dtype != REDUCE_FP32 && !option_is_set(o, "reduce")) /* the only way that has 16 bits */
        option_settle_choice(o, OPTION_ID_reduce, REDUCE_FAST);
    TRY(conditions_check(o));
    TRY(conditions_of_model_check(o, model));
    TRY(backend_find(option_info(OPTION_ID_device)->choices[o->device], &job->backend, files->without_gpu,
                     sizeof files->without_gpu));
    if (*files->without_gpu) job_note(files, "running on the CPU: %s", files->without_gpu);
    job->program.model = model;
    TRY(dtype_resolve(o, job));
    TRY(pretrained_facts(o, files, model));
    return side_resolve(o, job);
}

/* ---- the batch */

/* --batch-size max: the number found replaces it, so that the number is recorded. */
static Status batch_choose(Options *o, JobFiles *files)
{
    const int64_t limit = 65536;
    TrainJob *job = &files->job;
    BatchFit fit;
    if (o->batch_size != OPTION_MAX || o->tower_batch.count || o->global_batch_size > 0) return OK;
    int64_t most = source_info(job->train)->count / job->local_batches.towers;
    TrainJob whole = *job;
    if (job->unfreeze_epoch) whole.program.freeze = NULL; /* all parameters must fit in the end */
    TRY(batch_max_find(&whole, (int32_t)(most < limit ? most : limit), &fit));
    option_settle_int(o, OPTION_ID_batch_size, fit.n);
    settled_note(files, "batch size %d needs %.1f of the %.1f GiB of free memory%s", fit.n,
                 (double)fit.bytes / (1 << 30), (double)fit.free_bytes / (1 << 30),
                 fit.n == most ? " and covers all samples" : "");
    return job_local_batches(o, job->local_batches.towers, files);
}

/* A batch that nobody asked for, the default's or a recipe's, becomes as small as the set. */
static Status batch_lower(Options *o, JobFiles *files)
{
    TrainJob *job = &files->job;
    int64_t count = source_info(job->train)->count, towers = job->local_batches.towers, most = count / towers;
    bool all = o->global_batch_size > 0;
    OptionOrigin origin = o->origin[all ? OPTION_ID_global_batch_size : OPTION_ID_batch_size];
    if (options_use(o) == USE_EVALUATE || o->tower_batch.count || origin >= ORIGIN_RUN || most == 0 ||
        count >= global_batch_of(&job->local_batches))
        return OK;
    settled_note(files, "batch size %" PRId64 " instead of %" PRId64 "%s, as there are %" PRId64 " training samples",
                 most, all ? o->global_batch_size / towers : o->batch_size, towers > 1 ? " for each tower" : "", count);
    option_settle_int(o, all ? OPTION_ID_global_batch_size : OPTION_ID_batch_size, all ? most * towers : most);
    return job_local_batches(o, (int)towers, files);
}

Status batch_resolve(Options *o, JobFiles *files)
{
    TRY(batch_choose(o, files));
    return batch_lower(o, files);
}
