/* Capsule: all that one tower's step needs to be run again, in a directory of the run that went wrong:
 *
 *   RUN/nan-step-5-tower-1/batch.safetensors   images, labels, sample_ids, augment (IMAGE_RECORD words of each), and
 *                                              norm_sums: what all batch norms summed to (with --bn-stats sync)
 *                         /model.safetensors   the weights before the step and this tower's batch-norm statistics
 *                         /train.safetensors   optimizer slots and the average of the weights (where there are any)
 *                         /state.json          the network, seed and counters, what was found, the last losses of all
 *                                              towers, where each sample lies, and the injected fault of a test;
 *                                              weights_after_step, later than the step before if those under way on a
 *                                              GPU had moved the weights by then (--nan-policy skip)
 *                         /MANIFEST            as of a checkpoint
 *
 * Written as a checkpoint is: into a temporary directory, each file fsynced, renamed whole. A reader trusts nothing:
 * labels and crops are checked, because kernels index with them. */
#ifndef TOWERS_GUARD_CAPSULE_H
#define TOWERS_GUARD_CAPSULE_H

#include "towers/guard/trace.h"
#include "towers/replica/tower_process.h"

enum { CAPSULES_MAX = 3 /* of one run directory; a run that skips steps may meet many */ };

/* The results of Device.towers_sum in a step, one after another. */
typedef struct NormSums {
    float *values; /* owned */
    int64_t count, room;
} NormSums;

/* What a capsule is made of besides the process that ran the step. Borrowed. */
typedef struct CapsuleSource {
    const Batch *batch;
    float scale;
    int64_t weights_after; /* the step after which the weights are */
    const NormSums *sums;  /* may be empty */
    const Finding *found;
} CapsuleSource;

/* path = "" and OK if the run has enough of them already. */
NODISCARD Status capsule_write(TowerProcess *p, const CapsuleSource *source, char path[PATH_BYTES]);

typedef struct Capsule {
    char path[PATH_BYTES];
    int64_t step, weights_after;
    int tower, towers;
    uint64_t seed;
    float scale;
    char model[64], variant[64], backend[16], freeze[4096];
    ProgramConfig program; /* model: NULL, for the caller to find; options.variant: points to `variant` */
    DeviceConfig device;   /* without ordinal and threads, which are those of the machine at hand */
    int32_t record_words;  /* of a picture's augmentation, as written */
    char fault[1024];      /* TOWERS_FAULT of the run, or "" */
    Finding found;         /* place, op, layer, tensor, index */
    Batch batch;           /* points into the next four */
    uint8_t *pixels;       /* owned, as are the next three */
    int32_t *labels, *augment;
    int64_t *ids;
    NormSums sums;
    SafeTensors *weights; /* owned */
} Capsule;

/* ERR_CHECKPOINT names file and what is wrong with it. */
NODISCARD Status capsule_open(const char *path, Capsule **made);
void capsule_close(Capsule *capsule); /* NULL is fine */

/* A replica of one tower with the capsule's weights and statistics. capsule->program.model is set by then. */
NODISCARD Status capsule_replica(const Capsule *capsule, const Backend *backend, const DeviceConfig *device,
                                 Replica **made);
/* Run it again. *found as trace_run. */
NODISCARD Status capsule_run(const Capsule *capsule, Replica *replica, void (*row)(void *context, const TraceRow *row),
                             void *context, Finding *found);

#endif
