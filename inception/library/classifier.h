/* A trained classifier, ready for images: what `towers predict` and the library share. */
#pragma once

#include <jansson.h>

#include "inception/job/job.h"
#include "towers/replica/inference.h"

typedef struct Classifier {
    JobFiles *files; /* borrowed */
    char weights[PATH_BYTES];
    bool multi_label, photos; /* images have any number of classes; they have any size */
    json_t *names;            /* owned: of the classes, or NULL */
    Replica *replica;         /* owned */
} Classifier;

/* From the first argument of `options` (a run, a file of weights, or a model with --weights) to the network and the
 * transform of its images. Errors: as job_model; ERR_ARG without weights. */
NODISCARD Status classifier_open(Options *options, JobFiles *files, Classifier *c);
/* Load the weights, for images of so many channels, of which a network that learned from gray ones reads the luma, and
 * batches of these sizes, ended by 0. What the job's program keeps besides predictions (ProgramConfig.features, maps) is
 * set before. */
NODISCARD Status classifier_load(const Options *options, int32_t channels, const int32_t *sizes, Classifier *c);
/* Every image of a source, in its order: `take` gets each batch. `batch`: one of the sizes; what is left at the end
 * must be one, too. ERR_NUMERIC naming the image whose probabilities are not finite. */
typedef Status (*InferredTake)(void *context, const Inferred *found);
NODISCARD Status classifier_run(const Classifier *c, const Source *source, int32_t batch, int workers,
                                InferredTake take, void *context);
void classifier_close(Classifier *c); /* a zeroed one is fine */
