/* The lock of a run directory; see run_dir.h.
 *
 * Towers inherit the lock on purpose: when a trainer is killed, the kernel closes its files before its towers have
 * ended, and until then the towers may still write. If the lock is held although the pid in it is gone, lock_try
 * therefore waits briefly. */
#include "towers/store/run_dir.h"
#include "kernels/base/pause.h"
#include "kernels/base/place.h"

#include <dirent.h>
#include <signal.h>
#include <sys/file.h>
#include <time.h>

enum { SAME_NAMES = 10000 };

static void holder_read(int fd, char pid[32])
{
    memset(pid, 0, 32);
    if (pread(fd, pid, 31, 0) < 0) pid[0] = 0;
    pid[strspn(pid, "0123456789")] = 0;
}

/* True if the trainer that took the lock has ended. The pid of one in another container is not visible here; it counts
 * as dead, which only costs the short wait. */
static bool holder_is_dead(int fd)
{
    char pid[32];
    holder_read(fd, pid);
    long number = strtol(pid, NULL, 10);
    return number > 0 && kill((pid_t)number, 0) != 0 && errno == ESRCH;
}

static int lock_try(int fd)
{
    for (int i = 0;; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) return 0;
        int error = errno;
        if (error != EWOULDBLOCK || i == HOLDER_MS / HOLDER_LOOK_MS || !holder_is_dead(fd)) return error;
        pause_ms(HOLDER_LOOK_MS);
    }
}

static Status lock_refused(int fd, const char *run_dir, int error)
{
    char pid[32];
    if (error != EWOULDBLOCK)
        return FAIL(ERR_IO, "cannot lock '%s/.lock': %s (if the file system has no locks, use a local disk)", run_dir,
                    strerror(error));
    if (holder_is_dead(fd))
        return FAIL(ERR_ARG,
                    "the trainer that used %s is gone, but one of its processes still holds '%s/.lock': wait for it "
                    "to end, or choose another directory",
                    run_dir, run_dir);
    holder_read(fd, pid);
    return FAIL(ERR_ARG,
                "another trainer (pid %s) is using %s; wait for it, let it save and end by 'towers stop %s', or choose "
                "another directory",
                pid[0] ? pid : "unknown", run_dir, run_dir);
}

static Status lock_take(const char *run_dir, int *lock)
{
    char path[PATH_BYTES], pid[32];
    TRY(path_join(path, run_dir, ".lock"));
    int fd;
    TRY(run_file_open(path, true, false, &fd));
    int error = lock_try(fd);
    if (error) {
        Status st = lock_refused(fd, run_dir, error);
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

/* Remove the temporary files and directories of dead processes. A failed removal is retried by the next sweep. */
static Status sweep(const char *directory)
{
    char path[PATH_BYTES];
    struct dirent *entry;
    DIR *listing = place_list(directory);
    if (!listing) {
        if (errno == ENOENT) return OK;
        return FAIL(ERR_IO, "cannot list '%s': %s", directory, strerror(errno));
    }
    while ((entry = place_next(listing)))
        if (name_is_stale(entry->d_name) && path_join(path, directory, entry->d_name) == OK) (void)!tree_remove(path);
    closedir(listing);
    return OK;
}

Status run_dir_create(char path[PATH_BYTES])
{
    char base[PATH_BYTES], parent[PATH_BYTES];
    snprintf(base, sizeof base, "%s", path);
    snprintf(parent, sizeof parent, "%s", path);
    char *slash = strrchr(parent, '/');
    if (slash && slash > parent) {
        *slash = 0;
        TRY(directory_create(parent));
    }
    for (int i = 2; place_mkdir(path) != 0; i++) {
        if (errno != EEXIST) return FAIL(ERR_IO, "cannot create the directory '%s': %s", path, strerror(errno));
        if (i == SAME_NAMES || snprintf(path, PATH_BYTES, "%s-%d", base, i) >= PATH_BYTES)
            return FAIL(ERR_IO,
                        "'%s' and %d numbered variants of it exist already; choose another name with --experiment",
                        base, i - 2);
    }
    return directory_sync(slash && slash > parent ? parent : slash ? "/" : ".");
}

Status run_dir_sweep(const char *run_dir)
{
    char ckpt[PATH_BYTES];
    TRY(path_join(ckpt, run_dir, "ckpt"));
    TRY(sweep(run_dir));
    return sweep(ckpt);
}

Status run_dir_take(const char *run_dir, int *lock)
{
    int taken = -1;
    TRY(directory_create(run_dir));
    TRY(lock_take(run_dir, &taken));
    Status st = run_dir_sweep(run_dir);
    if (st == OK)
        *lock = taken;
    else
        close(taken);
    return st;
}

void run_dir_release(int lock)
{
    if (lock >= 0) close(lock);
}

/* The lock is tried only if it names its last holder: a trainer that begins at this moment waits for the lock of a dead
 * holder, and has written no pid yet if it is the first. */
bool run_dir_taken(const char *run_dir)
{
    char path[PATH_BYTES], pid[32];
    uint64_t bytes;
    int fd;
    if (path_join(path, run_dir, ".lock") != OK || file_open(path, OF_RUN, ERR_IO, PATH_BYTES, &fd, &bytes) != OK)
        return false;
    holder_read(fd, pid);
    bool taken = !pid[0] || (flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK);
    close(fd);
    return taken;
}

/* The pid alone may by now be that of another program, or be meant on another machine. */
static bool has_open(long pid, const struct stat *file)
{
    char path[64], name[PATH_BYTES];
    struct stat info;
    bool found = false;
    snprintf(path, sizeof path, "/proc/%ld/fd", pid);
    DIR *listing = place_list(path);
    for (struct dirent *entry; listing && !found && (entry = place_next(listing));)
        found = path_join(name, path, entry->d_name) == OK && place_stat(name, &info) == 0 &&
                info.st_dev == file->st_dev && info.st_ino == file->st_ino;
    if (listing) closedir(listing);
    return found;
}

pid_t run_dir_holder(const char *run_dir)
{
    char path[PATH_BYTES], pid[32];
    struct stat info;
    uint64_t bytes;
    int fd;
    if (path_join(path, run_dir, ".lock") != OK || file_open(path, OF_RUN, ERR_IO, PATH_BYTES, &fd, &bytes) != OK)
        return 0;
    holder_read(fd, pid);
    long number = fstat(fd, &info) == 0 ? strtol(pid, NULL, 10) : 0;
    close(fd);
    return number > 0 && has_open(number, &info) ? (pid_t)number : 0;
}
