/* A folder of a bucket of S3 without an index: its shards are all objects there that have their names. The list stays in the cache, as an index
 * does. `folder` is an address that ends with a slash. */
#pragma once

#include "towers/data/listing/names.h"
#include "towers/remote/cache.h"

/* Adds the names of the shards, sorted; *others counts what is left out. Errors: those of bucket_list; ERR_FORMAT if there are no shards, or not
 * all that their names speak of, or compressed ones. */
NODISCARD Status remote_listing_find(const CacheConfig *config, const char *folder, Names *shards, int *others);

/* The list comes anew with the next call. */
void remote_listing_forget(const CacheConfig *config, const char *folder);
