/* The folders of a cache, and what is known of the objects in it; see cache.h. */
#include "towers/remote/cache.h"

#include <sys/file.h>

#include "kernels/base/open.h"
#include "towers/files/json.h"
#include "towers/remote/s3.h"

/* ---- places */

/* The folder of a host, or of a bucket of a store. */
static Status host_place(const CacheConfig *config, const char *address, Address *a, char path[PATH_BYTES])
{
    char store[AWS_NAME_BYTES + 1] = "";
    TRY(address_parse(address, a));
    if (is_address_of_s3(address)) {
        if (!config->patience.s3) return FAIL(ERR_INTERNAL, "'%s': without access to S3", address);
        s3_store(config->patience.s3, store);
        strcat(store, "/");
    }
    int bytes = snprintf(path, PATH_BYTES, "%s/%.*s/%s%.*s", config->dir, a->scheme_bytes, a->scheme, store,
                         a->host_bytes, a->host);
    return bytes < PATH_BYTES ? OK : FAIL(ERR_ARG, "'%s': the path in the cache is too long", address);
}

static Status object_place(const CacheConfig *config, const char *address, const char *kind, const char *end,
                           char path[PATH_BYTES])
{
    Address a;
    char host[PATH_BYTES];
    TRY(host_place(config, address, &a, host));
    int before = snprintf(path, PATH_BYTES, "%s/%s/", host, kind);
    size_t bytes = strlen(a.path);
    if ((size_t)before + bytes + strlen(end) >= PATH_BYTES)
        return FAIL(ERR_ARG, "'%s': the path in the cache is too long", address);
    char *behind = path + before + path_decode(a.path, bytes, path + before);
    memcpy(behind, end, strlen(end) + 1);
    return OK;
}

/* A folder is named without the slash at its end. */
static Status shown_place(const CacheConfig *config, const char *address, const char *kind, char path[PATH_BYTES])
{
    TRY(object_place(config, address, kind, "", path));
    size_t bytes = strlen(path);
    if (path[bytes - 1] == '/') path[bytes - 1] = 0;
    return OK;
}

Status cache_place(const CacheConfig *config, const char *address, char path[PATH_BYTES])
{
    return shown_place(config, address, "data", path);
}

Status cache_view_place(const CacheConfig *config, const char *address, char path[PATH_BYTES])
{
    return shown_place(config, address, "view", path);
}

Status cache_note_place(const CacheConfig *config, const char *address, const char *end, char path[PATH_BYTES])
{
    return object_place(config, address, "about", end, path);
}

Status cache_partial_place(const CacheConfig *config, const char *address, const char *end, char path[PATH_BYTES])
{
    return object_place(config, address, "partial", end, path);
}

Status cache_host_place(const CacheConfig *config, const char *address, const char *name, char path[PATH_BYTES])
{
    Address a;
    char host[PATH_BYTES];
    TRY(host_place(config, address, &a, host));
    if (snprintf(path, PATH_BYTES, "%s/%s", host, name) < PATH_BYTES) return OK;
    return FAIL(ERR_ARG, "'%s': the path in the cache is too long", address);
}

Status folder_of_create(const char *path)
{
    char folder[PATH_BYTES];
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    return directory_create(folder);
}

int64_t disk_bytes(const struct stat *info)
{
    int64_t blocks = (int64_t)info->st_blocks * 512;
    return blocks > info->st_size ? blocks : (int64_t)info->st_size;
}

/* ---- locks */

Status cache_lock_fail(const char *path, int fd)
{
    int error = errno;
    close(fd);
    return FAIL(ERR_IO, "'%s' cannot be locked: %s; choose a folder on a disk of this machine with --cache-dir", path,
                strerror(error));
}

Status cache_lock(const char *path, int *fd)
{
    *fd = regular_open(path, O_WRONLY | O_CREAT | O_NOFOLLOW, NULL);
    if (*fd < 0) return FAIL(ERR_IO, "cannot write '%s': %s", path, strerror(errno));
    while (flock(*fd, LOCK_EX) != 0)
        if (errno != EINTR) return cache_lock_fail(path, *fd);
    return OK;
}

/* ---- what is here */

/* The record of an object: the name of its file, and the folder that it lies in. */
static Status about_place(const CacheConfig *config, const CachedObject *o, char folder[PATH_BYTES], const char **name)
{
    TRY(object_place(config, o->address, "about", ".json", folder));
    char *slash = strrchr(folder, '/');
    *slash = 0;
    *name = slash + 1;
    return OK;
}

Status cache_look(const CacheConfig *config, CachedObject *o)
{
    char path[PATH_BYTES], about[PATH_BYTES];
    const char *name;
    struct stat info;
    TRY(cache_place(config, o->address, path));
    TRY(about_place(config, o, about, &name));
    json_t *record = json_of_run(about, name);
    o->absent = json_is_true(json_object_get(record, "absent"));
    o->bytes = json_is_integer(json_object_get(record, "bytes")) ? (int64_t)json_whole(record, "bytes") : -1;
    snprintf(o->version, sizeof o->version, "%s", json_word_or_empty(record, "version"));
    json_decref(record);
    bool whole = o->bytes >= 0 && stat(path, &info) == 0 && S_ISREG(info.st_mode) && info.st_size == o->bytes;
    o->here = whole || (o->absent && o->optional);
    return OK;
}

Status cache_about_write(const CacheConfig *config, const CachedObject *o)
{
    char about[PATH_BYTES];
    const char *name;
    TRY(about_place(config, o, about, &name));
    TRY(directory_create(about));
    json_t *root = o->absent ? json_pack("{s:o, s:b}", "address", json_text(o->address), "absent", 1)
                             : json_pack("{s:o, s:I, s:o}", "address", json_text(o->address), "bytes",
                                         (json_int_t)o->bytes, "version", json_text(o->version));
    return json_replace(about, name, root, JSON_INDENT(2));
}

Status cache_open(const CacheConfig *config, const CachedObject *object, int *fd)
{
    char path[PATH_BYTES];
    struct stat info;
    *fd = -1;
    TRY(cache_place(config, object->address, path));
    int opened = regular_open(path, O_RDONLY | O_NOFOLLOW, NULL);
    if (opened < 0) return OK;
    int locked;
    while ((locked = flock(opened, LOCK_SH)) != 0 && errno == EINTR) continue;
    if (locked == 0 && fstat(opened, &info) == 0 && info.st_nlink > 0 && info.st_size == object->bytes)
        *fd = opened;
    else
        close(opened);
    return OK;
}

Status cache_offline_refuse(const CacheConfig *config, const char *first, int lacking)
{
    char more[48] = " is";
    if (lacking > 1) snprintf(more, sizeof more, " and %d more object%s are", lacking - 1, lacking > 2 ? "s" : "");
    return FAIL(ERR_ARG,
                "%s%s not in '%s', and this call downloads nothing: bring the set with 'towers data info ADDRESS'",
                first, more, config->dir);
}
