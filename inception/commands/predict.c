/* towers predict RUN IMAGE...: classifies images with a trained network and the run's own evaluation transform. Paths
 * are read through the loader; the forward pass is that of evaluation (inception/library/classifier.h). */
#include "inception/commands/class_maps.h"
#include "inception/commands/commands.h"
#include "inception/commands/result_file.h"
#include "inception/job/job.h"
#include "inception/job/notes.h"
#include "inception/job/remote_data.h"
#include "inception/library/classifier.h"
#include "inception/options/settle.h"
#include "kernels/base/cores.h"
#include "towers/data/shards/shard_set.h"
#include "towers/data/sources/labels.h"
#include "towers/data/sources/paths.h"
#include "towers/files/csv.h"
#include "towers/files/json.h"

enum { PREDICT_BATCH = 32 };

typedef struct Prediction {
    const Options *options;
    Classifier classifier;
    const Source *source;
    FILE *to;
    DurableFile *embeddings;    /* owned: what becomes the file of --embeddings, or NULL */
    char temporary[PATH_BYTES]; /* its name until it is whole */
    int64_t damaged, rotated;
} Prediction;

static const char *class_name(const Prediction *p, int64_t class, char number[32])
{
    const char *name = json_string_value(json_array_get(p->classifier.names, (size_t) class));
    if (name && *name) return name;
    snprintf(number, 32, "%" PRId64, class);
    return number;
}

/* ---- results */

typedef struct RankedClass {
    int64_t class;
    float probability;
} RankedClass;

static int by_probability(const void *a, const void *b)
{
    const RankedClass *x = a, *y = b;
    if (x->probability != y->probability) return x->probability < y->probability ? 1 : -1;
    return x->class < y->class ? -1 : 1;
}

static Status json_print(const Prediction *p, const char *where, const char *cam, const RankedClass *rank, int top)
{
    char number[32];
    json_t *all = json_array();
    for (int k = 0; k < top; k++)
        json_array_append_new(all, json_pack("{s:I, s:o, s:o}", "class", (json_int_t)rank[k].class, "name",
                                             json_text(class_name(p, rank[k].class, number)), "probability",
                                             json_finite((double)rank[k].probability)));
    json_t *root = json_pack("{s:o, s:o}", "file", json_text(where), "predictions", all);
    if (*cam) json_object_set_new(root, "cam", json_text(cam));
    return json_emit(root, JSON_COMPACT | JSON_REAL_PRECISION(9), p->to);
}

/* Each image has a row, so that rows and those of --embeddings are of the same images. */
static void empty_row(const Prediction *p, const char *where)
{
    csv_text(p->to, where);
    fputs(",0,\"\",\n", p->to);
}

static Status damaged_print(const Prediction *p, int64_t id, const char *why)
{
    char where[PATH_BYTES];
    source_where(p->source, id, where, sizeof where);
    text_printf(stderr, "damaged: %s\n", why);
    if (p->options->csv) empty_row(p, where);
    if (!p->options->json) return OK;
    json_t *root = json_pack("{s:o, s:[], s:o}", "file", json_text(where), "predictions", "error", json_text(why));
    return json_emit(root, JSON_COMPACT, p->to);
}

static Status result_print(const Prediction *p, const char *where, const char *cam, const RankedClass *rank, int top)
{
    char number[32];
    if (p->options->json) return json_print(p, where, cam, rank, top);
    if (!p->options->csv) text_printf(p->to, "%s%s\n", where, top ? "" : "  (no class)");
    if (p->options->csv && !top) empty_row(p, where);
    for (int k = 0; k < top; k++) {
        const char *name = class_name(p, rank[k].class, number);
        if (!p->options->csv) {
            text_printf(p->to, "  %6.2f %%  %s\n", 100 * (double)rank[k].probability, name);
            continue;
        }
        csv_text(p->to, where);
        fprintf(p->to, ",%d,", k + 1);
        csv_text(p->to, name);
        fprintf(p->to, ",%.6f\n", (double)rank[k].probability);
    }
    return OK;
}

/* A row for each image; of a damaged one it is NaN. */
static Status embeddings_put(Prediction *p, const Inferred *found, int32_t i, bool good)
{
    const float none = NAN, *features = found->features.data;
    Shape shape = found->features.shape;
    int64_t places = (int64_t)shape.h * shape.w;
    for (int64_t place = 0; place < places; place++)
        for (int64_t k = 0; k < shape.c; k++)
            TRY(durable_write(p->embeddings, good ? &features[(i * places + place) * found->features.pitch + k] : &none,
                              sizeof none));
    return OK;
}

/* Number of classes of --cam: the most probable one, or those of --top. */
static int maps_count(const Prediction *p)
{
    int64_t classes = p->classifier.files->job.program.options.classes,
            top = option_is_set(p->options, "top") ? p->options->top : 1;
    return (int)(top < classes ? top : classes);
}

static Status image_take(const Prediction *p, const Inferred *found, int32_t i, const RankedClass *rank, int top)
{
    char where[PATH_BYTES], cam[PATH_BYTES] = "";
    source_where(p->source, found->batch.ids[i], where, sizeof where);
    if (p->options->cam) {
        const ProgramConfig *program = &p->classifier.files->job.program;
        ClassMaps maps = {.program = program, .found = found, .image = i, .count = maps_count(p)};
        for (int k = 0; k < maps.count; k++) maps.classes[k] = rank[k].class;
        TRY(class_maps_write(&maps, p->options->cam, where, cam));
    }
    return result_print(p, where, cam, rank, top);
}

static Status batch_print(void *context, const Inferred *found)
{
    Prediction *p = context;
    int64_t classes = p->classifier.files->job.program.options.classes;
    bool multi_label = p->classifier.multi_label;
    int most = (int)(p->options->top < classes && !multi_label ? p->options->top : classes);
    Status st = OK;
    const Batch *batch = &found->batch;
    RankedClass *rank = malloc((size_t)classes * sizeof *rank);
    if (!rank) return FAIL(ERR_MEMORY, "no memory for predictions of %d images", batch->n);
    for (int32_t i = 0, bad = 0; i < batch->n; i++) {
        bool good = batch->labels[i] != LABEL_NONE;
        if (p->embeddings && (st = embeddings_put(p, found, i, good)) != OK) break;
        if (!good) {
            if ((st = damaged_print(p, batch->ids[i], batch->bad[bad++].why)) != OK) break;
            continue;
        }
        for (int64_t k = 0; k < classes; k++) rank[k] = (RankedClass){k, found->prob[i * found->pitch + k]};
        qsort(rank, (size_t)classes, sizeof *rank, by_probability);
        int top = most;
        if (multi_label)
            for (top = 0; top < classes && (double)rank[top].probability > p->options->threshold;) top++;
        if ((st = image_take(p, found, i, rank, top)) != OK) break;
    }
    p->damaged += batch->skipped;
    p->rotated += batch->rotated;
    free(rank);
    return st;
}

/* A data set, whose labels do not matter. Of shards with a part for evaluation only this is used. */
static Status set_open(const Options *o, const char *path, Source **made)
{
    SourceConfig config = {.path = path, .whole = true, .unlabeled = true, .partial = true};
    unsigned parts = source_splits(path);
    Split part = SPLIT_TRAIN;
    if (o->split != PART_AUTO || parts & ~SPLIT_BIT(SPLIT_TRAIN)) TRY(job_part(o, path, &part));
    TRY(source_open(&config, part, made));
    if (o->split == PART_AUTO && part != SPLIT_TRAIN && parts != SPLIT_BIT(part))
        text_printf(stderr,
                    "'%s' has shards of several parts: only the %" PRId64
                    " images of %s are used; for others, give --split or name their shards\n",
                    path, source_info(*made)->count, split_name(part));
    return source_unlabeled(made);
}

/* Images in a folder of shards, which are not part of the data set. */
static void unused_images_warn(char *path)
{
    Source *images;
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode) || paths_source_open(&path, 1, &images) != OK) return;
    int64_t count = source_info(images)->count;
    text_printf(stderr,
                "'%s' holds shards: %" PRId64 " image%s beside them %s not used; to predict %s, name the file%s\n",
                path, count, count == 1 ? "" : "s", count == 1 ? "is" : "are", count == 1 ? "it" : "them",
                count == 1 ? "" : "s");
    source_close(images);
}

/* Images and folders of them, or a data set: shards, of which several are a list, or a folder with --split. */
static Status images_open(const Options *o, Source **made)
{
    char *const *paths = o->arguments + 1;
    int count = o->argument_count - 1, shards = 0, of[2] = {0}; /* an argument without shards, and one with them */
    Draft list;
    for (int i = 0; i < count; i++) {
        bool has = shards_are_in(paths[i]);
        shards += has;
        of[has] = i;
    }
    if (shards && shards < count)
        return FAIL(ERR_ARG, "'%s' holds shards, but '%s' %s; predict them with a command of its own", paths[of[1]],
                    paths[of[0]], access(paths[of[0]], F_OK) == 0 ? "does not" : "is not there");
    for (int i = 0; i < shards; i++) unused_images_warn(paths[i]);
    if (!shards && o->split == PART_AUTO) return paths_source_open(paths, count, made);
    if (!shards && count > 1) return FAIL(ERR_ARG, "--split is for one data set, but %d paths are given", count);
    TRY(draft_begin(&list, "a list of shards"));
    for (int i = 0; i < count; i++) {
        fputs(i ? "::" : "", list.to);
        fputs(paths[i], list.to);
    }
    TRY(draft_end(&list, OK));
    Status st = set_open(o, list.text, made);
    free(list.text);
    return st;
}

/* --embeddings: NumPy's format, version 1.0: magic, length of the header, the header with the shape padded to 64 bytes, then f32. */
static Status embeddings_begin(Prediction *p, int64_t count)
{
    enum { MAGIC = 10, HEADER = 118 };
    const Program *program = &p->classifier.replica->eval[0];
    Shape shape = graph_shape(program->graph, program->features);
    int size = shape.c * shape.h * shape.w;
    struct stat info;
    if (lstat(p->options->embeddings, &info) == 0 && !S_ISREG(info.st_mode))
        return FAIL(ERR_IO, "--embeddings %s: not a regular file; it was not replaced", p->options->embeddings);
    char header[MAGIC + HEADER + 1];
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", MAGIC);
    Text text = text_start(header + MAGIC, HEADER + 1);
    text_add(&text, "{'descr': '<f4', 'fortran_order': False, 'shape': (%" PRId64 ", %d), }", count, size);
    memset(header + MAGIC + text.used, ' ', HEADER - text.used);
    header[MAGIC + HEADER - 1] = '\n';
    TRY(path_temporary(p->temporary, p->options->embeddings));
    TRY(durable_create(p->temporary, MAGIC + HEADER + (uint64_t)count * (uint64_t)size * sizeof(float),
                       &p->embeddings));
    return durable_write(p->embeddings, header, MAGIC + HEADER);
}

static Status embeddings_end(Prediction *p)
{
    if (!p->embeddings) return OK;
    TRY(durable_finish(p->embeddings, NULL));
    Status st = file_publish(p->temporary, p->options->embeddings);
    if (st != OK) unlink(p->temporary);
    return st;
}

static Status images_run(Prediction *p)
{
    char line[SKIP_LINE_BYTES];
    const Inventory *inventory = &source_info(p->source)->inventory;
    const Options *o = p->options;
    int64_t count = source_info(p->source)->count;
    int32_t sizes[] = {(int32_t)(count < PREDICT_BATCH ? count : PREDICT_BATCH),
                       (int32_t)(count > PREDICT_BATCH ? count % PREDICT_BATCH : 0), 0};
    int workers = option_is_set(o, "workers") ? (int)o->workers : cores_allowed();
    ProgramConfig *program = &p->classifier.files->job.program;
    program->features = o->embeddings != NULL;
    program->maps = o->cam != NULL;
    if (o->cam && maps_count(p) > CLASS_MAPS_MAX)
        return FAIL(ERR_ARG, "--cam shows at most %d classes of an image side by side, but --top is %" PRId64,
                    CLASS_MAPS_MAX, o->top);
    if (o->embeddings) TRY(result_file_check("--embeddings", o->embeddings, RESULT_EMBEDDINGS, NULL));
    TRY(classifier_load(o, source_info(p->source)->c, sizes, &p->classifier));
    if (!o->quiet) TRY(job_weights_say(&p->classifier.files->job, p->classifier.weights));
    if (o->cam) TRY(directory_create(o->cam));
    if (o->embeddings) TRY(embeddings_begin(p, count));
    for (SkipReason why = 0; why < SKIP_REASONS; why++)
        if (inventory->skipped[why].count) text_printf(stderr, "%s\n", skip_line(inventory, why, line));
    if (o->csv) fprintf(p->to, "file,rank,class,probability\n");
    TRY(classifier_run(&p->classifier, p->source, PREDICT_BATCH, workers, batch_print, p));
    if (o->cam && !o->quiet) {
        int64_t maps = count - p->damaged;
        text_printf(stderr, "%" PRId64 " class map%s of %d x %d pixels, what the network sees, in %s\n", maps,
                    maps == 1 ? "" : "s", program->options.side, program->options.side, o->cam);
    }
    if (p->rotated && !p->classifier.files->job.data.eval.exif && !o->quiet)
        fprintf(stderr,
                "%" PRId64 " of %" PRId64
                " images are stored rotated (EXIF orientation) and were used as stored; --exif rotates them upright\n",
                p->rotated, count);
    return OK;
}

static Status images_predict(const Options *o, Prediction *p)
{
    Source *source = NULL;
    Status st = OK;
    if (option_is_set(o, "threshold") && !p->classifier.multi_label)
        TRY_OUT(FAIL(ERR_ARG, "--threshold is for networks that give an image any number of classes; use --top"));
    if (option_is_set(o, "top") && p->classifier.multi_label)
        TRY_OUT(FAIL(ERR_ARG, "--top is for networks that give an image one class; use --threshold"));
    TRY_OUT(images_open(o, &source));
    p->source = source;
    TRY_OUT(images_run(p));
    if (p->damaged)
        st = FAIL(ERR_FORMAT, "%" PRId64 " image%s cannot be decoded", p->damaged, p->damaged == 1 ? "" : "s");
out:
    if (st == OK || st == ERR_FORMAT) {
        Status written = embeddings_end(p);
        if (st == OK) st = written;
    }
    durable_destroy(p->embeddings);
    source_close(source);
    return st;
}

Status predict_run(const Options *given, JobFiles *files, FILE *to)
{
    Options o; /* as the run or the file says */
    Prediction p = {.options = &o, .to = to};
    if (given->argument_count < 2)
        return FAIL(ERR_ARG, "no image given; usage: towers predict RUN|FILE IMAGE|FOLDER|SHARD...");
    TRY(options_copy(given, &o));
    Status st = arguments_bring(&o, 1);
    if (st == OK) st = classifier_open(&o, files, &p.classifier);
    if (st == OK) st = images_predict(&o, &p);
    classifier_close(&p.classifier);
    options_close(&o);
    return st;
}
