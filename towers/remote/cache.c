/* Objects of servers as files of this machine; see cache.h. */
#include "towers/remote/cache.h"

#include <dirent.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <xxhash.h>

#include "kernels/base/clock.h"
#include "kernels/base/open.h"
#include "towers/files/json.h"
#include "towers/remote/abandoned.h"
#include "towers/remote/s3.h"

enum { SLOTS = 8, TURN_MS = 200, LOST_TRIES = 4, WAIT_SECONDS = 300, HASH_DIGITS = 16 };
static const int64_t OBJECT_BYTES_MOST = INT64_C(1) << 50;
static const int64_t NS_PER_S = 1000000000;

/* ---- lists */

const CachedObject *cached_objects_find(const CachedObjects *list, const char *address)
{
    const json_t *at = json_object_get(list->places, address);
    return at ? &list->object[json_integer_value(at)] : NULL;
}

static Status objects_grow(CachedObjects *list)
{
    int room = list->room ? 2 * list->room : 64;
    CachedObject *grown = realloc(list->object, (size_t)room * sizeof *grown);
    if (!grown) return FAIL(ERR_MEMORY, "no memory for a list of %d objects", room);
    list->object = grown;
    list->room = room;
    return OK;
}

Status cached_objects_add(CachedObjects *list, const char *address, bool optional)
{
    if (!list->places) list->places = json_object();
    const json_t *at = json_object_get(list->places, address);
    if (at) {
        list->object[json_integer_value(at)].optional &= optional;
        return OK;
    }
    if (list->count == list->room) TRY(objects_grow(list));
    char *copy = strdup(address);
    if (!copy || json_object_set_new(list->places, address, json_integer(list->count)) != 0) {
        free(copy);
        return FAIL(ERR_MEMORY, "no memory for the address of an object");
    }
    list->object[list->count++] = (CachedObject){.address = copy, .optional = optional, .bytes = -1};
    return OK;
}

void cached_objects_free(CachedObjects *list)
{
    for (int i = 0; i < list->count; i++) free(list->object[i].address);
    free(list->object);
    json_decref(list->places);
    *list = (CachedObjects){0};
}

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

static Status place(const CacheConfig *config, const char *address, const char *kind, const char *end,
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

Status cache_place(const CacheConfig *config, const char *address, char path[PATH_BYTES])
{
    TRY(place(config, address, "data", "", path));
    size_t bytes = strlen(path);
    if (path[bytes - 1] == '/') path[bytes - 1] = 0;
    return OK;
}

Status cache_view_place(const CacheConfig *config, const char *address, char path[PATH_BYTES])
{
    TRY(place(config, address, "view", "", path));
    size_t bytes = strlen(path);
    if (path[bytes - 1] == '/') path[bytes - 1] = 0;
    return OK;
}

Status cache_note_place(const CacheConfig *config, const char *address, const char *end, char path[PATH_BYTES])
{
    return place(config, address, "about", end, path);
}

/* What has come of two versions lies in two files. */
static Status partial_place(const CacheConfig *config, const CachedObject *o, char path[PATH_BYTES])
{
    char end[2 + HASH_DIGITS];
    snprintf(end, sizeof end, ".%0*" PRIx64, HASH_DIGITS,
             XXH3_64bits_withSeed(o->version, strlen(o->version), (XXH64_hash_t)o->bytes));
    return place(config, o->address, "partial", end, path);
}

Status folder_of_create(const char *path)
{
    char folder[PATH_BYTES];
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    return directory_create(folder);
}

Status cache_host_place(const CacheConfig *config, const char *address, const char *name, char path[PATH_BYTES])
{
    Address a;
    char host[PATH_BYTES];
    TRY(host_place(config, address, &a, host));
    if (snprintf(path, PATH_BYTES, "%s/%s", host, name) < PATH_BYTES) return OK;
    return FAIL(ERR_ARG, "'%s': the path in the cache is too long", address);
}

Status cache_coming(const CacheConfig *config, const CachedObject *object, int64_t *bytes)
{
    char path[PATH_BYTES];
    struct stat info;
    TRY(partial_place(config, object, path));
    bool is = stat(path, &info) == 0;
    int64_t blocks = is ? (int64_t)info.st_blocks * 512 : 0;
    *bytes = !is ? 0 : blocks > info.st_size ? blocks : (int64_t)info.st_size;
    return OK;
}

/* Behind the end of what has come, whose length says how far the download is. */
Status cache_reserve(const CacheConfig *config, const CachedObject *object)
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

/* ---- what is here */

static Status object_look(const CacheConfig *config, CachedObject *o)
{
    char path[PATH_BYTES], about[PATH_BYTES];
    struct stat info;
    TRY(cache_place(config, o->address, path));
    TRY(place(config, o->address, "about", ".json", about));
    char *slash = strrchr(about, '/');
    *slash = 0;
    json_t *record = json_of_run(about, slash + 1);
    o->absent = json_is_true(json_object_get(record, "absent"));
    o->bytes = json_is_integer(json_object_get(record, "bytes")) ? (int64_t)json_whole(record, "bytes") : -1;
    snprintf(o->version, sizeof o->version, "%s", json_word_or_empty(record, "version"));
    json_decref(record);
    bool whole = o->bytes >= 0 && stat(path, &info) == 0 && S_ISREG(info.st_mode) && info.st_size == o->bytes;
    o->here = whole || (o->absent && o->optional);
    return OK;
}

/* An object that is not what a caller knows it to be. */
static Status object_demand(const CachedObject *o)
{
    const CachedObject *was = o->was;
    if (!was || o->bytes < 0 || (o->bytes == was->bytes && !strcmp(o->version, was->version))) return OK;
    return FAIL(
        ERR_FORMAT, "%s has changed: it had %" PRId64 " bytes and the version %s, now it has %" PRId64 " and %s",
        o->address, was->bytes, *was->version ? was->version : "(none)", o->bytes, *o->version ? o->version : "(none)");
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

static Status about_write(const CacheConfig *config, const CachedObject *o)
{
    char about[PATH_BYTES];
    TRY(place(config, o->address, "about", ".json", about));
    TRY(folder_of_create(about));
    char *slash = strrchr(about, '/');
    *slash = 0;
    json_t *root = o->absent ? json_pack("{s:o, s:b}", "address", json_text(o->address), "absent", 1)
                             : json_pack("{s:o, s:I, s:o}", "address", json_text(o->address), "bytes",
                                         (json_int_t)o->bytes, "version", json_text(o->version));
    return json_replace(about, slash + 1, root, JSON_INDENT(2));
}

/* ---- what comes */

typedef struct CacheSlot {
    Transfer t;
    CachedObject *object;     /* NULL: the slot is free */
    char partial[PATH_BYTES]; /* of a download */
} CacheSlot;

typedef struct Bring {
    const CacheConfig *config;
    CachedObjects *list;
    CacheState *state;
    Transport *transport;
    CacheSlot slot[SLOTS];
    int64_t done;                     /* bytes of finished downloads */
    int first;                        /* all objects before this one are here */
    int waits;                        /* the object that another process downloads, or -1 */
    int64_t waits_bytes, waits_since; /* of it, and ns since when they are as many */
} Bring;

static void progress_report(Bring *b)
{
    b->state->came = b->done;
    for (int i = 0; i < SLOTS; i++)
        if (b->slot[i].object && !b->slot[i].t.head) b->state->came += b->slot[i].t.have;
    if (b->config->progress) b->config->progress(b->config->context, b->state);
}

static void bytes_came(void *context, int64_t done, int64_t all)
{
    (void)done, (void)all;
    progress_report(context);
}

static void tries_again(void *context, const char *line)
{
    Bring *b = context;
    b->state->retries++;
    if (b->config->again) b->config->again(b->config->context, line);
}

static void slot_start(Bring *b, CacheSlot *slot, CachedObject *o, Transfer transfer)
{
    slot->object = o;
    slot->t = transfer;
    slot->t.address = o->address;
    slot->t.watch = (TransferWatch){bytes_came, tries_again, b};
    transport_start(b->transport, &slot->t);
}

static Status slot_failed(const Bring *b, const CacheSlot *slot)
{
    char why[STATUS_MESSAGE_BYTES];
    snprintf(why, sizeof why, "%.1500s", slot->t.why.message);
    if (!slot->t.passes) return status_restore(slot->t.status, &slot->t.why);
    return FAIL(slot->t.status, "%s; %d of %d objects are in '%s', and the same command goes on from there", why,
                b->state->objects - b->state->wanted + b->state->brought, b->state->objects, b->config->dir);
}

static Status stop_heed(const Bring *b)
{
    return b->config->stop && atomic_load(b->config->stop) ? FAIL(ERR_IO, "downloads are ended") : OK;
}

/* ---- lengths and versions */

/* An object that is not there is one that was not wanted, or an error. Stores also answer 403 for one that is not there, to whom may not list
 * a bucket; that counts for this call alone, until something else of the set comes (denied_write). */
static Status question_answered(Bring *b, CacheSlot *slot)
{
    CachedObject *o = slot->object;
    slot->object = NULL;
    bool none = slot->t.status != OK && (slot->t.answer == 404 || slot->t.answer == 410 || slot->t.answer == 403);
    if (slot->t.status != OK && !(none && o->optional)) return slot_failed(b, slot);
    o->absent = slot->t.status != OK;
    o->denied = o->absent && slot->t.answer == 403;
    o->here = o->absent;
    o->bytes = o->absent ? -1 : slot->t.bytes;
    snprintf(o->version, sizeof o->version, "%s", o->absent ? "" : slot->t.version);
    if (!o->absent && o->bytes < 0)
        return FAIL(ERR_UNSUPPORTED,
                    "%s: the server does not say how long it is (Content-Length), so that nobody can know "
                    "when it is whole: use another server",
                    o->address);
    if (o->bytes > OBJECT_BYTES_MOST)
        return FAIL(ERR_FORMAT, "%s: the server says that it has %" PRId64 " bytes; expected at most %" PRId64,
                    o->address, o->bytes, OBJECT_BYTES_MOST);
    TRY(object_demand(o));
    return o->absent && !o->denied ? about_write(b->config, o) : OK;
}

static Status questions_ask(Bring *b)
{
    int next = 0, active = 0;
    do {
        for (int i = 0; i < SLOTS; i++) {
            CacheSlot *slot = &b->slot[i];
            if (slot->object && slot->t.done) {
                active--;
                TRY(question_answered(b, slot));
            }
            while (next < b->list->count && b->list->object[next].here) next++;
            if (slot->object || next == b->list->count) continue;
            slot_start(b, slot, &b->list->object[next++], (Transfer){.fd = -1, .head = true, .bytes = -1});
            active++;
        }
        TRY(stop_heed(b));
        if (active) TRY(transport_wait(b->transport, TURN_MS));
    } while (active);
    return OK;
}

/* ---- downloads */

/* Closes the file. */
static Status lock_fail(const char *path, int fd)
{
    int error = errno;
    close(fd);
    return FAIL(ERR_IO, "'%s' cannot be locked: %s; choose a folder on a disk of this machine with --cache-dir", path,
                strerror(error));
}

/* Open and lock what has come of an object. *busy: another process downloads it. A file that another process has given its name meanwhile
 * is opened anew. */
static Status partial_open(const Bring *b, CacheSlot *slot, const CachedObject *o, int *fd, bool *busy)
{
    struct stat own, named;
    bool lost = true;
    *fd = -1;
    *busy = false;
    TRY(partial_place(b->config, o, slot->partial));
    TRY(folder_of_create(slot->partial));
    for (int i = 0; i < LOST_TRIES && lost; i++) {
        if (*fd >= 0) close(*fd);
        *fd = regular_open(slot->partial, O_WRONLY | O_CREAT | O_NOFOLLOW, NULL);
        if (*fd < 0) return FAIL(ERR_IO, "cannot write '%s': %s", slot->partial, strerror(errno));
        bool locked = flock(*fd, LOCK_EX | LOCK_NB) == 0;
        *busy = !locked && errno == EWOULDBLOCK;
        if (!locked && !*busy) return lock_fail(slot->partial, *fd);
        lost = !*busy && (fstat(*fd, &own) != 0 || lstat(slot->partial, &named) != 0 || named.st_ino != own.st_ino ||
                          named.st_dev != own.st_dev);
    }
    if (!*busy && !lost) return OK;
    close(*fd);
    *fd = -1;
    return *busy ? OK : FAIL(ERR_IO, "'%s' is removed again and again; stop the process that does so", slot->partial);
}

/* One process at a time gives names in the folder of a host, so that data and what is known of them are of one version. */
static Status names_lock(const CacheConfig *config, const char *address, int *fd)
{
    char path[PATH_BYTES];
    TRY(cache_host_place(config, address, "lock", path));
    *fd = regular_open(path, O_WRONLY | O_CREAT | O_NOFOLLOW, NULL);
    if (*fd < 0) return FAIL(ERR_IO, "cannot write '%s': %s", path, strerror(errno));
    while (flock(*fd, LOCK_EX) != 0)
        if (errno != EINTR) return lock_fail(path, *fd);
    return OK;
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

/* What has come of other versions is of no use to anybody, unless a process downloads one just now. */
static void partials_drop(const CacheSlot *slot)
{
    char path[PATH_BYTES], folder[PATH_BYTES], name[PATH_BYTES];
    const char *own = strrchr(slot->partial, '/') + 1;
    snprintf(folder, sizeof folder, "%.*s", (int)(own - slot->partial), slot->partial);
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

/* The object gets its name. What has it now goes first: an older file of the same length must not stand beside what is known of the new one,
 * should this process end in between. */
static Status download_publish(const Bring *b, CacheSlot *slot)
{
    char path[PATH_BYTES];
    int lock = -1;
    CachedObject *o = slot->object;
    if (*o->version && strcmp(o->version, slot->t.version) != 0)
        return FAIL(ERR_FORMAT, "%s has changed while it was downloaded; begin again when it is whole", o->address);
    if (fsync(slot->t.fd) != 0) return FAIL(ERR_IO, "cannot write '%s': %s", slot->partial, strerror(errno));
    TRY(cache_place(b->config, o->address, path));
    TRY(folder_of_create(path));
    TRY(names_lock(b->config, o->address, &lock));
    Status st =
        unlink(path) == 0 || errno == ENOENT ? OK : FAIL(ERR_IO, "cannot replace '%s': %s", path, strerror(errno));
    if (st == OK) st = about_write(b->config, o);
    if (st == OK) st = file_publish(slot->partial, path);
    if (st == OK) partials_drop(slot);
    close(lock);
    return st;
}

static void object_counted(Bring *b, CachedObject *o)
{
    o->here = true;
    b->state->brought++;
    b->done += o->bytes;
    progress_report(b);
}

static Status download_ended(Bring *b, CacheSlot *slot)
{
    Status st = slot->t.status == OK ? download_publish(b, slot) : slot_failed(b, slot);
    CachedObject *o = slot->object;
    slot->object = NULL;
    close(slot->t.fd);
    if (st == OK) object_counted(b, o);
    return st;
}

/* Begin the download of an object, unless another process has brought it or does so. */
static Status download_begin(Bring *b, CacheSlot *slot, CachedObject *o)
{
    int fd;
    bool busy;
    CachedObject found = *o;
    TRY(partial_open(b, slot, o, &fd, &busy));
    Status st = object_look(b->config, &found);
    bool whole = found.here && !found.absent;
    if (st != OK || busy || whole) {
        if (fd >= 0) unlink(slot->partial);
        if (fd >= 0) close(fd);
        if (st == OK && whole) {
            *o = found;
            object_counted(b, o);
            st = object_demand(o);
        }
        return st;
    }
    int64_t have = (int64_t)lseek(fd, 0, SEEK_END);
    bool more = have > o->bytes || (have > 0 && !*o->version);
    if (have < 0 || (more && (ftruncate(fd, 0) != 0 || lseek(fd, 0, SEEK_SET) < 0))) {
        st = FAIL(ERR_IO, "cannot write '%s': %s", slot->partial, strerror(errno));
        close(fd);
        return st;
    }
    Transfer t = {.path = slot->partial, .fd = fd, .have = more ? 0 : have, .bytes = o->bytes, .only_version = true};
    memcpy(t.version, o->version, sizeof t.version);
    slot_start(b, slot, o, t);
    return OK;
}

static bool is_settled(const CachedObject *o)
{
    return o->here || o->later;
}

/* The next object from `from` on that is neither here nor in a slot; the count if there is none. */
static int object_next(Bring *b, int from)
{
    while (b->first < b->list->count && is_settled(&b->list->object[b->first])) b->first++;
    for (from = from > b->first ? from : b->first; from < b->list->count; from++) {
        bool taken = is_settled(&b->list->object[from]);
        for (int i = 0; i < SLOTS && !taken; i++) taken = b->slot[i].object == &b->list->object[from];
        if (!taken) break;
    }
    return from;
}

/* All that is left is downloaded by other processes: said once for each object, and given up if nothing new comes. */
static Status others_wait(Bring *b)
{
    char path[PATH_BYTES], line[PATH_BYTES];
    struct stat info;
    int next = object_next(b, 0);
    const CachedObject *o = &b->list->object[next];
    int64_t seconds = b->config->patience.net_timeout > 0 ? b->config->patience.net_timeout : WAIT_SECONDS;
    TRY(partial_place(b->config, o, path));
    int64_t bytes = stat(path, &info) == 0 ? (int64_t)info.st_size : -1, now = clock_ns();
    if (next != b->waits && !b->config->shared) {
        snprintf(line, sizeof line, "%.1000s: another process downloads it; waiting for that", o->address);
        if (b->config->again) b->config->again(b->config->context, line);
    }
    if (next != b->waits || bytes != b->waits_bytes) {
        b->waits = next, b->waits_bytes = bytes, b->waits_since = now;
    } else if ((now - b->waits_since) / NS_PER_S > 2 * seconds) {
        return FAIL(ERR_IO,
                    "%s: another process has locked '%s' and has brought nothing new for %" PRId64
                    " s: end that process, or choose another folder with --cache-dir",
                    o->address, path, 2 * seconds);
    }
    nanosleep(&(struct timespec){.tv_nsec = TURN_MS * 1000000L}, NULL);
    return OK;
}

static Status downloads_run(Bring *b)
{
    for (bool left = true; left;) {
        int next = object_next(b, 0);
        left = false;
        for (int i = 0; i < SLOTS; i++) {
            CacheSlot *slot = &b->slot[i];
            if (slot->object && slot->t.done) TRY(download_ended(b, slot));
            for (; !slot->object && next < b->list->count; next = object_next(b, next + 1))
                TRY(download_begin(b, slot, &b->list->object[next]));
            left = left || slot->object;
        }
        left = left || object_next(b, 0) < b->list->count;
        if (!left) break;
        TRY(stop_heed(b));
        TRY(transport_is_idle(b->transport) ? others_wait(b) : transport_wait(b->transport, TURN_MS));
    }
    return OK;
}

static Status space_check(const Bring *b)
{
    int64_t come;
    uint64_t spare;
    int64_t more = b->state->missing;
    int wanted = b->state->wanted;
    for (int i = 0; i < b->list->count; i++) {
        const CachedObject *o = &b->list->object[i];
        if (o->here) continue;
        if (o->later && b->config->limit > 0) continue; /* room is made when it comes */
        if (o->later) more += o->bytes, wanted++;
        TRY(cache_coming(b->config, o, &come));
        more -= come < o->bytes ? come : o->bytes;
    }
    TRY(directory_create(b->config->dir));
    TRY(disk_spare(b->config->dir, &spare));
    if (more <= 0 || (uint64_t)more <= spare) return OK;
    return FAIL(
        ERR_IO,
        "%d objects with %.1f MB are to come into '%s', but its disk has %.1f MB free: choose a folder on a larger "
        "one with --cache-dir, or keep a part of them at a time with --cache-limit",
        wanted, (double)more / 1e6, b->config->dir, (double)spare / 1e6);
}

static void state_fill(const CachedObjects *list, CacheState *state)
{
    *state = (CacheState){0};
    for (int i = 0; i < list->count; i++) {
        const CachedObject *o = &list->object[i];
        if (o->absent) continue;
        state->objects++;
        state->wanted += !is_settled(o);
        if (o->bytes > 0) state->bytes += o->bytes;
        if (o->bytes > 0 && !is_settled(o)) state->missing += o->bytes;
    }
}

static Status bring(Bring *b)
{
    TRY(transport_create(&b->config->patience, &b->transport));
    TRY(questions_ask(b));
    int retries = b->state->retries;
    state_fill(b->list, b->state);
    b->state->retries = retries;
    TRY(space_check(b));
    return downloads_run(b);
}

/* Who may read an object of the set has the right keys: what was denied is not there. */
static Status denied_write(const CacheConfig *config, const CachedObjects *list)
{
    bool any = false;
    for (int i = 0; i < list->count; i++) any = any || !list->object[i].absent;
    for (int i = 0; any && i < list->count; i++)
        if (list->object[i].denied) TRY(about_write(config, &list->object[i]));
    return OK;
}

/* What has come of objects of these hosts in vain. */
static Status abandoned_drop(const CacheConfig *config, const CachedObjects *list)
{
    char folder[PATH_BYTES], plain[PATH_BYTES], last[PATH_BYTES] = "";
    for (int i = 0; i < list->count; i++) {
        Address a;
        TRY(address_parse(list->object[i].address, &a));
        TRY(place(config, list->object[i].address, "partial", "", folder));
        folder[strlen(folder) - path_decode(a.path, strlen(a.path), plain) - 1] = 0;
        if (strcmp(folder, last) != 0) abandoned_remove(folder, is_partial);
        memcpy(last, folder, sizeof last);
    }
    return OK;
}

static Status offline_refuse(const CacheConfig *config, const char *first, int lacking)
{
    char more[48] = " is";
    if (lacking > 1) snprintf(more, sizeof more, " and %d more object%s are", lacking - 1, lacking > 2 ? "s" : "");
    return FAIL(ERR_ARG,
                "%s%s not in '%s', and this call downloads nothing: bring the set with 'towers data info ADDRESS'",
                first, more, config->dir);
}

Status cache_bring(const CacheConfig *config, CachedObjects *list, CacheState *state)
{
    bool all = true;
    int lacking = 0;
    const CachedObject *first = NULL;
    for (int i = 0; i < list->count; i++) {
        CachedObject *o = &list->object[i];
        TRY(object_look(config, o));
        all = all && o->here;
        if (o->here) TRY(object_demand(o));
        bool known = o->later && o->bytes >= 0; /* as far as this call needs it, if it may ask nobody */
        if (o->here || o->optional || known) continue;
        if (!lacking++) first = o;
    }
    state_fill(list, state);
    if (all || (config->offline && !lacking)) return OK;
    if (config->offline) return offline_refuse(config, first->address, lacking);
    Bring *b = calloc(1, sizeof *b);
    if (!b) return FAIL(ERR_MEMORY, "no memory for downloads");
    *b = (Bring){.config = config, .list = list, .state = state, .waits = -1};
    for (int i = 0; i < list->count; i++) /* what was not there may be there now */
        if (list->object[i].absent) list->object[i].here = false;
    Status st = bring(b);
    if (st == OK) st = denied_write(config, list);
    if (st == OK) st = abandoned_drop(config, list);
    transport_destroy(b->transport);
    for (int i = 0; i < SLOTS; i++)
        if (b->slot[i].object && !b->slot[i].t.head) close(b->slot[i].t.fd);
    free(b);
    return st;
}
