/* Whole files as samples; contract in reader.h. Never blocks on a pipe. */
#include "towers/data/sources/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static Status whole_read(int fd, const char *path, uint64_t size, Bytes *bytes)
{
    struct stat info;
    if (fstat(fd, &info) != 0) return FAIL(ERR_IO, "cannot stat '%s': %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode)) return FAIL(ERR_FORMAT, "'%s' is not a regular file", path);
    if (size != ANY_SIZE && (uint64_t)info.st_size != size)
        return FAIL(ERR_FORMAT,
                    "'%s' has changed since its folder was scanned: expected %llu bytes, found %lld: start again to "
                    "scan it again",
                    path, (unsigned long long)size, (long long)info.st_size);
    size_t wanted = (size_t)info.st_size;
    TRY(bytes_reserve(bytes, wanted));
    for (bytes->size = 0; bytes->size < wanted;) {
        ssize_t got = pread(fd, bytes->data + bytes->size, wanted - bytes->size, (off_t)bytes->size);
        if (got < 0 && errno != EINTR) return FAIL(ERR_IO, "cannot read '%s': %s", path, strerror(errno));
        if (got == 0) return FAIL(ERR_FORMAT, "'%s' became shorter while it was read", path);
        if (got > 0) bytes->size += (size_t)got;
    }
    return OK;
}

Status bytes_read(const char *path, uint64_t size, Bytes *bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    /* A file that is gone or closed to us is a bad sample, as one that holds no image; a disk that fails is not. */
    bool bad = fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == EACCES || errno == ELOOP);
    if (fd < 0) return FAIL(bad ? ERR_FORMAT : ERR_IO, "cannot open '%s': %s", path, strerror(errno));
    Status st = whole_read(fd, path, size, bytes);
    close(fd);
    bytes->raw_c = 0;
    return st;
}

void bytes_hint(const char *path, uint64_t offset, uint64_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return;
    (void)posix_fadvise(fd, (off_t)offset, (off_t)bytes, POSIX_FADV_WILLNEED);
    close(fd);
}
