/* Bringing objects into the cache: several at once, each by one process, while others wait for it. */
#pragma once

#include "towers/remote/cache.h"

/* How far it is. */
struct CacheState {
    int objects, wanted;   /* that are there; that were not in the cache before */
    int brought;           /* of these, downloaded, by this process or another */
    int64_t bytes;         /* of all objects whose length is known */
    int64_t came, missing; /* bytes that have come, and all that were not in the cache before */
    int retries;
};

/* Bring all objects that are not in the cache. Fills in what is known of each; *state has the end. Errors: ERR_IO of the network and the
 * disk, which names the object and the cause; ERR_FORMAT of an object that changes, or is not what it was; what has come stays for the next call. */
NODISCARD Status cache_bring(const CacheConfig *config, CachedObjects *list, CacheState *state);
