/* A folder of MDS shards on a server, whose index.json lists them: their names, and whether they are what it says. `folder` is an address that
 * ends with a slash. */
#pragma once

#include "towers/data/listing/names.h"
#include "towers/remote/cache.h"

/* The address of its index. ERR_ARG if it is too long. */
NODISCARD Status remote_index_address(const char *folder, char index[PATH_BYTES]);

/* Adds the names of the shards; the index is in the cache. One that cannot be right leaves the cache, since its server may have a right one by
 * now: ERR_FORMAT. */
NODISCARD Status remote_index_names(const CacheConfig *config, const char *folder, Names *names);

/* Compares the shards, which are in the cache, with the hashes of the index, unless these very files have been compared. What differs leaves the
 * cache, with the index, which may be the one that is wrong: `first` says what the first of it is, unless it says something already. */
NODISCARD Status remote_index_verify(const CacheConfig *config, const char *folder, char first[STATUS_MESSAGE_BYTES]);

/* The index comes anew with the next call. */
void remote_index_forget(const CacheConfig *config, const char *folder);
