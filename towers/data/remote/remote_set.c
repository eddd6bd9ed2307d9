/* Which objects a set on a server has; see remote_set.h. */
#include "towers/data/remote/remote_set.h"

#include <xxhash.h>

#include "towers/data/classes/class_names.h"
#include "towers/data/foreign.h"
#include "towers/data/remote/bucket_list.h"
#include "towers/data/shards/shard_names.h"
#include "towers/data/shards/shard_set.h"
#include "towers/files/json.h"
#include "towers/remote/address.h"

#define CONVERSION_RECORD "towers-convert.json" /* of towers data convert, which says how its images are turned */

enum { STATE_BYTES = 18 };

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

static Status index_address(const char *folder, char index[PATH_BYTES])
{
    int bytes = snprintf(index, PATH_BYTES, "%s" MDS_INDEX, folder);
    return bytes < PATH_BYTES ? OK : FAIL(ERR_ARG, "'%s': the address is too long", folder);
}

/* An index that cannot be right leaves the cache, too: its server may have a right one by now. The status that failed stays. */
static Status index_refuse(const CacheConfig *config, const char *folder)
{
    char index[PATH_BYTES], place[PATH_BYTES], why[STATUS_MESSAGE_BYTES];
    snprintf(why, sizeof why, "%.1500s", status_message());
    TRY(index_address(folder, index));
    TRY(cache_place(config, index, place));
    unlink(place);
    return FAIL(ERR_FORMAT, "%s. It was removed from the cache; the same command downloads it anew", why);
}

/* What the index of a folder lists; it is in the cache. */
static Status folder_add(const CacheConfig *config, RemoteSet *set, const char *folder)
{
    char place[PATH_BYTES];
    Names names = {0};
    Status st = OK;
    TRY_OUT(cache_place(config, folder, place));
    st = mds_names(place, &names);
    if (st == ERR_FORMAT) TRY_OUT(index_refuse(config, folder));
    if (st != OK) goto out;
    for (int i = 0; i < names.count; i++) TRY_OUT(object_below(set, folder, strlen(folder), names.name[i], false));
    TRY_OUT(object_below(set, folder, strlen(folder), CONVERSION_RECORD, true));
    TRY_OUT(classes_add(set, folder, strlen(folder), false));
out:
    names_free(&names);
    return st;
}

/* ---- folders of buckets, without an index */

static bool is_listed(const RemoteSet *set, const char *folder)
{
    char index[PATH_BYTES];
    if (!is_folder(folder) || index_address(folder, index) != OK) return false;
    const CachedObject *o = cached_objects_find(&set->objects, index);
    return o && (o->absent || !o->here); /* not here: this call may not ask for it */
}

static Status listing_place(const CacheConfig *config, const char *folder, char directory[PATH_BYTES],
                            const char **name)
{
    char index[PATH_BYTES];
    TRY(index_address(folder, index));
    TRY(cache_note_place(config, index, ".list", directory));
    char *slash = strrchr(directory, '/');
    *slash = 0;
    *name = slash + 1;
    return OK;
}

static Status none_fail(const char *folder, const BucketList *list, int others)
{
    char names[512] = "", address[2 * PATH_BYTES];
    Text text = text_start(names, sizeof names);
    for (int i = 0; i < list->objects.count; i++) {
        snprintf(address, sizeof address, "%s%s", folder, list->objects.name[i]);
        TRY(foreign_name_refuse(address));
    }
    for (int i = 0; i < list->folders.count && i < 4; i++) text_add(&text, "%s%s", i ? "," : "", list->folders.name[i]);
    if (list->folders.count)
        return FAIL(ERR_FORMAT,
                    "%s has neither " MDS_INDEX " nor shards, but folders: name those of the set, as '%s{%s}/'", folder,
                    folder, names);
    return FAIL(ERR_FORMAT, "%s has neither " MDS_INDEX " nor shards; it has %d other objects", folder, others);
}

/* What is a shard in a list of objects, by its name, sorted; hidden ones are none, as in a folder of this machine. All of those that their
 * names speak of must be there. */
static Status shards_choose(const char *folder, BucketList *list, Names *shards, int *others)
{
    char first[PATH_BYTES], plain[PATH_BYTES];
    int64_t absent;
    names_sort(&list->objects);
    for (int i = 0; i < list->objects.count; i++) {
        const char *name = list->objects.name[i];
        ShardKind kind = *name == '.' ? SHARD_NONE : shard_named(name);
        snprintf(plain, sizeof plain, "%.*s", (int)shard_packed_stem(name), name);
        if (kind == SHARD_PACKED && (!*plain || names_find(&list->objects, plain) < 0))
            return FAIL(ERR_FORMAT, "%s%s is compressed: images in it cannot be read at random; unpack it first",
                        folder, name);
        if (strstr(name, "::"))
            return FAIL(ERR_FORMAT, "%s%s: '::' in the name of an object joins lists of shards: name it otherwise",
                        folder, name);
        if (kind == SHARD_TAR || kind == SHARD_TFRECORD)
            TRY(names_add(shards, name));
        else if (!class_names_is(name))
            ++*others;
    }
    if (!shards->count) return none_fail(folder, list, *others);
    TRY(shard_numbers_check(shards, &absent, first));
    if (!absent) return OK;
    return FAIL(ERR_FORMAT,
                "%s%s is not there, but the names of the other shards speak of it (%" PRId64
                " of them %s not there): copy what is missing, or name the others in braces",
                folder, first, absent, absent == 1 ? "is" : "are");
}

static Status listing_make(const CacheConfig *config, const char *folder, json_t **made)
{
    BucketList list;
    Names shards = {0};
    int others = 0;
    TRY(bucket_list(config, folder, &list));
    Status st = shards_choose(folder, &list, &shards, &others);
    json_t *names = json_array();
    for (int i = 0; i < shards.count && st == OK; i++) json_array_append_new(names, json_text(shards.name[i]));
    *made =
        st == OK ? json_pack("{s:o, s:o, s:i}", "address", json_text(folder), "shards", names, "others", others) : NULL;
    if (st != OK) json_decref(names);
    if (st == OK && !*made) st = FAIL(ERR_MEMORY, "no memory for a list of objects");
    names_free(&shards);
    bucket_list_free(&list);
    return st;
}

/* The list of a folder, from the cache or the store; given back by the caller. */
static Status listing_find(const CacheConfig *config, const char *folder, json_t **made)
{
    char directory[PATH_BYTES];
    const char *name;
    TRY(listing_place(config, folder, directory, &name));
    *made = json_of_run(directory, name);
    if (json_is_array(json_object_get(*made, "shards"))) return OK;
    json_decref(*made);
    *made = NULL;
    if (config->offline) return cache_offline_refuse(config, folder, 1);
    TRY(listing_make(config, folder, made));
    Status st = directory_create(directory);
    if (st == OK) st = json_replace(directory, name, json_incref(*made), JSON_INDENT(2));
    if (st != OK) json_decref(*made);
    return st;
}

static Status listing_refuse(const CacheConfig *config, const char *folder)
{
    return FAIL(ERR_FORMAT, "the list of %s in '%s' is damaged; the same command brings it anew", folder, config->dir);
}

/* The shards of a listed folder, and their paths in the cache. */
static Status listed_add(const CacheConfig *config, RemoteSet *set, const char *folder, ShardKind *kind, FILE *paths)
{
    char place[PATH_BYTES], address[2 * PATH_BYTES];
    size_t i;
    json_t *listing, *one;
    Status st = OK;
    TRY(shown_place(config, set, folder, place));
    TRY(listing_find(config, folder, &listing));
    const json_t *shards = json_object_get(listing, "shards");
    if (!json_array_size(shards)) TRY_OUT(listing_refuse(config, folder));
    json_array_foreach(shards, i, one)
    {
        const char *name = json_string_value(one);
        if (!name || strchr(name, '/')) TRY_OUT(listing_refuse(config, folder));
        snprintf(address, sizeof address, "%s%s", folder, name);
        TRY_OUT(shard_kind_take(kind, address, shard_named(name)));
        TRY_OUT(object_below(set, folder, strlen(folder), name, false));
        fprintf(paths, "%s%s/%s", i ? "::" : "", place, name);
    }
    set->others += (int)json_whole(listing, "others");
    TRY_OUT(classes_add(set, folder, strlen(folder), !ends_with(json_string_value(json_array_get(shards, 0)), ".tar")));
out:
    json_decref(listing);
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

/* ---- */

/* What a comparison has read, in one number: name, length and date of the index and of each shard that it lists. */
static Status folder_state(const char *place, char state[STATE_BYTES])
{
    char path[PATH_BYTES], line[PATH_BYTES + 80];
    Names names = {0};
    struct stat info;
    XXH64_hash_t sum = 0;
    Status st = OK;
    TRY_OUT(mds_names(place, &names));
    TRY_OUT(names_add(&names, MDS_INDEX));
    for (int i = 0; i < names.count; i++) {
        TRY_OUT(path_join(path, place, names.name[i]));
        if (stat(path, &info) != 0) TRY_OUT(FAIL(ERR_IO, "cannot read '%s': %s", path, strerror(errno)));
        int bytes = snprintf(line, sizeof line, "%s %" PRId64 " %" PRId64 ".%ld", names.name[i], (int64_t)info.st_size,
                             (int64_t)info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
        sum = XXH3_64bits_withSeed(line, (size_t)bytes, sum);
    }
    snprintf(state, STATE_BYTES, "%016" PRIx64 "\n", (uint64_t)sum);
out:
    names_free(&names);
    return st;
}

static bool mark_says(const char *mark, const char *state)
{
    char *text;
    size_t bytes;
    if (file_read(mark, STATE_BYTES, &text, &bytes) != OK) return false;
    bool same = !strcmp(text, state);
    free(text);
    return same;
}

/* What does not have the hashes of index.json leaves the cache; the first of it is reported. The mark of a folder says what was compared, so
 * that what came later, from whichever call, is compared, too. */
static Status folder_verify(const CacheConfig *config, const char *folder, char first[STATUS_MESSAGE_BYTES])
{
    char place[PATH_BYTES], index[PATH_BYTES], mark[PATH_BYTES], state[STATE_BYTES];
    MdsHashes found = {0};
    TRY(index_address(folder, index));
    TRY(cache_note_place(config, index, ".mark", mark));
    TRY(cache_place(config, folder, place));
    TRY(folder_state(place, state));
    if (mark_says(mark, state)) return OK;
    Status st = mds_hashes_check(place, &found);
    for (int i = 0; i < found.damaged.count; i++) unlink(found.damaged.name[i]);
    if (found.differ.count && !*first) snprintf(first, STATUS_MESSAGE_BYTES, "%s", found.differ.name[0]);
    if (found.differ.count) {
        TRY_OUT(cache_place(config, index, place));
        unlink(place); /* the index may be the one that is wrong */
    } else if (st == OK) {
        (void)!text_replace(NULL, mark, state); /* a cache that may not be written is compared again next time */
    }
out:
    mds_hashes_free(&found);
    return st;
}

static Status folders_verify(const CacheConfig *config, const RemoteSet *set, const Names *names)
{
    char first[STATUS_MESSAGE_BYTES] = "";
    for (int i = 0; i < names->count; i++)
        if (is_folder(names->name[i]) && !is_listed(set, names->name[i]))
            TRY(folder_verify(config, names->name[i], first));
    if (!*first) return OK;
    return FAIL(ERR_FORMAT,
                "%s. It was removed from the cache with its " MDS_INDEX
                "; the same command downloads both anew, and if that fails, too, they do not fit on the server",
                first);
}

/* What a server lacks, or has otherwise, may be in an index or a list that has been mended there. */
void remote_set_forget(const CacheConfig *config, const RemoteSet *set)
{
    const Names *names = &set->names;
    char index[PATH_BYTES], place[PATH_BYTES];
    for (int i = 0; i < names->count; i++) {
        if (!is_folder(names->name[i]) || index_address(names->name[i], index) != OK) continue;
        if (cache_place(config, index, place) == OK) unlink(place);
        if (cache_note_place(config, index, ".json", place) == OK) unlink(place);
        if (cache_note_place(config, index, ".list", place) == OK) unlink(place);
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
        if (st == OK && is_folder(name)) st = folder_add(config, set, name);
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
