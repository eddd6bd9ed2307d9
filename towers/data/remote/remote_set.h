/* A set of shards on a server (towers/remote/address.h): an address of a tar or of TFRecords, a list of such in braces
 * ("https://HOST/set/train-{000..099}.tar", several joined by "::"), or a folder of MDS shards, which ends with a slash and has an
 * index.json; also {train,val}/. A folder of a bucket of S3 without an index is listed, and its set are all shards there, sorted by name;
 * the list stays in the cache, as an index does.
 *
 * The whole set comes into the cache, with the files of names of classes that lie beside the shards or in the folder above, and then is a
 * set of this machine, with the same bits: order, division and fingerprint follow from the names and content of the shards alone. */
#pragma once

#include "towers/data/listing/names.h"
#include "towers/remote/cache_bring.h"

typedef struct RemoteSet {
    char *path;            /* owned: the set in the cache, a file, a folder or a list in braces */
    CachedObjects objects; /* owned */
    CacheState state;      /* of all of them */
    bool met;              /* their servers have answered (TransportConfig.met) */
    int others;            /* objects of listed folders that are no shards, and are left out */
    Names names;           /* owned: the addresses of files and folders that its own stands for */
    int64_t samples;       /* of a view: of all shards */
    bool view;             /* `path` is that of the view (remote_view.h), which need not have the shards */
} RemoteSet;

/* Errors: those of the address and the list (ERR_ARG), of cache_bring, and ERR_FORMAT if index.json or its hashes do not hold, or if a
 * listed folder has no shards or not all. */
NODISCARD Status remote_set_bring(const CacheConfig *config, const char *address, RemoteSet *set);
void remote_set_free(RemoteSet *set);

/* Which objects the set has, of which indexes alone are brought: the first part of remote_set_bring. */
NODISCARD Status remote_set_list(const CacheConfig *config, const char *address, bool view, RemoteSet *set);
/* A set that its server lacks, or has otherwise: its indexes and lists come anew with the next call. */
void remote_set_forget(const CacheConfig *config, const RemoteSet *set);
