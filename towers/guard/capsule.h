/* Capsule: everything needed to run one tower's step again, as a directory in the run directory:
 *
 *   RUN/nan-step-5-tower-1/batch.safetensors   images, labels, sample_ids, augment (IMAGE_RECORD words of each), unless
 *                                              the phase takes no images, and norm_sums: the sums of all batch norms
 *                                              (with --bn-stats sync). With mixing, images, sample_ids and augment
 *                                              have one more, the partner of the first; targets: of each sample;
 *                                              weight: their sum, with --class-weights
 *                         /model.safetensors   the weights before the step and this tower's batch-norm statistics
 *                         /train.safetensors   optimizer states and the average of the weights (if there are any)
 *                         /state.json          the network, seed and counters, the finding, the last losses of all
 *                                              towers, the source of each sample, and the injected fault of a test;
 *                                              weights_after_step: the step after which the weights were saved, later
 *                                              than the step before if steps under way on a GPU had already changed
 *                                              them (--nan-policy skip)
 *                         /plans.txt           the kernels that a GPU had chosen (Backend.choices_text)
 *                         /network.onnx        of a network that was read from a file: its structure, as the run keeps it
 *                         /MANIFEST            the same format as in a checkpoint
 *
 * Written like a checkpoint: into a temporary directory, each file fsynced, then renamed. The reader treats it as
 * untrusted: it checks labels and crops, because kernels index with them. */
#pragma once

#include "towers/guard/trace.h"
#include "towers/replica/tower_process.h"

enum { CAPSULES_MAX = 3 /* per run directory; a run that skips steps may refuse many */ };

/* The results of all calls of Device.allreduce in a step, in order. */
typedef struct NormSums {
    float *values; /* owned */
    int64_t count;
    size_t room;
} NormSums;

/* Inputs of a capsule besides the process that ran the step. Borrowed. */
typedef struct CapsuleSource {
    const Batch *batch;
    int phase;
    float scale;
    int64_t weights_after; /* the weights are those after this step */
    const NormSums *sums;  /* may be empty */
    const Finding *found;
} CapsuleSource;

/* The place of a capsule in a run directory; "" if there are CAPSULES_MAX others already. */
NODISCARD Status capsule_place(const char *run_dir, int64_t step, int tower, char path[PATH_BYTES]);
/* Move a directory that has all files of a capsule to its place. If there is one already (a resumed run met the same step
 * again), the two are exchanged. */
NODISCARD Status capsule_publish(const char *temporary, const char *path, const char *run_dir);
/* path = "" and OK if the run has CAPSULES_MAX capsules already. */
NODISCARD Status capsule_write(TowerProcess *p, const CapsuleSource *source, char path[PATH_BYTES]);

typedef struct Capsule {
    char path[PATH_BYTES];
    int64_t step, weights_after;
    int tower, towers;
    RandomKey key;
    float scale;
    char model[64], variant[64], phase[32], backend[16], freeze[4096]; /* phase: "" in older ones */
    ProgramConfig program; /* model: NULL until the caller sets it; options.variant points to `variant` */
    DeviceConfig device;   /* without ordinal and threads, which the caller sets for this machine */
    int32_t record_words;  /* per image, of the augmentation records as written */
    char fault[1024];      /* TOWERS_FAULT of the run, or "" */
    Finding found;         /* place, op, layer, tensor, index */
    Batch batch;           /* points into the next five */
    uint8_t *pixels;       /* owned, as are the next four */
    int32_t *labels, *augment;
    int64_t *ids;
    float *targets, *positive_weight;
    bool positive_weights; /* there are some */
    NormSums sums;
    SafeTensors *weights; /* owned, as the next */
    char *choices;        /* text of plans.txt; NULL: none */
} Capsule;

/* Errors: ERR_CHECKPOINT naming the file and what is wrong with it. */
NODISCARD Status capsule_open(const char *path, Capsule **made);
void capsule_close(Capsule *capsule); /* NULL is fine */

/* A replica of one tower with the capsule's weights and statistics. capsule->program.model must be set. */
NODISCARD Status capsule_replica(const Capsule *capsule, const Backend *backend, const DeviceConfig *device,
                                 Replica **made);
/* Run the step again. *found and `row`: as for trace_run. */
NODISCARD Status capsule_run(const Capsule *capsule, Replica *replica, void (*row)(void *context, const TraceRow *row),
                             void *context, Finding *found);
