/* The door to shards that are not here yet, for a set of stand-ins (sidecar.h): whoever reads one asks here for its bytes. data/remote has
 * what stands behind it. All functions may be called by any thread, and by processes that were forked since. */
#pragma once

#include "towers/data/sources/source.h"
#include "towers/files/files.h"

typedef struct ShardFetch ShardFetch;
struct ShardFetch {
    /* An open file with the bytes of the shard that `path` stands in for; it waits until they are here, and they stay here until the caller
     * closes it. ERR_IO names the object and the cause. */
    Status (*bring)(const ShardFetch *fetch, const char *path, int *fd);
    /* It is needed soon, after all that are wanted already. True if it is here: then `file` is its path. */
    bool (*want)(const ShardFetch *fetch, const char *path, char file[PATH_BYTES]);
    /* It is needed later, after all that were named so before it: without anything else to bring, shards come in this order. */
    void (*later)(const ShardFetch *fetch, const char *path);
    /* What a reader wants from now on is of its next window; the first one comes before all others. */
    void (*window)(const ShardFetch *fetch);
    /* A reader needs it from now on, until it leaves it as often: then it may make room for others. */
    void (*hold)(const ShardFetch *fetch, const char *path);
    void (*leave)(const ShardFetch *fetch, const char *path);
    /* Whether its bytes are here, so that they can be read without waiting. */
    bool (*is_here)(const ShardFetch *fetch, const char *path);
    /* Of all processes that share the door. */
    void (*traffic)(const ShardFetch *fetch, SourceTraffic *traffic);
};
