/* Loader: threads that read, decode, crop and resize samples into a ring of batches, ahead of the towers of one process.
 *
 * The content of a batch depends only on (seed, epoch, step, tower), never on the number of threads or processes: the
 * order is order_at, the transform transform_plan. Threads take eight samples at a time from the oldest incomplete
 * batch, so that all of them work on the batch that is needed next. workers == 0 reads in the calling thread.
 *
 * A damaged sample (ERR_FORMAT) ends the loader, or with BAD_SKIP becomes a sample of weight 0: its label is LABEL_NONE,
 * which no loss counts, and its pixels are those of a good neighbor in the batch, so that batch-norm statistics stay
 * plausible. A sample that cannot be read (ERR_IO) always ends the loader.
 *
 * With mixing, sample i of a batch is mixed with sample i - 1 of the global batch. A tower's first partner may be in another
 * tower's batch, so it is decoded once more, behind the batch: one image more for each tower and batch. A sample whose
 * partner is damaged is not mixed. */
#pragma once

#include "towers/data/images/mix.h"
#include "towers/data/images/transform.h"
#include "towers/data/loading/local_batch.h"
#include "towers/data/loading/order.h"
#include "towers/data/sources/source.h"

/* Batches that a process of so many towers reads ahead: those of two steps, and two more. */
#define LOADER_DEPTH(towers) (2 * (towers) + 2)

typedef enum BadSamples { BAD_STOP = 0, BAD_SKIP } BadSamples;

typedef struct LoaderConfig {
    const Source *source;       /* borrowed */
    LocalBatches local_batches; /* the list is borrowed by loader_create, which copies it */
    int first_tower, local;     /* the towers of this process */
    uint64_t seed;
    bool shuffle;    /* training; else samples are in the order of the source */
    int window;      /* shards in a window of the order (order.h); 0: none */
    Sampler sampler; /* of the order, if shuffled */
    Transform transform;
    MixRule mix;
    TargetRule targets;
    BadSamples bad;
    int64_t start_step; /* global step to begin with (resume) */
    int64_t stride;     /* global steps from one delivered step to the next; 0 means 1 */
    int64_t max_steps;  /* global step at which to stop reading; INT64_MAX = none */
    int workers;        /* threads; >= 0 */
    int depth;          /* batches read ahead; >= 2, and more than towers */
    int64_t memory;     /* limit in bytes for batches read ahead; may lower `depth` to towers + 1; 0: no limit */
} LoaderConfig;

typedef struct BadSample {
    int32_t index; /* in the batch */
    int64_t id;
    char why[400]; /* includes the file */
} BadSample;

typedef struct Batch {
    int64_t step, epoch;
    int tower;
    int32_t n;         /* samples; 0 is legal */
    int64_t first;     /* place of the first among the samples of all towers' batches */
    int32_t skipped;   /* number of samples of weight 0 */
    int32_t rotated;   /* number of samples stored rotated (EXIF orientation other than 1) */
    int32_t canvas, c; /* side + 2 pad; channels of the data set */
    /* of n images, with mixing n + 1: the last is the partner of sample 0 */
    const uint8_t *pixels;  /* [n][canvas][canvas][c] */
    const int32_t *labels;  /* [n]; LABEL_NONE for a sample of weight 0 */
    const int32_t *augment; /* [n][IMAGE_RECORD] (OP_IMAGE): also each sample's partner */
    const int64_t *ids;     /* [n] sample numbers */
    /* of n samples */
    const int32_t *predicted; /* [n] the class whose prediction counts as correct: that of the larger share; NULL: the
                                 labels */
    const float *targets;     /* [n][classes]; NULL: the labels */
    float weight;             /* sum of target_weight */
    double share;             /* of the partner in the targets of mixed samples; 0: none is mixed */
    const BadSample *bad;     /* [skipped] */
} Batch;

/* Key and counters of the random values of a batch (philox_group). A sample gets the same values for any number of towers
 * and any division of the step's samples into batches. */
typedef struct RandomKey {
    uint64_t seed;
    int64_t step;  /* updates before this one */
    int64_t first; /* place of the batch's first sample among all samples of the step */
} RandomKey;

/* Total time of all threads in nanoseconds. */
typedef struct LoaderClocks {
    int64_t read, decode, resize, augment;
    int64_t samples;
    int64_t warnings; /* samples decoded with warnings of the JPEG library: small damage */
} LoaderClocks;

typedef struct Loader Loader;
NODISCARD Status loader_create(const LoaderConfig *config, Loader **made);
void loader_destroy(Loader *loader); /* stops the threads; NULL is fine */

/* Start the next step; the batches of the previous step are returned to the loader. */
void loader_step(Loader *loader);
/* The next batch, step by step and within a step tower by tower. Borrowed until the next loader_step, so that a step
 * may hold the batches of all its towers. An error of the source is returned at its place in the order. */
NODISCARD Status loader_batch(Loader *loader, const Batch **batch);
/* Both in one call, for a caller that holds one batch at a time. */
NODISCARD Status loader_next(Loader *loader, const Batch **batch);
/* Memory of the pixels of read-ahead batch `index`, from 0, for devices that copy faster from registered memory; false
 * after the last. */
bool loader_pixels(const Loader *loader, int index, void **memory, size_t *bytes);
void loader_clocks(Loader *loader, LoaderClocks *clocks);
/* The activity that took most of the threads' time between two readings of the clocks: "disk" ("read" for a source in
 * memory), "decode" (including resizing) or "augment"; "" if they were idle. If clocks went backwards, the loader was
 * replaced. */
const char *loader_cause(const Source *source, const LoaderClocks *from, const LoaderClocks *till);
