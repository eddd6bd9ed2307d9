/* towers predict RUN IMAGE...: classifies images with a trained network and the run's own evaluation transform. Paths
 * are read through the loader; the forward pass is that of evaluation. */
#include "inception/commands/commands.h"
#include "inception/job/cores.h"
#include "inception/job/facts.h"
#include "inception/job/run_argument.h"
#include "inception/job/run_settings.h"
#include "kernels/text.h"
#include "towers/data/sources/labels.h"
#include "towers/data/sources/paths.h"
#include "towers/data/sources/shards.h"
#include "towers/files/csv.h"
#include "towers/files/json.h"
#include "towers/replica/inference.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PREDICT_BATCH = 32, TOP_MAX = 1000 };

typedef struct Prediction {
    const Options *options;
    JobFiles *files;
    FILE *to;
    json_t *names; /* owned: class names of the run, or NULL */
    bool several;  /* the run was trained on images with any number of classes: those above --threshold are printed */
    bool photos;   /* the run was trained on a folder of images or on shards */
    int64_t damaged;
} Prediction;

/* ---- settings from the run */

/* What the weights say about classes and images. */
static Status facts_take(Options *o, const char *weights, Prediction *p)
{
    json_t *facts;
    TRY(facts_read(o, weights, &facts));
    const char *crop = facts_text(facts, "crop"), *several = facts_text(facts, "several_classes"),
               *classes = facts_text(facts, "classes");
    if (!p->names) p->names = json_incref(json_object_get(facts, "class_names"));
    if (crop) p->photos = strcmp(crop, "whole") != 0;
    if (several) p->several = !strcmp(several, "true");
    if (o->classes <= 0 && classes) o->classes = strtoll(classes, NULL, 10);
    if (o->classes <= 0) o->classes = (int64_t)json_array_size(p->names);
    json_decref(facts);
    return OK;
}

/* Class names and the kind of data of a run, from RUN/env.json. */
static Status environment_read(Options *o, Prediction *p)
{
    struct stat info;
    const char *run = o->arguments[0];
    p->photos = true;
    if (stat(run, &info) != 0 || !S_ISDIR(info.st_mode)) return OK;
    json_t *root = run_environment(run);
    json_t *names = json_object_get(root, "class_names");
    const char *format = json_string_value(json_object_get(root, "data_format"));
    int64_t classes = json_integer_value(json_object_get(root, "classes"));
    if (json_is_array(names) && json_array_size(names) > 0) p->names = json_incref(names);
    p->several = json_is_true(json_object_get(root, "several_classes"));
    if (format) p->photos = strcmp(format, "IDX") != 0 && strcmp(format, "generated") != 0;
    if (o->classes <= 0) o->classes = classes > 0 ? classes : p->names ? (int64_t)json_array_size(p->names) : 0;
    json_decref(root);
    return OK;
}

static const char *class_name(const Prediction *p, int64_t class, char number[32])
{
    const char *name = p->names ? json_string_value(json_array_get(p->names, (size_t) class)) : NULL;
    if (name && *name) return name;
    snprintf(number, 32, "%" PRId64, class);
    return number;
}

/* ---- results */

typedef struct Ranked {
    int64_t class;
    float probability;
} Ranked;

static int by_probability(const void *a, const void *b)
{
    const Ranked *x = a, *y = b;
    if (x->probability != y->probability) return x->probability < y->probability ? 1 : -1;
    return x->class < y->class ? -1 : 1;
}

static void json_print(const Prediction *p, const char *where, const Ranked *rank, int top)
{
    char number[32];
    json_t *all = json_array();
    for (int k = 0; k < top; k++)
        json_array_append_new(all, json_pack("{s:I, s:o, s:o}", "class", (json_int_t)rank[k].class, "name",
                                             json_text(class_name(p, rank[k].class, number)), "probability",
                                             json_finite((double)rank[k].probability)));
    json_t *root = json_pack("{s:o, s:o}", "file", json_text(where), "predictions", all);
    json_dumpf(root, p->to, JSON_COMPACT | JSON_REAL_PRECISION(9));
    fputc('\n', p->to);
    json_decref(root);
}

static void result_print(const Prediction *p, const char *where, const Ranked *rank, int top)
{
    char number[32];
    if (p->options->json) {
        json_print(p, where, rank, top);
        return;
    }
    if (!p->options->csv) text_printf(p->to, "%s%s\n", where, top ? "" : "  (no class)");
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
}

/* The oldest batch under way. */
static Status batch_print(Prediction *p, Inference *inference, const Source *source)
{
    const Inferred *found;
    int64_t classes = p->files->job.program.options.classes;
    int most = (int)(p->options->top < classes && !p->several ? p->options->top : classes);
    TRY(inference_end(inference, &found));
    const Batch *batch = &found->batch;
    Ranked *rank = malloc((size_t)classes * sizeof *rank);
    if (!rank) return FAIL(ERR_MEMORY, "no memory for predictions of %d images", batch->n);
    for (int32_t i = 0, bad = 0; i < batch->n; i++) {
        char where[PATH_BYTES];
        if (batch->labels[i] == LABEL_NONE) {
            text_printf(stderr, "damaged: %s\n", batch->bad[bad++].why);
            continue;
        }
        for (int64_t k = 0; k < classes; k++) rank[k] = (Ranked){k, found->prob[i * found->pitch + k]};
        qsort(rank, (size_t)classes, sizeof *rank, by_probability);
        source_where(source, batch->ids[i], where, sizeof where);
        int top = most;
        if (p->several)
            for (top = 0; top < classes && (double)rank[top].probability > p->options->threshold;) top++;
        result_print(p, where, rank, top);
    }
    p->damaged += batch->skipped;
    free(rank);
    return OK;
}

/* ---- running the network */

static Status loader_open(const Prediction *p, const Source *source, Loader **made)
{
    const TrainJob *job = &p->files->job;
    int64_t count = source_info(source)->count;
    LoaderConfig config = {.source = source,
                           .shares = {.towers = 1, .batch = {PREDICT_BATCH}},
                           .local = 1,
                           .targets = job->program.targets ? job_targets(job, false) : (TargetRule){0},
                           .transform = job_transform(job, false),
                           .bad = BAD_SKIP,
                           .workers = option_is_set(p->options, "workers") ? (int)p->options->workers : cores_allowed(),
                           .depth = 4};
    config.max_steps = shares_steps_per_epoch(&config.shares, count);
    return loader_create(&config, made);
}

/* A data set, whose labels do not matter. Of shards with a part for evaluation only this is used. */
static Status set_open(const Options *o, const char *path, Source **made)
{
    SourceConfig config = {.path = path, .whole = true, .unlabelled = true};
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

/* Images and folders of them, or a data set: shards, of which several are a list, or a folder with --split. */
static Status images_open(const Options *o, Source **made)
{
    char *const *paths = o->arguments + 1, *list = NULL;
    int count = o->argument_count - 1;
    size_t bytes = 0;
    bool shards = shards_are_in(paths[0]);
    if (!shards && o->split == PART_AUTO) return paths_source_open(paths, count, made);
    if (!shards && count > 1) return FAIL(ERR_ARG, "--split is for one data set, but %d paths are given", count);
    FILE *to = open_memstream(&list, &bytes);
    for (int i = 0; to && i < count; i++) {
        fputs(i ? "::" : "", to);
        fputs(paths[i], to);
    }
    if (!to || fclose(to) != 0) return FAIL(ERR_MEMORY, "no memory for a list of %d shards", count);
    Status st = set_open(o, list, made);
    free(list);
    return st;
}

static Status images_run(Prediction *p, const Source *source, const char *weights)
{
    Status st = OK;
    Replica *replica = NULL;
    Loader *loader = NULL;
    Inference *inference = NULL;
    const TrainJob *job = &p->files->job;
    int64_t count = source_info(source)->count, rotated = 0;
    ReplicaConfig config = {.backend = job->backend, .device = job_device(job, 0), .program = job->program, .local = 1};
    config.device.threads = job->device.threads > 1 ? job->device.threads : cores_allowed();
    config.eval_n[0] = (int32_t)(count < PREDICT_BATCH ? count : PREDICT_BATCH);
    if (count > PREDICT_BATCH) config.eval_n[1] = (int32_t)(count % PREDICT_BATCH);
    TRY_OUT(replica_create(&config, &replica));
    TRY_OUT(inference_weights(replica, &job->program, weights));
    TRY_OUT(loader_open(p, source, &loader));
    TRY_OUT(inference_open(replica, loader, true, &inference));
    if (p->options->csv) fprintf(p->to, "file,rank,class,probability\n");
    for (int64_t done = 0; done < count;) {
        const Batch *batch;
        TRY_OUT(loader_next(loader, &batch));
        TRY_OUT(inference_begin(inference, batch));
        done += batch->n;
        rotated += batch->rotated;
        if (inference_pending(inference) > inference_ahead(inference)) TRY_OUT(batch_print(p, inference, source));
    }
    while (inference_pending(inference)) TRY_OUT(batch_print(p, inference, source));
    if (rotated && !job->data.eval.exif && !p->options->quiet)
        fprintf(stderr,
                "%" PRId64 " of %" PRId64
                " images are stored rotated (EXIF orientation) and were used as stored; --exif "
                "rotates them upright\n",
                rotated, count);
out:
    inference_close(inference);
    loader_destroy(loader);
    replica_destroy(replica);
    return st;
}

Status predict_run(Options *o, JobFiles *files, FILE *to)
{
    Status st = OK;
    Source *source = NULL;
    char weights[PATH_BYTES];
    Prediction p = {.options = o, .files = files, .to = to};
    if (o->argument_count < 2) return FAIL(ERR_ARG, "usage: towers predict RUN IMAGE|FOLDER|SHARD...");
    TRY(environment_read(o, &p));
    TRY_OUT(run_argument_apply(o));
    if (!o->weights) TRY_OUT(FAIL(ERR_ARG, "predict needs weights: towers predict RUN, or MODEL with --weights FILE"));
    TRY_OUT(job_weights(o, o->weights, weights, sizeof weights));
    TRY_OUT(facts_take(o, weights, &p));
    if (option_is_set(o, "threshold") && !p.several)
        TRY_OUT(FAIL(ERR_ARG, "--threshold is for networks that give an image any number of classes; use --top"));
    if (option_is_set(o, "top") && p.several)
        TRY_OUT(FAIL(ERR_ARG, "--top is for networks that give an image one class; use --threshold"));
    TRY_OUT(job_model(o, files));
    job_transforms(o, &files->job, p.photos);
    TRY_OUT(images_open(o, &source));
    TRY_OUT(job_channels(o, &files->job, source_info(source)->c));
    if (files->job.program.options.channels < source_info(source)->c)
        TRY_OUT(FAIL(ERR_ARG, "%s learned from grey images, but predict reads color images",
                     files->job.program.model->name));
    TRY_OUT(images_run(&p, source, weights));
    if (p.damaged) st = FAIL(ERR_FORMAT, "%" PRId64 " images cannot be decoded", p.damaged);
out:
    source_close(source);
    json_decref(p.names);
    return st;
}
