/* Partial objects; see partial.h. */
#include "towers/remote/partial.h"

#include <dirent.h>
#include <sys/file.h>
#include <xxhash.h>

#include "kernels/base/open.h"
#include "towers/remote/abandoned.h"

enum { LOST_TRIES = 4, HASH_DIGITS = 16 };

Status partial_place(const CacheConfig *config, const CachedObject *o, char path[PATH_BYTES])
{
    char end[2 + HASH_DIGITS];
    snprintf(end, sizeof end, ".%0*" PRIx64, HASH_DIGITS,
             XXH3_64bits_withSeed(o->version, strlen(o->version), (XXH64_hash_t)o->bytes));
    return cache_partial_place(config, o->address, end, path);
}

Status partial_bytes(const CacheConfig *config, const CachedObject *object, int64_t *bytes)
{
    char path[PATH_BYTES];
    struct stat info;
    TRY(partial_place(config, object, path));
    *bytes = stat(path, &info) == 0 ? disk_bytes(&info) : 0;
    return OK;
}

/* Behind the end of what has come, whose length says how far the download is. */
Status partial_reserve(const CacheConfig *config, const CachedObject *object)
{
    char path[PATH_BYTES];
    TRY(partial_place(config, object, path));
    TRY(folder_of_create(path));
    int fd = regular_open(path, O_WRONLY | O_CREAT | O_NOFOLLOW, NULL);
    if (fd < 0) return FAIL(ERR_IO, "cannot write '%s': %s", path, strerror(errno));
    bool full = fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, object->bytes) != 0 && errno == ENOSPC;
    (void)futimens(fd, NULL); /* it is about to come: nobody gives it up (room_make) */
    close(fd);
    return full ? FAIL(ERR_IO, "cannot write '%s': %s", path, strerror(ENOSPC)) : OK;
}

/* A file that another process has given its name meanwhile is opened anew. */
Status partial_open(const CacheConfig *config, const CachedObject *o, char path[PATH_BYTES], int *fd, bool *busy)
{
    struct stat own, named;
    bool lost = true;
    *fd = -1;
    *busy = false;
    TRY(partial_place(config, o, path));
    TRY(folder_of_create(path));
    for (int i = 0; i < LOST_TRIES && lost; i++) {
        if (*fd >= 0) close(*fd);
        *fd = regular_open(path, O_WRONLY | O_CREAT | O_NOFOLLOW, NULL);
        if (*fd < 0) return FAIL(ERR_IO, "cannot write '%s': %s", path, strerror(errno));
        bool locked = flock(*fd, LOCK_EX | LOCK_NB) == 0;
        *busy = !locked && errno == EWOULDBLOCK;
        if (!locked && !*busy) return cache_lock_fail(path, *fd);
        lost = !*busy && (fstat(*fd, &own) != 0 || lstat(path, &named) != 0 || named.st_ino != own.st_ino ||
                          named.st_dev != own.st_dev);
    }
    if (!*busy && !lost) return OK;
    close(*fd);
    *fd = -1;
    return *busy ? OK : FAIL(ERR_IO, "'%s' is removed again and again; stop the process that does so", path);
}

static bool is_partial(const char *entry)
{
    const char *dot = strrchr(entry, '.');
    return dot && strlen(dot) == 1 + HASH_DIGITS && strspn(dot + 1, "0123456789abcdef") == HASH_DIGITS;
}

static bool is_partial_of(const char *entry, const char *name)
{
    size_t bytes = strlen(name);
    return is_partial(entry) && !strncmp(entry, name, bytes) && strlen(entry) == bytes + 1 + HASH_DIGITS;
}

void partials_of_others_remove(const char *partial)
{
    char path[PATH_BYTES], folder[PATH_BYTES], name[PATH_BYTES];
    const char *own = strrchr(partial, '/') + 1;
    snprintf(folder, sizeof folder, "%.*s", (int)(own - partial), partial);
    snprintf(name, sizeof name, "%.*s", (int)(strrchr(own, '.') - own), own);
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries && (entry = readdir(entries)) != NULL;) {
        if (!is_partial_of(entry->d_name, name) || !strcmp(entry->d_name, own)) continue;
        if (path_join(path, folder, entry->d_name) != OK) continue;
        int fd = regular_open(path, O_WRONLY | O_NOFOLLOW, NULL);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) unlink(path);
        if (fd >= 0) close(fd);
    }
    if (entries) closedir(entries);
}

Status partials_abandoned_remove(const CacheConfig *config, const CachedObjects *list)
{
    char folder[PATH_BYTES], last[PATH_BYTES] = "";
    for (int i = 0; i < list->count; i++) {
        TRY(cache_host_place(config, list->object[i].address, "partial", folder));
        if (strcmp(folder, last) != 0) abandoned_remove(folder, is_partial);
        memcpy(last, folder, sizeof last);
    }
    return OK;
}
