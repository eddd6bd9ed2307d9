/* The run directory belongs to one trainer at a time: flock(2) on RUN/.lock, which also holds the pid for the message
 * to the second. The lock is the kernel's, so it ends with the process however that ends; the file itself stays,
 * because removing it would race with the next one. Whoever holds the lock may remove what dead processes left half
 * written. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "towers/store/checkpoint.h"

static Status lock_refused(int fd, const char *run_dir, int error)
{
    char pid[32] = {0};
    if (error != EWOULDBLOCK)
        return FAIL(ERR_IO, "cannot lock '%s/.lock': %s (a file system without locks? put the run on a local disk)",
                    run_dir, strerror(error));
    if (pread(fd, pid, sizeof pid - 1, 0) < 0) pid[0] = 0;
    pid[strspn(pid, "0123456789")] = 0;
    return FAIL(ERR_ARG, "another trainer (pid %s) is using %s: wait for it, stop it, or name another directory",
                pid[0] ? pid : "unknown", run_dir);
}

static Status lock_take(const char *run_dir, int *lock)
{
    char path[PATH_BYTES], pid[32];
    TRY(path_join(path, run_dir, ".lock"));
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return FAIL(ERR_IO, "cannot write to the run directory: '%s': %s", path, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        Status st = lock_refused(fd, run_dir, errno);
        close(fd);
        return st;
    }
    int count = snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, pid, (size_t)count, 0) != count) {
        Status st = FAIL(ERR_IO, "cannot write '%s': %s", path, strerror(errno));
        close(fd);
        return st;
    }
    *lock = fd;
    return OK;
}

/* Remove the temporary files and directories of dead processes. What cannot be removed stays until the next time. */
static Status sweep(const char *directory)
{
    char path[PATH_BYTES];
    struct dirent *entry;
    DIR *listing = opendir(directory);
    if (!listing) {
        if (errno == ENOENT) return OK;
        return FAIL(ERR_IO, "cannot list '%s': %s", directory, strerror(errno));
    }
    while ((entry = readdir(listing)))
        if (name_is_stale(entry->d_name) && path_join(path, directory, entry->d_name) == OK) (void)!tree_remove(path);
    closedir(listing);
    return OK;
}

Status run_dir_take(const char *run_dir, int *lock)
{
    Status st = OK;
    int taken = -1;
    char ckpt[PATH_BYTES];
    TRY(directory_create(run_dir));
    TRY(path_join(ckpt, run_dir, "ckpt"));
    TRY(lock_take(run_dir, &taken));
    TRY_OUT(sweep(run_dir));
    TRY_OUT(sweep(ckpt));
    *lock = taken;
    return OK;
out:
    close(taken);
    return st;
}

void run_dir_release(int lock)
{
    if (lock >= 0) close(lock);
}
