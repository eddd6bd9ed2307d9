/* Loader: threads that read, resize and pad samples into a ring of batches, ahead of the towers of one process.
 *
 * What a batch holds depends on (seed, epoch, step, tower) alone, never on the number of threads or processes: order is
 * epoch_order, augmentation is Philox(seed; epoch, sample id). workers == 0 reads in the calling thread. */
#ifndef TOWERS_DATA_LOADER_H
#define TOWERS_DATA_LOADER_H

#include <stdbool.h>

#include "towers/data/dataset.h"
#include "towers/data/share.h"

typedef struct LoaderConfig {
    const Dataset *dataset; /* borrowed */
    Shares shares;
    int first_tower, local; /* the towers of this process */
    uint64_t seed;
    bool shuffle;       /* training; else samples come in file order */
    bool augment;       /* random crop out of `pad`, and flip */
    bool flip;          /* mirror half of the images (with augment) */
    int32_t side;       /* images are resized to side x side (antialiased bilinear) unless they are already */
    int32_t pad;        /* zero pixels around; the canvas is side + 2 pad, the crop is side */
    int64_t start_step; /* global step to begin with (resume) */
    int64_t stride;     /* global steps from one delivered step to the next; 0 means 1 */
    int64_t max_steps;  /* global step to end before (the loader stops reading there); INT64_MAX = none */
    int workers;        /* threads; >= 0 */
    int depth;          /* batches read ahead; >= 2 */
} LoaderConfig;

typedef struct Batch {
    int64_t step, epoch;
    int tower;
    int32_t n;              /* samples; 0 is legal */
    int32_t canvas, c;      /* side + 2 pad; channels of the data set */
    const uint8_t *pixels;  /* [n][canvas][canvas][c] */
    const int32_t *labels;  /* [n] */
    const int32_t *augment; /* [n][4]: oy, ox, flip, 0 (OP_IMAGE) */
    const int64_t *ids;     /* [n] sample numbers */
} Batch;

typedef struct Loader Loader;
NODISCARD Status loader_create(const LoaderConfig *config, Loader **made);
void loader_destroy(Loader *loader); /* stops the threads; NULL is fine */

/* The next batch, in the order step by step, and within a step tower by tower. Borrowed until the next call. A reader's
 * error comes out here, at its place in the order. */
NODISCARD Status loader_next(Loader *loader, const Batch **batch);
/* The memory of the pixels of read-ahead batch `index`, 0 and up, for devices that copy faster from memory they know
 * of; false beyond the last. */
bool loader_pixels(const Loader *loader, int index, void **memory, size_t *bytes);
/* Nanoseconds loader_next has waited for data, in all. */
int64_t loader_wait_ns(const Loader *loader);

#endif
