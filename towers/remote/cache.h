/* Cache: objects of servers as files of this machine.
 *
 *   DIR/https/HOST/data/PATH          the object, whole; PATH has plain characters for %XX, as in any set of this machine
 *   DIR/https/HOST/about/PATH.json    its address, length and version (ETag or date), or that it is not there
 *   DIR/https/HOST/partial/PATH.HASH  what has come of a version; locked by the process that downloads it
 *   DIR/https/HOST/view/PATH          a set as its owner shows it, which may lack its objects (cache_view_place)
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
    bool later;    /* its length and version are asked for, but it is not downloaded */
    bool absent;   /* it is not there */
    bool denied;   /* absent, by an answer of 403, which may also come of wrong keys */
    bool here;     /* in the cache, or known to be absent */
    int64_t bytes; /* -1: not known */
    char version[VERSION_BYTES];
    const struct CachedObject *was; /* borrowed: the length and version that are demanded; NULL: any */
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
    int64_t limit;   /* bytes that it may take on its disk (room.h); 0: as many as there are */
    bool shared;  /* processes that belong together bring the same objects: it is not said that one waits for another */
    bool offline; /* ERR_ARG says what would be downloaded */
    TransportConfig patience;
    const _Atomic bool *stop;                                 /* NULL, or: ends the call with ERR_IO when it is true */
    void (*progress)(void *context, const CacheState *state); /* NULL is fine */
    void (*again)(void *context, const char *line);           /* as in TransferWatch */
    void *context;
} CacheConfig;

/* The file of an object, or the folder of an address that ends with a slash. ERR_ARG as for address_parse. */
NODISCARD Status cache_place(const CacheConfig *config, const char *address, char path[PATH_BYTES]);

/* Likewise, what a caller shows in the place of an object. Nothing comes there by itself. */
NODISCARD Status cache_view_place(const CacheConfig *config, const char *address, char path[PATH_BYTES]);

/* The file of what a caller notes of an object, beside what is known of it; `end`: of its name, as ".mark". */
NODISCARD Status cache_note_place(const CacheConfig *config, const char *address, const char *end,
                                  char path[PATH_BYTES]);

/* The file `name` of the host of an address. */
NODISCARD Status cache_host_place(const CacheConfig *config, const char *address, const char *name,
                                  char path[PATH_BYTES]);
/* Bytes of the disk that the beginning of a download has; and reserve those for the rest, where the disk can do that. ERR_IO if it is full. */
NODISCARD Status cache_coming(const CacheConfig *config, const CachedObject *object, int64_t *bytes);
NODISCARD Status cache_reserve(const CacheConfig *config, const CachedObject *object);

/* The folder that a file lies in, and those above. */
NODISCARD Status folder_of_create(const char *path);

/* The open file of an object that is in the cache; *fd is -1 if it is not, or has another length. It is locked until it is closed, so that it
 * stays in the cache. */
NODISCARD Status cache_open(const CacheConfig *config, const CachedObject *object, int *fd);

/* Bring all objects that are not in the cache. Fills in what is known of each; *state has the end. Errors: ERR_IO of the network and the
 * disk, which names the object and the cause; ERR_FORMAT of an object that changes, or is not what it was; what has come stays for the next call. */
NODISCARD Status cache_bring(const CacheConfig *config, CachedObjects *list, CacheState *state);
