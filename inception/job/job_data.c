/* From options to data: the data set, and the treatment of damaged images; see job.h. */
#include "inception/job/job.h"

#include "inception/job/notes.h"
#include "inception/job/progress_line.h"
#include "inception/job/remote_data.h"
#include "inception/job/run_argument.h"
#include "inception/job/trained_classes.h"
#include "inception/job/transforms.h"
#include "towers/data/loading/fold.h"
#include "towers/data/remote/remote_fetch.h"
#include "towers/data/shards/shard_set.h"
#include "towers/data/sources/folder.h"
#include "towers/files/json.h"
#include "towers/store/pretrained.h"

/* Networks of this input size and above are for photographs: Fashion-MNIST is no default for them. */
enum { PHOTO_SIDE = 75 };

/* Up to this number of training images, sets of photos get a recipe by default: above, an epoch has many steps. */
enum { SMALL_SET = 50000 };

/* Probabilities of an evaluation of images with any number of classes: 4 GiB. */
static const int64_t SCORES_MAX = INT64_C(1) << 30;

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

/* Of data whose path is not given. */
static Status usual_data_find(const Options *o, const Model *model, const char **path)
{
    const Model *of;
    bool learns = options_use(o) == USE_LEARN || options_use(o) == USE_TIME;
    bool typed = o->origin[OPTION_ID_weights] == ORIGIN_COMMAND_LINE;
    if (!learns && o->dataset != DATASET_FMNIST && typed && run_model(o->weights, &of) == OK)
        return FAIL(ERR_ARG,
                    "no data given: of --weights %s only the weights are used; give it in place of %s for its data, "
                    "too: towers %s %s, or use --data-path DIR",
                    o->weights, model->name, options_command(o), o->weights);
    if (!learns && o->dataset != DATASET_FMNIST) /* a guess would give numbers of another data set */
        return FAIL(ERR_ARG,
                    "no data given: towers %s finds the data of a run only where its args.yaml names them, and a file "
                    "or a folder names none; use --data-path DIR, or --dataset fmnist for Fashion-MNIST",
                    options_command(o));
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
    progress_count_show("scanning the data: ", "classes or shards", done, all);
}

SourceConfig job_source(const Options *o, const JobFiles *files, const char *path, const Model *model)
{
    return (SourceConfig){.path = path,
                          .fetch = files->fetch ? remote_fetch_door(files->fetch) : NULL,
                          .val_split = o->val_split,
                          .equal_apart = !o->join_equal,
                          .label_base = o->label_base,
                          .partial = o->partial_shards,
                          .rule = o->match_classes,
                          .background = o->background,
                          .unlabeled = !model->classes,
                          .progress = progress_show};
}

bool job_set_is_small(const SourceInfo *info)
{
    return info->h == 0 && info->count <= SMALL_SET;
}

/* What the readers left out, but for what that of `before` (or NULL) has left out already: both read one folder where it is
 * divided. */
static void inventory_note(JobFiles *files, const Inventory *inventory, const Inventory *before)
{
    char line[SKIP_LINE_BYTES];
    for (SkipReason why = 0; why < SKIP_REASONS; why++) {
        const Skipped *now = &inventory->skipped[why], *then = before ? &before->skipped[why] : NULL;
        bool again = then && then->count && now->count && !strcmp(then->first, now->first);
        if (now->count && !again) job_note(files, "%s", skip_line(inventory, why, line));
    }
}

static const Split part_splits[] = {
    [PART_AUTO] = SPLIT_VAL, [PART_VAL] = SPLIT_VAL, [PART_TEST] = SPLIT_TEST, [PART_TRAIN] = SPLIT_TRAIN};

Status job_part(const Options *o, const char *path, Split *part)
{
    unsigned has = source_splits(path);
    if (options_use(o) == USE_PREDICT && !shards_are_in(path)) has |= folder_splits(path); /* labels do not matter */
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
    enum { FOLDS_MAX = 1000 };
    char *slash, *end = NULL, plain[64] = "";
    long k = strtol(o->fold, &slash, 10), n = *slash == '/' ? strtol(slash + 1, &end, 10) : 0;
    if (end) snprintf(plain, sizeof plain, "%ld/%ld", k, n); /* a fold has one name, by which records find its others */
    if (strcmp(plain, o->fold) != 0 || n < 2 || n > FOLDS_MAX || k < 1 || k > n)
        return FAIL(ERR_ARG, "--fold '%s': expected K/N with 1 <= K <= N and 2 <= N <= %d, e.g. 3/5", o->fold,
                    FOLDS_MAX);
    if (o->shuffle_window > 0)
        return FAIL(ERR_ARG, "--fold takes samples out of all shards; it does not work with --shuffle-window");
    if (source_splits(path) & SPLIT_BIT(SPLIT_VAL))
        return FAIL(ERR_ARG,
                    "--fold divides the training images, but '%s' has images for evaluation (val/); remove --fold, or "
                    "move them to train/ or test/",
                    path);
    *fold = (FoldConfig){(int)k, (int)n, (uint64_t)o->seed, o->fold_group, path, !o->join_equal};
    return OK;
}

static Status groups_note(const FoldConfig *fold, JobFiles *files)
{
    char text[STATUS_MESSAGE_BYTES];
    Text remark = text_start(text, sizeof text);
    TRY(fold_groups_remark(files->test, fold, &remark));
    if (remark.used) job_note(files, "%s", text);
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
    bool evaluates = options_use(o) == USE_EVALUATE;
    if (evaluates && o->split == PART_TEST) return source_open(config, SPLIT_TEST, &files->test);
    if (!evaluates) {
        TRY(source_open(config, SPLIT_TRAIN, &files->train));
        TRY(source_fold(&files->train, &fold, false));
    }
    TRY(source_open(config, SPLIT_TRAIN, &files->test));
    TRY(groups_note(&fold, files));
    return source_fold(&files->test, &fold, o->split != PART_TRAIN);
}

/* Training and FID need two sets; an evaluation needs only the part that it is asked for, of whatever is there. */
static Status sources_open(const Options *o, SourceConfig *config, JobFiles *files)
{
    bool predicts = files->job.program.model->classes > 0;
    Split part = SPLIT_VAL;
    Use use = options_use(o);
    bool compares = use == USE_COMPARE, learns = use == USE_LEARN && predicts; /* what needs two sets */
    config->whole = compares ? source_splits(config->path) & SPLIT_BIT(SPLIT_TEST) : !learns;
    if (use == USE_EVALUATE || (compares && config->whole)) TRY(job_part(o, config->path, &part));
    if (o->val_split > 0 || source_splits(config->path)) files->part = split_name(part);
    if (use != USE_EVALUATE) TRY(source_open(config, SPLIT_TRAIN, &files->train));
    config->train = files->train;
    return use == USE_EVALUATE || compares || learns ? source_open(config, part, &files->test) : OK;
}

/* The one folder of a class may hold the folders that were meant; else the path leads into what is a class itself. */
static Status one_class_refuse(const char *path, const char *class)
{
    static const char *const parts[] = {"", "train", "training"};
    char part[PATH_BYTES], below[PATH_BYTES];
    if (!*class) /* of labels that nothing names, no folder's */
        return FAIL(ERR_FORMAT,
                    "%s has one class, so there is nothing to learn: all labels are the same; to train all the same, "
                    "use --classes 2",
                    path);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        TRY(path_join(part, path, parts[i]));
        TRY(path_join(below, *parts[i] ? part : path, class));
        if (!folder_is_in(below)) continue;
        return FAIL(ERR_FORMAT,
                    "%s has one class, '%s', so there is nothing to learn; %s holds folders itself: if these are the "
                    "classes, %s; to train all the same, use --classes 2",
                    path, class, below,
                    *parts[i] ? "move them up, so that they lie in the folders of the parts"
                              : "give it as --data-path");
    }
    return FAIL(ERR_FORMAT,
                "%s has one class, '%s', so there is nothing to learn: expected two or more folders, one per class (is "
                "the path one folder too deep?); to train all the same, use --classes 2",
                path, class);
}

/* A path of a configuration file that is not there may be a relative one, meant from elsewhere. */
static Status path_refuse(const Options *o, const char *path, Status st)
{
    char why[STATUS_MESSAGE_BYTES];
    bool typed = o->origin[OPTION_ID_data_path] == ORIGIN_COMMAND_LINE;
    if (st != ERR_ARG || typed || !o->where[OPTION_ID_data_path] || access(path, F_OK) == 0) return st;
    snprintf(why, sizeof why, "%s", status_message());
    return FAIL(st, "%s (from %s; a relative path begins at the current directory); give the data with --data-path",
                why, o->where[OPTION_ID_data_path]);
}

static Status format_check(const Options *o, const char *path, const SourceInfo *train)
{
    bool typed = o->origin[OPTION_ID_data_path] == ORIGIN_COMMAND_LINE;
    const char *where = typed ? NULL : o->where[OPTION_ID_data_path];
    if (o->origin[OPTION_ID_dataset] != ORIGIN_COMMAND_LINE || o->dataset != DATASET_FMNIST ||
        !strcmp(train->format, "IDX"))
        return OK;
    return FAIL(ERR_ARG, "--dataset fmnist: expected IDX files, as those of Fashion-MNIST, found %s: %s%s%s%s; %s",
                train->format, path, where ? " (from " : "", where ? where : "", where ? ")" : "",
                typed ? "leave it out" : "name the other data with --data-path");
}

/* Whether both sets are of one kind. */
static Status sets_agree(const char *path, const SourceInfo *train, const SourceInfo *test)
{
    if (train->classes != test->classes)
        return FAIL(ERR_FORMAT, "%s: the training data has %d classes, but the test data has %d", path, train->classes,
                    test->classes);
    if (train->h == test->h && train->w == test->w && train->c == test->c) return OK;
    return FAIL(ERR_FORMAT,
                "%s: the training images are %d x %d with %d channel(s), but the test images are %d x %d with %d; "
                "both must have the same size",
                path, train->w, train->h, train->c, test->w, test->h, test->c);
}

/* Whether the network has, or gets, the classes of the data. */
static Status classes_check(const Options *o, const TrainJob *job, const char *path, const SourceInfo *train)
{
    bool predicts = job->program.model->classes > 0, evaluates = options_use(o) == USE_EVALUATE,
         exports = options_use(o) == USE_EXPORT; /* a network that has its classes */
    if (train->classes == 1 + o->background && o->classes <= 0 && predicts && !evaluates && !exports)
        return one_class_refuse(path, train->class_names[o->background]);
    if (exports && job->program.options.classes < train->classes)
        return FAIL(ERR_ARG,
                    "%s has %d classes, but the network has %d; give the data of its training: --data-path DIR", path,
                    train->classes, job->program.options.classes);
    if (!exports && o->classes > 0 && o->classes < train->classes)
        return FAIL(ERR_ARG, "--classes %" PRId64 " is too small: %s has %d classes; use --classes %d or more",
                    o->classes, train->name, train->classes, train->classes);
    return OK;
}

static void sets_note(JobFiles *files, const SourceInfo *train, const SourceInfo *test)
{
    if (train->shard_first && train->classes > train->count)
        job_note(files,
                 "warning: %s has %d classes, more than its %" PRId64
                 " training images, because its largest label says so; is that label right?",
                 train->name, train->classes, train->count);
    if (train->labels_note) job_note(files, "%s", train->labels_note);
    if (test != train && test->labels_note &&
        (!train->labels_note || strcmp(test->labels_note, train->labels_note) != 0))
        job_note(files, "%s", test->labels_note);
    inventory_note(files, &train->inventory, NULL);
    if (test != train) inventory_note(files, &test->inventory, &train->inventory);
}

static Status sets_open(const Options *o, JobFiles *files)
{
    TrainJob *job = &files->job;
    const char *path;
    TRY(job_data_here(o, files, &path));
    if (!path) TRY(usual_data_find(o, job->program.model, &path));
    SourceConfig config = job_source(o, files, path, job->program.model);
    Status st = o->fold ? folds_open(o, &config, files) : sources_open(o, &config, files);
    if (st != OK) return path_refuse(o, path, st);
    if (*files->trained) TRY(trained_match(o, files->trained, files, &files->test));
    const SourceInfo *train = source_info(files->train ? files->train : files->test),
                     *test = source_info(files->test ? files->test : files->train);
    TRY(format_check(o, path, train));
    TRY(sets_agree(path, train, test));
    TRY(classes_check(o, job, path, train));
    job->data_path = path;
    if (options_use(o) != USE_EXPORT && o->classes <= 0) job->program.options.classes = train->classes;
    sets_note(files, train, test);
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
    if (info->multi_label)
        return FAIL(ERR_UNSUPPORTED,
                    "--sampler balanced draws the one class of an image, but the images of %s have several; "
                    "use --class-weights auto",
                    info->name);
    return o->shuffle_window > 0 ? FAIL(ERR_ARG, "--sampler balanced draws samples from the whole set; it does not "
                                                 "work with --shuffle-window")
                                 : OK;
}

/* Images with any number of classes. */
static Status multi_label_check(const Options *o, JobFiles *files)
{
    ProgramConfig *program = &files->job.program;
    const SourceInfo *train = source_info(files->job.train);
    program->multi_label = train->multi_label;
    if (!train->multi_label) return OK;
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

/* Weights of classes make targets of labels, as mixing and --loss bce do (model_fill of job.c). */
static Status mixing_fill(const Options *o, JobFiles *files)
{
    TrainJob *job = &files->job;
    ProgramConfig *program = &job->program;
    if (program->model->phases) return OK;
    TRY(multi_label_check(o, files));
    TRY(job_class_weights(o, files));
    bool bce = program->loss == LOSS_BCE;
    program->weighted = files->class_weight && !bce;
    program->positive_weight = bce ? files->class_weight : NULL;
    if (bce) job->data.class_weight = NULL;
    program->targets |= program->weighted;
    if (job->data.sampler == SAMPLER_BALANCED && options_use(o) == USE_LEARN)
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
    WeightPart part;
    TRY(pretrained_open(&job->program, job->reset_head ? HEAD_RESET : HEAD_READ, path, &file, &part));
    job->program.options.channels = file_channels(file, &job->program);
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
    job_transforms(o, job, train->h == 0 && !files->whole);
    Transform check[] = {job_transform(job, true), job_transform(job, false)};
    for (int i = 0; i < 2; i++) TRY(transform_check(&check[i]));
    return OK;
}
