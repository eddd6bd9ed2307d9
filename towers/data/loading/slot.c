/* What a batch holds; see slot.h. */
#include "towers/data/loading/slot.h"
#include "kernels/backend.h"
#include "kernels/base/array.h"
#include "kernels/base/clock.h"
#include "kernels/base/progress.h"

static int32_t channels_of(const LoaderConfig *config)
{
    return config->transform.gray ? 1 : source_info(config->source)->c;
}

size_t slot_image_bytes(const LoaderConfig *config)
{
    size_t side = (size_t)(config->transform.side + 2 * config->transform.pad);
    return side * side * (size_t)channels_of(config);
}

bool slot_init(const LoaderConfig *config, int32_t capacity, BatchSlot *slot)
{
    size_t n = (size_t)capacity, classes = config->targets.classes > 0 ? (size_t)config->targets.classes : 0;
    bool mixes = mix_is_on(&config->mix);
    slot->config = config;
    slot->image_bytes = slot_image_bytes(config);
    if (n < SIZE_MAX / 2 / slot->image_bytes) slot->pixels = pages_alloc(n * slot->image_bytes); /* for Backend.pin */
    slot->labels = calloc(n, sizeof *slot->labels);
    slot->augment = calloc(n, IMAGE_RECORD * sizeof *slot->augment);
    slot->ids = calloc(n, sizeof *slot->ids);
    if (mixes) slot->predicted = calloc(n, sizeof *slot->predicted);
    if (classes) slot->targets = calloc(n * classes, sizeof *slot->targets);
    slot->batch = (Batch){.canvas = config->transform.side + 2 * config->transform.pad,
                          .c = channels_of(config),
                          .pixels = slot->pixels,
                          .labels = slot->labels,
                          .augment = slot->augment,
                          .ids = slot->ids,
                          .predicted = slot->predicted,
                          .targets = slot->targets};
    return slot->pixels && slot->labels && slot->augment && slot->ids && (slot->predicted || !mixes) &&
           (slot->targets || !classes);
}

void slot_free(BatchSlot *slot)
{
    free(slot->pixels);
    free(slot->labels);
    free(slot->augment);
    free(slot->ids);
    free(slot->predicted);
    free(slot->targets);
    free(slot->bad);
}

void slot_place(BatchSlot *slot, int64_t step, int tower)
{
    const Shares *shares = &slot->config->shares;
    Batch *b = &slot->batch;
    int64_t count = source_info(slot->config->source)->count, steps = shares_steps_per_epoch(shares, count);
    int64_t global = shares_global(shares), start = step % steps * global;
    b->step = step;
    b->epoch = step / steps;
    b->tower = tower;
    b->skipped = b->rotated = 0;
    shares_of(shares, count, step % steps, tower, &slot->first, &b->n);
    b->first = slot->first - start;
    slot->before = slot->first > start ? slot->first - 1 : (start + global < count ? start + global : count) - 1;
    slot->count = b->n + (b->n > 0 && mix_is_on(&slot->config->mix));
}

/* The image behind the batch is the partner of its first image. */
int64_t slot_position(const BatchSlot *slot, int32_t i)
{
    return i < slot->batch.n ? slot->first + i : slot->before;
}

/* The random augmentation of an image depends on its number, not on its place in the order. With the balanced sampler it
 * depends on the place, because the same image may be drawn a hundred times in an epoch and must not look the same each
 * time. */
static SampleKey key_of(const BatchSlot *slot, int32_t i)
{
    bool again = slot->config->sampler == SAMPLER_BALANCED;
    return (SampleKey){slot->config->seed, slot->batch.epoch, again ? slot_position(slot, i) : slot->ids[i]};
}

static Status sample_decode(BatchSlot *slot, int32_t i, SampleReader *reader)
{
    const Transform *transform = &slot->config->transform;
    ImageInfo info;
    SamplePlan plan;
    TRY(image_probe(&reader->bytes, &info));
    int32_t c = source_info(slot->config->source)->c;
    if (info.c != c) return FAIL(ERR_FORMAT, "%d channels, but the data set has %d", info.c, c);
    if (i < slot->batch.n) reader->rotated += info.orientation != 1; /* the partner is counted in its own batch */
    transform_plan(transform, key_of(slot, i), &info, &reader->bytes.boxes, &plan);
    return transform_apply(transform, &reader->transform, &reader->bytes, &info, &plan,
                           slot->pixels + (size_t)i * slot->image_bytes, slot->augment + (size_t)i * IMAGE_RECORD);
}

Status slot_read(BatchSlot *slot, int32_t i, SampleReader *reader)
{
    int64_t id = slot->ids[i], start = clock_ns();
    Status st = source_read(slot->config->source, id, &reader->bytes, &slot->labels[i]);
    reader->clocks.read += clock_ns() - start;
    reader->clocks.samples++;
    if (st != OK) return st;
    int64_t warnings = image_decoder_warnings(reader->transform.decoder);
    st = sample_decode(slot, i, reader);
    transform_worker_rest(&reader->transform);
    bytes_rest(&reader->bytes);
    progress_made("an image");
    if (st == ERR_FORMAT || st == ERR_MEMORY) {
        /* Add the name of the file to a decoder's error. */
        char where[300], why[STATUS_MESSAGE_BYTES];
        snprintf(why, sizeof why, "%s", status_message());
        source_where(slot->config->source, id, where, sizeof where);
        return FAIL(st, "'%s': %s", where, why);
    }
    reader->clocks.warnings += st == OK && image_decoder_warnings(reader->transform.decoder) > warnings;
    return st;
}

/* The undamaged sample nearest to sample i, the earlier one of two; -1 if there is none. */
static int32_t neighbor_of(const BatchSlot *slot, int32_t i)
{
    for (int32_t d = 1; d < slot->batch.n; d++) {
        if (i - d >= 0 && slot->labels[i - d] != LABEL_NONE) return i - d;
        if (i + d < slot->batch.n && slot->labels[i + d] != LABEL_NONE) return i + d;
    }
    return -1;
}

static int by_index(const void *a, const void *b)
{
    return ((const BadSample *)a)->index - ((const BadSample *)b)->index;
}

/* Replace the pixels of skipped samples by those of a neighbor. A damaged partner behind the batch is not reported here,
 * but in the batch to which it belongs. */
static void bad_cover(BatchSlot *slot)
{
    for (int32_t k = 0; k < slot->batch.skipped; k++) slot->labels[slot->bad[k].index] = LABEL_NONE;
    if (slot->batch.skipped > 1) qsort(slot->bad, (size_t)slot->batch.skipped, sizeof *slot->bad, by_index);
    if (slot->batch.skipped > 0 && slot->bad[slot->batch.skipped - 1].index == slot->batch.n) slot->batch.skipped--;
    for (int32_t k = 0; k < slot->batch.skipped; k++) {
        int32_t i = slot->bad[k].index, from = neighbor_of(slot, i);
        uint8_t *pixels = slot->pixels + (size_t)i * slot->image_bytes;
        int32_t *record = slot->augment + (size_t)i * IMAGE_RECORD;
        if (from < 0) {
            memset(pixels, 0, slot->image_bytes);
            memset(record, 0, IMAGE_RECORD * sizeof *record);
            continue;
        }
        memcpy(pixels, slot->pixels + (size_t)from * slot->image_bytes, slot->image_bytes);
        memcpy(record, slot->augment + (size_t)from * IMAGE_RECORD, IMAGE_RECORD * sizeof *record);
    }
    slot->batch.bad = slot->bad;
}

static LabelSet labels_of(const BatchSlot *slot, int64_t id)
{
    LabelSet set;
    set.count = source_labels(slot->config->source, id, &set.label);
    return set;
}

/* The targets of sample i; `from`: the place of its partner, if share > 0. */
static void targets_of(BatchSlot *slot, int32_t i, int32_t from, double share)
{
    const TargetRule *rule = &slot->config->targets;
    float *targets = slot->targets + (size_t)i * (size_t)rule->classes;
    if (!rule->several || slot->labels[i] == LABEL_NONE) {
        target_fill(rule, slot->labels[i], share > 0 ? slot->labels[from] : LABEL_NONE, share, targets);
        return;
    }
    LabelSet partner = share > 0 ? labels_of(slot, slot->ids[from]) : (LabelSet){0};
    target_fill_several(rule, labels_of(slot, slot->ids[i]), partner, share, targets);
}

/* Assign a partner to each sample, unless one of the two is damaged, and fill in the targets. */
static void batch_mix(BatchSlot *slot)
{
    Batch *b = &slot->batch;
    const TargetRule *rule = &slot->config->targets;
    Mix mix = mix_plan(&slot->config->mix, slot->config->seed, b->step, slot->config->transform.side);
    double weight = 0;
    b->share = mix.label;
    for (int32_t i = 0; i < b->n; i++) {
        int32_t from = i > 0 ? i - 1 : b->n, label = slot->labels[i];
        bool mixed = mix.label > 0 && label != LABEL_NONE && slot->labels[from] != LABEL_NONE;
        int32_t partner = mixed ? slot->labels[from] : LABEL_NONE;
        double share = mixed ? mix.label : 0;
        if (mixed) mix_record(&mix, from, slot->augment + (size_t)i * IMAGE_RECORD);
        if (slot->predicted) slot->predicted[i] = share > 0.5 ? partner : label;
        if (slot->targets) targets_of(slot, i, from, share);
        weight += target_weight(rule, label, partner, share);
    }
    b->weight = (float)weight;
}

void slot_finish(BatchSlot *slot)
{
    bad_cover(slot);
    batch_mix(slot);
}

Status slot_skip(BatchSlot *slot, int32_t i)
{
    TRY(array_grow(&slot->bad, slot->batch.skipped, sizeof *slot->bad, "the list of bad samples"));
    BadSample *bad = &slot->bad[slot->batch.skipped++];
    bad->index = i;
    bad->id = slot->ids[i];
    snprintf(bad->why, sizeof bad->why, "%s", status_message());
    return OK;
}

void reader_take(SampleReader *reader, BatchSlot *slot, LoaderClocks *clocks)
{
    TransformWorker *t = &reader->transform;
    clocks->read += reader->clocks.read;
    clocks->samples += reader->clocks.samples;
    clocks->decode += t->decode_ns;
    clocks->resize += t->resize_ns;
    clocks->augment += t->augment_ns;
    clocks->warnings += reader->clocks.warnings;
    slot->batch.rotated += reader->rotated;
    reader->clocks = (LoaderClocks){0};
    t->decode_ns = t->resize_ns = t->augment_ns = 0;
    reader->rotated = 0;
}
