/* Inference: forward passes over the batches of a loader, each handed over while the one before is under way.
 *
 * inference_begin enqueues the upload of a batch, its forward pass and the download of its results into pinned memory;
 * inference_end waits for the oldest batch. A device that works beside the host copies batch k + 1 while it computes
 * batch k; on the CPU begin has done all the work when it returns. */
#ifndef TOWERS_REPLICA_INFERENCE_H
#define TOWERS_REPLICA_INFERENCE_H

#include "towers/replica/replica.h"

/* Parameters and exported statistics from a weights file (pretrained.h). */
NODISCARD Status inference_weights(Replica *replica, const ProgramConfig *program, const char *path);

typedef struct Inference Inference;

/* Results of one batch, valid until inference_end is called again. */
typedef struct Inferred {
    Batch batch;       /* as it was handed over, without pixels and augment */
    double loss;       /* summed over the samples */
    int64_t hits[2];   /* top-1, top-5 */
    const float *prob; /* [n][pitch]; NULL unless asked for */
    int64_t pitch;
} Inferred;

/* Both are borrowed and must outlive it; the memory of the loader's pixels stays pinned until inference_close. Evaluation
 * programs of the replica are used. */
NODISCARD Status inference_open(Replica *replica, Loader *loader, bool prob, Inference **made);
void inference_close(Inference *inference); /* NULL is fine */

/* The loader may have the batch back on return. */
NODISCARD Status inference_begin(Inference *inference, const Batch *batch);
/* Batches whose results are not taken yet. Take them while there are more than inference_ahead. */
int inference_pending(const Inference *inference);
/* Batches that may be under way when another one is begun: 0 or 1. */
int inference_ahead(const Inference *inference);
NODISCARD Status inference_end(Inference *inference, const Inferred **result);

#endif
