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

#include "towers/files/files.h"
#include "towers/remote/cached_objects.h"

typedef struct CacheState CacheState; /* cache_bring.h */

typedef struct CacheConfig {
    const char *dir; /* created when something is downloaded */
    int64_t limit;   /* bytes that it may take on its disk (room.h); 0: no limit */
    bool shared;  /* processes that belong together bring the same objects: it is not said that one waits for another */
    bool offline; /* ERR_ARG says what would be downloaded */
    TransportConfig patience;
    Transport *transport; /* borrowed: its connections are used again; NULL: each call makes its own, by `patience` */
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
/* The file of what has come of an object, whose name ends with that of its version (partial.h). */
NODISCARD Status cache_partial_place(const CacheConfig *config, const char *address, const char *end,
                                     char path[PATH_BYTES]);

/* The folder that a file lies in, and those above. */
NODISCARD Status folder_of_create(const char *path);
/* What a file takes on its disk: its blocks, which may have been reserved, or its length, if that is more. */
int64_t disk_bytes(const struct stat *info);

/* Open a file of the cache and lock it for this process alone, until it is closed; waits for others. ERR_IO. */
NODISCARD Status cache_lock(const char *path, int *fd);
/* ERR_IO of a file that cannot be locked, as errno says; closes it. */
NODISCARD Status cache_lock_fail(const char *path, int fd);

/* Fill in what the cache knows of an object, and whether it is here. */
NODISCARD Status cache_look(const CacheConfig *config, CachedObject *object);
/* Note what a server says of an object: its length and version, or that it is absent. */
NODISCARD Status cache_about_write(const CacheConfig *config, const CachedObject *object);

/* The open file of an object that is in the cache; *fd is -1 if it is not, or has another length. It is locked until it is closed, so that it
 * stays in the cache. */
NODISCARD Status cache_open(const CacheConfig *config, const CachedObject *object, int *fd);

/* ERR_ARG of a call that may download nothing: `first` is lacking, of so many objects. */
NODISCARD Status cache_offline_refuse(const CacheConfig *config, const char *first, int lacking);
