/* Folders of buckets, without an index; see remote_listing.h. */
#include "towers/data/remote/remote_listing.h"

#include "towers/data/classes/class_names.h"
#include "towers/data/foreign.h"
#include "towers/data/remote/bucket_list.h"
#include "towers/data/remote/remote_index.h"
#include "towers/data/shards/shard_names.h"
#include "towers/data/shards/shard_set.h"
#include "towers/files/json.h"

/* Beside what is known of the index that the folder might have. */
static Status listing_place(const CacheConfig *config, const char *folder, char path[PATH_BYTES])
{
    char index[PATH_BYTES];
    TRY(remote_index_address(folder, index));
    return cache_note_place(config, index, ".list", path);
}

/* ---- made of what the bucket has */

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

/* What a store has in the folder. */
static Status folder_list(const CacheConfig *config, const char *folder, BucketList *list)
{
    Transport *transport;
    const TransferWatch watch = {.again = config->again, .context = config->context};
    TRY(transport_create(&config->patience, &transport));
    Status st = bucket_list(transport, &watch, folder, list);
    transport_destroy(transport);
    return st;
}

static Status listing_make(const CacheConfig *config, const char *folder, json_t **made)
{
    BucketList list;
    Names shards = {0};
    int others = 0;
    TRY(folder_list(config, folder, &list));
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

/* ---- kept in the cache */

/* The list of a folder, from the cache or the store; given back by the caller. */
static Status listing_load(const CacheConfig *config, const char *folder, json_t **made)
{
    char directory[PATH_BYTES];
    TRY(listing_place(config, folder, directory));
    char *slash = strrchr(directory, '/');
    const char *name = slash + 1;
    *slash = 0;
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

Status remote_listing_find(const CacheConfig *config, const char *folder, Names *shards, int *others)
{
    size_t i;
    json_t *listing, *one;
    Status st = OK;
    TRY(listing_load(config, folder, &listing));
    const json_t *list = json_object_get(listing, "shards");
    if (!json_array_size(list)) TRY_OUT(listing_refuse(config, folder));
    json_array_foreach(list, i, one)
    {
        const char *name = json_string_value(one);
        if (!name || strchr(name, '/')) TRY_OUT(listing_refuse(config, folder));
        TRY_OUT(names_add(shards, name));
    }
    *others = (int)json_whole(listing, "others");
out:
    json_decref(listing);
    return st;
}

void remote_listing_forget(const CacheConfig *config, const char *folder)
{
    char path[PATH_BYTES];
    if (listing_place(config, folder, path) == OK) unlink(path);
}
