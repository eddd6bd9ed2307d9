/* Inference: forward passes over the batches of a loader, each enqueued while the previous one is in flight.
 *
 * inference_begin enqueues the upload of a batch, its forward pass and the download of its results into pinned memory;
 * inference_end waits for the oldest batch. An asynchronous device copies batch k + 1 while it computes batch k; on
 * the CPU inference_begin has done all the work when it returns.
 *
 * With TTA_FLIP the network also sees each image mirrored, and the probabilities are the means of both.
 * With a temperature they are scaled by it (temperature.h), after that. */
#pragma once

#include "towers/replica/policy.h"
#include "towers/replica/replica.h"
#include "towers/store/pretrained.h"

/* Load parameters and exported statistics from a weights file (pretrained.h). */
NODISCARD Status inference_weights(Replica *replica, const ProgramConfig *program, const char *path, HeadUse use);

typedef struct Inference Inference;

/* Results of one batch, valid until inference_end is called again. */
typedef struct Inferred {
    Batch batch;        /* the batch passed to inference_begin; pixels and augment only with maps */
    double loss;        /* summed over the samples */
    int64_t correct[2]; /* top-1, top-5; both, and the features, are those of the images as they are */
    const float *prob;  /* [n][pitch]; NULL unless requested */
    int64_t pitch;
    Tensor features, maps; /* of the program (program.h), in host memory; data is NULL if it has none */
    Tensor logits[2];      /* likewise; those of the mirror images are the second, which only TTA_FLIP has */
} Inferred;

/* Both are borrowed and must outlive it; the memory of the loader's pixels stays pinned until inference_close. Evaluation
 * programs of the replica are used. */
NODISCARD Status inference_open(Replica *replica, Loader *loader, bool prob, Tta tta, double temperature,
                                Inference **made);
void inference_close(Inference *inference); /* NULL is fine */

/* The batch may be returned to the loader afterwards. */
NODISCARD Status inference_begin(Inference *inference, const Batch *batch);
/* Number of batches whose results have not been taken. Take them while there are more than inference_ahead. */
int inference_pending(const Inference *inference);
/* Number of batches that may be in flight when another one is started: 0 or 1. */
int inference_ahead(const Inference *inference);
NODISCARD Status inference_end(Inference *inference, const Inferred **result);
