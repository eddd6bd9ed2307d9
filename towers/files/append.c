/* Files that grow by whole records; see append.h. */
#include "towers/files/append.h"

#include "kernels/array.h"
#include "towers/files/files.h"

enum { FLUSH_BYTES = 1 << 16 };

struct AppendFile {
    char *path;
    char *buffer;
    size_t used, room;
    off_t whole; /* the file's size up to the last whole record */
    int fd;
};

Status append_open(const char *path, bool exclusive, AppendFile **made)
{
    struct stat info;
    AppendFile *file = calloc(1, sizeof *file);
    if (!file || !(file->path = strdup(path))) {
        free(file);
        return FAIL(ERR_MEMORY, "no memory for the writer of '%s'", path);
    }
    Status st = run_file_open(path, true, exclusive, &file->fd);
    if (st == OK && fstat(file->fd, &info) != 0) {
        st = FAIL(ERR_IO, "cannot determine the size of '%s': %s", path, strerror(errno));
        close(file->fd);
    }
    if (st != OK) {
        free(file->path);
        free(file);
        return st;
    }
    file->whole = info.st_size;
    *made = file;
    return OK;
}

Status append_flush(AppendFile *file)
{
    size_t done = 0;
    while (done < file->used) {
        ssize_t count = pwrite(file->fd, file->buffer + done, file->used - done, file->whole + (off_t)done);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) {
            Status st = FAIL(ERR_IO, "cannot write %zu bytes to '%s': %s", file->used, file->path,
                             strerror(count < 0 ? errno : ENOSPC));
            file->used = 0;
            (void)!ftruncate(file->fd, file->whole);
            return st;
        }
        done += (size_t)count;
    }
    file->whole += (off_t)file->used;
    file->used = 0;
    return OK;
}

Status append_record(AppendFile *file, const void *bytes, size_t count)
{
    if (file->used && file->used + count > FLUSH_BYTES) TRY(append_flush(file));
    TRY(array_reserve(&file->buffer, &file->room, file->used + count, 1, "a record of a file"));
    memcpy(file->buffer + file->used, bytes, count);
    file->used += count;
    return OK;
}

Status append_sync(const AppendFile *file)
{
    return fsync(file->fd) == 0 ? OK : FAIL(ERR_IO, "fsync of '%s' failed: %s", file->path, strerror(errno));
}

void append_close(AppendFile *file)
{
    if (!file) return;
    (void)!append_flush(file);
    close(file->fd);
    free(file->buffer);
    free(file->path);
    free(file);
}
