/* Whole files as samples; contract in reader.h. Never blocks on a pipe. */
#include "towers/data/sources/reader.h"

#include "kernels/base/open.h"
#include "towers/files/files.h"

static Status size_check(uint64_t bytes, uint64_t most)
{
    if (bytes <= most) return OK;
    return FAIL(ERR_FORMAT, "%" PRIu64 " bytes: expected an image of at most %" PRIu64, bytes, most);
}

Status sample_size_check(uint64_t bytes)
{
    return size_check(bytes, SAMPLE_BYTES_MAX);
}

static Status head_read(int fd, const char *path, size_t wanted, Bytes *bytes)
{
    TRY(bytes_reserve(bytes, wanted));
    for (bytes->size = 0; bytes->size < wanted;) {
        ssize_t got = pread(fd, bytes->data + bytes->size, wanted - bytes->size, (off_t)bytes->size);
        if (got < 0 && errno != EINTR) return FAIL(ERR_IO, "cannot read '%s': %s", path, strerror(errno));
        if (got == 0) return FAIL(ERR_FORMAT, "'%s' became shorter while it was read", path);
        if (got > 0) bytes->size += (size_t)got;
    }
    bytes->raw_c = 0;
    return OK;
}

static Status whole_read(int fd, const char *path, uint64_t size, size_t wanted, Bytes *bytes)
{
    if (size != ANY_SIZE && wanted != size)
        return FAIL(ERR_FORMAT,
                    "'%s' has changed since its folder was scanned: expected %" PRIu64
                    " bytes, found %zu: start again to "
                    "scan it again",
                    path, size, wanted);
    return head_read(fd, path, wanted, bytes);
}

static Status sample_open(const char *path, int *fd, struct stat *info)
{
    *fd = regular_open(path, O_RDONLY, info);
    if (*fd == NOT_REGULAR) return FAIL(ERR_FORMAT, "'%s' is not a regular file", path);
    /* A file that is gone is a bad sample, as one that holds no image. A disk that fails or a missing permission is not:
     * the image may be good, and its user must see to it. */
    bool bad = *fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP);
    return *fd >= 0 ? OK : FAIL(bad ? ERR_FORMAT : ERR_IO, "cannot open '%s': %s", path, strerror(errno));
}

Status bytes_read(const char *path, uint64_t size, uint64_t most, Bytes *bytes)
{
    struct stat info;
    int fd;
    bytes->raw_c = 0;
    TRY(sample_open(path, &fd, &info));
    Status st = size_check((uint64_t)info.st_size, most);
    if (st == OK) st = whole_read(fd, path, size, (size_t)info.st_size, bytes);
    close(fd);
    return st;
}

Status bytes_read_head(const char *path, uint64_t most, Bytes *bytes, uint64_t *size)
{
    struct stat info;
    int fd;
    TRY(sample_open(path, &fd, &info));
    *size = (uint64_t)info.st_size;
    Status st = head_read(fd, path, (size_t)(*size < most ? *size : most), bytes);
    close(fd);
    return st;
}

Status files_equal(const char *a, const char *b, bool *equal)
{
    enum { PART = 1 << 20 };
    Status st = OK;
    int fd[2] = {-1, -1};
    uint64_t size[2];
    char *bytes = malloc(2 * PART);
    if (!bytes) return FAIL(ERR_MEMORY, "no memory to compare '%s' and '%s'", a, b);
    TRY_OUT(file_open(a, OF_USER, ERR_FORMAT, UINT64_MAX, &fd[0], &size[0]));
    TRY_OUT(file_open(b, OF_USER, ERR_FORMAT, UINT64_MAX, &fd[1], &size[1]));
    *equal = size[0] == size[1];
    for (uint64_t at = 0; *equal && at < size[0]; at += PART) {
        size_t count = size[0] - at < PART ? (size_t)(size[0] - at) : PART;
        TRY_OUT(file_pread(fd[0], a, at, bytes, count));
        TRY_OUT(file_pread(fd[1], b, at, bytes + PART, count));
        *equal = !memcmp(bytes, bytes + PART, count);
    }
out:
    for (int i = 0; i < 2; i++)
        if (fd[i] >= 0) close(fd[i]);
    free(bytes);
    return st;
}

void bytes_hint(const char *path, uint64_t offset, uint64_t bytes)
{
    int fd = regular_open(path, O_RDONLY, NULL);
    if (fd < 0) return;
    (void)posix_fadvise(fd, (off_t)offset, (off_t)bytes, POSIX_FADV_WILLNEED);
    close(fd);
}
