/* The door to files; see open.h. */
#include "kernels/base/open.h"

#include "kernels/base/place.h"
#include "kernels/base/progress.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_BYTES = 16384 };

int regular_open(const char *path, int flags, struct stat *info)
{
    struct stat own;
    if (!info) info = &own;
    int fd = place_open(path, flags | O_NONBLOCK);
    if (fd < 0)
        return errno == EISDIR || errno == ENXIO ? NOT_REGULAR : -1; /* ENXIO: a pipe that nobody reads, a socket */
    if (STORAGE(fstat(fd, info)) == 0 && S_ISREG(info->st_mode)) return fd;
    close(fd);
    return NOT_REGULAR;
}

size_t system_text(const char *path, char *text, size_t bytes)
{
    size_t used = 0;
    int fd = regular_open(path, O_RDONLY, NULL);
    while (fd >= 0 && used < bytes - 1) {
        ssize_t got = read(fd, text + used, bytes - 1 - used);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        used += (size_t)got;
    }
    text[used] = 0;
    if (fd >= 0) close(fd);
    return used;
}

int64_t system_number(const char *path, const char *key, int64_t otherwise)
{
    char text[TEXT_BYTES], *end;
    (void)system_text(path, text, sizeof text);
    for (const char *line = text; line; line = strchr(line, '\n'), line += line != NULL) {
        if (strncmp(line, key, strlen(key)) != 0) continue;
        int64_t value = strtoll(line + strlen(key), &end, 10);
        return end == line + strlen(key) ? otherwise : value;
    }
    return otherwise;
}
