/* The observer of a training run with a generator (Observation, towers/replica/job.h). At each observation it writes a
 * grid of images of the same noise, RUN/generated/step-N.png, and with --features the KID of generated images.
 * Networks are opened at the first observation, in the process that observes; a grid or measure that cannot be made is
 * reported in log.txt and does not end the run. */
#include "inception/commands/commands.h"

#include "inception/commands/networks.h"
#include "inception/quality/kid.h"
#include "towers/record/png.h"

enum { COLUMNS = 8, ROWS = 8, BATCH = 64, MEASURED = 1000, SUBSETS = 20, NAME = 64 };

struct Watch {
    JobFiles *files; /* borrowed */
    bool measures;
    char weights[PATH_BYTES], name[NAME]; /* of the classifier; its name and digest */
    FeatureConfig features;
    bool open;
    Generator generator;
    FeatureNet net;
    Images real;
    float *real_features, *made_features; /* owned: [count][d] */
    int64_t count;                        /* images of each set */
};

/* ---- the networks */

static Status features_prepare(Watch *w, Device *device)
{
    const TrainJob *job = &w->files->job;
    ImagesConfig config = {.source = job->train,
                           .transform = job_transform(job, false),
                           .seed = job->seed,
                           .count = MEASURED,
                           .workers = job->data.workers};
    w->features.device = device;
    TRY(features_open(&w->features, &w->net));
    TRY(images_read(&config, &w->real));
    w->count = w->real.count;
    w->real_features = calloc((size_t)w->count * (size_t)w->net.d, sizeof(float));
    w->made_features = calloc((size_t)w->count * (size_t)w->net.d, sizeof(float));
    if (!w->real_features || !w->made_features)
        return FAIL(ERR_MEMORY, "no memory for the features of %" PRId64 " images", w->count);
    TRY(features_compute(&w->net, &w->real, w->real_features, NULL));
    images_free(&w->real);
    snprintf(w->name, sizeof w->name, "%.40s %.16s", w->features.model->name, w->net.digest);
    return OK;
}

static void networks_close(Watch *w)
{
    generator_close(&w->generator);
    features_close(&w->net);
    images_free(&w->real);
    free(w->real_features);
    free(w->made_features);
    w->real_features = w->made_features = NULL;
}

static Status networks_open(Watch *w, const Observation *seen)
{
    const TrainJob *job = &w->files->job;
    NetworkWeights weights = {.layout = seen->layout, .params = seen->params, .running = seen->running};
    if (w->open) return OK;
    TRY(generator_open(job->program.model, &job->program.options, &weights, seen->device, BATCH, &w->generator));
    Status st = w->measures ? features_prepare(w, seen->device) : OK;
    w->open = st == OK;
    if (!w->open) networks_close(w); /* the next observation tries again */
    return st;
}

/* ---- an observation */

static Status grid_write(const Observation *seen, const Images *made, const char *file)
{
    Status st = OK;
    char path[PATH_BYTES], folder[PATH_BYTES];
    int32_t width = COLUMNS * made->side, height = ROWS * made->side;
    uint8_t *pixels = NULL;
    TRY_OUT(path_join(folder, seen->run_dir, "generated"));
    TRY_OUT(path_join(path, seen->run_dir, file));
    TRY_OUT(directory_create(folder));
    TRY_OUT(images_grid(made, 0, COLUMNS, ROWS, &pixels));
    TRY_OUT(png_replace(path, pixels, width, height, made->c));
    TRY_OUT(events_image(metrics_events(seen->metrics), seen->step, "generated", pixels, width, height, made->c));
out:
    free(pixels);
    return st;
}

static Status images_measure(Watch *w, Images *made, GeneratedRecord *record)
{
    FeatureSet real = {w->real_features, w->count, w->net.d}, found = {w->made_features, w->count, w->net.d};
    KidConfig config = {.subsets = SUBSETS, .size = w->count / 2, .seed = w->files->job.seed};
    Kid kid;
    TRY(images_to_channels(made, source_info(w->files->job.train)->c));
    TRY(features_compute(&w->net, made, w->made_features, NULL));
    TRY(kid_compute(&found, &real, &config, &kid));
    record->measured = true;
    record->kid = kid.mean;
    record->kid_deviation = kid.deviation;
    record->images = w->count;
    record->features = w->name;
    return OK;
}

static Status images_look(Watch *w, Observation *seen)
{
    Status st = OK;
    Images made = {0};
    char file[NAME];
    GeneratedRecord record = {.step = seen->step, .epoch = seen->epoch, .file = file};
    int64_t grid = COLUMNS * ROWS;
    snprintf(file, sizeof file, "generated/step-%010" PRId64 ".png", seen->step);
    TRY(networks_open(w, seen));
    TRY(generator_images(&w->generator, w->files->job.seed, 0, w->count > grid ? w->count : grid, &made));
    TRY_OUT(grid_write(seen, &made, file));
    made.count = w->count;
    if (w->measures) TRY_OUT(images_measure(w, &made, &record));
    metrics_generated(seen->metrics, &record);
    if (record.measured) seen->kid = record.kid;
    if (record.measured)
        metrics_log(seen->metrics, "step %" PRId64 ": KID %.5f (deviation %.5f), %" PRId64 " images, features of %s",
                    seen->step, record.kid, record.kid_deviation, record.images, record.features);
out:
    images_free(&made);
    return st;
}

static Status observe(void *context, Observation *seen)
{
    Status st = images_look(context, seen);
    if (st == OK || st == ERR_INTERNAL || st == ERR_CHECKPOINT) return st;
    metrics_log(seen->metrics, "no generated images of step %" PRId64 ": %s", seen->step, status_message());
    return OK;
}

/* ---- start and stop */

Status watch_start(const Options *o, JobFiles *files)
{
    TrainJob *job = &files->job;
    if (!job->program.model->generate) return OK;
    Watch *w = calloc(1, sizeof *w);
    if (!w) return FAIL(ERR_MEMORY, "no memory for the observer of a run");
    files->watch = w;
    w->files = files;
    w->measures = o->features != NULL;
    if (w->measures) TRY(classifier_find(o->features, &w->features, w->weights));
    int channels = source_info(job->train)->c, reads = w->features.options.channels;
    if (w->measures && reads < channels)
        return FAIL(ERR_ARG,
                    "--features %s: %s reads images with %d channel, but the data has %d; give a classifier of color "
                    "images",
                    o->features, w->features.model->name, reads, channels);
    job->observe = observe;
    job->observe_context = w;
    job->observe_cycles = o->sample_interval;
    return OK;
}

void watch_stop(Watch *w)
{
    if (!w) return;
    networks_close(w);
    free(w);
}
