/* BatchBuffer: the memory of one batch, and what it holds, which does not depend on threads: each image read, decoded and
 * transformed, damaged ones covered by a neighbor, all mixed, with their targets. Nothing here waits or locks: that is the
 * loader's. */
#pragma once

#include "towers/data/loading/loader.h"

typedef struct BatchBuffer {
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
} BatchBuffer;

/* What a thread reads images with, and what it has counted since reader_take. */
typedef struct SampleReader {
    Bytes bytes;
    TransformWorker transform;
    LoaderClocks clocks;
    int32_t rotated;
} SampleReader;

size_t batch_buffer_image_bytes(const LoaderConfig *config);
/* False: no memory for batches of `capacity` images. batch_buffer_free is due in any case. */
bool batch_buffer_init(const LoaderConfig *config, int32_t capacity, BatchBuffer *buffer);
void batch_buffer_free(BatchBuffer *buffer);

/* The samples of a tower in a step: where they are in the order of the epoch. */
void batch_buffer_place(BatchBuffer *buffer, int64_t step, int tower);
int64_t batch_buffer_position(const BatchBuffer *buffer, int32_t i); /* of image i, whose number belongs into ids[i] */
/* Read image i. Its pixels are undefined after an error. */
NODISCARD Status batch_buffer_read(BatchBuffer *buffer, int32_t i, SampleReader *reader);
/* Image i is damaged, as status_message says; locked. */
NODISCARD Status batch_buffer_skip(BatchBuffer *buffer, int32_t i);
/* Complete the batch, whose images have all been read or skipped. */
void batch_buffer_finish(BatchBuffer *buffer);

/* Add to *clocks what the reader has counted, and to the buffer's batch; locked. */
void reader_take(SampleReader *reader, BatchBuffer *buffer, LoaderClocks *clocks);
