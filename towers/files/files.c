/* Durable files: exclusive creation, reservation, fsync of file and directory, rename; see files.h. Linux calls:
 * fallocate(2) is used and not posix_fallocate(3), whose emulation writes to every block where a file system cannot
 * reserve. */
#include "towers/files/files.h"
#include "kernels/text.h"

#include "kernels/progress.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    BUFFER_BYTES = 1 << 18,
    PIECE_BYTES = 4 << 20 /* written at once: between two signs of progress */,
    BOOT_ID_CHARS = 36
};

struct DurableFile {
    char *path, *shown;
    XXH3_state_t *hash;
    unsigned char *buffer;
    size_t used;
    uint64_t bytes;
    int fd;
    bool finished;
};

/* ---- names */

Status path_join(char path[PATH_BYTES], const char *directory, const char *name)
{
    int count = snprintf(path, PATH_BYTES, "%s/%s", directory, name);
    if (count < 0 || count >= PATH_BYTES)
        return FAIL(ERR_ARG, "the path '%.64s.../%.64s' has %d bytes, more than %d", directory, name, count,
                    PATH_BYTES - 1);
    return OK;
}

static char boot_id_text[BOOT_ID_CHARS + 1];

static void read_boot_id(void)
{
    memset(boot_id_text, '0', BOOT_ID_CHARS);
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    ssize_t count = read(fd, boot_id_text, BOOT_ID_CHARS);
    close(fd);
    if (count != BOOT_ID_CHARS) memset(boot_id_text, '0', BOOT_ID_CHARS);
}

static const char *boot_id(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_boot_id);
    return boot_id_text;
}

/* "a/b" -> "a", "b" -> ".", "/b" -> "/" */
static Status parent_of(char parent[PATH_BYTES], const char *path)
{
    const char *slash = strrchr(path, '/');
    if (strlen(path) >= PATH_BYTES)
        return FAIL(ERR_ARG, "the path '%.64s...' is longer than %d bytes", path, PATH_BYTES - 1);
    if (!slash) {
        strcpy(parent, ".");
        return OK;
    }
    size_t count = slash == path ? 1 : (size_t)(slash - path);
    memcpy(parent, path, count);
    parent[count] = 0;
    return OK;
}

Status path_temporary(char temporary[PATH_BYTES], const char *path)
{
    char parent[PATH_BYTES], name[PATH_BYTES];
    const char *slash = strrchr(path, '/');
    TRY(parent_of(parent, path));
    int count = snprintf(name, sizeof name, ".tmp-%s-%s-%ld", slash ? slash + 1 : path, boot_id(), (long)getpid());
    if (count < 0 || count >= (int)sizeof name) return FAIL(ERR_ARG, "the name '%.64s...' is too long", path);
    return path_join(temporary, parent, name);
}

/* Where "-<boot id>-<pid>" begins in a name of `count` characters; 0: it is no temporary one. */
static size_t owner_at(const char *name, size_t count)
{
    size_t dash = count;
    while (dash && isdigit((unsigned char)name[dash - 1])) dash--;
    bool whole = strncmp(name, ".tmp-", 5) == 0 && dash < count && dash > 5 + BOOT_ID_CHARS + 2 &&
                 name[dash - 1] == '-' && name[dash - 2 - BOOT_ID_CHARS] == '-';
    return whole ? dash - 2 - BOOT_ID_CHARS : 0;
}

bool name_is_stale(const char *name)
{
    size_t owner = owner_at(name, strlen(name));
    if (!owner) return false;
    const char *boot = name + owner + 1;
    errno = 0;
    long pid = strtol(boot + BOOT_ID_CHARS + 1, NULL, 10);
    if (errno || pid <= 0 || pid > INT32_MAX) return false;
    if (strncmp(boot, boot_id(), BOOT_ID_CHARS) != 0) return true;
    return pid == getpid() || (kill((pid_t)pid, 0) != 0 && errno == ESRCH);
}

/* A path as people know it: what is to replace a file, or lies in what is to become a directory, by its later name. */
static void path_show(char shown[PATH_BYTES], const char *path)
{
    Text text = text_start(shown, PATH_BYTES);
    while (*path && !text.truncated) {
        size_t count = strcspn(path, "/"), end = owner_at(path, count);
        const char *name = end ? path + 5 : path;
        text_add(&text, "%.*s%s", (int)(end ? end - 5 : count), name, path[count] ? "/" : "");
        path += count + (path[count] == '/');
    }
}

/* ---- a new file */

Status durable_create(const char *path, uint64_t bytes, DurableFile **made)
{
    Status st = OK;
    DurableFile *file = calloc(1, sizeof *file);
    char shown[PATH_BYTES];
    path_show(shown, path);
    if (!file) return FAIL(ERR_MEMORY, "the writer of '%s'", shown);
    file->fd = -1;
    file->hash = XXH3_createState();
    file->buffer = malloc(BUFFER_BYTES);
    if (!file->hash || !file->buffer || XXH3_128bits_reset(file->hash) != XXH_OK) {
        st = FAIL(ERR_MEMORY, "the buffer of '%s'", shown);
        goto out;
    }
    file->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file->fd < 0) {
        st = strcmp(shown, path)
                 ? FAIL(ERR_IO, "cannot create '%s', at first as '%s': %s", shown, path, strerror(errno))
                 : FAIL(ERR_IO, "cannot create '%s': %s", path, strerror(errno));
        goto out;
    }
    file->path = strdup(path);
    file->shown = strdup(shown);
    if (!file->path || !file->shown) {
        unlink(path);
        st = FAIL(ERR_MEMORY, "the writer of '%s'", shown);
        goto out;
    }
    if (bytes && fallocate(file->fd, 0, 0, (off_t)bytes) != 0 && errno != EOPNOTSUPP && errno != EINVAL &&
        errno != ENOSYS) {
        st = FAIL(ERR_IO, "cannot reserve %llu bytes for '%s': %s", (unsigned long long)bytes, shown, strerror(errno));
        goto out;
    }
    *made = file;
    file = NULL;
out:
    durable_destroy(file);
    return st;
}

static Status write_all(DurableFile *file, const unsigned char *bytes, size_t count)
{
    while (count) {
        ssize_t done = write(file->fd, bytes, count < PIECE_BYTES ? count : PIECE_BYTES);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0)
            return FAIL(ERR_IO, "cannot write %zu bytes to '%s': %s", count, file->shown,
                        strerror(done < 0 ? errno : ENOSPC));
        bytes += done;
        count -= (size_t)done;
        progress_made(file->shown);
    }
    return OK;
}

static Status flush_buffer(DurableFile *file)
{
    size_t count = file->used;
    file->used = 0;
    return write_all(file, file->buffer, count);
}

Status durable_write(DurableFile *file, const void *bytes, size_t count)
{
    if (!count) return OK;
    file->bytes += count;
    (void)XXH3_128bits_update(file->hash, bytes, count);
    if (count > BUFFER_BYTES - file->used) TRY(flush_buffer(file));
    if (count > BUFFER_BYTES) return write_all(file, bytes, count);
    memcpy(file->buffer + file->used, bytes, count);
    file->used += count;
    return OK;
}

Status durable_finish(DurableFile *file, FileSum *sum)
{
    TRY(flush_buffer(file));
    if (fsync(file->fd) != 0) return FAIL(ERR_IO, "fsync of '%s' failed: %s", file->shown, strerror(errno));
    int closed = close(file->fd);
    file->fd = -1;
    if (closed != 0 && errno != EINTR) return FAIL(ERR_IO, "close of '%s' failed: %s", file->shown, strerror(errno));
    if (sum) {
        XXH128_hash_t hash = XXH3_128bits_digest(file->hash);
        *sum = (FileSum){file->bytes, hash.high64, hash.low64};
    }
    file->finished = true;
    return OK;
}

void durable_destroy(DurableFile *file)
{
    if (!file) return;
    if (file->fd >= 0) close(file->fd);
    if (file->path && !file->finished) unlink(file->path);
    XXH3_freeState(file->hash);
    free(file->buffer);
    free(file->path);
    free(file->shown);
    free(file);
}

/* ---- names that change their meaning at once */

Status directory_sync(const char *path)
{
    Status st = OK;
    char shown[PATH_BYTES];
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), error = errno;
    path_show(shown, path);
    if (fd < 0) return FAIL(ERR_IO, "cannot open the directory '%s': %s", shown, strerror(error));
    if (fsync(fd) != 0) st = FAIL(ERR_IO, "fsync of the directory '%s' failed: %s", shown, strerror(errno));
    close(fd);
    return st;
}

/* A rename would put the file in the place of a device (/dev/stdout) or of a link to somewhere else. */
static Status target_check(const char *path)
{
    struct stat info;
    if (lstat(path, &info) != 0 || S_ISREG(info.st_mode)) return OK;
    return FAIL(ERR_IO, "'%s' is there and is not a regular file: nothing was written in its place", path);
}

Status file_publish(const char *from, const char *path)
{
    char parent[PATH_BYTES];
    TRY(target_check(path));
    TRY(parent_of(parent, path));
    if (rename(from, path) != 0) return FAIL(ERR_IO, "cannot rename '%s' to '%s': %s", from, path, strerror(errno));
    return directory_sync(parent);
}

Status file_replace(const char *path, const void *bytes, size_t count)
{
    Status st = OK;
    DurableFile *file = NULL;
    char temporary[PATH_BYTES];
    TRY(path_temporary(temporary, path));
    unlink(temporary); /* of an attempt of this process that failed */
    TRY_OUT(durable_create(temporary, count, &file));
    TRY_OUT(durable_write(file, bytes, count));
    TRY_OUT(durable_finish(file, NULL));
    TRY_OUT(file_publish(temporary, path));
out:
    if (st != OK && file) unlink(temporary);
    durable_destroy(file);
    return st;
}

static Status one_directory_create(const char *path)
{
    char parent[PATH_BYTES];
    struct stat info;
    if (mkdir(path, 0777) == 0) {
        TRY(parent_of(parent, path));
        return directory_sync(parent);
    }
    if (errno != EEXIST) return FAIL(ERR_IO, "cannot create the directory '%s': %s", path, strerror(errno));
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return FAIL(ERR_IO, "'%s' exists and is not a directory", path);
    return OK;
}

Status directory_create(const char *path)
{
    char part[PATH_BYTES];
    size_t length = strlen(path);
    if (length >= PATH_BYTES) return FAIL(ERR_ARG, "the path '%.64s...' is longer than %d bytes", path, PATH_BYTES - 1);
    for (size_t end = 1; end < length; end++) {
        if (path[end] != '/' || path[end - 1] == '/') continue;
        snprintf(part, sizeof part, "%.*s", (int)end, path);
        if (access(part, F_OK) != 0) TRY(one_directory_create(part));
    }
    return one_directory_create(path);
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info, (void)type, (void)where;
    return remove(path) != 0 && errno != ENOENT ? errno : 0;
}

Status tree_remove(const char *path)
{
    int failed = nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    if (failed < 0 && errno == ENOENT) return OK;
    if (failed) return FAIL(ERR_IO, "cannot remove '%s': %s", path, strerror(failed < 0 ? errno : failed));
    return OK;
}

/* ---- reading */

/* What is wrong with the file is ERR_CHECKPOINT; what is wrong with this process or its rights is ERR_IO, so that
 * nobody sets a good checkpoint aside because the descriptors ran out. */
static Status read_failed(const char *path, const char *call, int error)
{
    Status code = error == ENOENT || error == EIO || error == ENOTDIR || error == ELOOP || error == ENXIO
                      ? ERR_CHECKPOINT
                      : ERR_IO;
    return FAIL(code, "cannot %s '%s': %s", call, path, strerror(error));
}

static Status open_regular(const char *path, int *fd, uint64_t *bytes)
{
    struct stat info;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a named pipe must not stop us */
    if (*fd < 0) return read_failed(path, "open", errno);
    if (fstat(*fd, &info) != 0) {
        int error = errno;
        close(*fd);
        return read_failed(path, "stat", error);
    }
    if (!S_ISREG(info.st_mode)) {
        close(*fd);
        return FAIL(ERR_CHECKPOINT, "'%s' is not a regular file", path);
    }
    *bytes = (uint64_t)info.st_size;
    return OK;
}

/* Up to `count` bytes, fewer only at the end of the file. */
static Status read_full(int fd, const char *path, void *bytes, size_t count, size_t *got)
{
    *got = 0;
    while (*got < count) {
        ssize_t done = read(fd, (char *)bytes + *got, count - *got);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return read_failed(path, "read", errno);
        if (done == 0) break;
        *got += (size_t)done;
    }
    return OK;
}

Status file_read(const char *path, size_t limit, char **bytes, size_t *count)
{
    Status st = OK;
    int fd;
    uint64_t size;
    size_t got;
    char *text = NULL;
    TRY(open_regular(path, &fd, &size));
    if (size > limit) {
        st = FAIL(ERR_CHECKPOINT, "'%s' has %llu bytes; at most %zu are read", path, (unsigned long long)size, limit);
        goto out;
    }
    text = malloc((size_t)size + 1);
    if (!text) {
        st = FAIL(ERR_MEMORY, "%llu bytes of '%s'", (unsigned long long)size, path);
        goto out;
    }
    TRY_OUT(read_full(fd, path, text, (size_t)size, &got));
    text[got] = 0;
    *bytes = text;
    *count = got;
    text = NULL;
out:
    free(text);
    close(fd);
    return st;
}

Status file_sum(const char *path, FileSum *sum)
{
    enum { BLOCK = 1 << 20 };
    Status st = OK;
    int fd;
    size_t got = 0;
    uint64_t size, total = 0;
    TRY(open_regular(path, &fd, &size));
    unsigned char *block = malloc(BLOCK);
    XXH3_state_t *hash = XXH3_createState();
    if (!block || !hash || XXH3_128bits_reset(hash) != XXH_OK) {
        st = FAIL(ERR_MEMORY, "a block of '%s'", path);
        goto out;
    }
    do {
        TRY_OUT(read_full(fd, path, block, BLOCK, &got));
        (void)XXH3_128bits_update(hash, block, got);
        total += got;
        progress_made(path);
    } while (got == BLOCK);
    XXH128_hash_t digest = XXH3_128bits_digest(hash);
    *sum = (FileSum){total, digest.high64, digest.low64};
out:
    XXH3_freeState(hash);
    free(block);
    close(fd);
    return st;
}

void memory_sum(const void *bytes, size_t count, FileSum *sum)
{
    XXH128_hash_t hash = XXH3_128bits(bytes, count);
    *sum = (FileSum){count, hash.high64, hash.low64};
}
