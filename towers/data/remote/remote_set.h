/* A set of shards on a server (towers/remote/address.h): an address of a tar or of TFRecords, a list of such in braces
 * ("https://HOST/set/train-{000..099}.tar", several joined by "::"), or a folder of MDS shards, which ends with a slash and has an
 * index.json; also {train,val}/. A folder of a bucket of S3 without an index is listed, and its set are all shards there, sorted by name;
 * the list stays in the cache, as an index does.
 *
 * The whole set comes into the cache, with the files of names of classes that lie beside the shards or in the folder above, and then is a
 * set of this machine, with the same bits: order, division and fingerprint follow from the names and content of the shards alone. */
#pragma once

#include "towers/remote/cache.h"

typedef struct RemoteSet {
    char *path;            /* owned: the set in the cache, a file, a folder or a list in braces */
    CachedObjects objects; /* owned */
    CacheState state;      /* of all of them */
    int others;            /* objects of listed folders that are no shards, and are left out */
} RemoteSet;

/* Errors: those of the address and the list (ERR_ARG), of cache_bring, and ERR_FORMAT if index.json or its hashes do not hold, or if a
 * listed folder has no shards or not all. */
NODISCARD Status remote_set_bring(const CacheConfig *config, const char *address, RemoteSet *set);
void remote_set_free(RemoteSet *set);
