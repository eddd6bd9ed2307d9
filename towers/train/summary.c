/* Histograms, norms, images, settings and the memory plan of a run; see summary.h. */
#include "towers/train/summary.h"

#include "towers/replica/memory_plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { IMAGES = 8 };

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

/* ---- images of the first batch, as they lie in memory: before crops and mirrors */

Status summary_images(TowerProcess *p, const Batch *batch)
{
    const SourceInfo *info = source_info(p->job->train);
    size_t image = (size_t)batch->canvas * (size_t)batch->canvas * (size_t)batch->c;
    if (p->job->event_interval == 0) return OK;
    for (int32_t i = 0; i < batch->n && i < IMAGES; i++) {
        char tag[96];
        int32_t label = batch->labels[i];
        if (label >= 0 && info->class_names[label][0])
            snprintf(tag, sizeof tag, "first_batch/%d %s", i, info->class_names[label]);
        else
            snprintf(tag, sizeof tag, "first_batch/%d class %d", i, label);
        metrics_outcome(p->metrics, events_image(metrics_events(p->metrics), p->run.step, tag,
                                                 batch->pixels + i * image, batch->canvas, batch->canvas, batch->c));
    }
    return OK;
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
