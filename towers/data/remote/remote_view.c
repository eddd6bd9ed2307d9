/* Stand-ins for shards on servers; see remote_view.h. */
#include "towers/data/remote/remote_view.h"

#include <sys/mman.h>

#include "towers/data/listing/parallel.h"
#include "towers/data/shards/shard_set.h"
#include "towers/data/shards/sidecar.h"
#include "towers/remote/address.h"
#include "towers/remote/room.h"

enum { NOTE_BYTES = VERSION_BYTES + 64 };
static const size_t SIDECAR_BYTES_MOST = (size_t)1 << 36;

/* ---- notes beside an object: of which object a stand-in is, and with which file it was compared */

static void object_note(const CachedObject *o, char text[NOTE_BYTES])
{
    snprintf(text, NOTE_BYTES, "%" PRId64 " %s\n", o->bytes, o->version);
}

static void file_note(const struct stat *info, char text[NOTE_BYTES])
{
    snprintf(text, NOTE_BYTES, "%" PRIu64 " %" PRId64 " %" PRId64 ".%09ld\n", (uint64_t)info->st_ino,
             (int64_t)info->st_size, (int64_t)info->st_mtim.tv_sec, info->st_mtim.tv_nsec);
}

static bool note_says(const CacheConfig *config, const CachedObject *o, const char *end, const char *text)
{
    char path[PATH_BYTES], *found;
    size_t bytes;
    if (cache_note_place(config, o->address, end, path) != OK || file_read(path, NOTE_BYTES, &found, &bytes) != OK)
        return false;
    bool same = !strcmp(found, text);
    free(found);
    return same;
}

static Status note_put(const CacheConfig *config, const CachedObject *o, const char *end, const char *text)
{
    char path[PATH_BYTES];
    TRY(cache_note_place(config, o->address, end, path));
    TRY(folder_of_create(path));
    return text_replace(NULL, path, text);
}

/* ---- making a stand-in */

static Status stand_in_write(const CacheConfig *config, const CachedObject *o, const void *bytes, size_t count)
{
    char path[PATH_BYTES], note[NOTE_BYTES];
    TRY(cache_view_place(config, o->address, path));
    TRY(folder_of_create(path));
    TRY(file_replace(path, bytes, count));
    object_note(o, note);
    return note_put(config, o, ROOM_NOTE, note);
}

/* The record of a shard that is here. */
static Status record_make(const CacheConfig *config, const CachedObject *o, ShardKind kind, Draft *record)
{
    char path[PATH_BYTES];
    TRY(cache_place(config, o->address, path));
    ShardList list = {.path = path};
    Status st = shard_list(kind, &list);
    if (st == OK) st = draft_begin(record, "the index of a shard");
    if (st == OK) {
        st = sidecar_print(&list, kind, path_base(path), record->to);
        st = draft_end(record, st);
    }
    shard_list_free(&list);
    return st;
}

/* An MDS shard is compared with the hashes in index.json. `why`: the first that differs, else "". */
static Status hashes_check(const CacheConfig *config, const CachedObject *o, char why[STATUS_MESSAGE_BYTES])
{
    char file[PATH_BYTES], listed[PATH_BYTES];
    MdsHashes found = {0};
    TRY(cache_place(config, o->address, file));
    TRY(cache_view_place(config, o->address, listed));
    Status st = mds_shard_check(listed, file, &found);
    snprintf(why, STATUS_MESSAGE_BYTES, "%.1500s", found.differ.count ? found.differ.name[0] : "");
    mds_hashes_free(&found);
    return st;
}

static Status compared_note(const CacheConfig *config, const CachedObject *o, const struct stat *info)
{
    char note[NOTE_BYTES];
    file_note(info, note);
    return note_put(config, o, ".seen", note);
}

static void note_remove(const CacheConfig *config, const CachedObject *o, const char *end)
{
    char path[PATH_BYTES];
    if (cache_note_place(config, o->address, end, path) == OK) unlink(path);
}

static void stand_in_remove(const CacheConfig *config, const CachedObject *o)
{
    char path[PATH_BYTES];
    if (cache_view_place(config, o->address, path) == OK) unlink(path);
    note_remove(config, o, ROOM_NOTE);
}

void stand_in_drop(const CacheConfig *config, const CachedObject *o, bool both)
{
    char path[PATH_BYTES], *slash;
    if (cache_place(config, o->address, path) != OK) return;
    unlink(path);
    note_remove(config, o, ".seen");
    if (!both) return;
    stand_in_remove(config, o);
    slash = strrchr(path, '/');
    if (slash + 1 + sizeof SIDECAR_NAME > path + sizeof path) return;
    memcpy(slash + 1, SIDECAR_NAME, sizeof SIDECAR_NAME);
    unlink(path);
}

void stand_in_doubt(const CacheConfig *config, const CachedObject *o)
{
    char path[PATH_BYTES];
    if (cache_note_place(config, o->address, ".seen", path) == OK && access(path, F_OK) != 0)
        stand_in_remove(config, o);
}

/* ---- what has come */

/* A file of the set, as it is. */
static Status file_show(const CacheConfig *config, const CachedObject *o)
{
    char path[PATH_BYTES], view[PATH_BYTES], *text;
    size_t bytes;
    struct stat is, shown;
    TRY(cache_place(config, o->address, path));
    TRY(cache_view_place(config, o->address, view));
    bool here = !o->absent && stat(path, &is) == 0;
    if (here && stat(view, &shown) == 0 && is.st_ino == shown.st_ino && is.st_dev == shown.st_dev) return OK;
    if (unlink(view) != 0 && errno != ENOENT) return FAIL(ERR_IO, "cannot replace '%s': %s", view, strerror(errno));
    if (!here) return OK;
    TRY(folder_of_create(view));
    if (link(path, view) == 0 || errno == EEXIST) return OK;
    TRY(file_load(path, OF_USER, ERR_FORMAT, SIDECAR_BYTES_MOST, &text, &bytes)); /* a disk without links */
    Status st = file_replace(view, text, bytes);
    free(text);
    return st;
}

/* Of a shard that is here. What cannot be listed is shown itself, so that whoever opens the set says what is wrong with it. */
static Status stand_in_make(const CacheConfig *config, const CachedObject *o)
{
    char path[PATH_BYTES], view[PATH_BYTES], why[STATUS_MESSAGE_BYTES] = "";
    Draft record;
    struct stat info;
    TRY(cache_place(config, o->address, path));
    TRY(cache_view_place(config, o->address, view));
    ShardKind kind = ends_with(path, ".mds") ? SHARD_MDS : shard_kind_of(path);
    if (kind == SHARD_NONE || kind == SHARD_PACKED) return file_show(config, o);
    if (stat(path, &info) != 0) return FAIL(ERR_IO, "cannot read '%s': %s", path, strerror(errno));
    if (kind == SHARD_MDS) TRY(hashes_check(config, o, why));
    if (*why) {
        stand_in_drop(config, o, true);
        return FAIL(ERR_FORMAT,
                    "%s. It was removed from the cache; the same command downloads it anew, and if that fails, too, it "
                    "does not fit its " MDS_INDEX " on the server",
                    why);
    }
    TRY(record_make(config, o, kind, &record));
    Status st = stand_in_write(config, o, record.text, record.bytes);
    free(record.text);
    return st == OK ? compared_note(config, o, &info) : st;
}

bool stand_in_is_seen(const CacheConfig *config, const CachedObject *o, int fd)
{
    char note[NOTE_BYTES];
    struct stat info;
    if (fstat(fd, &info) != 0) return false;
    file_note(&info, note);
    return note_says(config, o, ".seen", note);
}

Status stand_in_check(const CacheConfig *config, const CachedObject *o, int fd, bool *fits,
                      char why[STATUS_MESSAGE_BYTES])
{
    char view[PATH_BYTES], *text = NULL;
    size_t bytes;
    struct stat info;
    Draft record = {0};
    Sidecar stand_in;
    *fits = true;
    *why = 0;
    if (fstat(fd, &info) != 0) return FAIL(ERR_IO, "%s: %s", o->address, strerror(errno));
    if (stand_in_is_seen(config, o, fd)) return OK;
    TRY(cache_view_place(config, o->address, view));
    Status st = file_load(view, OF_USER, ERR_FORMAT, SIDECAR_BYTES_MOST, &text, &bytes);
    if (st == OK) st = sidecar_parse(view, text, bytes, &stand_in, NULL);
    if (st == OK && stand_in.kind == SHARD_MDS) st = hashes_check(config, o, why);
    if (st == OK && !*why) st = record_make(config, o, stand_in.kind, &record);
    *fits = st == OK && !*why && record.bytes == bytes && !memcmp(record.text, text, bytes);
    if (st == ERR_FORMAT) snprintf(why, STATUS_MESSAGE_BYTES, "%.1500s", status_message());
    free(record.text);
    free(text);
    if (st != OK && st != ERR_FORMAT) return st;
    if (!*fits && access(view, F_OK) != 0)
        snprintf(why, STATUS_MESSAGE_BYTES,
                 "what it holds was forgotten, as " SIDECAR_NAME " is wrong about another shard");
    if (!*fits && !*why)
        snprintf(why, STATUS_MESSAGE_BYTES, "its samples or its bytes are not those that " SIDECAR_NAME " lists");
    return *fits ? compared_note(config, o, &info) : OK;
}

/* ---- what a server says */

static Status misfit_refuse(const CacheConfig *config, const CachedObject *o, const char *sidecar, uint64_t bytes)
{
    stand_in_drop(config, o, true);
    return FAIL(ERR_FORMAT,
                "%s has %" PRId64 " bytes, but %s says %" PRIu64
                ": the index is of another version of the shard; make it anew with towers data index, or remove it",
                o->address, o->bytes, sidecar, bytes);
}

static Status object_address(const char *sidecar, const char *name, char address[PATH_BYTES])
{
    size_t folder = strlen(sidecar) - strlen(SIDECAR_NAME);
    snprintf(address, PATH_BYTES, "%.*s", (int)folder, sidecar);
    return path_encode(name, address + folder, PATH_BYTES - folder)
               ? OK
               : FAIL(ERR_FORMAT, "%s: a name is too long", sidecar);
}

static bool stands(const CacheConfig *config, const CachedObject *o)
{
    char view[PATH_BYTES], note[NOTE_BYTES];
    Sidecar stand_in;
    object_note(o, note);
    return cache_view_place(config, o->address, view) == OK && stand_in_look(view, &stand_in) &&
           stand_in.bytes == (uint64_t)o->bytes && note_says(config, o, ROOM_NOTE, note);
}

/* The records of a sidecar that has come, for shards of the set that nothing stands in for yet. */
static Status records_take(const CacheConfig *config, const RemoteSet *set, const char *sidecar, const uint8_t *bytes,
                           size_t size)
{
    char address[PATH_BYTES];
    for (size_t at = 0; at < size;) {
        Sidecar record;
        Status st = sidecar_parse(sidecar, bytes + at, size - at, &record, NULL);
        if (st != OK) return st;
        const uint8_t *from = bytes + at;
        at += record.size;
        TRY(object_address(sidecar, record.name, address));
        const CachedObject *o = cached_objects_find(&set->objects, address);
        if (!o || !o->later || stands(config, o)) continue;
        if (record.bytes != (uint64_t)o->bytes) return misfit_refuse(config, o, sidecar, record.bytes);
        TRY(stand_in_write(config, o, from, record.size));
    }
    return OK;
}

static Status sidecar_take(const CacheConfig *config, const RemoteSet *set, const CachedObject *o)
{
    char path[PATH_BYTES];
    void *map;
    size_t size;
    TRY(cache_place(config, o->address, path));
    if (o->absent || o->bytes <= 0) return OK;
    TRY(file_map(path, ERR_FORMAT, SIDECAR_BYTES_MOST, &map, &size));
    Status st = records_take(config, set, o->address, map, size);
    munmap(map, size);
    if (st == ERR_FORMAT) unlink(path); /* by now the server may have a right one */
    return st;
}

/* ---- the view */

/* Shards come later; each folder of them may have a sidecar. */
static Status shards_mark(RemoteSet *set)
{
    char address[PATH_BYTES];
    int count = set->objects.count;
    for (int i = 0; i < count; i++) {
        CachedObject *o = &set->objects.object[i];
        if (o->optional || ends_with(o->address, "/" MDS_INDEX)) continue;
        o->later = true;
        int folder = (int)(strrchr(o->address, '/') + 1 - o->address);
        if (snprintf(address, sizeof address, "%.*s" SIDECAR_NAME, folder, o->address) >= PATH_BYTES)
            return FAIL(ERR_ARG, "%s: the address is too long", o->address);
        TRY(cached_objects_add(&set->objects, address, true));
    }
    return OK;
}

static bool is_sidecar(const CachedObject *o)
{
    return ends_with(o->address, "/" SIDECAR_NAME);
}

typedef struct Making {
    const CacheConfig *config;
    CachedObject **object; /* owned: [count], of the set; those that nothing stands in for */
    int count;
} Making;

static Status making_item(void *context, int thread, int64_t item)
{
    const Making *m = context;
    (void)thread;
    return stand_in_make(m->config, m->object[item]);
}

static void state_add(CacheState *to, const CacheState *more)
{
    to->wanted += more->wanted;
    to->brought += more->brought;
    to->came += more->came;
    to->retries += more->retries;
}

/* Some of what lacks, which comes together: all of it, or half of what a limit allows. */
static Status group_bring(Making *all, int first, int *end, RemoteSet *set)
{
    const CacheConfig *config = all->config;
    const RoomConfig room = {.cache = config};
    CacheState state, before = set->state;
    int64_t bytes = 0;
    Room made;
    Status st = OK;
    for (*end = first; *end < all->count &&
                       (*end == first || config->limit <= 0 || bytes + all->object[*end]->bytes <= config->limit / 2);
         ++*end) {
        CachedObject *o = all->object[*end];
        bytes += o->bytes;
        o->later = false;
        if (o->here) continue;
        TRY_OUT(room_make(&room, o, &made));
        if (made != ROOM_MADE)
            TRY_OUT(FAIL(ERR_IO, "%s, %.1f MB, does not fit into '%s': %s", o->address, (double)o->bytes / 1e6,
                         config->dir, made == ROOM_DISK ? "its disk is full" : "--cache-limit is too small"));
    }
    TRY_OUT(cache_bring(config, &set->objects, &state));
    set->state = state;
    state_add(&set->state, &before);
    Making group = {config, all->object + first, *end - first};
    TRY_OUT(parallel_run(&(Parallel){.count = group.count, .work = making_item, .context = &group}));
out:
    for (int i = first; i < *end; i++) all->object[i]->later = true;
    return st;
}

/* What nothing says the samples of must come for that. */
static Status lacking_bring(const CacheConfig *config, RemoteSet *set)
{
    Status st = OK;
    Making all = {.config = config, .object = calloc((size_t)set->objects.count + 1, sizeof *all.object)};
    if (!all.object) return FAIL(ERR_MEMORY, "no memory for a list of %d objects", set->objects.count);
    for (int i = 0; i < set->objects.count; i++) {
        CachedObject *o = &set->objects.object[i];
        if (!o->later || stands(config, o)) continue;
        if (config->offline && !o->here) TRY_OUT(cache_offline_refuse(config, o->address, 1));
        all.object[all.count++] = o;
    }
    for (int first = 0, end; first < all.count && st == OK; first = end) st = group_bring(&all, first, &end, set);
out:
    free(all.object);
    return st;
}

static Status samples_count(const CacheConfig *config, RemoteSet *set)
{
    char view[PATH_BYTES];
    Sidecar stand_in;
    for (int i = 0; i < set->objects.count; i++) {
        if (!set->objects.object[i].later) continue;
        TRY(cache_view_place(config, set->objects.object[i].address, view));
        if (stand_in_look(view, &stand_in)) set->samples += stand_in.samples;
    }
    return OK;
}

static Status view_make(const CacheConfig *config, RemoteSet *set)
{
    TRY(shards_mark(set));
    TRY(cache_bring(config, &set->objects, &set->state));
    for (int i = 0; i < set->objects.count; i++) {
        const CachedObject *o = &set->objects.object[i];
        if (is_sidecar(o)) TRY(sidecar_take(config, set, o));
        if (!o->later && !is_sidecar(o)) TRY(file_show(config, o));
    }
    TRY(lacking_bring(config, set));
    return samples_count(config, set);
}

Status remote_set_view(const CacheConfig *config, const char *address, RemoteSet *set)
{
    TRY(remote_set_list(config, address, true, set));
    Status st = view_make(config, set);
    if (st == ERR_IO || st == ERR_FORMAT) remote_set_forget(config, set);
    if (st != OK) remote_set_free(set);
    return st;
}
