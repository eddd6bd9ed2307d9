/* Durable files: once a write is reported as done, the data survive a power failure.
 *
 * A new file is created exclusively, its space is reserved first (so that ENOSPC comes before any data), then it is
 * written, fsynced and closed. Every call is checked, and a failed fsync is never retried, because the kernel may have
 * dropped the pages. An existing name is replaced only by rename(2), followed by an fsync of the directory. Temporary
 * names are `.tmp-<what>-<boot id>-<pid>`, so that leftovers of dead processes can be recognized. */
#pragma once

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/base/draft.h"

enum {
    PATH_BYTES = 4096,
    RUN_TEXT_BYTES = 1 << 28 /* most in args.yaml and in a JSON file of a run: names of a million classes fit */
};

/* Size and XXH3-128 of a file's bytes. */
typedef struct FileSum {
    uint64_t bytes, high, low;
} FileSum;

typedef struct DurableFile DurableFile;
/* Create `path` (ERR_IO if it exists) and reserve `bytes`; 0 reserves nothing. */
NODISCARD Status durable_create(const char *path, uint64_t bytes, DurableFile **made);
NODISCARD Status durable_write(DurableFile *file, const void *bytes, size_t count);
/* fsync and close. `sum` (may be NULL) receives size and hash of the bytes that were passed to durable_write. */
NODISCARD Status durable_finish(DurableFile *file, FileSum *sum);
/* Frees the handle and removes the file unless it was finished. NULL is fine. */
void durable_destroy(DurableFile *file);

/* Write `count` bytes to `path` so that a crash leaves the old or the new file, whole. */
NODISCARD Status file_replace(const char *path, const void *bytes, size_t count);
/* file_replace for a text, and for one that was printed with the status `st`; ends the draft. `directory` NULL: `name` is the
 * path. */
NODISCARD Status text_replace(const char *directory, const char *name, const char *text);
NODISCARD Status draft_replace(Draft *draft, Status st, const char *directory, const char *name);
/* Rename `from` (finished, same directory) to `path`, and fsync the directory. */
NODISCARD Status file_publish(const char *from, const char *path);

/* Bytes that this process can still write to the file system of `path`: root's are those that it keeps back, too. UINT64_MAX if it
 * does not say (ramfs, some of FUSE). ERR_IO. */
NODISCARD Status disk_spare(const char *path, uint64_t *bytes);

/* The two kinds of files that are opened. Both must be regular files of at most `limit` bytes; opening never blocks on
 * a pipe. OF_USER: named by the user (data, weights, configurations); may be a symbolic link, as in many data sets and
 * model hubs. OF_RUN: a file in a run directory under a name that this program chose; must not be a link, because a
 * link there was made by somebody else, and its target must be neither read nor overwritten. */
typedef enum FileOwner { OF_USER, OF_RUN } FileOwner;
/* For reading. Errors: `wrong` if the file is missing, too large or not a regular file; ERR_IO or ERR_MEMORY if this
 * process cannot read it. */
NODISCARD Status file_open(const char *path, FileOwner owner, Status wrong, uint64_t limit, int *fd, uint64_t *bytes);
/* Read exactly `bytes` at `offset` of an open file of the user; ERR_FORMAT if it is too short, ERR_IO. */
NODISCARD Status file_pread(int fd, const char *path, uint64_t offset, void *to, size_t bytes);
/* Open a file of a run for reading and writing. A missing file is created if `create`, else *fd is -1. With `exclusive`
 * it must not exist. Errors: ERR_IO. */
NODISCARD Status run_file_open(const char *path, bool create, bool exclusive, int *fd);

/* Append to a file of a run in a single write, so that several processes may append lines to it; it is created if there is
 * none. Of lines that do not fit on the disk it leaves nothing. Errors: ERR_IO. */
NODISCARD Status run_file_append(const char *path, const void *bytes, size_t count);

/* fsync a file of a run, which need not exist. Errors: ERR_IO. */
NODISCARD Status run_file_sync(const char *path);

/* Read a whole file and append a NUL. Errors: those of file_open, ERR_MEMORY. file_read and file_sum read files of a run
 * (OF_RUN) and give ERR_CHECKPOINT for a bad one. */
NODISCARD Status file_load(const char *path, FileOwner owner, Status wrong, size_t limit, char **bytes, size_t *count);
NODISCARD Status file_read(const char *path, size_t limit, char **bytes, size_t *count);
NODISCARD Status file_sum(const char *path, FileSum *sum);
/* Map a file of the user, of which only what is looked at is read; munmap gives it back. Errors: those of file_open, `wrong` if
 * it is empty. */
NODISCARD Status file_map(const char *path, Status wrong, size_t limit, void **map, size_t *count);
/* Copy a file of a run to a new file, durably; does nothing if `from` does not exist. */
NODISCARD Status run_file_copy(const char *from, const char *to);
void memory_sum(const void *bytes, size_t count, FileSum *sum);

bool ends_with(const char *name, const char *end);
/* Whether both names lead to the same file or directory, which exists. */
bool is_same_file(const char *a, const char *b);
const char *path_base(const char *path); /* behind its last slash */
NODISCARD Status path_join(char path[PATH_BYTES], const char *directory, const char *name);
/* The temporary name beside `path` under which this process writes it. */
NODISCARD Status path_temporary(char temporary[PATH_BYTES], const char *path);
/* True if `name` (without directory) is a temporary name of this process or of one that has ended. */
bool name_is_stale(const char *name);

NODISCARD Status directory_create(const char *path); /* creates and fsyncs missing parents; existing is fine */
NODISCARD Status directory_sync(const char *path);
NODISCARD Status tree_remove(const char *path); /* missing is fine; never follows a symbolic link */
