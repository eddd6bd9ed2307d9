/* What a batch holds; see batch_buffer.h. */
#include "towers/data/loading/batch_buffer.h"
#include "kernels/backend.h"
#include "kernels/base/array.h"
#include "kernels/base/clock.h"
#include "kernels/base/progress.h"

static int32_t channels_of(const LoaderConfig *config)
{
    return config->transform.gray ? 1 : source_info(config->source)->c;
}

size_t batch_buffer_image_bytes(const LoaderConfig *config)
{
    size_t side = (size_t)(config->transform.side + 2 * config->transform.pad);
    return side * side * (size_t)channels_of(config);
}

bool batch_buffer_init(const LoaderConfig *config, int32_t capacity, BatchBuffer *buffer)
{
    size_t n = (size_t)capacity, classes = config->targets.classes > 0 ? (size_t)config->targets.classes : 0;
    bool mixes = mix_is_on(&config->mix);
    buffer->config = config;
    buffer->image_bytes = batch_buffer_image_bytes(config);
    if (n < SIZE_MAX / 2 / buffer->image_bytes)
        buffer->pixels = pages_alloc(n * buffer->image_bytes); /* for Backend.pin */
    buffer->labels = calloc(n, sizeof *buffer->labels);
    buffer->augment = calloc(n, IMAGE_RECORD * sizeof *buffer->augment);
    buffer->ids = calloc(n, sizeof *buffer->ids);
    if (mixes) buffer->predicted = calloc(n, sizeof *buffer->predicted);
    if (classes) buffer->targets = calloc(n * classes, sizeof *buffer->targets);
    buffer->batch = (Batch){.canvas = config->transform.side + 2 * config->transform.pad,
                            .c = channels_of(config),
                            .pixels = buffer->pixels,
                            .labels = buffer->labels,
                            .augment = buffer->augment,
                            .ids = buffer->ids,
                            .predicted = buffer->predicted,
                            .targets = buffer->targets};
    return buffer->pixels && buffer->labels && buffer->augment && buffer->ids && (buffer->predicted || !mixes) &&
           (buffer->targets || !classes);
}

void batch_buffer_free(BatchBuffer *buffer)
{
    free(buffer->pixels);
    free(buffer->labels);
    free(buffer->augment);
    free(buffer->ids);
    free(buffer->predicted);
    free(buffer->targets);
    free(buffer->bad);
}

void batch_buffer_place(BatchBuffer *buffer, int64_t step, int tower)
{
    const LocalBatches *local_batches = &buffer->config->local_batches;
    Batch *b = &buffer->batch;
    int64_t count = source_info(buffer->config->source)->count, steps = steps_per_epoch_of(local_batches, count);
    int64_t global = global_batch_of(local_batches), start = step % steps * global;
    b->step = step;
    b->epoch = step / steps;
    b->tower = tower;
    b->skipped = b->rotated = 0;
    local_batch_of(local_batches, count, step % steps, tower, &buffer->first, &b->n);
    b->first = buffer->first - start;
    buffer->before = buffer->first > start ? buffer->first - 1 : (start + global < count ? start + global : count) - 1;
    buffer->count = b->n + (b->n > 0 && mix_is_on(&buffer->config->mix));
}

/* The image behind the batch is the partner of its first image. */
int64_t batch_buffer_position(const BatchBuffer *buffer, int32_t i)
{
    return i < buffer->batch.n ? buffer->first + i : buffer->before;
}

/* The random augmentation of an image depends on its number, not on its place in the order. With the balanced sampler it
 * depends on the place, because the same image may be drawn a hundred times in an epoch and must not look the same each
 * time. */
static SampleKey key_of(const BatchBuffer *buffer, int32_t i)
{
    bool again = buffer->config->sampler == SAMPLER_BALANCED;
    return (SampleKey){buffer->config->seed, buffer->batch.epoch,
                       again ? batch_buffer_position(buffer, i) : buffer->ids[i]};
}

static Status sample_decode(BatchBuffer *buffer, int32_t i, SampleReader *reader)
{
    const Transform *transform = &buffer->config->transform;
    ImageInfo info;
    SamplePlan plan;
    TRY(image_probe(&reader->bytes, &info));
    int32_t c = source_info(buffer->config->source)->c;
    if (info.c != c) return FAIL(ERR_FORMAT, "%d channels, but the data set has %d", info.c, c);
    if (i < buffer->batch.n) reader->rotated += info.orientation != 1; /* the partner is counted in its own batch */
    transform_plan(transform, key_of(buffer, i), &info, &reader->bytes.boxes, &plan);
    return transform_apply(transform, &reader->transform, &reader->bytes, &info, &plan,
                           buffer->pixels + (size_t)i * buffer->image_bytes,
                           buffer->augment + (size_t)i * IMAGE_RECORD);
}

Status batch_buffer_read(BatchBuffer *buffer, int32_t i, SampleReader *reader)
{
    int64_t id = buffer->ids[i], start = clock_ns();
    Status st = source_read(buffer->config->source, id, &reader->bytes, &buffer->labels[i]);
    reader->clocks.read += clock_ns() - start;
    reader->clocks.samples++;
    if (st != OK) return st;
    int64_t warnings = image_decoder_warnings(reader->transform.decoder);
    st = sample_decode(buffer, i, reader);
    transform_worker_rest(&reader->transform);
    bytes_rest(&reader->bytes);
    progress_made("an image");
    if (st == ERR_FORMAT || st == ERR_MEMORY) {
        /* Add the name of the file to a decoder's error. */
        char where[300], why[STATUS_MESSAGE_BYTES];
        snprintf(why, sizeof why, "%s", status_message());
        source_where(buffer->config->source, id, where, sizeof where);
        return FAIL(st, "'%s': %s", where, why);
    }
    reader->clocks.warnings += st == OK && image_decoder_warnings(reader->transform.decoder) > warnings;
    return st;
}

/* The undamaged sample nearest to sample i, the earlier one of two; -1 if there is none. */
static int32_t neighbor_of(const BatchBuffer *buffer, int32_t i)
{
    for (int32_t d = 1; d < buffer->batch.n; d++) {
        if (i - d >= 0 && buffer->labels[i - d] != LABEL_NONE) return i - d;
        if (i + d < buffer->batch.n && buffer->labels[i + d] != LABEL_NONE) return i + d;
    }
    return -1;
}

static int by_index(const void *a, const void *b)
{
    return ((const BadSample *)a)->index - ((const BadSample *)b)->index;
}

/* Replace the pixels of skipped samples by those of a neighbor. A damaged partner behind the batch is not reported here,
 * but in the batch to which it belongs. */
static void bad_cover(BatchBuffer *buffer)
{
    for (int32_t k = 0; k < buffer->batch.skipped; k++) buffer->labels[buffer->bad[k].index] = LABEL_NONE;
    if (buffer->batch.skipped > 1) qsort(buffer->bad, (size_t)buffer->batch.skipped, sizeof *buffer->bad, by_index);
    if (buffer->batch.skipped > 0 && buffer->bad[buffer->batch.skipped - 1].index == buffer->batch.n)
        buffer->batch.skipped--;
    for (int32_t k = 0; k < buffer->batch.skipped; k++) {
        int32_t i = buffer->bad[k].index, from = neighbor_of(buffer, i);
        uint8_t *pixels = buffer->pixels + (size_t)i * buffer->image_bytes;
        int32_t *record = buffer->augment + (size_t)i * IMAGE_RECORD;
        if (from < 0) {
            memset(pixels, 0, buffer->image_bytes);
            memset(record, 0, IMAGE_RECORD * sizeof *record);
            continue;
        }
        memcpy(pixels, buffer->pixels + (size_t)from * buffer->image_bytes, buffer->image_bytes);
        memcpy(record, buffer->augment + (size_t)from * IMAGE_RECORD, IMAGE_RECORD * sizeof *record);
    }
    buffer->batch.bad = buffer->bad;
}

static LabelSet labels_of(const BatchBuffer *buffer, int64_t id)
{
    LabelSet set;
    set.count = source_labels(buffer->config->source, id, &set.label);
    return set;
}

/* The targets of sample i; `from`: the place of its partner, if share > 0. */
static void targets_of(BatchBuffer *buffer, int32_t i, int32_t from, double share)
{
    const TargetRule *rule = &buffer->config->targets;
    float *targets = buffer->targets + (size_t)i * (size_t)rule->classes;
    if (!rule->multi_label || buffer->labels[i] == LABEL_NONE) {
        target_fill(rule, buffer->labels[i], share > 0 ? buffer->labels[from] : LABEL_NONE, share, targets);
        return;
    }
    LabelSet partner = share > 0 ? labels_of(buffer, buffer->ids[from]) : (LabelSet){0};
    target_fill_multi_label(rule, labels_of(buffer, buffer->ids[i]), partner, share, targets);
}

/* Assign a partner to each sample, unless one of the two is damaged, and fill in the targets. */
static void batch_mix(BatchBuffer *buffer)
{
    Batch *b = &buffer->batch;
    const TargetRule *rule = &buffer->config->targets;
    Mix mix = mix_plan(&buffer->config->mix, buffer->config->seed, b->step, buffer->config->transform.side);
    double weight = 0;
    b->share = mix.label;
    for (int32_t i = 0; i < b->n; i++) {
        int32_t from = i > 0 ? i - 1 : b->n, label = buffer->labels[i];
        bool mixed = mix.label > 0 && label != LABEL_NONE && buffer->labels[from] != LABEL_NONE;
        int32_t partner = mixed ? buffer->labels[from] : LABEL_NONE;
        double share = mixed ? mix.label : 0;
        if (mixed) mix_record(&mix, from, buffer->augment + (size_t)i * IMAGE_RECORD);
        if (buffer->predicted) buffer->predicted[i] = share > 0.5 ? partner : label;
        if (buffer->targets) targets_of(buffer, i, from, share);
        weight += target_weight(rule, label, partner, share);
    }
    b->weight = (float)weight;
}

void batch_buffer_finish(BatchBuffer *buffer)
{
    bad_cover(buffer);
    batch_mix(buffer);
}

Status batch_buffer_skip(BatchBuffer *buffer, int32_t i)
{
    TRY(array_grow(&buffer->bad, buffer->batch.skipped, sizeof *buffer->bad, "the list of bad samples"));
    BadSample *bad = &buffer->bad[buffer->batch.skipped++];
    bad->index = i;
    bad->id = buffer->ids[i];
    snprintf(bad->why, sizeof bad->why, "%s", status_message());
    return OK;
}

void reader_take(SampleReader *reader, BatchBuffer *buffer, LoaderClocks *clocks)
{
    TransformWorker *t = &reader->transform;
    clocks->read += reader->clocks.read;
    clocks->samples += reader->clocks.samples;
    clocks->decode += t->decode_ns;
    clocks->resize += t->resize_ns;
    clocks->augment += t->augment_ns;
    clocks->warnings += reader->clocks.warnings;
    buffer->batch.rotated += reader->rotated;
    reader->clocks = (LoaderClocks){0};
    t->decode_ns = t->resize_ns = t->augment_ns = 0;
    reader->rotated = 0;
}
