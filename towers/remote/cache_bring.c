/* Questions and downloads; see cache_bring.h. */
#include "towers/remote/cache_bring.h"

#include "kernels/base/clock.h"
#include "towers/remote/partial.h"

enum { SLOTS = 8, TURN_MS = 200, WAIT_SECONDS = 300 };
static const int64_t OBJECT_BYTES_MOST = INT64_C(1) << 50;
static const int64_t NS_PER_S = 1000000000;

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
    TRY(cached_object_demand(o));
    return o->absent && !o->denied ? cache_about_write(b->config, o) : OK;
}

/* What the first answer with its bytes will be compared with; a server that tells no versions is asked. */
static bool is_known(CachedObject *o)
{
    if (!o->asked || o->was->bytes < 0 || !*o->was->version) return false;
    o->bytes = o->was->bytes;
    memcpy(o->version, o->was->version, sizeof o->version);
    return true;
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
            while (next < b->list->count && (b->list->object[next].here || is_known(&b->list->object[next]))) next++;
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

/* One process at a time gives names in the folder of a host, so that data and what is known of them are of one version. */
static Status names_lock(const CacheConfig *config, const char *address, int *fd)
{
    char path[PATH_BYTES];
    TRY(cache_host_place(config, address, "lock", path));
    return cache_lock(path, fd);
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
    if (st == OK) st = cache_about_write(b->config, o);
    if (st == OK) st = file_publish(slot->partial, path);
    if (st == OK) partials_of_others_remove(slot->partial);
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
    TRY(partial_open(b->config, o, slot->partial, &fd, &busy));
    Status st = cache_look(b->config, &found);
    bool whole = found.here && !found.absent;
    if (st != OK || busy || whole) {
        if (fd >= 0) unlink(slot->partial);
        if (fd >= 0) close(fd);
        if (st == OK && whole) {
            *o = found;
            object_counted(b, o);
            st = cached_object_demand(o);
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
        TRY(partial_bytes(b->config, o, &come));
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

/* All but the retries, which go on. */
static void state_fill(const CachedObjects *list, CacheState *state)
{
    *state = (CacheState){.retries = state->retries};
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
    b->transport = b->config->transport;
    if (!b->transport) TRY(transport_create(&b->config->patience, &b->transport));
    TRY(questions_ask(b));
    state_fill(b->list, b->state);
    TRY(space_check(b));
    return downloads_run(b);
}

/* Who may read an object of the set has the right keys: what was denied is not there. */
static Status denied_write(const CacheConfig *config, const CachedObjects *list)
{
    bool any = false;
    for (int i = 0; i < list->count; i++) any = any || !list->object[i].absent;
    for (int i = 0; any && i < list->count; i++)
        if (list->object[i].denied) TRY(cache_about_write(config, &list->object[i]));
    return OK;
}

/* *done: nothing has to be asked for, or nothing may be, and all that this call needs is known. */
static Status list_look(const CacheConfig *config, CachedObjects *list, bool *done)
{
    bool all = true;
    int lacking = 0;
    const CachedObject *first = NULL;
    for (int i = 0; i < list->count; i++) {
        CachedObject *o = &list->object[i];
        TRY(cache_look(config, o));
        all = all && o->here;
        if (o->here) TRY(cached_object_demand(o));
        bool known = o->later && o->bytes >= 0;
        if (o->here || o->optional || known) continue;
        if (!lacking++) first = o;
    }
    *done = all || config->offline;
    return config->offline && lacking ? cache_offline_refuse(config, first->address, lacking) : OK;
}

Status cache_bring(const CacheConfig *config, CachedObjects *list, CacheState *state)
{
    bool done;
    *state = (CacheState){0};
    TRY(list_look(config, list, &done));
    state_fill(list, state);
    if (done) return OK;
    Bring *b = calloc(1, sizeof *b);
    if (!b) return FAIL(ERR_MEMORY, "no memory for downloads");
    *b = (Bring){.config = config, .list = list, .state = state, .waits = -1};
    for (int i = 0; i < list->count; i++) /* what was not there may be there now */
        if (list->object[i].absent) list->object[i].here = false;
    Status st = bring(b);
    if (st == OK) st = denied_write(config, list);
    if (st == OK) st = partials_abandoned_remove(config, list);
    if (config->transport)
        transport_abandon(config->transport);
    else
        transport_destroy(b->transport);
    for (int i = 0; i < SLOTS; i++)
        if (b->slot[i].object && !b->slot[i].t.head) close(b->slot[i].t.fd);
    free(b);
    return st;
}
