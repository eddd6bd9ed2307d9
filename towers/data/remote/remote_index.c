/* Folders with an index; see remote_index.h. */
#include "towers/data/remote/remote_index.h"

#include <xxhash.h>

#include "towers/data/shards/shard_set.h"

enum { STATE_BYTES = 18 };

Status remote_index_address(const char *folder, char index[PATH_BYTES])
{
    int bytes = snprintf(index, PATH_BYTES, "%s" MDS_INDEX, folder);
    return bytes < PATH_BYTES ? OK : FAIL(ERR_ARG, "'%s': the address is too long", folder);
}

static Status index_refuse(const CacheConfig *config, const char *folder)
{
    char index[PATH_BYTES], place[PATH_BYTES], why[STATUS_MESSAGE_BYTES];
    snprintf(why, sizeof why, "%.1500s", status_message());
    TRY(remote_index_address(folder, index));
    TRY(cache_place(config, index, place));
    unlink(place);
    return FAIL(ERR_FORMAT, "%s. It was removed from the cache; the same command downloads it anew", why);
}

Status remote_index_names(const CacheConfig *config, const char *folder, Names *names)
{
    char place[PATH_BYTES];
    TRY(cache_place(config, folder, place));
    Status st = mds_names(place, names);
    return st == ERR_FORMAT ? index_refuse(config, folder) : st;
}

/* ---- comparisons */

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

/* The mark of a folder says what was compared, so that what came later, from whichever call, is compared, too. */
Status remote_index_verify(const CacheConfig *config, const char *folder, char first[STATUS_MESSAGE_BYTES])
{
    char place[PATH_BYTES], index[PATH_BYTES], mark[PATH_BYTES], state[STATE_BYTES];
    MdsHashes found = {0};
    TRY(remote_index_address(folder, index));
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

void remote_index_forget(const CacheConfig *config, const char *folder)
{
    char index[PATH_BYTES], place[PATH_BYTES];
    if (remote_index_address(folder, index) != OK) return;
    if (cache_place(config, index, place) == OK) unlink(place);
    if (cache_note_place(config, index, ".json", place) == OK) unlink(place);
}
