/* Stand-ins for shards on servers; see stand_in.h. */
#include "towers/data/remote/stand_in.h"

#include "towers/data/shards/shard_set.h"
#include "towers/data/shards/sidecar.h"
#include "towers/remote/room.h"

enum { NOTE_BYTES = VERSION_BYTES + 64 };

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

Status stand_in_write(const CacheConfig *config, const CachedObject *o, const void *bytes, size_t count)
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

/* ---- what is shown of an object */

bool stand_in_is_there(const CacheConfig *config, const CachedObject *o)
{
    char view[PATH_BYTES], note[NOTE_BYTES];
    Sidecar stand_in;
    object_note(o, note);
    return cache_view_place(config, o->address, view) == OK && sidecar_look(view, &stand_in) &&
           stand_in.bytes == (uint64_t)o->bytes && note_says(config, o, ROOM_NOTE, note);
}

Status stand_in_show(const CacheConfig *config, const CachedObject *o)
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

Status stand_in_make(const CacheConfig *config, const CachedObject *o)
{
    char path[PATH_BYTES], view[PATH_BYTES], why[STATUS_MESSAGE_BYTES] = "";
    Draft record;
    struct stat info;
    TRY(cache_place(config, o->address, path));
    TRY(cache_view_place(config, o->address, view));
    ShardKind kind = ends_with(path, ".mds") ? SHARD_MDS : shard_kind_of(path);
    if (kind == SHARD_NONE || kind == SHARD_PACKED) return stand_in_show(config, o);
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
