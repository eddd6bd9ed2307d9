/* Random images and labels that cost almost nothing to read, like the synthetic data of tf_cnn_benchmarks: pixels from
 * a normal distribution (mean 127, deviation 60) truncated at two deviations, uniform labels. An image is a window into
 * one pool of random pixels, at a random place that depends on (seed, index); images may overlap. */
#include <xxhash.h>

#include "kernels/philox.h"
#include "towers/data/classes/class_names.h"
#include "towers/data/sources/reader.h"

enum { POOL_PLACES = 1 << 20, QUANTILES = 1 << 16, SIDE_MAX = 65500 };
enum { STREAM_PIXELS = 1, STREAM_SAMPLES = 2 }; /* last word of the Philox counter */

typedef struct SyntheticSource {
    Source base;
    uint64_t seed;
    size_t image_bytes;
    Names names;
    uint8_t *pool; /* owned; image_bytes + POOL_PLACES */
} SyntheticSource;

static Philox sample_words(const SyntheticSource *d, int64_t index)
{
    return philox(d->seed, (uint32_t)index, (uint32_t)((uint64_t)index >> 32), 0, STREAM_SAMPLES);
}

static int32_t label_of(const Source *source, int64_t index)
{
    Philox words = sample_words((const SyntheticSource *)source, index);
    return (int32_t)((uint64_t)words.v[1] * (uint64_t)source->info.classes >> 32);
}

static Status read_sample(const Source *source, int64_t index, Bytes *bytes, int32_t *label)
{
    const SyntheticSource *d = (const SyntheticSource *)source;
    const SourceInfo *info = &d->base.info;
    Philox words = sample_words(d, index);
    *label = label_of(source, index);
    return bytes_raw(bytes, d->pool + words.v[0] % POOL_PLACES, info->h, info->w, info->c);
}

static void close_synthetic(Source *source)
{
    SyntheticSource *d = (SyntheticSource *)source;
    if (!d) return;
    names_free(&d->names);
    free(d->pool);
    free(d);
}

static double normal_cdf(double x)
{
    return 0.5 * erfc(-x * M_SQRT1_2);
}

static Status make_pool(SyntheticSource *d)
{
    size_t bytes = d->image_bytes + POOL_PLACES;
    uint8_t *table = malloc(QUANTILES);
    d->pool = malloc(bytes);
    if (table && d->pool) {
        /* table[u] is the pixel at quantile u / QUANTILES of the truncated normal. */
        const double mean = 127, deviation = 60, cut = 2;
        double low = normal_cdf(-cut), mass = normal_cdf(cut) - low;
        int next = 0;
        for (int value = 0; value < 256; value++) {
            double share = (normal_cdf((value + 0.5 - mean) / deviation) - low) / mass;
            int end = share <= 0 ? 0 : share >= 1 || value == 255 ? QUANTILES : (int)lround(share * QUANTILES);
            while (next < end) table[next++] = (uint8_t)value;
        }
        for (size_t at = 0; at < bytes; at += 8) {
            Philox words = philox(d->seed, (uint32_t)(at / 8), (uint32_t)(at / 8 >> 32), 0, STREAM_PIXELS);
            size_t n = bytes - at < 8 ? bytes - at : 8;
            for (size_t i = 0; i < n; i++) d->pool[at + i] = table[words.v[i / 2] >> (i % 2 * 16) & 0xffff];
        }
    }
    free(table);
    return d->pool && table ? OK : FAIL(ERR_MEMORY, "no memory for %zu bytes of synthetic pixels", bytes);
}

Status source_synthetic(int64_t count, int classes, int32_t h, int32_t w, int32_t c, uint64_t seed, Source **made)
{
    Status st = OK;
    if (count < 1) return FAIL(ERR_ARG, "synthetic data: expected at least 1 sample, found %" PRId64, count);
    if (classes < 1) return FAIL(ERR_ARG, "synthetic data: expected at least 1 class, found %d", classes);
    if (h < 1 || w < 1 || h > SIDE_MAX || w > SIDE_MAX)
        return FAIL(ERR_ARG, "synthetic data: expected sides from 1 to %d, found %d x %d", SIDE_MAX, h, w);
    if (c != 1 && c != 3) return FAIL(ERR_ARG, "synthetic data: expected 1 or 3 channels, found %d", c);
    SyntheticSource *d = calloc(1, sizeof *d);
    if (!d) return FAIL(ERR_MEMORY, "no memory for the synthetic data");
    d->base.read = read_sample;
    d->base.label = label_of;
    d->base.close = close_synthetic;
    d->seed = seed;
    d->image_bytes = (size_t)h * (size_t)w * (size_t)c;
    TRY_OUT(class_names_set(&d->names, classes, NULL));
    SourceInfo *info = &d->base.info;
    snprintf(info->name, sizeof info->name, "synthetic");
    info->class_names = (const char *const *)d->names.name;
    info->format = "generated";
    info->count = count;
    info->classes = classes;
    inventory_fill(&info->inventory, count, NULL);
    info->h = h;
    info->w = w;
    info->c = c;
    int64_t key[] = {count, classes, h, w, c, (int64_t)d->seed};
    XXH128_hash_t hash = XXH3_128bits(key, sizeof key);
    info->fingerprint[0] = hash.low64;
    info->fingerprint[1] = hash.high64;
    TRY_OUT(make_pool(d));
    *made = &d->base;
    d = NULL;
out:
    close_synthetic((Source *)d);
    return st;
}
