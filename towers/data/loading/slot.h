/* BatchSlot: the memory of one batch, and what it holds, which does not depend on threads: each image read, decoded and
 * transformed, damaged ones covered by a neighbor, all mixed, with their targets. Nothing here waits or locks: that is the
 * loader's. */
#pragma once

#include "towers/data/loading/loader.h"

typedef struct BatchSlot {
    int64_t ready;              /* number of the complete batch in it; the loader's, like the next two */
    int32_t next;               /* first image that has not been claimed */
    int32_t left;               /* images that have not been finished */
    const LoaderConfig *config; /* borrowed */
    size_t image_bytes;
    int64_t first;   /* position of its first sample in the epoch's order */
    int64_t before;  /* with mixing, position of that sample's partner */
    int32_t count;   /* images: the batch's samples, and with mixing that partner */
    Batch batch;     /* points into the arrays below */
    uint8_t *pixels; /* owned, as are the next six */
    int32_t *labels;
    int32_t *augment;
    int64_t *ids;
    int32_t *predicted;
    float *targets;
    BadSample *bad;
} BatchSlot;

/* What a thread reads images with, and what it has counted since reader_take. */
typedef struct SampleReader {
    Bytes bytes;
    TransformWorker transform;
    LoaderClocks clocks;
    int32_t rotated;
} SampleReader;

size_t slot_image_bytes(const LoaderConfig *config);
/* False: no memory for batches of `capacity` images. slot_free is due in any case. */
bool slot_init(const LoaderConfig *config, int32_t capacity, BatchSlot *slot);
void slot_free(BatchSlot *slot);

/* The samples of a tower in a step: where they are in the order of the epoch. */
void slot_place(BatchSlot *slot, int64_t step, int tower);
int64_t slot_position(const BatchSlot *slot, int32_t i); /* of image i, whose number belongs into ids[i] */
/* Read image i. Its pixels are undefined after an error. */
NODISCARD Status slot_read(BatchSlot *slot, int32_t i, SampleReader *reader);
NODISCARD Status slot_skip(BatchSlot *slot, int32_t i); /* image i is damaged, as status_message says; locked */
/* Complete the batch, whose images have all been read or skipped. */
void slot_finish(BatchSlot *slot);

/* Add to *clocks what the reader has counted, and to the slot's batch; locked. */
void reader_take(SampleReader *reader, BatchSlot *slot, LoaderClocks *clocks);
