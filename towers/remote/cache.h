/* Cache: objects of servers as files of this machine.
 *
 *   DIR/https/HOST/data/PATH          the object, whole; PATH has plain characters for %XX, as in any set of this machine
 *   DIR/https/HOST/about/PATH.json    its address, length and version (ETag or date), or that it is not there
 *   DIR/https/HOST/partial/PATH.HASH  what has come of a version; locked by the process that downloads it
 *   DIR/https/HOST/lock               locked while an object gets its name
 *
 * Of S3 the folder of a host is DIR/s3/STORE/BUCKET (s3_store).
 *
 * An object gets its name when it is whole, of the length and version that the server has said, and on the disk. Of several processes that
 * want one, one downloads it, and the others wait for it. What is here is not asked for again, so that a warm cache needs no network. */
#pragma once

#include <jansson.h>

#include "towers/files/files.h"
#include "towers/remote/transport.h"

typedef struct CachedObject {
    char *address; /* owned by the list */
    bool optional; /* it may not be there */
    bool absent;   /* it is not there */
    bool denied;   /* absent, by an answer of 403, which may also come of wrong keys */
    bool here;     /* in the cache, or known to be absent */
    int64_t bytes; /* -1: not known */
    char version[VERSION_BYTES];
} CachedObject;

typedef struct CachedObjects {
    CachedObject *object; /* owned */
    int count, room;
    json_t *places; /* owned: of each address in the list */
} CachedObjects;

/* NULL if it is not in the list. */
const CachedObject *cached_objects_find(const CachedObjects *list, const char *address);
/* An address that is in the list already is not added again; it is optional if it was so each time. */
NODISCARD Status cached_objects_add(CachedObjects *list, const char *address, bool optional);
void cached_objects_free(CachedObjects *list);

/* How far it is. */
typedef struct CacheState {
    int objects, wanted;   /* that are there; that were not in the cache before */
    int brought;           /* of these, downloaded, by this process or another */
    int64_t bytes;         /* of all objects whose length is known */
    int64_t came, missing; /* bytes that have come, and all that were not in the cache before */
    int retries;
} CacheState;

typedef struct CacheConfig {
    const char *dir; /* created when something is downloaded */
    bool offline;    /* ERR_ARG says what would be downloaded */
    TransportConfig patience;
    void (*progress)(void *context, const CacheState *state); /* NULL is fine */
    void (*again)(void *context, const char *line);           /* as in TransferWatch */
    void *context;
} CacheConfig;

/* The file of an object, or the folder of an address that ends with a slash. ERR_ARG as for address_parse. */
NODISCARD Status cache_place(const CacheConfig *config, const char *address, char path[PATH_BYTES]);

/* The file of what a caller notes of an object, beside what is known of it; `end`: of its name, as ".mark". */
NODISCARD Status cache_note_place(const CacheConfig *config, const char *address, const char *end,
                                  char path[PATH_BYTES]);

/* Bring all objects that are not in the cache. Fills in what is known of each; *state has the end. Errors: ERR_IO of the network and the
 * disk, which names the object and the cause; ERR_FORMAT of an object that changes; what has come stays for the next call. */
NODISCARD Status cache_bring(const CacheConfig *config, CachedObjects *list, CacheState *state);
