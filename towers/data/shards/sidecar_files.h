/* The sidecars of a set: FOLDER/towers.index of each folder that has shards of it (sidecar.h). */
#pragma once

#include "towers/data/shards/shard.h"

typedef struct SidecarsMade {
    int shards, folders;
    int64_t samples;
    uint64_t bytes; /* of all sidecars */
} SidecarsMade;

/* List the shards of a path and write the sidecars, each of which replaces an older one when it is whole. Errors: ERR_ARG if there are no
 * shards, those of the set and of listing, ERR_IO. */
NODISCARD Status sidecars_write(const char *path, void (*progress)(void *context, int64_t done, int64_t all),
                                SidecarsMade *made);
