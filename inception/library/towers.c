/* libtowers over classifier.h; see towers.h. Images in memory are a source, so that they take the way of files. */
#include "inception/library/towers.h"

#include "inception/job/named_model.h"
#include "inception/library/classifier.h"
#include "inception/library/worker.h"
#include "inception/options/settle.h"
#include "kernels/base/cores.h"
#include "towers/data/sources/reader.h"
#include "towers/store/weights.h"

#define PUBLIC __attribute__((visibility("default")))

enum { BATCH_MAX = 1024, SIZES = 12, CHANNELS = 3 };

struct towers_network {
    NetworkWorker worker; /* opens, computes and closes */
    Options options;
    JobFiles files;
    Classifier classifier;
    int32_t size[SIZES]; /* of batches, falling to 1, then 0 */
    char *path;          /* owned */
    int threads, embedding;
};

/* ---- errors */

static towers_status status_of(Status st)
{
    int code = status_exit_code(st);
    if (st == ERR_NUMERIC) return TOWERS_WEIGHTS;
    return st == OK ? TOWERS_OK : code >= TOWERS_INTERNAL && code <= TOWERS_IO ? (towers_status)code : TOWERS_INTERNAL;
}

static towers_status report(Status st, towers_error *error)
{
    if (error) {
        error->status = status_of(st);
        snprintf(error->text, sizeof error->text, "%s", st == OK ? "" : status_message());
    }
    return status_of(st);
}

PUBLIC const char *towers_version(void)
{
    return TOWERS_VERSION;
}

PUBLIC const char *towers_status_name(towers_status status)
{
    static const char *const names[] = {"TOWERS_OK",      "TOWERS_INTERNAL",    "TOWERS_ARGUMENT", "TOWERS_FORMAT",
                                        "TOWERS_WEIGHTS", "TOWERS_UNAVAILABLE", "TOWERS_IO"};
    return (unsigned)status < sizeof names / sizeof *names ? names[status] : "unknown status";
}

/* ---- images in memory as a source */

typedef struct MemorySource {
    Source base;
    const towers_image *image; /* of the caller's array, those from `first` on */
    int first;
} MemorySource;

/* A gray image gets three equal channels, as if it had been decoded; a network of gray images reads their luma. */
static Status raw_take(const towers_image *image, Bytes *bytes)
{
    size_t pixels = (size_t)image->height * (size_t)image->width;
    const uint8_t *from = image->bytes;
    if (image->channels == CHANNELS) return bytes_raw(bytes, from, image->height, image->width, CHANNELS);
    TRY(bytes_reserve(bytes, pixels * 3));
    for (size_t i = 0; i < pixels; i++) memset(bytes->data + 3 * i, from[i], 3);
    bytes->size = pixels * 3;
    bytes->raw_h = image->height;
    bytes->raw_w = image->width;
    bytes->raw_c = 3;
    return OK;
}

static Status memory_read(const Source *source, int64_t index, Bytes *bytes, int32_t *label)
{
    const MemorySource *m = (const MemorySource *)source;
    const towers_image *image = &m->image[index];
    *label = 0;
    if (image->channels) return raw_take(image, bytes);
    TRY(sample_size_check(image->size));
    TRY(bytes_reserve(bytes, image->size));
    memcpy(bytes->data, image->bytes, image->size);
    bytes->size = image->size;
    bytes->raw_h = bytes->raw_w = bytes->raw_c = 0;
    return OK;
}

static void memory_where(const Source *source, int64_t index, char *text, size_t bytes)
{
    snprintf(text, bytes, "image %" PRId64, ((const MemorySource *)source)->first + index);
}

/* ---- open and close */

static Status options_take(towers_network *t, const char *path, const towers_options *given)
{
    towers_options o = {0};
    struct stat info;
    if (given && given->struct_size < sizeof given->struct_size)
        return FAIL(ERR_ARG, "towers_options.struct_size is %zu; set it to sizeof(towers_options)", given->struct_size);
    if (given) memcpy(&o, given, given->struct_size < sizeof o ? given->struct_size : sizeof o);
    if (o.threads < 0 || o.threads > 1024 || o.batch < 0 || o.batch > BATCH_MAX)
        return FAIL(ERR_ARG, "threads %d and batch %d: expected 0 to 1024 each", o.threads, o.batch);
    if (stat(path, &info) != 0 || (!S_ISDIR(info.st_mode) && !S_ISREG(info.st_mode)))
        return FAIL(ERR_ARG, "there is no run directory or file of weights '%s'", path);
    t->threads = o.threads ? o.threads : cores_allowed();
    t->embedding = o.embeddings != 0;
    if (asprintf(&t->path, "%s%s", strchr(path, '/') ? "" : "./", path) < 0) /* never the name of a model */
        return FAIL(ERR_MEMORY, "no memory for the path '%s'", path);
    char *const command[] = {"towers", "predict", "--", t->path};
    TRY(options_parse(sizeof command / sizeof *command, command, NULL, &t->options));
    option_settle_flag(&t->options, OPTION_ID_quiet, true);
    option_settle_int(&t->options, OPTION_ID_threads, t->threads);
    int32_t size = o.batch ? o.batch : 1, k = 0;
    t->size[k++] = size;
    for (int32_t next = 512; next >= 1; next /= 2)
        if (next < size && k < SIZES - 1) t->size[k++] = next;
    return OK;
}

/* Before a caller's threads open networks. */
__attribute__((constructor)) static void onnx_files_enable(void)
{
    weights_of_network = network_values_open;
}

static Status network_load(void *network)
{
    towers_network *t = network;
    Classifier *c = &t->classifier;
    TRY(classifier_open(&t->options, &t->files, c));
    t->files.job.program.features = t->embedding != 0;
    TRY(classifier_load(&t->options, CHANNELS, t->size, c));
    if (!t->embedding) return OK;
    const Program *program = &c->replica->eval[0];
    Shape shape = graph_shape(program->graph, program->features);
    t->embedding = shape.c * shape.h * shape.w;
    return OK;
}

static Status network_unload(void *network)
{
    towers_network *t = network;
    classifier_close(&t->classifier);
    job_close(&t->files);
    return OK;
}

static void network_free(towers_network *t)
{
    options_close(&t->options);
    free(t->path);
    free(t);
}

/* A fork of the process that opened it leaves it as it is: it has copies of the memory alone, not of threads and device. */
PUBLIC void towers_close(towers_network *t)
{
    if (t && worker_stop(&t->worker, network_unload, t)) network_free(t);
}

PUBLIC towers_status towers_open(const char *path, const towers_options *options, towers_network **made,
                                 towers_error *error)
{
    if (!path || !made) return report(FAIL(ERR_ARG, "towers_open: path and made must not be NULL"), error);
    towers_network *t = calloc(1, sizeof *t);
    if (!t) return report(FAIL(ERR_MEMORY, "no memory for a network"), error);
    Status st = options_take(t, path, options);
    if (st == OK) st = worker_start(&t->worker);
    bool started = st == OK;
    if (started) st = worker_run(&t->worker, network_load, t);
    towers_status status = report(st, error);
    if (st == OK)
        *made = t;
    else if (started)
        towers_close(t);
    else
        network_free(t);
    return status;
}

/* ---- what it is */

PUBLIC const char *towers_model(const towers_network *t)
{
    return t->files.job.program.model->name;
}

PUBLIC int towers_side(const towers_network *t)
{
    return t->files.job.program.options.side;
}

PUBLIC int towers_class_count(const towers_network *t)
{
    return t->files.job.program.options.classes;
}

PUBLIC const char *towers_class_name(const towers_network *t, int class_number)
{
    const char *name =
        class_number < 0 ? NULL : json_string_value(json_array_get(t->classifier.names, (size_t)class_number));
    return name ? name : "";
}

PUBLIC int towers_several_classes(const towers_network *t)
{
    return t->classifier.multi_label;
}

PUBLIC int towers_turns_upright(const towers_network *t)
{
    return t->files.job.data.eval.exif;
}

PUBLIC int towers_embedding_size(const towers_network *t)
{
    return t->embedding;
}

/* ---- classify */

typedef struct Results {
    towers_network *network;
    const towers_image *images; /* [count] */
    int count;
    float *probabilities, *embeddings; /* from the first image of this run on */
    int64_t done;
    char *damaged; /* [STATUS_MESSAGE_BYTES]: why the first damaged image is, or "" */
} Results;

static Status results_take(void *context, const Inferred *found)
{
    Results *r = context;
    size_t classes = (size_t)towers_class_count(r->network), size = (size_t)r->network->embedding;
    for (int32_t i = 0, bad = 0; i < found->batch.n; i++, r->done++) {
        float *prob = r->probabilities + (size_t)r->done * classes,
              *features = r->embeddings ? r->embeddings + (size_t)r->done * size : NULL;
        bool good = found->batch.labels[i] != LABEL_NONE;
        if (!good && !*r->damaged) snprintf(r->damaged, STATUS_MESSAGE_BYTES, "%s", found->batch.bad[bad].why);
        bad += !good;
        for (size_t k = 0; k < classes; k++) prob[k] = good ? found->prob[i * found->pitch + (int64_t)k] : NAN;
        for (size_t k = 0; features && k < size; k++) {
            const Tensor *kept = &found->features;
            size_t c = (size_t)kept->shape.c, place = (size_t)i * (size / c) + k / c;
            features[k] = good ? ((const float *)kept->data)[place * (size_t)kept->pitch + k % c] : NAN;
        }
    }
    return OK;
}

static Status image_check(const towers_image *image, int index)
{
    if (!image->bytes) return FAIL(ERR_ARG, "image %d has no bytes", index);
    if (!image->channels) return OK;
    bool fits =
        image->height > 0 && image->width > 0 && image->height <= IMAGE_SIDE_MAX && image->width <= IMAGE_SIDE_MAX;
    if (!fits || (image->channels != 1 && image->channels != 3))
        return FAIL(ERR_ARG, "image %d is %d x %d with %d channels; expected sides from 1 to %d and 1 or 3 channels",
                    index, image->width, image->height, image->channels, IMAGE_SIDE_MAX);
    if (image->size != (size_t)image->height * (size_t)image->width * (size_t)image->channels)
        return FAIL(ERR_ARG, "image %d has %zu bytes, which are not those of %d x %d x %d", index, image->size,
                    image->height, image->width, image->channels);
    return OK;
}

/* The largest batches that fit, then smaller ones. */
static Status images_run(void *of)
{
    static const char *const names[] = {""};
    Results *results = of;
    towers_network *t = results->network;
    int count = results->count;
    if (results->embeddings && !t->embedding)
        return FAIL(ERR_ARG, "embeddings were not asked for when the network was opened (towers_options)");
    for (int k = 0, done = 0; done < count; k++) {
        int share = (count - done) / t->size[k] * t->size[k];
        if (!share) continue;
        MemorySource source = {.base = {.info = {.name = "memory",
                                                 .format = "memory",
                                                 .count = share,
                                                 .classes = 1,
                                                 .class_names = names,
                                                 .c = CHANNELS},
                                        .read = memory_read,
                                        .where = memory_where},
                               .image = results->images + done,
                               .first = done};
        int workers = share > 1 ? (share < t->threads ? share : t->threads) : 0;
        TRY(classifier_run(&t->classifier, &source.base, t->size[k], workers, results_take, results));
        done += share;
    }
    return OK;
}

PUBLIC towers_status towers_classify(towers_network *t, const towers_image *images, int count, float *probabilities,
                                     float *embeddings, towers_error *error)
{
    Status st = OK;
    char damaged[STATUS_MESSAGE_BYTES] = "";
    if (!t || count < 0 || (count && (!images || !probabilities)))
        return report(
            FAIL(ERR_ARG, "towers_classify: network, images and probabilities must not be NULL, nor count negative"),
            error);
    for (int i = 0; i < count && st == OK; i++) st = image_check(&images[i], i);
    if (st != OK) return report(st, error);
    Results results = {t, images, count, probabilities, embeddings, .damaged = damaged};
    st = worker_run(&t->worker, images_run, &results);
    if (st == OK && *damaged) st = FAIL(ERR_FORMAT, "%s", damaged);
    return report(st, error);
}
