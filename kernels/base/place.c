/* Files below a held directory; see place.h. */
#include "kernels/base/place.h"

#include "kernels/base/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct {
    int fd;
    size_t length;
    char path[PATH_MAX];
} held = {.fd = -1};

int place_hold(const char *path)
{
    if (strlen(path) >= sizeof held.path) return ENAMETOOLONG;
    int fd = (int)STORAGE(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd < 0) return errno;
    if (held.fd >= 0) close(held.fd);
    snprintf(held.path, sizeof held.path, "%s", path);
    held.length = strlen(path);
    held.fd = fd;
    return 0;
}

FilePlace place_of(const char *path)
{
    bool below =
        held.fd >= 0 && !strncmp(path, held.path, held.length) && (path[held.length] == '/' || path[held.length] == 0);
    if (!below) return (FilePlace){AT_FDCWD, path};
    const char *name = path + held.length + strspn(path + held.length, "/");
    return (FilePlace){held.fd, *name ? name : "."};
}

PlaceState place_state(char *now, size_t bytes)
{
    struct stat own, named;
    char link[64];
    static const char gone[] = " (deleted)";
    *now = 0;
    if (held.fd < 0 || fstat(held.fd, &own) != 0) return PLACE_HERE;
    int found = stat(held.path, &named);
    if (found != 0 && errno != ENOENT && errno != ENOTDIR) return PLACE_HERE;
    if (found == 0 && own.st_dev == named.st_dev && own.st_ino == named.st_ino) return PLACE_HERE;
    snprintf(link, sizeof link, "/proc/self/fd/%d", held.fd);
    ssize_t count = readlink(link, now, bytes - 1);
    now[count > 0 ? count : 0] = 0;
    size_t length = strlen(now), end = sizeof gone - 1;
    if (own.st_nlink != 0 && !(length > end && !strcmp(now + length - end, gone))) return PLACE_MOVED;
    *now = 0;
    return PLACE_REMOVED;
}

int place_rename(const char *from, const char *to, unsigned flags)
{
    FilePlace a = place_of(from), b = place_of(to);
    if (flags) return (int)STORAGE(renameat2(a.at, a.name, b.at, b.name, flags));
    bool named = a.at == AT_FDCWD && b.at == AT_FDCWD;
    return (int)STORAGE(named ? rename(from, to) : renameat(a.at, a.name, b.at, b.name));
}

int place_unlink(const char *path)
{
    FilePlace p = place_of(path);
    return (int)STORAGE(p.at == AT_FDCWD ? unlink(path) : unlinkat(p.at, p.name, 0));
}

int place_mkdir(const char *path)
{
    FilePlace p = place_of(path);
    return (int)STORAGE(p.at == AT_FDCWD ? mkdir(path, 0777) : mkdirat(p.at, p.name, 0777));
}

int place_stat(const char *path, struct stat *info)
{
    FilePlace p = place_of(path);
    return (int)STORAGE(fstatat(p.at, p.name, info, 0));
}

int place_lstat(const char *path, struct stat *info)
{
    FilePlace p = place_of(path);
    return (int)STORAGE(fstatat(p.at, p.name, info, AT_SYMLINK_NOFOLLOW));
}

int place_access(const char *path, int mode)
{
    FilePlace p = place_of(path);
    return (int)STORAGE(faccessat(p.at, p.name, mode, 0));
}

int place_open(const char *path, int flags)
{
    FilePlace p = place_of(path);
    return (int)STORAGE(p.at == AT_FDCWD ? open(path, flags | O_CLOEXEC, 0666)
                                         : openat(p.at, p.name, flags | O_CLOEXEC, 0666));
}

int place_statvfs(const char *path, struct statvfs *info)
{
    if (place_of(path).at == AT_FDCWD) return (int)STORAGE(statvfs(path, info));
    int fd = place_open(path, O_RDONLY | O_DIRECTORY);
    if (fd < 0) return -1;
    int failed = (int)STORAGE(fstatvfs(fd, info)), error = errno;
    close(fd);
    errno = error;
    return failed;
}

DIR *place_list(const char *path)
{
    int fd = place_open(path, O_RDONLY | O_DIRECTORY);
    DIR *listing = fd >= 0 ? fdopendir(fd) : NULL;
    if (fd >= 0 && !listing) close(fd);
    return listing;
}

struct dirent *place_next(DIR *listing)
{
    progress_storage_begin();
    struct dirent *entry = readdir(listing);
    (void)progress_storage_end(0);
    return entry;
}

static int tree_remove_at(FilePlace p)
{
    if (unlinkat(p.at, p.name, 0) == 0 || errno == ENOENT) return 0;
    if (errno != EISDIR && errno != EPERM) return errno; /* EPERM: what POSIX says of directories */
    int fd = openat(p.at, p.name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), error = 0;
    DIR *listing = fd >= 0 ? fdopendir(fd) : NULL;
    if (!listing) {
        error = errno;
        if (fd >= 0) close(fd);
        return error;
    }
    for (struct dirent *entry; error == 0 && (entry = readdir(listing));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            error = tree_remove_at((FilePlace){dirfd(listing), entry->d_name});
    closedir(listing);
    if (error == 0 && unlinkat(p.at, p.name, AT_REMOVEDIR) != 0 && errno != ENOENT) error = errno;
    return error;
}

int place_remove(const char *path)
{
    return (int)STORAGE(tree_remove_at(place_of(path)));
}
