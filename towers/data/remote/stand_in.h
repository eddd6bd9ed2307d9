/* The stand-in of a shard on a server: a file of the view (remote_view.h) with one record (data/shards/sidecar.h), which says what the shard holds.
 * Notes beside the object say of which version it is, and with which file of the shard it has been compared. */
#pragma once

#include "towers/remote/cache.h"

/* Whether an object of this length and version has its stand-in. */
bool stand_in_is_there(const CacheConfig *config, const CachedObject *object);
/* Write it, out of a record of a server's sidecar. */
NODISCARD Status stand_in_write(const CacheConfig *config, const CachedObject *object, const void *record,
                                size_t bytes);
/* Make it of a shard that is here; an MDS shard is compared with the hashes in index.json before. What cannot be listed is shown itself, so that
 * whoever opens the set says what is wrong with it. */
NODISCARD Status stand_in_make(const CacheConfig *config, const CachedObject *object);
/* Show a file that is no shard as it is, or that it is absent. */
NODISCARD Status stand_in_show(const CacheConfig *config, const CachedObject *object);

/* Compare a shard that is here, open as `fd`, with its stand-in, unless that has been done. *fits is false if they differ: `why` says how.
 * Errors: ERR_IO, ERR_MEMORY. */
NODISCARD Status stand_in_check(const CacheConfig *config, const CachedObject *object, int fd, bool *fits,
                                char why[STATUS_MESSAGE_BYTES]);
/* Whether it has been compared, by any process. */
bool stand_in_is_seen(const CacheConfig *config, const CachedObject *object, int fd);
/* A shard that does not fit its stand-in leaves the cache; `both`: the stand-in, too, and the sidecar of its folder, which may be wrong. */
void stand_in_drop(const CacheConfig *config, const CachedObject *object, bool both);
/* What nobody has compared with its shard yet may come from a sidecar that was wrong about another one: it leaves the cache. */
void stand_in_doubt(const CacheConfig *config, const CachedObject *object);
