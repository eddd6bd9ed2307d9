/* The view of a set whose shards need not be here: a stand-in (data/shards/sidecar.h) for each shard, and the small files of the set, in the
 * folder "view" of the cache. Order and division of the set are known from it.
 *
 * A stand-in is made of its shard, when that is here, or comes from FOLDER/towers.index of the server, if that has a record for an object of
 * this length. What comes from a server is believed for the order of samples alone: when its shard comes, it is compared with what the
 * shard itself says (stand_in_check), before any of its samples is read. */
#pragma once

#include "towers/data/remote/remote_set.h"

/* The set as a view: *set is filled in as by remote_set_bring, but shards come only where nothing else says what they hold. set->path is that
 * of the view, set->shards are its shards. Errors: those of remote_set_bring, and ERR_FORMAT for a sidecar that does not fit its objects. */
NODISCARD Status remote_set_view(const CacheConfig *config, const char *address, RemoteSet *set);
