/* A library for LD_PRELOAD that makes calls wait, as a file server or a name server that does not answer does.
 *
 *   STALL_WHILE=FILE    they wait as long as this file exists
 *   STALL_PATH=TEXT     calls on files whose path contains this text: open, write, rename, unlink, mkdir, fsync and their like
 *   STALL_NAMES=1       getaddrinfo of a name, that is no address
 *   STALL_CHILDREN=1    wait4, with which a supervisor looks at its towers
 *
 * A call that waits goes on when the file is gone. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *stalled, *while_there;

__attribute__((constructor)) static void start(void)
{
    stalled = getenv("STALL_PATH");
    while_there = getenv("STALL_WHILE");
}

static bool is_stalled(void)
{
    return while_there && syscall(SYS_faccessat, AT_FDCWD, while_there, F_OK) == 0;
}

static void wait_here(void)
{
    while (is_stalled()) nanosleep(&(struct timespec){0, 5000000}, NULL);
}

/* The path behind a descriptor; "" if it has none. */
static const char *path_of(int fd, char *path, size_t bytes)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t count = syscall(SYS_readlinkat, AT_FDCWD, link, path, bytes - 1);
    path[count > 0 ? count : 0] = 0;
    return path;
}

static void name_check(int at, const char *name)
{
    char folder[4096], path[8200];
    if (!stalled || !name) return;
    snprintf(path, sizeof path, "%s/%s", at >= 0 && *name != '/' ? path_of(at, folder, sizeof folder) : "", name);
    if (strstr(path, stalled)) wait_here();
}

static void descriptor_check(int fd)
{
    char path[4096];
    if (stalled && strstr(path_of(fd, path, sizeof path), stalled)) wait_here();
}

/* The next definition of a function, which a union makes a pointer of its type. */
#define NEXT(type, name)                                                                                               \
    union {                                                                                                            \
        void *data;                                                                                                    \
        __typeof__(type) *function;                                                                                    \
    } next = {dlsym(RTLD_NEXT, name)}

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = va_arg(args, mode_t);
    va_end(args);
    name_check(-1, path);
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int openat(int at, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = va_arg(args, mode_t);
    va_end(args);
    name_check(at, path);
    return (int)syscall(SYS_openat, at, path, flags, mode);
}

ssize_t write(int fd, const void *bytes, size_t count)
{
    NEXT(ssize_t(int, const void *, size_t), "write");
    descriptor_check(fd);
    return next.function(fd, bytes, count);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at)
{
    NEXT(ssize_t(int, const void *, size_t, off_t), "pwrite");
    descriptor_check(fd);
    return next.function(fd, bytes, count, at);
}

int fsync(int fd)
{
    NEXT(int(int), "fsync");
    descriptor_check(fd);
    return next.function(fd);
}

int ftruncate(int fd, off_t bytes)
{
    NEXT(int(int, off_t), "ftruncate");
    descriptor_check(fd);
    return next.function(fd, bytes);
}

int rename(const char *from, const char *to)
{
    NEXT(int(const char *, const char *), "rename");
    name_check(-1, to);
    return next.function(from, to);
}

int renameat(int from_at, const char *from, int to_at, const char *to)
{
    NEXT(int(int, const char *, int, const char *), "renameat");
    name_check(to_at, to);
    return next.function(from_at, from, to_at, to);
}

int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags)
{
    name_check(to_at, to);
    return (int)syscall(SYS_renameat2, from_at, from, to_at, to, flags);
}

int unlink(const char *path)
{
    NEXT(int(const char *), "unlink");
    name_check(-1, path);
    return next.function(path);
}

int unlinkat(int at, const char *path, int flags)
{
    NEXT(int(int, const char *, int), "unlinkat");
    name_check(at, path);
    return next.function(at, path, flags);
}

int mkdir(const char *path, mode_t mode)
{
    NEXT(int(const char *, mode_t), "mkdir");
    name_check(-1, path);
    return next.function(path, mode);
}

int mkdirat(int at, const char *path, mode_t mode)
{
    NEXT(int(int, const char *, mode_t), "mkdirat");
    name_check(at, path);
    return next.function(at, path, mode);
}

int getaddrinfo(const char *restrict node, const char *restrict service, const struct addrinfo *restrict hints,
                struct addrinfo **restrict found)
{
    NEXT(int(const char *, const char *, const struct addrinfo *, struct addrinfo **), "getaddrinfo");
    struct in6_addr address;
    bool digits = hints && hints->ai_flags & AI_NUMERICHOST;
    if (getenv("STALL_NAMES") && node && !digits && inet_pton(AF_INET, node, &address) != 1 &&
        inet_pton(AF_INET6, node, &address) != 1)
        wait_here();
    return next.function(node, service, hints, found);
}

pid_t wait4(pid_t pid, int *status, int options, struct rusage *used)
{
    NEXT(pid_t(pid_t, int *, int, struct rusage *), "wait4");
    if (getenv("STALL_CHILDREN")) wait_here();
    return next.function(pid, status, options, used);
}
