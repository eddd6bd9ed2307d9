/* Durable files: what has been reported as written is still there after the power went.
 *
 * A new file is created exclusively, its space reserved first (ENOSPC comes before the data), written, fsynced and
 * closed; every one of these calls is checked, and a failed fsync is never retried: the kernel may have dropped the
 * pages. A name changes its meaning by rename(2) alone, followed by an fsync of the directory. Temporary names are
 * `.tmp-<what>-<boot id>-<pid>`, so that what a dead process left can be told from what a live one is writing. */
#ifndef TOWERS_FILES_FILES_H
#define TOWERS_FILES_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/status.h"

enum { PATH_BYTES = 4096 };

/* Size and XXH3-128 of a file's bytes. */
typedef struct FileSum {
    uint64_t bytes, high, low;
} FileSum;

typedef struct DurableFile DurableFile;
/* Create `path` (ERR_IO if it exists) and reserve `bytes`; 0 reserves nothing. */
NODISCARD Status durable_create(const char *path, uint64_t bytes, DurableFile **made);
NODISCARD Status durable_write(DurableFile *file, const void *bytes, size_t count);
/* fsync and close. `sum`, of the bytes handed to durable_write, may be NULL. */
NODISCARD Status durable_finish(DurableFile *file, FileSum *sum);
/* Frees the handle; a file that was not finished is removed. NULL is fine. */
void durable_destroy(DurableFile *file);

/* Write `count` bytes to `path` so that a crash leaves the old or the new file, whole. */
NODISCARD Status file_replace(const char *path, const void *bytes, size_t count);
/* Rename `from` (finished, same directory) to `path`, and fsync the directory. */
NODISCARD Status file_publish(const char *from, const char *path);

/* Read a whole regular file of at most `limit` bytes; a NUL follows the last one. Never waits on a pipe. ERR_CHECKPOINT
 * if it is missing, damaged or larger; ERR_IO if this process cannot read it. */
NODISCARD Status file_read(const char *path, size_t limit, char **bytes, size_t *count);
NODISCARD Status file_sum(const char *path, FileSum *sum); /* errors as file_read */
void memory_sum(const void *bytes, size_t count, FileSum *sum);

NODISCARD Status path_join(char path[PATH_BYTES], const char *directory, const char *name);
/* The temporary name beside `path` that this process uses for it. */
NODISCARD Status path_temporary(char temporary[PATH_BYTES], const char *path);
/* Is `name` (no directory) a temporary name whose process is gone, or this process's own? */
bool name_is_stale(const char *name);

NODISCARD Status directory_create(const char *path); /* with its parents, each fsynced into its own; existing is fine */
NODISCARD Status directory_sync(const char *path);
NODISCARD Status tree_remove(const char *path); /* missing is fine; never follows a symbolic link */

#endif
