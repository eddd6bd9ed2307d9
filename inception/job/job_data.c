/* From options to data: the data set, image transforms, and the treatment of damaged images; see job.h. */
#include "inception/job/job.h"

#include "inception/job/run_argument.h"
#include "inception/models/published.h"
#include "inception/options/recipe.h"
#include "towers/data/loading/fold.h"
#include "towers/data/sources/endings.h"
#include "towers/data/sources/labels.h"
#include "towers/data/sources/splits.h"
#include "towers/files/json.h"
#include "towers/store/pretrained.h"

/* Networks of this input size and above are for photographs: Fashion-MNIST is no default for them. */
enum { PHOTO_SIDE = 75 };

/* Up to this number of training images, sets of pictures get a recipe by default: above, an epoch has many steps. */
enum { SMALL_SET = 50000 };

/* Probabilities of an evaluation of images with any number of classes: 4 GiB. */
static const int64_t SCORES_MAX = INT64_C(1) << 30;

/* ---- transforms */

int32_t job_usual_resize(int64_t side)
{
    return (int32_t)lrint((double)side * 342.0 / 299.0);
}

void job_transforms(const Options *o, TrainJob *job, bool photos)
{
    Transform *train = &job->data.train, *eval = &job->data.eval;
    int32_t side = job->program.options.side;
    *eval = (Transform){0};
    /* The evaluation's center crop, which training without --augment also uses. */
    eval->filter = o->interpolation == RESIZE_TF_MIXED ? RESIZE_TF_BILINEAR : o->interpolation;
    eval->exif = o->exif;
    if (o->eval_crop > 0) {
        eval->crop = CROP_FRACTION;
        eval->fraction = o->eval_crop;
    } else if (o->eval_resize > 0 || o->crop_pct > 0 || photos) {
        eval->crop = CROP_CENTER;
        eval->resize = o->eval_resize > 0 ? (int32_t)o->eval_resize
                       : o->crop_pct > 0  ? (int32_t)floor(side / o->crop_pct) /* timm, transforms_imagenet_eval */
                                          : job_usual_resize(side);
    }
    *train = *eval;
    train->filter = o->interpolation;
    if (o->augment) {
        bool random = o->crop == CROP_CHOICE_RANDOM || (o->crop == CROP_CHOICE_AUTO && photos);
        train->crop = o->crop == CROP_CHOICE_BOX ? CROP_BOX : random ? CROP_RANDOM : CROP_WHOLE;
        train->area[0] = o->crop_area;
        train->area[1] = 1;
        train->ratio[0] = 3.0 / 4;
        train->ratio[1] = train->crop == CROP_BOX ? 1.33 : 4.0 / 3;
        train->covered = o->crop_covered;
        train->shift = train->crop == CROP_WHOLE && o->crop != CROP_CHOICE_WHOLE;
        train->flip = o->flip;
    }
    train->distort = o->color_distort;
    train->brightness = train->contrast = train->saturation = o->color_jitter;
    train->hue = o->hue_jitter;
    train->policy = o->auto_augment;
    train->policy_ops = (int)o->ra_ops;
    train->policy_magnitude = (int)o->ra_magnitude;
    train->erase = o->random_erase;
    job->program.canvas = side + 2 * (train->shift ? (int32_t)o->crop_pad : 0);
}

/* ---- damaged samples */

static Status bad_samples_parse(const char *text, TrainJob *job)
{
    static const char limit[] = "limit:";
    char *end = NULL;
    job->data.bad = BAD_SKIP;
    job->data.bad_limit = INT64_MAX;
    if (!text || !strcmp(text, "stop")) job->data.bad = BAD_STOP;
    if (!text || !strcmp(text, "stop") || !strcmp(text, "skip")) return OK;
    errno = 0;
    if (!strncmp(text, limit, sizeof limit - 1)) job->data.bad_limit = strtoll(text + sizeof limit - 1, &end, 10);
    if (!end || *end || end == text + sizeof limit - 1 || errno || job->data.bad_limit < 0)
        return FAIL(ERR_ARG, "--bad-samples '%s': expected stop, skip or limit:N, e.g. limit:100", text);
    return OK;
}

/* ---- the data set */

static const char *const usual_places[] = {"/usr/share/datasets/fashion-mnist",
                                           "/usr/local/share/datasets/fashion-mnist"};

const char *job_usual_data(void)
{
    for (size_t i = 0; i < sizeof usual_places / sizeof *usual_places; i++)
        if (access(usual_places[i], R_OK) == 0) return usual_places[i];
    return NULL;
}

static Status data_path_find(const Options *o, const Model *model, const char **path)
{
    *path = o->data_path;
    if (*path) return OK;
    const Model *of;
    bool learns = o->verb == VERB_TRAIN || o->verb == VERB_LR_FIND || o->verb == VERB_BENCH;
    bool typed = o->origin[OPTION_ID_weights] == ORIGIN_COMMAND_LINE;
    if (!learns && o->dataset != DATASET_FMNIST && typed && run_model(o->weights, &of) == OK)
        return FAIL(ERR_ARG,
                    "no data given: of --weights %s only the weights are used; give it in place of %s for its data, "
                    "too: towers %s %s, or use --data-path DIR",
                    o->weights, model->name, verb_info(o->verb)->name, o->weights);
    if (!learns && o->dataset != DATASET_FMNIST) /* a guess would give numbers of another data set */
        return FAIL(ERR_ARG,
                    "no data given: towers %s finds the data of a run only where its args.yaml names them, and a file "
                    "or a folder names none; use --data-path DIR, or --dataset fmnist for Fashion-MNIST",
                    verb_info(o->verb)->name);
    if (model->side >= PHOTO_SIDE && o->dataset != DATASET_FMNIST)
        return FAIL(ERR_ARG,
                    "no data given: %s is a network for photographs; use --data-path DIR with train/CLASS/*.jpg and "
                    "val/CLASS/*.jpg (or one folder of classes and --val-split 0.1); to try it out, use --dataset "
                    "synthetic, or --dataset fmnist for Fashion-MNIST",
                    model->name);
    if ((*path = job_usual_data())) return OK;
    return FAIL(ERR_ARG,
                "no data: --data-path was not given, and there is no Fashion-MNIST in %s or %s. Install the Debian "
                "package dataset-fashion-mnist, give a folder of your own images with --data-path, or use --dataset "
                "synthetic",
                usual_places[0], usual_places[1]);
}

/* Shown while an index is built, which takes seconds for a million images. */
static void progress_show(void *context, int64_t done, int64_t all)
{
    (void)context;
    if (!isatty(STDERR_FILENO)) return;
    fprintf(stderr, done < all ? "\rscanning the data: %" PRId64 " of %" PRId64 " classes or shards" : "\r\33[K", done,
            all);
    fflush(stderr);
}

bool job_set_is_small(const SourceInfo *info)
{
    return info->h == 0 && info->count <= SMALL_SET;
}

/* False, too, for data that cannot be opened, which job_data_open reports. */
static bool trains_on_small_set(const Options *o)
{
    Source *train;
    SourceConfig config = {.path = o->data_path,
                           .val_split = o->val_split,
                           .whole = o->fold,
                           .group = o->fold_group && !fold_folder(o->fold_group) ? o->fold_group : NULL,
                           .label_base = o->label_base,
                           .background = o->background,
                           .progress = progress_show};
    if (!o->data_path || o->dataset == DATASET_SYNTHETIC || source_open(&config, SPLIT_TRAIN, &train) != OK)
        return false;
    bool small = job_set_is_small(source_info(train));
    source_close(train);
    return small;
}

Status job_default_recipe(Options *o, const Model *model, JobFiles *files)
{
    const char *name = o->pretrained ? "finetune" : "photos";
    bool trains = (o->verb == VERB_TRAIN || o->verb == VERB_LR_FIND) && model->classes > 0,
         chosen = o->origin[OPTION_ID_recipe] == ORIGIN_DEFAULT_RECIPE; /* by lr_auto's job, whose notes nobody sees */
    if (!trains || (o->recipe && !chosen) || job_resumes(files)) return OK;
    if (!chosen && !trains_on_small_set(o)) return OK;
    if (option_origin(o, "opt") < ORIGIN_RUN) {
        job_note(files, "recipe %s, the default for a small set of pictures; without: --recipe none", name);
        return recipe_choose(o, name);
    }
    job_note(files, "no recipe, because the optimizer is given; to override single settings of one: --recipe %s", name);
    return OK;
}

const char *ignored_warning(const SourceInfo *info, char text[IGNORED_WARNING_BYTES])
{
    snprintf(text, IGNORED_WARNING_BYTES,
             "warning: %" PRId64 " files are ignored (%s), the first is %s; images are files that end in %s; "
             "ImageMagick converts others: mogrify -format png FILE",
             info->ignored, info->ignored_kinds, info->first_ignored, IMAGE_ENDINGS);
    return text;
}

/* Classes of another data set than that of the training are the same ones if their names are, or if their ids in WordNet
 * are those of ImageNet's names. */
static Status classes_match(JobFiles *files)
{
    Status st = OK;
    const SourceInfo *data = source_info(files->test ? files->test : files->train);
    const char *last = data->class_names[data->classes - 1];
    bool ids = last[0] == 'n' && strspn(last + 1, "0123456789") == 8 && !last[9]; /* "n01440764" */
    json_t *synsets = ids ? published_synsets(files->trained) : NULL;
    int count = (int)json_array_size(files->trained);
    const char **names = calloc((size_t)count + 1, sizeof *names);
    if (!names) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the names of %d classes", count));
    for (int i = 0; i < count; i++) {
        const char *name = json_string_value(json_array_get(synsets ? synsets : files->trained, (size_t)i));
        names[i] = name ? name : "";
    }
    if (files->train) TRY_OUT(source_match(&files->train, names, count));
    if (files->test) TRY_OUT(source_match(&files->test, names, count));
out:
    json_decref(synsets);
    free(names);
    return st;
}

static const Split part_splits[] = {
    [PART_AUTO] = SPLIT_VAL, [PART_VAL] = SPLIT_VAL, [PART_TEST] = SPLIT_TEST, [PART_TRAIN] = SPLIT_TRAIN};

Status job_part(const Options *o, const char *path, Split *part)
{
    unsigned has = source_splits(path);
    *part = part_splits[o->split];
    if (o->split == PART_AUTO) *part = !has || has & SPLIT_BIT(SPLIT_VAL) || o->val_split > 0 ? SPLIT_VAL : SPLIT_TEST;
    bool kept = o->val_split > 0 && *part != SPLIT_TEST;
    char text[SPLITS_TEXT_BYTES];
    splits_text(has, text);
    if (o->split == PART_AUTO && has == SPLIT_BIT(SPLIT_TRAIN) && !kept)
        return FAIL(ERR_ARG, "'%s' has images for training only; to use these, give --split train", path);
    if (o->split == PART_AUTO || kept || has & SPLIT_BIT(*part)) return OK;
    if (has) return FAIL(ERR_ARG, "--split %s: '%s' has no such part, but %s", split_name(*part), path, text);
    return FAIL(ERR_ARG, "--split %s: '%s' has no parts; without --split all of its images are used", split_name(*part),
                path);
}

/* "3/5" */
static Status fold_parse(const Options *o, const char *path, FoldConfig *fold)
{
    char *slash, *end = NULL;
    long k = strtol(o->fold, &slash, 10), n = *slash == '/' ? strtol(slash + 1, &end, 10) : 0;
    if (!end || *end || n < 2 || n > FOLDS_MAX || k < 1 || k > n)
        return FAIL(ERR_ARG, "--fold '%s': expected K/N with 1 <= K <= N and 2 <= N <= %d, e.g. 3/5", o->fold,
                    FOLDS_MAX);
    if (o->shuffle_window > 0)
        return FAIL(ERR_ARG, "--fold takes samples out of all shards; it does not work with --shuffle-window");
    if (source_splits(path) & SPLIT_BIT(SPLIT_VAL))
        return FAIL(ERR_ARG,
                    "--fold divides the training images, but '%s' has images for evaluation (val/); remove --fold, or "
                    "move them to train/ or test/",
                    path);
    *fold = (FoldConfig){(int)k, (int)n, (uint64_t)o->seed, o->fold_group, path};
    return OK;
}

/* --fold: both parts are samples of the training images. */
static Status folds_open(const Options *o, SourceConfig *config, JobFiles *files)
{
    FoldConfig fold;
    TRY(fold_parse(o, config->path, &fold));
    config->whole = true;
    config->group = fold.group && !fold_folder(fold.group) ? fold.group : NULL;
    files->part = split_name(part_splits[o->split]);
    if (o->verb == VERB_EVAL && o->split == PART_TEST) return source_open(config, SPLIT_TEST, &files->test);
    if (o->verb != VERB_EVAL) {
        TRY(source_open(config, SPLIT_TRAIN, &files->train));
        TRY(source_fold(&files->train, &fold, false));
    }
    TRY(source_open(config, SPLIT_TRAIN, &files->test));
    return source_fold(&files->test, &fold, o->split != PART_TRAIN);
}

/* Training and FID need two sets; an evaluation needs only the part that it is asked for, of whatever is there. */
static Status sources_open(const Options *o, SourceConfig *config, JobFiles *files)
{
    bool predicts = files->job.program.model->classes > 0;
    Split part = SPLIT_VAL;
    config->whole =
        o->verb == VERB_EVAL || o->verb == VERB_BENCH || o->verb == VERB_EXPORT || (!predicts && o->verb != VERB_FID);
    if (o->verb == VERB_FID && source_splits(config->path) & SPLIT_BIT(SPLIT_TEST)) config->whole = true;
    if (o->verb == VERB_EVAL || (o->verb == VERB_FID && config->whole)) TRY(job_part(o, config->path, &part));
    if (o->val_split > 0 || source_splits(config->path)) files->part = split_name(part);
    if (o->verb != VERB_EVAL) TRY(source_open(config, SPLIT_TRAIN, &files->train));
    config->train = files->train;
    bool tests = o->verb == VERB_EVAL || o->verb == VERB_FID || (o->verb == VERB_TRAIN && predicts);
    return tests ? source_open(config, part, &files->test) : OK;
}

static Status sets_open(const Options *o, JobFiles *files)
{
    TrainJob *job = &files->job;
    const char *path;
    bool predicts = job->program.model->classes > 0;
    TRY(data_path_find(o, job->program.model, &path));
    SourceConfig config = {.path = path,
                           .val_split = o->val_split,
                           .label_base = o->label_base,
                           .background = o->background,
                           .unlabeled = !predicts,
                           .progress = progress_show};
    Status st = o->fold ? folds_open(o, &config, files) : sources_open(o, &config, files);
    bool typed = o->origin[OPTION_ID_data_path] == ORIGIN_COMMAND_LINE;
    if (st == ERR_ARG && !typed && o->where[OPTION_ID_data_path] && access(path, F_OK) != 0) {
        char why[STATUS_MESSAGE_BYTES];
        snprintf(why, sizeof why, "%s", status_message());
        return FAIL(st, "%s (from %s; a relative path begins at the current directory); give the data with --data-path",
                    why, o->where[OPTION_ID_data_path]);
    }
    TRY(st);
    if (files->trained) TRY(classes_match(files));
    const SourceInfo *train = source_info(files->train ? files->train : files->test),
                     *test = source_info(files->test ? files->test : files->train);
    if (o->origin[OPTION_ID_dataset] == ORIGIN_COMMAND_LINE && o->dataset == DATASET_FMNIST &&
        strcmp(train->format, "IDX") != 0) {
        const char *where = typed ? NULL : o->where[OPTION_ID_data_path];
        return FAIL(ERR_ARG, "--dataset fmnist: expected IDX files, as those of Fashion-MNIST, found %s: %s%s%s%s; %s",
                    train->format, path, where ? " (from " : "", where ? where : "", where ? ")" : "",
                    typed ? "leave it out" : "name the other data with --data-path");
    }
    if (train->classes != test->classes)
        return FAIL(ERR_FORMAT, "%s: the training data has %d classes, but the test data has %d", path, train->classes,
                    test->classes);
    if (train->h != test->h || train->w != test->w || train->c != test->c)
        return FAIL(ERR_FORMAT,
                    "%s: the training images are %d x %d with %d channel(s), but the test images are %d x %d with %d; "
                    "both must have the same size",
                    path, train->w, train->h, train->c, test->w, test->h, test->c);
    if (train->classes == 1 + o->background && o->classes <= 0 && predicts && o->verb != VERB_EVAL)
        return FAIL(ERR_FORMAT,
                    "%s has one class, so there is nothing to learn: expected two or more folders, one per class (is "
                    "the path one folder too deep?); to train all the same, use --classes 2",
                    path);
    if (o->verb == VERB_EXPORT && o->classes < train->classes)
        return FAIL(ERR_ARG,
                    "%s has %d classes, but the network has %" PRId64
                    "; give the data of its training: --data-path DIR",
                    path, train->classes, o->classes);
    if (o->classes > 0 && o->classes < train->classes)
        return FAIL(ERR_ARG, "--classes %" PRId64 " is too small: %s has %d classes; use --classes %d or more",
                    o->classes, train->name, train->classes, train->classes);
    job->data_path = path;
    if (o->classes <= 0) job->program.options.classes = train->classes;
    if (train->shard_first && train->classes > train->count)
        job_note(files,
                 "warning: %s has %d classes, more than its %" PRId64
                 " training images, because its largest label says so; is that label right?",
                 train->name, train->classes, train->count);
    char ignored[IGNORED_WARNING_BYTES];
    if (train->ignored > 0) job_note(files, "%s", ignored_warning(train, ignored));
    if (test != train && test->ignored > 0) job_note(files, "%s", ignored_warning(test, ignored));
    return OK;
}

static Status synthetic_open(const ModelOptions *options, int64_t synthetic, JobFiles *files)
{
    int64_t count = synthetic > 0 ? synthetic : 4096;
    int classes = options->classes > 0 ? options->classes : 1;
    TRY(source_synthetic(count, classes, options->side, options->side, options->channels, 1, &files->train));
    if (synthetic <= 0)
        TRY(source_synthetic(count / 4, classes, options->side, options->side, options->channels, 2, &files->test));
    return OK;
}

Status job_order_check(const Options *o, const SourceInfo *info)
{
    if (o->shuffle_window > 0 && !info->shard_first)
        return FAIL(ERR_ARG, "--shuffle-window is for shards; %s holds none", info->name);
    if (o->sampler != SAMPLER_BALANCED) return OK;
    if (info->several)
        return FAIL(ERR_UNSUPPORTED,
                    "--sampler balanced draws the one class of an image, but the images of %s have several; "
                    "use --class-weights auto",
                    info->name);
    return o->shuffle_window > 0 ? FAIL(ERR_ARG, "--sampler balanced draws samples from the whole set; it does not "
                                                 "work with --shuffle-window")
                                 : OK;
}

/* Images with any number of classes. */
static Status several_check(const Options *o, JobFiles *files)
{
    ProgramConfig *program = &files->job.program;
    const SourceInfo *train = source_info(files->job.train);
    program->several = train->several;
    if (!train->several) return OK;
    if (program->loss != LOSS_BCE)
        return FAIL(ERR_ARG,
                    "%s has a labels file, with any number of classes for an image: use --loss bce (or remove "
                    "labels.csv, if the classes are the folders)",
                    train->name);
    if (o->background)
        return FAIL(ERR_UNSUPPORTED, "--background is a class for images of no other; with a labels file these have no "
                                     "label");
    int64_t count = files->test ? source_info(files->test)->count : 0, classes = program->options.classes;
    if (count * classes > SCORES_MAX)
        return FAIL(ERR_UNSUPPORTED,
                    "mAP keeps the probabilities of %" PRId64 " classes for %" PRId64 " evaluation images, %" PRId64
                    " numbers; at most %" PRId64 " are supported: use fewer evaluation images",
                    classes, count, count * classes, SCORES_MAX);
    return OK;
}

/* Weights of classes make targets of labels, as mixing and --loss bce do (job_model). */
static Status mixing_fill(const Options *o, JobFiles *files)
{
    TrainJob *job = &files->job;
    ProgramConfig *program = &job->program;
    if (program->model->phases) return OK;
    TRY(several_check(o, files));
    TRY(job_class_weights(o, files));
    bool bce = program->loss == LOSS_BCE;
    program->weighted = files->class_weight && !bce;
    program->positive_weight = bce ? files->class_weight : NULL;
    if (bce) job->data.class_weight = NULL;
    program->targets |= program->weighted;
    if (job->data.sampler == SAMPLER_BALANCED && o->verb == VERB_TRAIN)
        job_note(files, "--sampler balanced draws with replacement: in an epoch some samples are used several times, "
                        "others not at all");
    return OK;
}

Status job_channels(const Options *o, TrainJob *job, int32_t channels)
{
    const Model *model = job->program.model;
    const char *given = o->weights ? o->weights : job->resume_path ? job->resume_path : o->pretrained;
    /* A resumed run has the channels of its network: the weights that it began with may be gone. */
    json_t *environment = job->resume ? json_of_run(job->run_dir, "env.json") : NULL;
    int64_t before = json_whole(environment, "channels");
    bool resumed = before == 1 || before == 3;
    json_decref(environment);
    job->program.data_channels = channels;
    if (!model->adapts) return OK;
    job->program.options.channels = resumed ? (int32_t)before : channels;
    if (model->generate || !given || resumed) return OK; /* a generator makes what it is shown */
    char path[PATH_BYTES];
    SafeTensors *file;
    TRY(job_weights(o, given, path, sizeof path));
    TRY(weights_open(path, &file));
    job->program.options.channels = file_channels(file, model);
    safetensors_close(file);
    return OK;
}

Status job_data_open(const Options *o, int64_t synthetic, JobFiles *files)
{
    TrainJob *job = &files->job;
    if (synthetic > 0 || o->dataset == DATASET_SYNTHETIC)
        TRY(synthetic_open(&job->program.options, synthetic, files));
    else
        TRY(sets_open(o, files));
    job->train = files->train ? files->train : files->test; /* an evaluation opens no training data */
    const SourceInfo *train = source_info(job->train);
    TRY(job_order_check(o, train));
    if (!job->program.model->classes)
        job->program.options.classes = train->classes;           /* of the labels, which are not used */
    job->test = job->program.model->phases ? NULL : files->test; /* nothing is predicted */
    job->data.memory = o->data_memory << 20;
    TRY(bad_samples_parse(o->bad_samples, job));
    TRY(job_channels(o, job, train->c));
    if (train->c > job->program.options.channels)
        return FAIL(ERR_ARG, "the weights of %s are for gray images, but the data has %d channels",
                    job->program.model->name, train->c);
    TRY(mixing_fill(o, files));
    job_transforms(o, job, train->h == 0);
    Transform check[] = {job_transform(job, true), job_transform(job, false)};
    for (int i = 0; i < 2; i++) TRY(transform_check(&check[i]));
    return OK;
}
