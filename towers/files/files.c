/* Durable files: exclusive creation, reservation, fsync of file and directory, rename; see files.h. Space is reserved
 * with fallocate(2), not posix_fallocate(3): where a file system cannot reserve, the latter falls back to writing to
 * every block. */
#include "towers/files/files.h"
#include "kernels/base/open.h"

#include "kernels/base/place.h"
#include "kernels/base/progress.h"

#include <ctype.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <xxhash.h>

enum { BUFFER_BYTES = 1 << 18, PIECE_BYTES = 4 << 20 /* one write(2), between progress reports */, BOOT_ID_CHARS = 36 };

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

const char *path_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

Status path_join(char path[PATH_BYTES], const char *directory, const char *name)
{
    int count = snprintf(path, PATH_BYTES, "%s/%s", directory, name);
    if (count < 0 || count >= PATH_BYTES)
        return FAIL(ERR_ARG, "the path '%.64s.../%.64s' has %d bytes, more than %d", directory, name, count,
                    PATH_BYTES - 1);
    return OK;
}

bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

/* Zeros if it cannot be read, as without a free descriptor; then the next call tries again. */
static const char *boot_id(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char known[BOOT_ID_CHARS + 1];
    static const char none[] = "00000000-0000-0000-0000-000000000000";
    _Static_assert(sizeof none == sizeof known, "zeros in the form of a boot id");
    pthread_mutex_lock(&lock);
    char text[BOOT_ID_CHARS + 1];
    if (!*known && system_text("/proc/sys/kernel/random/boot_id", text, sizeof text) == BOOT_ID_CHARS)
        memcpy(known, text, sizeof known);
    pthread_mutex_unlock(&lock);
    return *known ? known : none;
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
    if (count < 0 || count >= (int)sizeof name) return FAIL(ERR_ARG, "the file name '%.64s...' is too long", path);
    return path_join(temporary, parent, name);
}

/* Offset of "-<boot id>-<pid>" in a name of `count` characters; 0 if the name is not a temporary one. */
static size_t owner_at(const char *name, size_t count)
{
    size_t dash = count;
    while (dash && isdigit((unsigned char)name[dash - 1])) dash--;
    bool whole = strncmp(name, ".tmp-", 5) == 0 && dash < count && dash > 5 + BOOT_ID_CHARS + 2 &&
                 name[dash - 1] == '-' && name[dash - 2 - BOOT_ID_CHARS] == '-';
    return whole ? dash - 2 - BOOT_ID_CHARS : 0;
}

/* A zombie counts as dead: it will never write again. See proc(5): the state is the field after the command name, which
 * stands in parentheses and may contain any character. */
static bool process_lives(pid_t pid)
{
    char path[64], text[512], *bracket;
    if (kill(pid, 0) != 0 && errno == ESRCH) return false;
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    if (!system_text(path, text, sizeof text)) return access("/proc/self", F_OK) != 0 || place_access(path, F_OK) == 0;
    bracket = strrchr(text, ')');
    return !bracket || strncmp(bracket, ") Z", 3) != 0;
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
    return pid == getpid() || !process_lives((pid_t)pid);
}

/* For messages: the path with every temporary name replaced by the name it will get. */
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
    if (!file) return FAIL(ERR_MEMORY, "no memory for the writer of '%s'", shown);
    file->fd = -1;
    file->hash = XXH3_createState();
    file->buffer = malloc(BUFFER_BYTES);
    if (!file->hash || !file->buffer || XXH3_128bits_reset(file->hash) != XXH_OK)
        TRY_OUT(FAIL(ERR_MEMORY, "no memory for the buffer of '%s'", shown));
    file->fd = regular_open(path, O_WRONLY | O_CREAT | O_EXCL, NULL);
    if (file->fd < 0) {
        st = strcmp(shown, path)
                 ? FAIL(ERR_IO, "cannot create '%s' (temporary name '%s'): %s", shown, path, strerror(errno))
                 : FAIL(ERR_IO, "cannot create '%s': %s", path, strerror(errno));
        goto out;
    }
    file->path = strdup(path);
    file->shown = strdup(shown);
    if (!file->path || !file->shown) {
        place_unlink(path);
        st = FAIL(ERR_MEMORY, "no memory for the writer of '%s'", shown);
        goto out;
    }
    if (bytes && STORAGE(fallocate(file->fd, 0, 0, (off_t)bytes)) != 0 && errno != EOPNOTSUPP && errno != EINVAL &&
        errno != ENOSYS)
        TRY_OUT(FAIL(ERR_IO, "cannot reserve %" PRIu64 " bytes for '%s': %s", bytes, shown, strerror(errno)));
    *made = file;
    file = NULL;
out:
    durable_destroy(file);
    return st;
}

static Status write_all(DurableFile *file, const unsigned char *bytes, size_t count)
{
    while (count) {
        ssize_t done = STORAGE(write(file->fd, bytes, count < PIECE_BYTES ? count : PIECE_BYTES));
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
    if (STORAGE(fsync(file->fd)) != 0) return FAIL(ERR_IO, "fsync of '%s' failed: %s", file->shown, strerror(errno));
    int closed = (int)STORAGE(close(file->fd));
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
    if (file->fd >= 0) (void)STORAGE(close(file->fd));
    if (file->path && !file->finished) place_unlink(file->path);
    XXH3_freeState(file->hash);
    free(file->buffer);
    free(file->path);
    free(file->shown);
    free(file);
}

/* ---- renaming */

Status directory_sync(const char *path)
{
    Status st = OK;
    char shown[PATH_BYTES];
    int fd = place_open(path, O_RDONLY | O_DIRECTORY), error = errno;
    path_show(shown, path);
    if (fd < 0) return FAIL(ERR_IO, "cannot open the directory '%s': %s", shown, strerror(error));
    if (STORAGE(fsync(fd)) != 0) st = FAIL(ERR_IO, "fsync of the directory '%s' failed: %s", shown, strerror(errno));
    (void)STORAGE(close(fd));
    return st;
}

Status disk_spare(const char *path, uint64_t *bytes)
{
    struct statvfs info;
    if (place_statvfs(path, &info) != 0)
        return FAIL(ERR_IO, "cannot determine the free space of '%s': %s", path, strerror(errno));
    uint64_t blocks = geteuid() == 0 ? info.f_bfree : info.f_bavail;
    *bytes = info.f_blocks ? blocks * info.f_frsize : UINT64_MAX;
    return OK;
}

/* A rename would replace a device (/dev/stdout) or a symbolic link with a regular file. */
static Status target_check(const char *path)
{
    struct stat info;
    if (place_lstat(path, &info) != 0 || S_ISREG(info.st_mode)) return OK;
    return FAIL(ERR_IO, "'%s' exists and is not a regular file; it was not replaced", path);
}

Status file_publish(const char *from, const char *path)
{
    char parent[PATH_BYTES];
    TRY(target_check(path));
    TRY(parent_of(parent, path));
    if (place_rename(from, path, 0) != 0)
        return FAIL(ERR_IO, "cannot rename '%s' to '%s': %s", from, path, strerror(errno));
    return directory_sync(parent);
}

Status file_replace(const char *path, const void *bytes, size_t count)
{
    Status st = OK;
    DurableFile *file = NULL;
    char temporary[PATH_BYTES];
    TRY(path_temporary(temporary, path));
    place_unlink(temporary); /* left by an earlier failed attempt of this process */
    TRY_OUT(durable_create(temporary, count, &file));
    TRY_OUT(durable_write(file, bytes, count));
    TRY_OUT(durable_finish(file, NULL));
    TRY_OUT(file_publish(temporary, path));
out:
    if (st != OK && file) place_unlink(temporary);
    durable_destroy(file);
    return st;
}

Status text_replace(const char *directory, const char *name, const char *text)
{
    char path[PATH_BYTES];
    if (directory) TRY(path_join(path, directory, name));
    return file_replace(directory ? path : name, text, strlen(text));
}

Status draft_replace(Draft *draft, Status st, const char *directory, const char *name)
{
    TRY(draft_end(draft, st));
    st = text_replace(directory, name, draft->text);
    free(draft->text);
    return st;
}

static Status one_directory_create(const char *path)
{
    char parent[PATH_BYTES];
    struct stat info;
    if (place_mkdir(path) == 0) {
        TRY(parent_of(parent, path));
        return directory_sync(parent);
    }
    if (errno != EEXIST) return FAIL(ERR_IO, "cannot create the directory '%s': %s", path, strerror(errno));
    if (place_stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
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
        if (place_access(part, F_OK) != 0) TRY(one_directory_create(part));
    }
    return one_directory_create(path);
}

Status tree_remove(const char *path)
{
    int error = place_remove(path);
    return error ? FAIL(ERR_IO, "cannot remove '%s': %s", path, strerror(error)) : OK;
}

/* ---- reading */

/* A missing file gives `wrong`, the caller's error for a bad file. Other failures (permissions, descriptors, memory, a
 * failing disk) say nothing about the file's content: they must not get a good checkpoint set aside as damaged. */
static Status read_failed(const char *path, const char *call, Status wrong, int error)
{
    if (error == ELOOP)
        return FAIL(ERR_IO, "'%s' is a symbolic link; files in a run directory must be regular files", path);
    Status code = error == ENOENT || error == ENOTDIR ? wrong : error == ENOMEM ? ERR_MEMORY : ERR_IO;
    return FAIL(code, "cannot %s '%s': %s", call, path, strerror(error));
}

Status file_open(const char *path, FileOwner owner, Status wrong, uint64_t limit, int *fd, uint64_t *bytes)
{
    struct stat info;
    int opened = regular_open(path, O_RDONLY | (owner == OF_RUN ? O_NOFOLLOW : 0), &info);
    *fd = -1;
    if (opened == NOT_REGULAR) return FAIL(wrong, "'%s' is not a regular file", path);
    if (opened < 0) return read_failed(path, "open", wrong, errno);
    *bytes = (uint64_t)info.st_size;
    if (*bytes > limit) {
        (void)STORAGE(close(opened));
        return FAIL(wrong, "'%s' has %" PRIu64 " bytes, larger than the limit of %" PRIu64, path, *bytes, limit);
    }
    *fd = opened;
    return OK;
}

Status file_pread(int fd, const char *path, uint64_t offset, void *to, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(fd, (char *)to + done, bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return FAIL(ERR_IO, "cannot read '%s' at offset %" PRIu64 ": %s", path, offset + done, strerror(errno));
        if (got == 0)
            return FAIL(ERR_FORMAT,
                        "'%s' ends at offset %" PRIu64 ", where %zu more bytes were expected: it is cut off", path,
                        offset + done, bytes - done);
        done += (size_t)got;
    }
    return OK;
}

static Status run_file_opened(const char *path, int flags, int *fd)
{
    *fd = regular_open(path, flags | O_RDWR | O_NOFOLLOW, NULL);
    if (*fd == NOT_REGULAR) {
        *fd = -1;
        return FAIL(ERR_IO, "cannot open '%s' for writing: not a regular file", path);
    }
    if (*fd < 0 && errno == ENOENT && !(flags & O_CREAT)) return OK;
    if (*fd < 0 && errno == ELOOP) return FAIL(ERR_IO, "'%s' is a symbolic link; it was not opened for writing", path);
    if (*fd < 0) return FAIL(ERR_IO, "cannot open '%s' for writing: %s", path, strerror(errno));
    return OK;
}

Status run_file_open(const char *path, bool create, bool exclusive, int *fd)
{
    return run_file_opened(path, (create ? O_CREAT : 0) | (exclusive ? O_EXCL : 0), fd);
}

Status run_file_append(const char *path, const void *bytes, size_t count)
{
    int fd;
    TRY(run_file_opened(path, O_CREAT | O_APPEND, &fd));
    bool alone = STORAGE(flock(fd, LOCK_EX)) == 0; /* a file system may have no locks */
    off_t end = STORAGE(lseek(fd, 0, SEEK_END));
    ssize_t put = STORAGE(write(fd, bytes, count));
    int code = errno;
    if (put > 0 && put < (ssize_t)count && alone) (void)STORAGE(ftruncate(fd, end));
    (void)STORAGE(close(fd));
    if (put == (ssize_t)count) return OK;
    return FAIL(ERR_IO, "cannot write '%s': %s", path, put < 0 ? strerror(code) : "the disk is full");
}

Status run_file_sync(const char *path)
{
    int fd;
    TRY(run_file_open(path, false, false, &fd));
    if (fd < 0) return OK;
    Status st = STORAGE(fsync(fd)) == 0 ? OK : FAIL(ERR_IO, "fsync of '%s' failed: %s", path, strerror(errno));
    (void)STORAGE(close(fd));
    return st;
}

/* Read up to `count` bytes; fewer only at the end of the file. */
static Status read_full(int fd, const char *path, void *bytes, size_t count, size_t *got)
{
    *got = 0;
    while (*got < count) {
        ssize_t done = STORAGE(read(fd, (char *)bytes + *got, count - *got));
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return read_failed(path, "read", ERR_IO, errno);
        if (done == 0) break;
        *got += (size_t)done;
    }
    return OK;
}

Status file_load(const char *path, FileOwner owner, Status wrong, size_t limit, char **bytes, size_t *count)
{
    Status st = OK;
    int fd;
    uint64_t size = 0;
    size_t got;
    char *text = NULL;
    TRY(file_open(path, owner, wrong, limit, &fd, &size));
    text = malloc((size_t)size + 1);
    if (!text) TRY_OUT(FAIL(ERR_MEMORY, "no memory for %" PRIu64 " bytes of '%s'", size, path));
    TRY_OUT(read_full(fd, path, text, (size_t)size, &got));
    text[got] = 0;
    *bytes = text;
    *count = got;
    text = NULL;
out:
    free(text);
    (void)STORAGE(close(fd));
    return st;
}

Status file_map(const char *path, Status wrong, size_t limit, void **map, size_t *count)
{
    int fd;
    uint64_t bytes;
    TRY(file_open(path, OF_USER, wrong, limit, &fd, &bytes));
    if (bytes == 0) {
        close(fd);
        return FAIL(wrong, "'%s' is empty", path);
    }
    *count = (size_t)bytes;
    *map = mmap(NULL, *count, PROT_READ, MAP_PRIVATE, fd, 0);
    int error = errno;
    close(fd);
    if (*map == MAP_FAILED) return FAIL(ERR_IO, "cannot map %zu bytes of '%s': %s", *count, path, strerror(error));
    return OK;
}

Status file_read(const char *path, size_t limit, char **bytes, size_t *count)
{
    return file_load(path, OF_RUN, ERR_CHECKPOINT, limit, bytes, count);
}

Status file_sum(const char *path, FileSum *sum)
{
    enum { BLOCK = 1 << 20 };
    Status st = OK;
    int fd;
    size_t got = 0;
    uint64_t size = 0, total = 0;
    TRY(file_open(path, OF_RUN, ERR_CHECKPOINT, UINT64_MAX, &fd, &size));
    unsigned char *block = malloc(BLOCK);
    XXH3_state_t *hash = XXH3_createState();
    if (!block || !hash || XXH3_128bits_reset(hash) != XXH_OK)
        TRY_OUT(FAIL(ERR_MEMORY, "no memory for a block of '%s'", path));
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
    (void)STORAGE(close(fd));
    return st;
}

void memory_sum(const void *bytes, size_t count, FileSum *sum)
{
    XXH128_hash_t hash = XXH3_128bits(bytes, count);
    *sum = (FileSum){count, hash.high64, hash.low64};
}

bool is_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return place_stat(a, &x) == 0 && place_stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

Status run_file_copy(const char *from, const char *to)
{
    enum { BLOCK = 1 << 18 };
    Status st = OK;
    DurableFile *file = NULL;
    int fd = -1;
    uint64_t size = 0;
    size_t got;
    char temporary[PATH_BYTES], *block = NULL;
    if (place_access(from, F_OK) != 0 && errno == ENOENT) return OK;
    TRY(path_temporary(temporary, to));
    TRY(file_open(from, OF_RUN, ERR_IO, UINT64_MAX, &fd, &size));
    block = malloc(BLOCK);
    if (!block) TRY_OUT(FAIL(ERR_MEMORY, "no memory for a block of '%s'", from));
    TRY_OUT(durable_create(temporary, size, &file));
    do {
        TRY_OUT(read_full(fd, from, block, BLOCK, &got));
        TRY_OUT(durable_write(file, block, got));
    } while (got == BLOCK);
    TRY_OUT(durable_finish(file, NULL));
    TRY_OUT(file_publish(temporary, to));
out:
    if (st != OK && file) place_unlink(temporary);
    durable_destroy(file);
    free(block);
    (void)STORAGE(close(fd));
    return st;
}
