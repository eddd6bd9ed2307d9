/* Partial objects: what has come of the versions of an object, each in a file of its own, DIR/https/HOST/partial/PATH.HASH. It is locked by the
 * process that downloads it, and stays for the next one that wants the object. */
#pragma once

#include "towers/remote/cache.h"

NODISCARD Status partial_place(const CacheConfig *config, const CachedObject *object, char path[PATH_BYTES]);
/* Bytes of the disk that it has; and reserve those for the rest, where the disk can do that. ERR_IO if it is full. */
NODISCARD Status partial_bytes(const CacheConfig *config, const CachedObject *object, int64_t *bytes);
NODISCARD Status partial_reserve(const CacheConfig *config, const CachedObject *object);

/* Open and lock it, at its beginning, with its path for messages. *busy: another process downloads it, and *fd is -1. */
NODISCARD Status partial_open(const CacheConfig *config, const CachedObject *object, char path[PATH_BYTES], int *fd,
                              bool *busy);
/* Remove what has come of other versions than this one, unless a process downloads it just now. */
void partials_of_others_remove(const char *path);
/* Remove what has come in vain from the hosts of these objects (abandoned.h). */
NODISCARD Status partials_abandoned_remove(const CacheConfig *config, const CachedObjects *list);
