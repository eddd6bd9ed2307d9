/* Bringing a run from an object store to this machine, so that it goes on here. */
#pragma once

#include "towers/run_store/run_store.h"

typedef struct BroughtRun {
    bool here;    /* the directory has the run already, at least as far: nothing was brought */
    int64_t step; /* of the newest checkpoint there */
    int files;
    int64_t bytes;
    char note[1024]; /* newer checkpoints that were not taken, and why; "" */
} BroughtRun;

/* The newest whole checkpoint, which is verified, and all records become `run_dir`, which has them all or is not there: what is brought gets
 * this name when it is complete. Errors: ERR_CHECKPOINT if there is no run or none of its checkpoints is whole; ERR_ARG if the directory
 * has another run, or less of this one; those of network and disk. */
NODISCARD Status run_bring(const RunStore *store, const char *run_dir, BroughtRun *brought);
