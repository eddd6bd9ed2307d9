/* towers fid RUN|FOLDER --features CLASSIFIER: KID and FID of generated images, beside those of the test set (the
 * floor) and of noise (the ceiling), the classes predicted for them, and their nearest training images. Each of the
 * three sets is compared with the training set, all by the same number of images: FID grows as the number of images
 * falls, so values from different numbers cannot be compared. */
#include "inception/commands/commands.h"

#include "inception/commands/networks.h"
#include "inception/job/trained_classes.h"
#include "inception/options/settle.h"
#include "inception/quality/coverage.h"
#include "inception/quality/frechet.h"
#include "kernels/base/cores.h"
#include "towers/data/sources/paths.h"
#include "towers/files/json.h"

enum { USUAL_COUNT = 10000, LEAST_COUNT = 4 /* two subsets of two */, BATCH = 100, SUBSETS = 100, SUBSET_SIZE = 1000 };
static const size_t search_limit = (size_t)1 << 30; /* bytes of training images that are searched for neighbors */

/* The sets of images; the first is what the others are compared with. */
typedef enum SetKind { SET_TRAIN = 0, SET_GENERATED, SET_TEST, SET_NOISE, SET_COUNT } SetKind;

typedef struct ImageSet {
    const char *key, *title;
    float *features;    /* owned: [count][d] */
    int64_t *histogram; /* owned: [classes] */
    /* against the training set */
    Kid kid;
    double fid, chi_squared;
    int freedom;
    double nearest; /* mean distance of the nearest training image, 0 to 255 */
} ImageSet;

typedef struct Comparison {
    const Options *options;
    JobFiles *files;
    FeatureNet net;
    json_t *names; /* owned: of the classifier's classes; NULL: not known */
    Device device;
    Generator generator; /* zeroed if a folder is measured */
    Source *folder;      /* or this; owned */
    int32_t side;        /* of the images */
    int64_t count, searched;
    int queries; /* images of each set whose nearest training images are searched */
    Images query[SET_COUNT];
    ImageSet set[SET_COUNT];
} Comparison;

/* ---- the images */

/* The size of a folder's images, which is that of its first. */
static Status folder_side(const Source *folder, int32_t *side)
{
    Status st = OK;
    Bytes bytes = {0};
    ImageInfo info;
    int32_t label;
    TRY_OUT(source_read(folder, 0, &bytes, &label));
    TRY_OUT(image_probe(&bytes, &info));
    *side = info.h < info.w ? info.h : info.w;
out:
    bytes_free(&bytes);
    return st;
}

static Status source_images(const Comparison *c, const Source *source, int64_t count, Images *images)
{
    bool own = source == c->folder;
    ImagesConfig config = {.source = source,
                           .transform = job_transform(&c->files->job, false),
                           .seed = (uint64_t)c->options->seed,
                           .count = count,
                           .workers = cores_allowed()};
    if (own) config.transform = (Transform){.side = c->side, .crop = CROP_CENTER, .resize = c->side};
    TRY(images_read(&config, images));
    return images_to_channels(images, source_info(c->files->train)->c);
}

static Status set_images(Comparison *c, SetKind kind, Images *images)
{
    uint64_t seed = (uint64_t)c->options->seed;
    switch (kind) {
    case SET_TRAIN: return source_images(c, c->files->train, c->count, images);
    case SET_TEST: return source_images(c, c->files->test, c->count, images);
    case SET_NOISE:
        TRY(images_create(c->count, c->side, source_info(c->files->train)->c, images));
        images_noise(seed, images);
        return OK;
    default: break;
    }
    if (c->folder) return source_images(c, c->folder, c->count, images);
    TRY(generator_images(&c->generator, seed, 0, c->count, images));
    return images_to_channels(images, source_info(c->files->train)->c);
}

/* ---- the measures */

static Status set_measure(Comparison *c, SetKind kind)
{
    Status st = OK;
    ImageSet *set = &c->set[kind];
    Images all = {0};
    set->features = malloc((size_t)c->count * (size_t)c->net.d * sizeof(float));
    set->histogram = calloc((size_t)c->net.config.options.classes, sizeof(int64_t));
    if (!set->features || !set->histogram)
        return FAIL(ERR_MEMORY, "no memory for the features of %" PRId64 " images", c->count);
    TRY(set_images(c, kind, &all));
    TRY_OUT(features_compute(&c->net, &all, set->features, set->histogram));
    if (kind != SET_TRAIN && c->queries) {
        TRY_OUT(images_create(c->queries, all.side, all.c, &c->query[kind]));
        memcpy(c->query[kind].at, all.at, (size_t)c->queries * image_bytes(&all));
    }
out:
    images_free(&all);
    return st;
}

static Status sets_compare(Comparison *c)
{
    Status st = OK;
    Moments real = {0}, other = {0};
    const ImageSet *train = &c->set[SET_TRAIN];
    FeatureSet x = {train->features, c->count, c->net.d};
    KidConfig config = {.subsets = SUBSETS, .seed = (uint64_t)c->options->seed};
    config.size = c->count / 2 < SUBSET_SIZE ? c->count / 2 : SUBSET_SIZE; /* else all subsets would be one */
    TRY_OUT(moments_compute(&x, &real));
    for (SetKind kind = SET_GENERATED; kind < SET_COUNT; kind++) {
        ImageSet *set = &c->set[kind];
        FeatureSet y = {set->features, c->count, c->net.d};
        TRY_OUT(kid_compute(&y, &x, &config, &set->kid));
        TRY_OUT(moments_compute(&y, &other));
        TRY_OUT(frechet_distance(&real, &other, &set->fid));
        moments_free(&other);
        set->chi_squared = chi_squared(set->histogram, train->histogram, c->net.config.options.classes, &set->freedom);
    }
out:
    moments_free(&real);
    moments_free(&other);
    return st;
}

/* How near the first images of each set are to the training set: to all of it, as far as it fits into a gibibyte. */
static Status neighbors_search(Comparison *c)
{
    Status st = OK;
    Images train = {0};
    Neighbour *nearest = calloc((size_t)c->queries + 1, sizeof *nearest);
    size_t bytes = image_bytes(&c->query[SET_TEST]);
    int64_t count = source_info(c->files->train)->count, room = (int64_t)(search_limit / bytes);
    if (!nearest) return FAIL(ERR_MEMORY, "no memory for %d nearest images", c->queries);
    c->searched = count < room ? count : room;
    TRY_OUT(source_images(c, c->files->train, c->searched, &train));
    for (SetKind kind = SET_GENERATED; kind < SET_COUNT; kind++) {
        neighbors_find(&c->query[kind], &train, nearest);
        for (int i = 0; i < c->queries; i++) c->set[kind].nearest += nearest[i].distance / c->queries;
    }
out:
    images_free(&train);
    free(nearest);
    return st;
}

/* ---- output */

static void classes_print(const Comparison *c, FILE *to)
{
    int classes = c->net.config.options.classes;
    if (classes > 20) return; /* too many to read */
    text_printf(to, "\n%-20s  %9s  %9s  %9s\n", "predicted class", "generated", "test set", "training");
    for (int k = 0; k < classes; k++) {
        const char *name = json_string_value(json_array_get(c->names, (size_t)k));
        char number[16];
        snprintf(number, sizeof number, "%d", k);
        text_printf(to, "%-20.20s  %9" PRId64 "  %9" PRId64 "  %9" PRId64 "\n", name ? name : number,
                    c->set[SET_GENERATED].histogram[k], c->set[SET_TEST].histogram[k], c->set[SET_TRAIN].histogram[k]);
    }
}

static void result_print(const Comparison *c, FILE *to)
{
    const FeatureNet *net = &c->net;
    text_printf(to, "features of %s%s%s, %d numbers, digest %.16s (values are comparable only with equal weights)\n",
                net->config.model->name, *net->config.options.variant ? " " : "", net->config.options.variant, net->d,
                net->digest);
    text_printf(to, "%" PRId64 " images of each set against the training set of %s (%s)\n\n", c->count,
                source_info(c->files->train)->name, c->files->job.data_path ? c->files->job.data_path : "synthetic");
    text_printf(to, "%-20s  %9s  %9s  %9s  %11s  %7s\n", "set", "KID", "deviation", "FID", "chi-squared", "nearest");
    for (SetKind kind = SET_GENERATED; kind < SET_COUNT; kind++) {
        const ImageSet *set = &c->set[kind];
        text_printf(to, "%-20s  %9.5f  %9.5f  %9.3f  %7.0f/%-3d", set->title, set->kid.mean, set->kid.deviation,
                    set->fid, set->chi_squared, set->freedom);
        if (c->queries)
            fprintf(to, "  %7.2f\n", set->nearest);
        else
            text_printf(to, "  %7s\n", "-");
    }
    classes_print(c, to);
    if (c->count <= net->d)
        fprintf(to, "\nFID needs more images than features (%d): the covariances are singular, so use KID\n", net->d);
}

static Status result_json(const Comparison *c, FILE *to)
{
    const FeatureNet *net = &c->net;
    int classes = net->config.options.classes;
    json_t *root = json_pack("{s:s, s:s, s:s, s:i, s:I, s:I, s:o}", "features", net->config.model->name, "variant",
                             net->config.options.variant, "digest", net->digest, "feature_count", net->d, "images",
                             (json_int_t)c->count, "searched", (json_int_t)c->searched, "training_classes",
                             json_counts(c->set[SET_TRAIN].histogram, classes));
    for (SetKind kind = SET_GENERATED; kind < SET_COUNT; kind++) {
        const ImageSet *set = &c->set[kind];
        json_object_set_new(root, set->key,
                            json_pack("{s:o, s:o, s:o, s:o, s:i, s:o, s:o}", "kid", json_finite(set->kid.mean),
                                      "kid_deviation", json_finite(set->kid.deviation), "fid", json_finite(set->fid),
                                      "chi_squared", json_finite(set->chi_squared), "freedom", set->freedom, "nearest",
                                      c->queries ? json_finite(set->nearest) : json_null(), "classes",
                                      json_counts(set->histogram, classes)));
    }
    return json_emit(root, JSON_COMPACT | JSON_REAL_PRECISION(9), to);
}

/* ---- the command */

static bool is_folder_of_images(const char *path)
{
    struct stat info;
    char record[PATH_BYTES];
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode) && path_join(record, path, "env.json") == OK &&
           access(record, F_OK) != 0;
}

/* The job of the generator's run, or for a folder a job around the classifier, with images of the folder's size. */
static Status job_make(Options *o, const FeatureConfig *features, Comparison *c, char weights[PATH_BYTES])
{
    TrainJob *job = &c->files->job;
    if (is_folder_of_images(o->arguments[0])) {
        TRY(paths_source_open(o->arguments, 1, &c->folder));
        options_name_model(o, features->model->name);
        TRY(folder_side(c->folder, &c->side));
        TRY(job_model(o, c->files));
        job->program.options.side = c->side;
        job->program.options.channels = 3;
        if (o->eval_resize <= 0 && o->crop_pct <= 0 && o->eval_crop <= 0)
            option_settle_int(o, OPTION_ID_eval_resize,
                              c->side); /* real images become as large as those of the folder, too */
    } else {
        TRY(generator_find(o, c->files, weights));
        c->side = job->program.options.side;
    }
    return job_data_open(o, 0, c->files);
}

static Status count_choose(const Options *o, Comparison *c)
{
    int64_t test = source_info(c->files->test)->count, train = source_info(c->files->train)->count;
    int64_t most = test < train ? test : train;
    if (c->folder && source_info(c->folder)->count < most) most = source_info(c->folder)->count;
    if (o->count > most)
        return FAIL(ERR_ARG,
                    "--count %" PRId64 ": there are only %" PRId64 " images (%" PRId64 " for training, %" PRId64
                    " for testing%s)",
                    o->count, most, train, test, c->folder ? ", and those of the folder" : "");
    c->count = o->count > 0 ? o->count : most < USUAL_COUNT ? most : USUAL_COUNT;
    if (c->count < LEAST_COUNT)
        return FAIL(ERR_ARG, "fid compares sets of at least %d images, but %s %" PRId64 "%s", LEAST_COUNT,
                    o->count > 0 ? "--count is" : "one set has", c->count,
                    o->count > 0 ? "" : " (training, evaluation, or those of the folder)");
    c->queries = (int)(o->neighbors < c->count ? o->neighbors : c->count);
    return OK;
}

static void comparison_close(Comparison *c)
{
    for (SetKind kind = 0; kind < SET_COUNT; kind++) {
        free(c->set[kind].features);
        free(c->set[kind].histogram);
        images_free(&c->query[kind]);
    }
    features_close(&c->net);
    generator_close(&c->generator);
    source_close(c->folder);
    json_decref(c->names);
    if (c->device.backend) c->device.backend->close(&c->device);
}

Status fid_run(const Options *given, JobFiles *files, FILE *to)
{
    Status st = OK;
    Options own;
    char weights[PATH_BYTES] = "", classifier[PATH_BYTES];
    FeatureConfig features;
    Comparison c = {.options = &own,
                    .files = files,
                    .set = {{"training", "training set"},
                            {"generated", "generated"},
                            {"test", "test set (floor)"},
                            {"noise", "noise (ceiling)"}}};
    if (given->argument_count < 1 || !given->features)
        return FAIL(ERR_ARG, "usage: towers fid RUN|FOLDER --features CLASSIFIER, a run or a safetensors file");
    TRY(classifier_find(given->features, &features, classifier));
    TRY(options_copy(given, &own));
    TRY_OUT(job_make(&own, &features, &c, weights));
    const Options *o = c.options; /* settled now */
    TRY_OUT(count_choose(o, &c));
    TRY_OUT(networks_device(&files->job, &c.device));
    features.device = &c.device;
    TRY_OUT(features_open(&features, &c.net));
    c.names = trained_names(o, classifier);
    if (!c.folder) TRY_OUT(generator_load(&files->job, weights, &c.device, BATCH, &c.generator));
    for (SetKind kind = 0; kind < SET_COUNT; kind++) TRY_OUT(set_measure(&c, kind));
    TRY_OUT(sets_compare(&c));
    if (c.queries) TRY_OUT(neighbors_search(&c));
    if (o->json)
        st = result_json(&c, to);
    else
        result_print(&c, to);
out:
    comparison_close(&c);
    options_close(&own);
    return st;
}
