/* Checkpoints that are never half written and never loaded unverified. docs/checkpoints.md is the specification.
 *
 *   RUN/ckpt/step-0000012000/model.safetensors   weights (with --ema-decay their average) and exported batch-norm
 *                                                statistics, torchvision names
 *                           /train.safetensors   optimizer states, raw weights if they differ, every tower's batch-norm
 *                                                statistics
 *                           /state.json          step, position in the epoch, settings
 *                           /MANIFEST            size, XXH3-128 of each file; CRC32C of each tensor; its own hash
 *   RUN/ckpt/latest                              "step-0000012000"
 *
 * Files are written into .tmp-step-N-<boot id>-<pid>/ and fsynced one by one, MANIFEST last. Then the directory is
 * fsynced and renamed, its parent fsynced, and `latest` replaced in the same way. The new checkpoint is read back and
 * verified before older ones are pruned. */
#pragma once

#include "towers/store/safetensors.h"

typedef struct CheckpointContent {
    int64_t step;
    const StTensor *model;
    int model_count;
    const StTensor *train;
    int train_count;
    const char *state_json; /* text of one JSON object */
    const StPair *metadata; /* for model.safetensors */
    int metadata_count;
} CheckpointContent;

/* Save under RUN/ckpt, then prune all but the `keep` newest and those of the steps in `held` (-1: none). If it fails, older
 * checkpoints are untouched. Errors: ERR_IO (which call, which file, errno). */
NODISCARD Status checkpoint_save(const char *run_dir, const CheckpointContent *content, int keep, const int64_t held[],
                                 int held_count);

typedef struct Checkpoint {
    char path[4096];
    int64_t step;
    SafeTensors *model, *train; /* owned */
    char *state_json;           /* owned */
} Checkpoint;

/* Verify the MANIFEST of one checkpoint directory, then open it. Errors: ERR_CHECKPOINT naming file and offset;
 * ERR_NEWER if a later format version wrote it; ERR_IO or ERR_MEMORY if it could not be read, which says nothing about
 * its content. */
NODISCARD Status checkpoint_open(const char *path, Checkpoint **made);
/* Open the newest complete checkpoint under RUN/ckpt; *made = NULL and OK if there is no step-N at all. Newer ones that
 * are damaged are skipped and reported in `note` (may be NULL); with `tidy` they are renamed `.corrupt` once a complete
 * one is found. On an error nothing is renamed: ERR_CHECKPOINT lists the directory if all are damaged; any other error
 * is that of the first checkpoint that could not be read. */
NODISCARD Status checkpoint_open_latest(const char *run_dir, bool tidy, Checkpoint **made, char *note,
                                        size_t note_bytes);

/* Files of a run directory that a new run would overwrite. No file is opened. Errors: ERR_IO. */
typedef struct RunSaved {
    int checkpoints; /* step-N, complete or not */
    bool results;    /* best or last weights, or remains of checkpoints */
    bool folder;     /* ckpt/ exists */
} RunSaved;
NODISCARD Status run_saved(const char *run_dir, RunSaved *saved);
/* The checkpoints as text, one line per file with what is wrong with it; "" if there is none. Reads every checkpoint. */
void checkpoint_list(const char *run_dir, char *text, size_t bytes);

void checkpoint_close(Checkpoint *checkpoint);
