/* Whole files as samples; contract in reader.h. Never blocks on a pipe. */
#include "towers/data/sources/reader.h"

#include "kernels/open.h"

#include <errno.h>
#include <unistd.h>

static Status size_check(uint64_t bytes, uint64_t most)
{
    if (bytes <= most) return OK;
    return FAIL(ERR_FORMAT, "%" PRIu64 " bytes: expected an image of at most %" PRIu64, bytes, most);
}

Status sample_size_check(uint64_t bytes)
{
    return size_check(bytes, SAMPLE_BYTES_MAX);
}

static Status whole_read(int fd, const char *path, uint64_t size, size_t wanted, Bytes *bytes)
{
    if (size != ANY_SIZE && wanted != size)
        return FAIL(ERR_FORMAT,
                    "'%s' has changed since its folder was scanned: expected %" PRIu64
                    " bytes, found %zu: start again to "
                    "scan it again",
                    path, size, wanted);
    TRY(bytes_reserve(bytes, wanted));
    for (bytes->size = 0; bytes->size < wanted;) {
        ssize_t got = pread(fd, bytes->data + bytes->size, wanted - bytes->size, (off_t)bytes->size);
        if (got < 0 && errno != EINTR) return FAIL(ERR_IO, "cannot read '%s': %s", path, strerror(errno));
        if (got == 0) return FAIL(ERR_FORMAT, "'%s' became shorter while it was read", path);
        if (got > 0) bytes->size += (size_t)got;
    }
    return OK;
}

Status bytes_read(const char *path, uint64_t size, uint64_t most, Bytes *bytes)
{
    struct stat info;
    int fd = regular_open(path, O_RDONLY, &info);
    if (fd == NOT_REGULAR) return FAIL(ERR_FORMAT, "'%s' is not a regular file", path);
    /* A file that is gone is a bad sample, as one that holds no image. A disk that fails or a missing permission is not:
     * the image may be good, and its user must see to it. */
    bool bad = fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP);
    if (fd < 0) return FAIL(bad ? ERR_FORMAT : ERR_IO, "cannot open '%s': %s", path, strerror(errno));
    Status st = size_check((uint64_t)info.st_size, most);
    if (st == OK) st = whole_read(fd, path, size, (size_t)info.st_size, bytes);
    close(fd);
    bytes->raw_c = 0;
    return st;
}

void bytes_hint(const char *path, uint64_t offset, uint64_t bytes)
{
    int fd = regular_open(path, O_RDONLY, NULL);
    if (fd < 0) return;
    (void)posix_fadvise(fd, (off_t)offset, (off_t)bytes, POSIX_FADV_WILLNEED);
    close(fd);
}
