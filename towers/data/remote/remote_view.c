/* Views of sets; see remote_view.h. */
#include "towers/data/remote/remote_view.h"

#include <sys/mman.h>

#include "towers/data/listing/parallel.h"
#include "towers/data/remote/stand_in.h"
#include "towers/data/shards/sidecar.h"
#include "towers/remote/address.h"
#include "towers/remote/room.h"

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
        if (!o || !o->later || stand_in_is_there(config, o)) continue;
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
        if (!o->later || stand_in_is_there(config, o)) continue;
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
        if (sidecar_look(view, &stand_in)) set->samples += stand_in.samples;
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
        if (!o->later && !is_sidecar(o)) TRY(stand_in_show(config, o));
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
