/* Histograms, norms, images, settings and the memory plan of a run; see summary.h. */
#include "towers/train/summary.h"

#include "towers/data/images/jpeg_write.h"
#include "towers/data/loading/sheet.h"
#include "towers/files/csv.h"
#include "towers/files/files.h"
#include "towers/replica/memory_plan.h"
#include "towers/train/samples_log.h"

#include <pthread.h>

enum { IMAGES = 8 /* of the first batch, for TensorBoard */, QUALITY = 85 };

/* ---- at the start */

/* Markdown shows lines indented by four blanks unchanged. */
static Status settings_text(TowerProcess *p)
{
    Draft draft;
    TRY(draft_begin(&draft, "the settings as text"));
    for (const char *line = p->job->args_yaml; *line;) {
        size_t length = strcspn(line, "\n");
        fprintf(draft.to, "    %.*s\n", (int)length, line);
        line += length + (line[length] == '\n');
    }
    TRY(draft_end(&draft, OK));
    metrics_outcome(p->metrics, events_text(metrics_events(p->metrics), p->run.step, "hyperparameters", draft.text));
    free(draft.text);
    return OK;
}

static Status memory_write(TowerProcess *p)
{
    Draft draft;
    MemoryPlan plan;
    TRY(draft_begin(&draft, "the memory plan as text"));
    memory_plan_start(&plan, &p->replica->config, p->replica->layout);
    for (int i = 0; i < p->replica->train_count; i++) memory_plan_add(&plan, p->replica->train[i].plan);
    fputc('{', draft.to);
    for (int k = 0; k < MEMORY_CLASSES; k++)
        fprintf(draft.to, "\"%s\": %zu, ", memory_class_name((MemoryClass)k), plan.bytes[k]);
    fprintf(draft.to, "\"in all\": %zu}\n", memory_plan_total(&plan));
    return draft_replace(&draft, OK, p->job->run_dir, "memory.json");
}

static void pools_log(TowerProcess *p)
{
    const NormPools *pools = &p->replica->train[0].pools;
    if (pools->inputs + pools->gradients)
        metrics_log(p->metrics, "max pools: %d normalize their input, %d batch norms gather the gradient of theirs",
                    pools->inputs, pools->gradients);
}

Status summary_start(TowerProcess *p)
{
    pools_log(p);
    if (p->job->event_interval > 0) TRY(settings_text(p));
    return memory_write(p);
}

/* ---- the first batch as the network sees it: cropped, mirrored, augmented */

static Status images_events(TowerProcess *p, const Batch *batch)
{
    int32_t side = program_training(&p->job->program).options.side;
    uint8_t *pixels = malloc((size_t)side * (size_t)side * (size_t)batch->c);
    if (!pixels) return FAIL(ERR_MEMORY, "no memory for an image of %d x %d pixels", side, side);
    for (int32_t i = 0; i < batch->n && i < IMAGES; i++) {
        char tag[96], label[64];
        batch_label(batch, i, p->job->train, label, sizeof label);
        snprintf(tag, sizeof tag, "first_batch/%d %s", i, label);
        batch_image(batch, i, side, model_mean(p->job->program.model, &p->job->program.options), pixels);
        metrics_outcome(p->metrics,
                        events_image(metrics_events(p->metrics), p->run.step, tag, pixels, side, side, batch->c));
    }
    free(pixels);
    return OK;
}

static Status first_batch_list(const TowerProcess *p, const Batch *batch, int32_t count)
{
    char where[PATH_BYTES], label[256];
    Draft draft;
    TRY(draft_begin(&draft, "a list of samples"));
    FILE *to = draft.to;
    fputs("sample,file,label\n", to);
    for (int32_t i = 0; i < count; i++) {
        source_where(p->job->train, batch->ids[i], where, sizeof where);
        fprintf(to, "%" PRId64 ",", batch->ids[i]);
        csv_text(to, where);
        fputc(',', to);
        batch_label(batch, i, p->job->train, label, sizeof label);
        csv_text(to, label);
        fputc('\n', to);
    }
    return draft_replace(&draft, OK, p->job->run_dir, FIRST_BATCH_CSV);
}

static Status first_batch_sheet(const TowerProcess *p, const Batch *batch, int32_t count)
{
    Status st = OK;
    Sheet sheet = {0};
    char path[PATH_BYTES];
    uint8_t *bytes = NULL;
    size_t size = 0;
    TRY_OUT(sheet_open(&sheet, count, SHEET_COLUMNS, program_training(&p->job->program).options.side, SHEET_CELL,
                       batch->c));
    for (int32_t i = 0; i < count; i++)
        TRY_OUT(sheet_put(&sheet, i, batch, i, model_mean(p->job->program.model, &p->job->program.options)));
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
    int32_t count = batch->n < SHEET_IMAGES ? batch->n : SHEET_IMAGES;
    if (p->job->event_interval > 0) TRY(images_events(p, batch));
    if (count == 0 || p->run.step > 0) return OK; /* a resumed run keeps the images of its start */
    Status st = first_batch_list(p, batch, count);
    if (st == OK) st = first_batch_sheet(p, batch, count);
    if (st != OK) metrics_log(p->metrics, "no images of the first batch: %s", status_message());
    return OK;
}

/* ---- statistics of the loaders */

/* The work of one process's loader, as of its last tower's batch; the counters of images are those of its program. */
typedef struct DataWork {
    LoaderClocks clocks;
    int64_t images, rotated;
    SourceTraffic traffic; /* of its machine */
} DataWork;

static DataWork work_of(const TowerProcess *p)
{
    const LedgerRun *run = &p->ledger->run;
    int last = p->place.first_tower + p->place.local_towers - 1;
    DataWork work = {.clocks = ledger_row(p->ledger, last, p->done)->loader};
    if (leads_node(&p->place)) work.images = atomic_load(&run->images);
    if (leads_node(&p->place)) work.rotated = atomic_load(&run->rotated);
    if (leads_node(&p->place)) source_traffic(p->job->train, &work.traffic);
    return work;
}

static Status work_sum(TowerProcess *p, DataWork *all)
{
    DataWork mine = work_of(p), *work = calloc((size_t)p->place.ranks, sizeof *work);
    *all = (DataWork){0};
    if (!work) return FAIL(ERR_MEMORY, "no memory for the statistics of %d loaders", p->place.ranks);
    Status st = comm_gather(p->comm, &mine, sizeof mine, work);
    for (int r = 0; st == OK && r < p->place.ranks; r++) {
        const LoaderClocks *one = &work[r].clocks;
        all->clocks.read += one->read;
        all->clocks.decode += one->decode;
        all->clocks.resize += one->resize;
        all->clocks.augment += one->augment;
        all->clocks.samples += one->samples;
        all->clocks.warnings += one->warnings;
        all->images += work[r].images;
        all->rotated += work[r].rotated;
        all->traffic.bytes += work[r].traffic.bytes;
        all->traffic.retries += work[r].traffic.retries;
        all->traffic.wait_ns += work[r].traffic.wait_ns;
    }
    free(work);
    return st;
}

Status summary_data(TowerProcess *p)
{
    const LedgerRun *run = &p->ledger->run;
    char text[768], network[160] = "";
    DataWork work;
    if (!p->job->run_dir) return OK;
    TRY(work_sum(p, &work));
    if (!p->metrics || p->done <= atomic_load(&run->first_step)) return OK;
    const LoaderClocks *all = &work.clocks;
    rotated_note(p, work.rotated, work.images, "training");
    if (source_info(p->job->train)->elsewhere)
        snprintf(network, sizeof network,
                 ", \"network\": {\"bytes\": %" PRId64 ", \"retries\": %" PRId64 ", \"wait_ns\": %" PRId64 "}",
                 work.traffic.bytes, work.traffic.retries, work.traffic.wait_ns);
    snprintf(text, sizeof text,
             "{\"first_step\": %" PRId64 ", \"last_step\": %" PRId64 ", \"images\": %" PRId64 ", \"read_ns\": %" PRId64
             ", \"decode_ns\": %" PRId64 ", \"resize_ns\": %" PRId64 ", \"augment_ns\": %" PRId64
             ", \"cause\": \"%s\", \"warnings\": %" PRId64 ", \"rotated\": %" PRId64
             ", \"exif\": %s, \"bad_samples\": %" PRId64 "%s}\n",
             atomic_load(&run->first_step) + 1, p->done, all->samples, all->read, all->decode, all->resize,
             all->augment, loader_cause(p->job->train, &(LoaderClocks){0}, all), all->warnings, work.rotated,
             p->job->data.train.exif ? "true" : "false", p->run.bad_samples, network);
    if (text_replace(p->job->run_dir, DATA_SUMMARY, text) != OK)
        metrics_log(p->metrics, "no summary of the data: %s", status_message());
    return OK;
}

/* ---- parameters and gradients */

static double root_mean_square(const float *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += (double)values[i] * (double)values[i];
    return sqrt(sum / (double)count);
}

typedef struct Counted {
    Histogram histogram;
    double root_mean_square;
} Counted;

/* The gradients and the weights after one step, and the thread that counts them while training goes on. Gradients come
 * first: `values` is [trained_elements + param_elements], `counted` [trained_count + param_count]. */
struct Summary {
    const Layout *layout; /* borrowed */
    float *values;        /* owned, pinned */
    size_t bytes;
    Counted *counted;    /* owned */
    LayerRecord *layers; /* owned: [param_count] */
    int64_t step;
    float unscale; /* of the gradients, as they are when the step has ended */
    int phase;     /* the one that it updated; gradients of others are those of an earlier step */
    pthread_t thread;
    bool counting; /* `thread` must be joined */
    bool filled;   /* `counted` must be written */
};

static void count_arena(const Layout *layout, const float *values, int count, Counted *counted)
{
    for (int i = 0; i < count; i++) {
        const LayoutEntry *entry = &layout->params[i];
        histogram_count(values + entry->first, (int64_t)entry->count, &counted[i].histogram);
        counted[i].root_mean_square = root_mean_square(values + entry->first, entry->count);
    }
}

static void *count_all(void *context)
{
    Summary *s = context;
    const Layout *layout = s->layout;
    for (size_t i = 0; i < layout->trained_elements; i++) s->values[i] *= s->unscale;
    count_arena(layout, s->values, layout->trained_count, s->counted);
    count_arena(layout, s->values + layout->trained_elements, layout->param_count, s->counted + layout->trained_count);
    return NULL;
}

static Status summary_create(TowerProcess *p)
{
    const Layout *layout = p->replica->layout;
    Summary *s = calloc(1, sizeof *s);
    if (!s) return FAIL(ERR_MEMORY, "no memory for the summaries");
    p->summary = s;
    s->layout = layout;
    s->bytes = (layout->trained_elements + layout->param_elements) * sizeof *s->values;
    s->values = pages_alloc(s->bytes);
    s->counted = malloc((size_t)(layout->trained_count + layout->param_count) * sizeof *s->counted);
    s->layers = malloc((size_t)layout->param_count * sizeof *s->layers);
    if (!s->values || !s->counted || !s->layers)
        return FAIL(ERR_MEMORY, "no memory for the summaries (%zu MiB)", s->bytes >> 20);
    if (p->job->backend->pin) p->job->backend->pin(&p->replica->device, s->values, s->bytes, PIN_DOWNLOADS);
    return OK;
}

void summary_finish(TowerProcess *p)
{
    Summary *s = p->summary;
    if (!s || !s->filled) return;
    if (s->counting) pthread_join(s->thread, NULL);
    s->counting = s->filled = false;
    const Layout *layout = s->layout;
    Events *events = metrics_events(p->metrics);
    for (int i = 0; i < layout->param_count; i++) {
        bool fresh = i < layout->trained_count && layout->params[i].moves >> s->phase & 1;
        const Counted *gradient = fresh ? &s->counted[i] : NULL, *weight = &s->counted[layout->trained_count + i];
        const char *name = layout->params[i].name;
        char tag[600];
        snprintf(tag, sizeof tag, "%s/gradients", name);
        if (gradient) metrics_outcome(p->metrics, events_histogram(events, s->step, tag, &gradient->histogram));
        metrics_outcome(p->metrics, events_histogram(events, s->step, name, &weight->histogram));
        double none = i < layout->trained_count ? ABSENT : 0;
        s->layers[i] = (LayerRecord){name, weight->root_mean_square, gradient ? gradient->root_mean_square : none};
    }
    metrics_layers(p->metrics, s->step, s->layers, layout->param_count);
}

void summary_close(TowerProcess *p)
{
    Summary *s = p->summary;
    if (!s) return;
    summary_finish(p);
    if (s->values && p->job->backend->pin) p->job->backend->pin(&p->replica->device, s->values, s->bytes, PIN_NOT);
    free(s->values);
    free(s->counted);
    free(s->layers);
    free(s);
    p->summary = NULL;
}

bool summary_is_due(const TowerProcess *p, int64_t step)
{
    return p->job->event_interval > 0 && step % p->job->event_interval == 0;
}

/* "trust/min", "trust/mean" and "trust/max" of the tensors that LARS or LAMB adapted in this step: those of its phase.
 * Ratios of others are of an earlier step, which a run that resumes between them has not made. */
static Status trust_events(TowerProcess *p, int64_t step)
{
    Status st = OK;
    Replica *r = p->replica;
    int count = 0, phase = job_phase_of(p->job, step - 1);
    const PhaseUpdate *u = &r->update[phase];
    double least = INFINITY, most = 0, sum = 0;
    char tag[64];
    if (!u->trust) return OK;
    OptimizerTrust *trust = calloc((size_t)u->segment_count + 1, sizeof *trust);
    if (!trust) return FAIL(ERR_MEMORY, "no memory for %d trust ratios", u->segment_count);
    TRY_OUT(replica_download(r, trust, u->trust, (size_t)u->segment_count * sizeof *trust));
    for (int k = 0; k < u->segment_count; k++) {
        if (!u->segments[k].adapts) continue;
        double ratio = (double)trust[k].ratio;
        least = ratio < least ? ratio : least;
        most = ratio > most ? ratio : most;
        sum += ratio;
        count++;
    }
    const struct {
        const char *name;
        double value;
    } scalars[] = {{"trust/min", least}, {"trust/mean", sum / count}, {"trust/max", most}};
    for (size_t i = 0; count && i < sizeof scalars / sizeof *scalars; i++) {
        snprintf(tag, sizeof tag, "%s%s%s", r->phases > 1 ? job_phase(p->job, phase)->name : "",
                 r->phases > 1 ? "/" : "", scalars[i].name);
        metrics_outcome(p->metrics, events_scalar(metrics_events(p->metrics), step, tag, scalars[i].value));
    }
out:
    free(trust);
    return st;
}

Status summary_step(TowerProcess *p, int64_t step, float unscale)
{
    if (!summary_is_due(p, step)) return OK;
    TRY(trust_events(p, step));
    summary_finish(p);
    Status made = p->summary ? OK : summary_create(p);
    if (made != OK) { /* the run can do without */
        summary_close(p);
        metrics_outcome(p->metrics, made);
        return OK;
    }
    Summary *s = p->summary;
    Device *device = &p->replica->device;
    size_t trained = s->layout->trained_elements;
    TRY(device->backend->download(device, s->values, p->replica->arena[ARENA_GRAD], trained * sizeof *s->values));
    TRY(device->backend->download(device, s->values + trained, p->replica->arena[ARENA_PARAM],
                                  s->layout->param_elements * sizeof *s->values));
    TRY(device->backend->finish(device, STREAM_COMPUTE));
    s->step = step;
    s->unscale = unscale;
    s->phase = job_phase_of(p->job, step - 1);
    s->filled = true;
    s->counting = pthread_create(&s->thread, NULL, count_all, s) == 0;
    if (!s->counting) count_all(s);
    return OK;
}
