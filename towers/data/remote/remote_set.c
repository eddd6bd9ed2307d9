/* Which objects a set on a server has; see remote_set.h. */
#include "towers/data/remote/remote_set.h"

#include "towers/data/classes/class_names.h"
#include "towers/data/foreign.h"
#include "towers/data/remote/remote_index.h"
#include "towers/data/remote/remote_listing.h"
#include "towers/data/shards/shard_names.h"
#include "towers/data/shards/shard_set.h"
#include "towers/remote/address.h"

#define CONVERSION_RECORD "towers-convert.json" /* of towers data convert, which says how its images are turned */

void remote_set_free(RemoteSet *set)
{
    free(set->path);
    cached_objects_free(&set->objects);
    names_free(&set->names);
    *set = (RemoteSet){0};
}

static bool is_folder(const char *address)
{
    return ends_with(address, "/");
}

/* ---- the path in the cache */

static Status shown_place(const CacheConfig *config, const RemoteSet *set, const char *address, char path[PATH_BYTES])
{
    return set->view ? cache_view_place(config, address, path) : cache_place(config, address, path);
}

/* Of one list: the braces stay as they are, behind the host. */
static Status list_place(const CacheConfig *config, const RemoteSet *set, const char *list, size_t bytes, FILE *to)
{
    char plain[PATH_BYTES], place[PATH_BYTES], braced[PATH_BYTES];
    size_t count = 0;
    if (bytes >= sizeof plain)
        return FAIL(ERR_ARG, "an address of %zu bytes; expected fewer than %d", bytes, PATH_BYTES);
    for (size_t i = 0; i < bytes; i++) plain[count++] = list[i] == '{' || list[i] == '}' ? '_' : list[i];
    plain[count] = 0;
    Address a;
    const char *host = strstr(plain, "://");
    size_t braces = strcspn(list, "{}"), path_begins = host ? (size_t)(host - plain) + 3 + strcspn(host + 3, "/") : 0;
    if (braces < path_begins) return FAIL(ERR_ARG, "an address has braces in its host; expected them in its path");
    TRY(address_parse(plain, &a));
    size_t before = (size_t)(a.path - plain);
    TRY(shown_place(config, set, plain, place));
    size_t path = path_decode(list + before, bytes - before - (is_folder(plain) && bytes > before), braced);
    fprintf(to, "%.*s%s", (int)(strlen(place) - path), place, braced);
    return OK;
}

static Status set_place(const CacheConfig *config, const char *address, RemoteSet *set)
{
    Draft draft;
    Status st = OK;
    if (strpbrk(config->dir, "{}") || strstr(config->dir, "::"))
        return FAIL(ERR_ARG,
                    "the cache '%s' has braces or '::' in its name, which lists of shards use: choose another folder "
                    "with --cache-dir",
                    config->dir);
    TRY(draft_begin(&draft, "the path of a set"));
    for (const char *at = address; st == OK;) {
        const char *end = strstr(at, "::");
        st = list_place(config, set, at, end ? (size_t)(end - at) : strlen(at), draft.to);
        if (!end) break;
        fputs("::", draft.to);
        at = end + 2;
    }
    st = draft_end(&draft, st);
    set->path = st == OK ? draft.text : NULL;
    return st;
}

/* ---- its objects */

/* `name` is that of a file. */
static Status object_below(RemoteSet *set, const char *folder, size_t bytes, const char *name, bool optional)
{
    char address[PATH_BYTES];
    Address a;
    int before = snprintf(address, sizeof address, "%.*s", (int)bytes, folder);
    if (before >= PATH_BYTES || !path_encode(name, address + before, sizeof address - (size_t)before))
        return FAIL(ERR_ARG, "'%s': the address is too long", folder);
    TRY(address_parse(address, &a));
    return cached_objects_add(&set->objects, address, optional);
}

/* Names of classes lie in the folder of the shards, or in the one above. `bytes`: of the folder in an address, with its slash. */
static Status classes_add(RemoteSet *set, const char *address, size_t bytes, bool records)
{
    Address a;
    TRY(address_parse(address, &a));
    for (int up = 0; up < 2; up++) {
        for (int i = 0; class_names_file(i, records); i++)
            TRY(object_below(set, address, bytes, class_names_file(i, records), true));
        do bytes--;
        while (bytes > (size_t)(a.path - address) && address[bytes - 1] != '/');
        if (bytes < (size_t)(a.path - address)) break;
    }
    return OK;
}

/* Only buckets can be listed in its place. */
static Status index_add(RemoteSet *set, const char *folder)
{
    return object_below(set, folder, strlen(folder), MDS_INDEX, is_address_of_s3(folder));
}

/* The shards that the index of a folder lists. */
static Status indexed_add(const CacheConfig *config, RemoteSet *set, const char *folder)
{
    Names names = {0};
    Status st = OK;
    TRY_OUT(remote_index_names(config, folder, &names));
    for (int i = 0; i < names.count; i++) TRY_OUT(object_below(set, folder, strlen(folder), names.name[i], false));
    TRY_OUT(object_below(set, folder, strlen(folder), CONVERSION_RECORD, true));
    TRY_OUT(classes_add(set, folder, strlen(folder), false));
out:
    names_free(&names);
    return st;
}

/* Whether a folder has no index, and is listed in its place. */
static bool is_listed(const RemoteSet *set, const char *folder)
{
    char index[PATH_BYTES];
    if (!is_folder(folder) || remote_index_address(folder, index) != OK) return false;
    const CachedObject *o = cached_objects_find(&set->objects, index);
    return o && (o->absent || !o->here); /* not here: this call may not ask for it */
}

/* The shards of a listed folder, and their paths in the cache. */
static Status listed_add(const CacheConfig *config, RemoteSet *set, const char *folder, ShardKind *kind, FILE *paths)
{
    char place[PATH_BYTES], address[2 * PATH_BYTES];
    Names shards = {0};
    int others;
    Status st = OK;
    TRY(shown_place(config, set, folder, place));
    TRY_OUT(remote_listing_find(config, folder, &shards, &others));
    for (int i = 0; i < shards.count; i++) {
        const char *name = shards.name[i];
        snprintf(address, sizeof address, "%s%s", folder, name);
        TRY_OUT(shard_kind_take(kind, address, shard_named(name)));
        TRY_OUT(object_below(set, folder, strlen(folder), name, false));
        fprintf(paths, "%s%s/%s", i ? "::" : "", place, name);
    }
    set->others += others;
    TRY_OUT(classes_add(set, folder, strlen(folder), !ends_with(shards.name[0], ".tar")));
out:
    names_free(&shards);
    return st;
}

static Status file_add(RemoteSet *set, const char *address, bool *classed)
{
    Address a;
    TRY(address_parse(address, &a));
    TRY(foreign_name_refuse(address));
    TRY(cached_objects_add(&set->objects, address, false));
    if (*classed) return OK;
    *classed = true;
    return classes_add(set, address, (size_t)(strrchr(address, '/') + 1 - address), !ends_with(address, ".tar"));
}

/* Whether the folder of a file is that of the file before it, for which names of classes have been added. */
static bool is_beside(const char *address, const char *before)
{
    size_t bytes = (size_t)(strrchr(address, '/') - address);
    return before && (size_t)(strrchr(before, '/') - before) == bytes && !strncmp(address, before, bytes);
}

static Status folders_verify(const CacheConfig *config, const RemoteSet *set, const Names *names)
{
    char first[STATUS_MESSAGE_BYTES] = "";
    for (int i = 0; i < names->count; i++)
        if (is_folder(names->name[i]) && !is_listed(set, names->name[i]))
            TRY(remote_index_verify(config, names->name[i], first));
    if (!*first) return OK;
    return FAIL(ERR_FORMAT,
                "%s. It was removed from the cache with its " MDS_INDEX
                "; the same command downloads both anew, and if that fails, too, they do not fit on the server",
                first);
}

/* What a server lacks, or has otherwise, may be in an index or a list that has been mended there. */
void remote_set_forget(const CacheConfig *config, const RemoteSet *set)
{
    for (int i = 0; i < set->names.count; i++) {
        const char *name = set->names.name[i];
        if (!is_folder(name)) continue;
        remote_index_forget(config, name);
        remote_listing_forget(config, name);
    }
}

/* Objects of several kinds are refused before any of them comes. */
static Status kind_take(ShardKind *kind, const char *address)
{
    ShardKind is = is_folder(address) ? SHARD_MDS : shard_named(strrchr(address, '/') + 1);
    return is == SHARD_NONE || is == SHARD_PACKED
               ? OK
               : shard_kind_take(kind, address, is); /* others have words of their own */
}

/* What the folders of a set have, by index or list. Where there is a list, the path of the set names each shard, since other objects of the
 * folder may be in the cache, too. */
static Status folders_add(const CacheConfig *config, const Names *names, RemoteSet *set)
{
    char place[PATH_BYTES];
    bool any_listed = false;
    ShardKind kind = SHARD_NONE;
    Draft draft;
    Status st = draft_begin(&draft, "the path of a set");
    if (st != OK) return st;
    for (int i = 0; i < names->count && st == OK; i++) {
        const char *name = names->name[i];
        bool listed = is_listed(set, name);
        any_listed = any_listed || listed;
        if (i) fputs("::", draft.to);
        if (listed) {
            st = listed_add(config, set, name, &kind, draft.to);
            continue;
        }
        st = kind_take(&kind, name);
        if (st == OK) st = shown_place(config, set, name, place);
        if (st == OK) fputs(place, draft.to);
        if (st == OK && is_folder(name)) st = indexed_add(config, set, name);
    }
    TRY(draft_end(&draft, st));
    if (any_listed) free(set->path);
    if (any_listed)
        set->path = draft.text;
    else
        free(draft.text);
    return OK;
}

static Status names_list(const CacheConfig *config, RemoteSet *set)
{
    const Names *names = &set->names;
    bool folders = false;
    for (int i = 0; i < names->count; i++) {
        if (!is_folder(names->name[i])) continue;
        folders = true;
        TRY(index_add(set, names->name[i]));
    }
    if (folders) TRY(cache_bring(config, &set->objects, &set->state));
    for (int i = 0; i < names->count; i++) {
        bool classed = i > 0 && is_beside(names->name[i], names->name[i - 1]);
        if (!is_folder(names->name[i])) TRY(file_add(set, names->name[i], &classed));
    }
    return folders_add(config, names, set);
}

Status remote_set_list(const CacheConfig *config, const char *address, bool view, RemoteSet *set)
{
    *set = (RemoteSet){.view = view};
    Status st = set_place(config, address, set);
    if (st == OK) st = braces_expand(address, &set->names);
    if (st == OK) st = names_list(config, set);
    if (st == ERR_IO || st == ERR_FORMAT) remote_set_forget(config, set);
    if (st != OK) remote_set_free(set);
    return st;
}

Status remote_set_bring(const CacheConfig *config, const char *address, RemoteSet *set)
{
    TRY(remote_set_list(config, address, false, set));
    const CacheState before = set->state;
    Status st = cache_bring(config, &set->objects, &set->state);
    set->state.brought += before.brought;
    set->state.retries += before.retries;
    set->state.came += before.came;
    if (st == ERR_IO || st == ERR_FORMAT) remote_set_forget(config, set);
    if (st == OK) st = folders_verify(config, set, &set->names);
    if (st != OK) remote_set_free(set);
    return st;
}
