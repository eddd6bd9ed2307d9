/* Files of equal bytes. Only files of equal sizes are read, of them the first 64 KiB, and whole only those that begin alike, so
 * that among photographs hardly more is read than the copies themselves. */
#pragma once

#include "towers/files/files.h"

typedef struct EqualFiles {
    int64_t count;
    const uint64_t *bytes; /* [count]: sizes; borrowed */
    Status (*path)(const void *context, int64_t number, char path[PATH_BYTES]);
    const void *context;
} EqualFiles;

/* first[i], of [count], is the lowest number of a file with the bytes of file i: i itself for a file that is unlike all
 * before it. An empty file, and one that cannot be read, is like no other. ERR_MEMORY, ERR_DEVICE without threads. */
NODISCARD Status equal_files_find(const EqualFiles *files, int64_t *first);

/* Of a division of the files between evaluation and training, in which evaluation[i] follows from the name of file i: equal
 * files go where the first of them is, but never the last training image of a class. `classes` is [count], or NULL: all
 * files are of one class. */
NODISCARD Status equal_files_join(const EqualFiles *files, const int32_t *classes, bool *evaluation);
