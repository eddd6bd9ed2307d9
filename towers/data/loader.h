/* Loader: threads that read, decode, crop and resize samples into a ring of batches, ahead of the towers of one process.
 *
 * What a batch holds depends on (seed, epoch, step, tower) alone, never on the number of threads or processes: the order
 * is order_at, the transform transform_plan. Threads take eight samples at a time of the oldest batch that is not
 * complete, so that the batch that is needed next is filled by all of them. workers == 0 reads in the calling thread.
 *
 * A sample that is no whole image (ERR_FORMAT) ends the loader, or with BAD_SKIP becomes one of weight 0: its label is
 * LABEL_NONE, which no loss counts, and its pixels are those of a good neighbour in the batch, so that batch norm sees
 * nothing strange. What cannot be read (ERR_IO) always ends it. */
#ifndef TOWERS_DATA_LOADER_H
#define TOWERS_DATA_LOADER_H

#include <stdbool.h>

#include "towers/data/share.h"
#include "towers/data/source.h"
#include "towers/data/transform.h"

typedef enum BadSamples { BAD_STOP = 0, BAD_SKIP } BadSamples;

typedef struct LoaderConfig {
    const Source *source; /* borrowed */
    Shares shares;
    int first_tower, local; /* the towers of this process */
    uint64_t seed;
    bool shuffle; /* training; else samples come in the order of the source */
    Transform transform;
    BadSamples bad;
    int64_t start_step; /* global step to begin with (resume) */
    int64_t stride;     /* global steps from one delivered step to the next; 0 means 1 */
    int64_t max_steps;  /* global step to end before (the loader stops reading there); INT64_MAX = none */
    int workers;        /* threads; >= 0 */
    int depth;          /* batches read ahead; >= 2, and one more than towers at least */
    int64_t
        memory; /* bytes for the batches read ahead, which may lower the depth to one more than towers; 0: any number */
} LoaderConfig;

typedef struct BadSample {
    int32_t index; /* in the batch */
    int64_t id;
    char why[400]; /* with its file */
} BadSample;

typedef struct Batch {
    int64_t step, epoch;
    int tower;
    int32_t n;              /* samples; 0 is legal */
    int32_t skipped;        /* of them have weight 0 */
    int32_t rotated;        /* of them are stored rotated: their EXIF orientation is not 1 */
    int32_t canvas, c;      /* side + 2 pad; channels of the data set */
    const uint8_t *pixels;  /* [n][canvas][canvas][c] */
    const int32_t *labels;  /* [n]; LABEL_NONE for a sample of weight 0 */
    const int32_t *augment; /* [n][IMAGE_RECORD] (OP_IMAGE) */
    const int64_t *ids;     /* [n] sample numbers */
    const BadSample *bad;   /* [skipped] */
} Batch;

/* Nanoseconds that threads have spent, in all. */
typedef struct LoaderClocks {
    int64_t read, decode, resize, augment;
    int64_t samples;
    int64_t warnings; /* of the JPEG library: small damage */
} LoaderClocks;

typedef struct Loader Loader;
NODISCARD Status loader_create(const LoaderConfig *config, Loader **made);
void loader_destroy(Loader *loader); /* stops the threads; NULL is fine */

/* Begins the next step: the batches of the last one go back to the loader. */
void loader_step(Loader *loader);
/* The next batch, in the order step by step, and within a step tower by tower. Borrowed until the next loader_step, so
 * that a step may hold the batches of all its towers. An error of the source is returned here, at its place in the
 * order. */
NODISCARD Status loader_batch(Loader *loader, const Batch **batch);
/* Both, for a caller that holds one batch at a time. */
NODISCARD Status loader_next(Loader *loader, const Batch **batch);
/* The memory of the pixels of read-ahead batch `index`, 0 and up, for devices that copy faster from memory they know
 * of; false beyond the last. */
bool loader_pixels(const Loader *loader, int index, void **memory, size_t *bytes);
/* Nanoseconds loader_next has waited for data, in all. */
int64_t loader_wait_ns(const Loader *loader);
void loader_clocks(Loader *loader, LoaderClocks *clocks);
/* Where the threads have spent most of their time from one reading of the clocks to another: "disk" ("read" for a source
 * that lies in memory), "decode" (resizing included) or "augment"; "" if they have done nothing. Clocks that went back
 * belong to a loader that was replaced. */
const char *loader_cause(const Source *source, const LoaderClocks *from, const LoaderClocks *till);

#endif
