/* Counting and evicting objects; see room.h. */
#include "towers/remote/room.h"

#include <dirent.h>
#include <sys/file.h>
#include <time.h>

#include "kernels/base/array.h"
#include "kernels/base/open.h"
#include "kernels/base/timeouts.h"
#include "towers/remote/partial.h"

/* Left free on the disk, for notes beside the objects and whatever else is written meanwhile. */
enum { DISK_REST = 1 << 20 };

#define WHOLE_NAME "whole" /* of a host: locked by who needs its sets whole */

typedef struct Leaving {
    char *path; /* owned */
    int64_t needed_ns, bytes;
} Leaving;

typedef struct ObjectCount {
    const RoomConfig *config;
    int64_t bytes;
    Leaving *leaving; /* owned: [count], that may go */
    int64_t count;
} ObjectCount;

/* ---- counting */

static Status leaving_add(ObjectCount *count, const char *path, const struct stat *needed, int64_t bytes)
{
    Leaving one = {strdup(path), (int64_t)needed->st_mtim.tv_sec * INT64_C(1000000000) + needed->st_mtim.tv_nsec,
                   bytes};
    Status st = one.path ? ARRAY_ADD(count->leaving, count->count, "a list of objects", one)
                         : FAIL(ERR_MEMORY, "no memory for the path of an object");
    if (st != OK) free(one.path);
    return st;
}

typedef Status FileVisit(ObjectCount *count, const char *host, const char *name, const struct stat *info);

/* An object, whose path is HOST/data/NAME. */
static Status object_count(ObjectCount *count, const char *host, const char *name, const struct stat *info)
{
    char path[PATH_BYTES], note[PATH_BYTES];
    struct stat noted;
    count->bytes += disk_bytes(info);
    if (snprintf(path, sizeof path, "%s/data/%s", host, name) >= PATH_BYTES ||
        snprintf(note, sizeof note, "%s/about/%s" ROOM_NOTE, host, name) >= PATH_BYTES || stat(note, &noted) != 0)
        return OK;
    if (count->config->keep && count->config->keep(count->config->context, note)) return OK;
    return leaving_add(count, path, &noted, disk_bytes(info));
}

/* What came of a download that has ended early, such as of a run that was stopped, would else take its room until somebody goes on with it.
 * One that is going on is locked, and stays. */
static Status partial_count(ObjectCount *count, const char *host, const char *name, const struct stat *info)
{
    char path[PATH_BYTES];
    count->bytes += disk_bytes(info);
    if (time(NULL) - info->st_mtime <= BEGINNING_SECONDS ||
        snprintf(path, sizeof path, "%s/partial/%s", host, name) >= PATH_BYTES)
        return OK;
    return leaving_add(count, path, info, disk_bytes(info));
}

/* Of a host whose sets are needed whole. */
static Status held_count(ObjectCount *count, const char *host, const char *name, const struct stat *info)
{
    (void)host, (void)name;
    count->bytes += disk_bytes(info);
    return OK;
}

/* All files below HOST/KIND/FOLDER; `folder` is "" or ends with a slash. */
static Status files_visit(ObjectCount *count, const char *host, const char *kind, const char *folder, FileVisit *visit)
{
    char path[PATH_BYTES], name[PATH_BYTES];
    Status st = OK;
    if (snprintf(path, sizeof path, "%s/%s/%s", host, kind, folder) >= PATH_BYTES) return OK;
    DIR *entries = opendir(path);
    for (struct dirent *entry; entries && st == OK && (entry = readdir(entries)) != NULL;) {
        struct stat info;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        if (fstatat(dirfd(entries), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
        bool below = S_ISDIR(info.st_mode);
        if (snprintf(name, sizeof name, "%s%s%s", folder, entry->d_name, below ? "/" : "") >= PATH_BYTES) continue;
        if (below) st = files_visit(count, host, kind, name, visit);
        if (S_ISREG(info.st_mode)) st = visit(count, host, name, &info);
    }
    if (entries) closedir(entries);
    return st;
}

/* Nobody needs the sets of a host whole if its lock is free, or was never made. */
static bool is_held_whole(const char *host)
{
    char path[PATH_BYTES];
    if (path_join(path, host, WHOLE_NAME) != OK) return true;
    int fd = regular_open(path, O_RDONLY | O_NOFOLLOW, NULL);
    bool held = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0;
    if (fd >= 0) close(fd);
    return held;
}

static Status host_count(ObjectCount *count, const char *host)
{
    bool held = is_held_whole(host);
    TRY(files_visit(count, host, "data", "", held ? held_count : object_count));
    return files_visit(count, host, "partial", "", partial_count);
}

/* Hosts lie `depth` folders below this one: those of S3 in the folder of their store. */
static Status hosts_count(ObjectCount *count, const char *folder, int depth)
{
    char path[PATH_BYTES];
    Status st = OK;
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries && st == OK && (entry = readdir(entries)) != NULL;) {
        if (*entry->d_name == '.' || path_join(path, folder, entry->d_name) != OK) continue;
        st = depth > 1 ? hosts_count(count, path, depth - 1) : host_count(count, path);
    }
    if (entries) closedir(entries);
    return st;
}

static Status cache_count(ObjectCount *count)
{
    static const struct {
        const char *scheme;
        int depth;
    } schemes[] = {{"http", 1}, {"https", 1}, {"s3", 2}};
    char path[PATH_BYTES];
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        TRY(path_join(path, count->config->cache->dir, schemes[i].scheme));
        TRY(hosts_count(count, path, schemes[i].depth));
    }
    return OK;
}

static void count_free(ObjectCount *count)
{
    for (int64_t i = 0; i < count->count; i++) free(count->leaving[i].path);
    free(count->leaving);
}

/* ---- evicting */

static int by_time(const void *a, const void *b)
{
    const Leaving *x = a, *y = b;
    return x->needed_ns < y->needed_ns ? -1 : x->needed_ns > y->needed_ns ? 1 : strcmp(x->path, y->path);
}

/* Who opens an object locks it, and asks again if it has lost its name meanwhile. */
static bool object_evict(const Leaving *one)
{
    int fd = regular_open(one->path, O_RDONLY | O_NOFOLLOW, NULL);
    bool gone = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && unlink(one->path) == 0;
    if (fd >= 0) close(fd);
    return gone;
}

static Room lack_of(const CacheConfig *cache, int64_t bytes, int64_t more)
{
    uint64_t spare;
    if (bytes + more > cache->limit) return ROOM_LIMIT;
    bool known = disk_spare(cache->dir, &spare) == OK;
    return known && more > 0 && (uint64_t)more + DISK_REST > spare ? ROOM_DISK : ROOM_MADE;
}

static Status room_lock(const CacheConfig *cache, int *fd)
{
    char path[PATH_BYTES];
    TRY(directory_create(cache->dir));
    TRY(path_join(path, cache->dir, "room"));
    return cache_lock(path, fd);
}

Status room_make(const RoomConfig *config, const CachedObject *object, Room *room)
{
    const CacheConfig *cache = config->cache;
    ObjectCount count = {.config = config};
    int lock;
    *room = ROOM_MADE;
    if (cache->limit <= 0) return OK;
    TRY(room_lock(cache, &lock));
    Status st = cache_count(&count);
    int64_t own = 0;
    if (st == OK) st = partial_bytes(cache, object, &own);
    int64_t more = object->bytes - own;
    if (count.count) qsort(count.leaving, (size_t)count.count, sizeof *count.leaving, by_time);
    *room = st == OK ? lack_of(cache, count.bytes, more) : ROOM_MADE;
    for (int64_t i = 0; st == OK && *room != ROOM_MADE && i < count.count; i++) {
        if (!object_evict(&count.leaving[i])) continue;
        count.bytes -= count.leaving[i].bytes;
        *room = lack_of(cache, count.bytes, more);
    }
    if (st == OK && *room == ROOM_MADE) st = partial_reserve(cache, object);
    count_free(&count);
    close(lock);
    return st;
}

void room_touch(const CacheConfig *config, const CachedObject *object)
{
    char note[PATH_BYTES];
    if (cache_note_place(config, object->address, ROOM_NOTE, note) == OK) (void)utimensat(AT_FDCWD, note, NULL, 0);
}

Status room_hold(const CacheConfig *config, const CachedObjects *list)
{
    char path[PATH_BYTES], last[PATH_BYTES] = "";
    for (int i = 0; i < list->count; i++) {
        TRY(cache_host_place(config, list->object[i].address, WHOLE_NAME, path));
        if (!strcmp(path, last)) continue;
        memcpy(last, path, sizeof last);
        int fd = regular_open(path, O_WRONLY | O_CREAT | O_NOFOLLOW, NULL);
        if (fd < 0) continue; /* a cache that may not be written, where nobody evicts */
        while (flock(fd, LOCK_SH) != 0 && errno == EINTR) continue; /* until this process ends */
    }
    return OK;
}
