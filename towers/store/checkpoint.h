/* Checkpoints: never half written, never loaded unverified. docs/checkpoints.md is the specification.
 *
 *   RUN/ckpt/step-0000012000/model.safetensors   weights and exported batch-norm statistics, torchvision names
 *                           /train.safetensors   optimizer slots, weight average, every tower's batch-norm statistics
 *                           /state.json          step, epoch, seed, configuration, versions
 *                           /MANIFEST            size, XXH3-128 of each file; CRC32C of each tensor; its own hash
 *   RUN/ckpt/latest                              "step-0000012000"
 *
 * Written into .tmp-step-N-<boot id>-<pid>/, each file fsynced, MANIFEST last, directory fsynced, renamed, parent
 * fsynced, `latest` replaced the same way, re-read and verified, and only then older ones are pruned. */
#ifndef TOWERS_STORE_CHECKPOINT_H
#define TOWERS_STORE_CHECKPOINT_H

#include "towers/files/files.h" /* file_replace */
#include "towers/store/safetensors.h"

typedef struct CheckpointContent {
    int64_t step;
    const StTensor *model;
    int model_count;
    const StTensor *train;
    int train_count;
    const char *state_json; /* one JSON object, text */
    const StPair *metadata; /* for model.safetensors */
    int metadata_count;
} CheckpointContent;

/* Save under RUN/ckpt. `keep` newest are kept, and the one named `protect` (step number, or -1). On failure the older
 * checkpoints are untouched. Errors: ERR_IO (which call, which file, errno). */
NODISCARD Status checkpoint_save(const char *run_dir, const CheckpointContent *content, int keep, int64_t protect);

typedef struct Checkpoint {
    char path[4096];
    int64_t step;
    SafeTensors *model, *train; /* owned */
    char *state_json;           /* owned */
} Checkpoint;

/* Open one checkpoint directory after verifying its MANIFEST. Errors: ERR_CHECKPOINT naming file and offset; ERR_NEWER
 * for the format of a later version; ERR_IO, ERR_MEMORY when it could not be read, which says nothing about it. */
NODISCARD Status checkpoint_open(const char *path, Checkpoint **made);
/* The newest one under RUN/ckpt that is whole. Newer ones that a checksum or their structure condemns are passed over, and
 * with `tidy` renamed `.corrupt` once an older one is found, reported through `note` (may be NULL). *made = NULL and OK if
 * there is no step-N at all. Nothing is renamed on an error: ERR_CHECKPOINT lists what is there when all are damaged, and
 * any other one ends the search at the first checkpoint that could not be read. */
NODISCARD Status checkpoint_open_latest(const char *run_dir, bool tidy, Checkpoint **made, char *note,
                                        size_t note_bytes);

/* What a run directory holds that a new run in it would lose. Nothing is opened. Errors: ERR_IO. */
typedef struct RunSaved {
    int checkpoints; /* step-N, whole or not */
    bool results;    /* best or last weights, or traces of checkpoints */
    bool folder;     /* ckpt/ is there */
} RunSaved;
NODISCARD Status run_saved(const char *run_dir, RunSaved *saved);
/* The same for people, a line for each thing with what is wrong with it; "" if there is nothing. Reads all of it. */
void checkpoint_list(const char *run_dir, char *text, size_t bytes);

void checkpoint_close(Checkpoint *checkpoint);

/* Create a run directory that nobody else has: `path`, or that with -2, -3, ... behind it, which is then put there. */
NODISCARD Status run_dir_create(char path[4096]);
/* Take the run directory for this process (flock on RUN/.lock): a second trainer gets ERR_ARG naming the holder's pid.
 * Creates the directory. The lock ends with run_dir_release, or with the last of this process and those it has forked. Sweeps temporary directories of dead
 * processes. */
NODISCARD Status run_dir_take(const char *run_dir, int *lock);
void run_dir_release(int lock);

#endif
