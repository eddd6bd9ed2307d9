/* Histograms, norms, images, settings and the memory plan of a run; see summary.h. */
#include "towers/train/summary.h"

#include "towers/data/jpeg_write.h"
#include "towers/data/sheet.h"
#include "towers/files/csv.h"
#include "towers/files/files.h"
#include "towers/replica/memory_plan.h"
#include "towers/train/mistakes.h"
#include "towers/train/samples_log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { IMAGES = 8 /* of the first batch, for TensorBoard */, QUALITY = 85 };

/* ---- at the start */

/* Markdown shows what is indented by four as it is. */
static Status settings_text(TowerProcess *p)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (!to) return FAIL(ERR_MEMORY, "no memory for settings as text");
    for (const char *line = p->job->args_yaml; *line;) {
        size_t length = strcspn(line, "\n");
        fprintf(to, "    %.*s\n", (int)length, line);
        line += length + (line[length] == '\n');
    }
    Status st = fclose(to) == 0 ? OK : FAIL(ERR_MEMORY, "no memory for settings as text");
    if (st == OK)
        metrics_outcome(p->metrics, events_text(metrics_events(p->metrics), p->run.step, "hyperparameters", text));
    free(text);
    return st;
}

static void memory_print(const TowerProcess *p, FILE *to)
{
    MemoryPlan plan;
    memory_plan_start(&plan, &p->replica->config, p->replica->layout);
    for (int i = 0; i < p->replica->train_count; i++) memory_plan_add(&plan, p->replica->train[i].plan);
    fputc('{', to);
    for (int k = 0; k < MEMORY_CLASSES; k++)
        fprintf(to, "\"%s\": %zu, ", memory_class_name((MemoryClass)k), plan.bytes[k]);
    fprintf(to, "\"in all\": %zu}\n", memory_plan_total(&plan));
}

static Status memory_write(TowerProcess *p)
{
    char path[PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (!to) return FAIL(ERR_MEMORY, "memory plan as text");
    memory_print(p, to);
    Status st = fclose(to) == 0 ? path_join(path, p->job->run_dir, "memory.json") : FAIL(ERR_MEMORY, "memory plan");
    if (st == OK) st = file_replace(path, text, bytes);
    free(text);
    return st;
}

static Status fusion_log(TowerProcess *p)
{
    char text[256];
    const Fusion *fusion = &p->replica->train[0].fusion;
    if (!fusion->possible) return OK;
    fusion_text(fusion, text, sizeof text);
    return metrics_log(p->metrics, "joined kernels: %s", text);
}

Status summary_start(TowerProcess *p)
{
    TRY(fusion_log(p));
    if (p->job->event_interval > 0) TRY(settings_text(p));
    return memory_write(p);
}

/* ---- the first batch as the network sees it: cropped, mirrored, augmented */

static Status images_events(TowerProcess *p, const Batch *batch)
{
    const SourceInfo *info = source_info(p->job->train);
    int32_t side = p->job->program.options.side;
    uint8_t *pixels = malloc((size_t)side * (size_t)side * (size_t)batch->c);
    if (!pixels) return FAIL(ERR_MEMORY, "no memory for an image of %d x %d pixels", side, side);
    for (int32_t i = 0; i < batch->n && i < IMAGES; i++) {
        char tag[96];
        int32_t label = batch->labels[i];
        if (label >= 0 && info->class_names[label][0])
            snprintf(tag, sizeof tag, "first_batch/%d %s", i, info->class_names[label]);
        else
            snprintf(tag, sizeof tag, "first_batch/%d class %d", i, label);
        batch_picture(batch, i, side, p->job->program.model->mean, pixels);
        metrics_outcome(p->metrics,
                        events_image(metrics_events(p->metrics), p->run.step, tag, pixels, side, side, batch->c));
    }
    free(pixels);
    return OK;
}

static Status first_batch_list(const TowerProcess *p, const Batch *batch, int32_t count)
{
    char path[PATH_BYTES], where[PATH_BYTES], number[16], *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (!to) return FAIL(ERR_MEMORY, "no memory for a list of samples");
    fputs("sample,file,label\n", to);
    for (int32_t i = 0; i < count; i++) {
        source_where(p->job->train, batch->ids[i], where, sizeof where);
        fprintf(to, "%lld,", (long long)batch->ids[i]);
        csv_text(to, where);
        fputc(',', to);
        csv_text(to, batch->labels[i] == LABEL_NONE ? "(damaged)"
                                                    : class_text(source_info(p->job->train), batch->labels[i], number));
        fputc('\n', to);
    }
    Status st = fclose(to) == 0 ? path_join(path, p->job->run_dir, FIRST_BATCH_CSV)
                                : FAIL(ERR_MEMORY, "no memory for a list of samples");
    if (st == OK) st = file_replace(path, text, bytes);
    free(text);
    return st;
}

static Status first_batch_sheet(const TowerProcess *p, const Batch *batch, int32_t count)
{
    Status st = OK;
    Sheet sheet = {0};
    char path[PATH_BYTES];
    uint8_t *bytes = NULL;
    size_t size = 0;
    TRY_OUT(sheet_open(&sheet, count, SHEET_COLUMNS, p->job->program.options.side, SHEET_CELL, batch->c));
    for (int32_t i = 0; i < count; i++) TRY_OUT(sheet_put(&sheet, i, batch, i, p->job->program.model->mean));
    TRY_OUT(jpeg_encode(&sheet.pixels, QUALITY, &bytes, &size));
    TRY_OUT(path_join(path, p->job->run_dir, FIRST_BATCH_SHEET));
    TRY_OUT(file_replace(path, bytes, size));
out:
    free(bytes);
    sheet_close(&sheet);
    return st;
}

Status summary_images(TowerProcess *p, const Batch *batch)
{
    int32_t count = batch->n < SHEET_PICTURES ? batch->n : SHEET_PICTURES;
    if (p->job->event_interval > 0) TRY(images_events(p, batch));
    if (count == 0 || p->run.step > 0) return OK; /* a resumed run keeps the pictures of its beginning */
    Status st = first_batch_list(p, batch, count);
    if (st == OK) st = first_batch_sheet(p, batch, count);
    return st == OK ? OK : metrics_log(p->metrics, "no pictures of the first batch: %s", status_message());
}

/* ---- what the loaders have done */

/* A process's loader works for all of its towers. */
static LoaderClocks clocks_sum(const TowerProcess *p)
{
    LoaderClocks all = {0};
    for (int rank = 0; rank < p->job->processes; rank++) {
        const LoaderClocks *one = &ledger_row(p->ledger, job_placement(p->job, rank).first_tower, p->done)->loader;
        all.read += one->read;
        all.decode += one->decode;
        all.resize += one->resize;
        all.augment += one->augment;
        all.samples += one->samples;
        all.warnings += one->warnings;
    }
    return all;
}

Status summary_data(TowerProcess *p)
{
    const LedgerRun *run = &p->ledger->run;
    char path[PATH_BYTES], text[512];
    if (!p->metrics || p->done == 0 || p->done <= atomic_load(&run->first_step)) return OK;
    LoaderClocks all = clocks_sum(p);
    int64_t rotated = atomic_load(&run->rotated);
    TRY(rotated_note(p, rotated, atomic_load(&run->images), "training"));
    snprintf(text, sizeof text,
             "{\"first_step\": %lld, \"last_step\": %lld, \"images\": %lld, \"read_ns\": %lld, \"decode_ns\": %lld, "
             "\"resize_ns\": %lld, \"augment_ns\": %lld, \"cause\": \"%s\", \"warnings\": %lld, \"rotated\": %lld, "
             "\"exif\": %s, \"bad_samples\": %lld}\n",
             (long long)atomic_load(&run->first_step) + 1, (long long)p->done, (long long)all.samples,
             (long long)all.read, (long long)all.decode, (long long)all.resize, (long long)all.augment,
             loader_cause(p->job->train, &(LoaderClocks){0}, &all), (long long)all.warnings, (long long)rotated,
             p->job->data.train.exif ? "true" : "false", (long long)p->run.bad_samples);
    Status st = path_join(path, p->job->run_dir, DATA_SUMMARY);
    if (st == OK) st = file_replace(path, text, strlen(text));
    return st == OK ? OK : metrics_log(p->metrics, "no summary of the data: %s", status_message());
}

/* ---- parameters and gradients */

static double root_mean_square(const float *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += (double)values[i] * (double)values[i];
    return sqrt(sum / (double)count);
}

/* An arena on the host, parameter by parameter: its histogram, and its root mean square into `layers`. */
static Status arena_summary(TowerProcess *p, int64_t step, Arena arena, const char *suffix, LayerRecord *layers)
{
    const Layout *layout = p->replica->layout;
    Device *device = &p->replica->device;
    float *host = p->scratch;
    bool all = arena == ARENA_PARAM;
    size_t elements = all ? layout->param_elements : layout->trained_elements;
    TRY(device->backend->download(device, host, p->replica->arena[arena], elements * sizeof *host));
    TRY(device->backend->finish(device, STREAM_COMPUTE));
    for (int i = 0; i < (all ? layout->param_count : layout->trained_count); i++) {
        const LayoutEntry *entry = &layout->params[i];
        char tag[600];
        double *to = arena == ARENA_PARAM ? &layers[i].weight : &layers[i].gradient;
        snprintf(tag, sizeof tag, "%s%s", entry->name, suffix);
        metrics_outcome(p->metrics, events_histogram(metrics_events(p->metrics), step, tag, host + entry->first,
                                                     (int64_t)entry->count));
        *to = root_mean_square(host + entry->first, entry->count);
        layers[i].name = entry->name;
    }
    return OK;
}

bool summary_is_due(const TowerProcess *p, int64_t step)
{
    return p->job->event_interval > 0 && step % p->job->event_interval == 0;
}

Status summary_step(TowerProcess *p, int64_t step)
{
    Status st = OK;
    int count = p->replica->layout->param_count;
    if (!summary_is_due(p, step)) return OK;
    LayerRecord *layers = calloc((size_t)count + 1, sizeof *layers);
    if (!layers) return FAIL(ERR_MEMORY, "no memory for norms of %d parameters", count);
    TRY_OUT(arena_summary(p, step, ARENA_GRAD, "/gradients", layers));
    TRY_OUT(arena_summary(p, step, ARENA_PARAM, "", layers));
    TRY_OUT(metrics_layers(p->metrics, step, layers, count));
out:
    free(layers);
    return st;
}
