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

/* The two ways to open a file that somebody else may have put there. Both take regular files of at most `limit` bytes and
 * never wait on a pipe. OF_USER, what a user names (data, weights, configurations), may be a link to one: data sets and
 * model hubs are made of links. OF_RUN, what lies in a run directory under a name that this program chose, may not: a link
 * there is somebody else's, and what it leads to is not this program's to read or to overwrite. */
typedef enum FileOwner { OF_USER, OF_RUN } FileOwner;
/* For reading. Errors: `wrong` if it is missing, too large, or no regular file; ERR_IO, ERR_MEMORY if this process cannot
 * read it. */
NODISCARD Status file_open(const char *path, FileOwner owner, Status wrong, uint64_t limit, int *fd, uint64_t *bytes);
/* A file of a run for reading and writing, made if it is not there (`create`; else *fd is -1). `exclusive`: it must not be
 * there. Errors: ERR_IO. */
NODISCARD Status run_file_open(const char *path, bool create, bool exclusive, int *fd);

/* Read a whole file; a NUL follows the last byte. Errors: as file_open, the first and third with ERR_CHECKPOINT. */
NODISCARD Status file_load(const char *path, FileOwner owner, Status wrong, size_t limit, char **bytes, size_t *count);
NODISCARD Status file_read(const char *path, size_t limit, char **bytes, size_t *count);
NODISCARD Status file_sum(const char *path, FileSum *sum);
/* Copy a file of a run to a new one, durably; nothing if there is none. */
NODISCARD Status run_file_copy(const char *from, const char *to);
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
