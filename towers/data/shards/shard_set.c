/* Which shards a path names, and which split each is for; see shard_set.h. */
#include "towers/data/shards/shard_set.h"

#include <dirent.h>

#include "kernels/base/open.h"
#include "towers/data/classes/class_names.h"
#include "towers/data/listing/leftovers.h"
#include "towers/data/shards/shard_names.h"
#include "towers/data/shards/sidecar.h"
#include "towers/data/shards/tfrecord.h"

static const char *const kind_names[SHARD_KINDS] = {
    [SHARD_TAR] = "WebDataset tars", [SHARD_TFRECORD] = "TFRecords", [SHARD_MDS] = "MDS shards"};

Status shard_kind_take(ShardKind *of, const char *path, ShardKind kind)
{
    if (*of && kind != *of)
        return FAIL(ERR_FORMAT, "'%s' is one of the %s, but others are %s: expected one kind", path, kind_names[kind],
                    kind_names[*of]);
    *of = kind;
    return OK;
}

void shard_set_free(ShardSet *set)
{
    for (int s = 0; s <= SPLITS; s++) names_free(&set->of[s]);
    for (int s = 0; s <= SPLITS; s++) skips_free(&set->skips[s]);
    index_builder_free(&set->index);
}

/* ---- the kind of a file, by its first bytes */

static bool is_packed(const uint8_t *head)
{
    static const struct {
        size_t count;
        uint8_t bytes[6];
    } marks[] = {{2, {0x1f, 0x8b}},
                 {3, {'B', 'Z', 'h'}},
                 {4, {0x28, 0xb5, 0x2f, 0xfd}},
                 {6, {0xfd, '7', 'z', 'X', 'Z', 0}},
                 {4, {0x04, 0x22, 0x4d, 0x18}}};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (!memcmp(head, marks[i].bytes, marks[i].count)) return true;
    return false;
}

/* SHARD_NONE of other bytes, and if it cannot be read. */
static ShardKind kind_of_bytes(const char *path)
{
    enum { HEAD_BYTES = 512, TAR_MAGIC = 257 };
    uint8_t head[HEAD_BYTES] = {0};
    Sidecar stand_in;
    int fd = regular_open(path, O_RDONLY, NULL);
    if (fd < 0) return SHARD_NONE;
    ssize_t got = pread(fd, head, sizeof head, 0);
    close(fd);
    if (got >= SIDECAR_HEAD && sidecar_begins(head)) return sidecar_look(path, &stand_in) ? stand_in.kind : SHARD_NONE;
    if (got >= TAR_MAGIC + 5 && !memcmp(head + TAR_MAGIC, "ustar", 5)) return SHARD_TAR;
    if (got >= TFRECORD_HEAD && tfrecord_begins(head)) return SHARD_TFRECORD;
    return got > 0 && is_packed(head) ? SHARD_PACKED : SHARD_NONE;
}

/* A damaged shard is not passed over: the name counts where the bytes say nothing. */
static ShardKind kind_of_named(const char *path)
{
    ShardKind named = shard_named(path_base(path)), found = named ? kind_of_bytes(path) : SHARD_NONE;
    return found ? found : named;
}

/* Of a file that is named itself, whatever its name is. */
ShardKind shard_kind_of(const char *path)
{
    ShardKind found = kind_of_bytes(path), named = shard_named(path_base(path));
    return found == SHARD_PACKED && !named ? SHARD_NONE : found ? found : named;
}

/* ---- the split of a file */

/* By the words in a file's name: "imagenet-train-000012.tar", "validation-00001-of-00128". */
static Split split_of_name(const char *name)
{
    static const char between[] = "-_. ";
    for (const char *at = name; *at;) {
        size_t count = strcspn(at, between);
        Split split = split_of_word(at, count);
        if (split != SPLITS) return split;
        at += count + (at[count] != 0);
    }
    return SPLITS;
}

/* By the name of the file, else of its folder. */
static Split split_of_path(const char *path)
{
    char folder[PATH_BYTES];
    const char *slash = strrchr(path, '/');
    Split split = split_of_name(slash ? slash + 1 : path);
    if (split != SPLITS || !slash) return split;
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    slash = strrchr(folder, '/');
    return split_of_name(slash ? slash + 1 : folder);
}

/* ---- folders and lists */

/* Whether a folder directly holds shards, and folders. */
static void folder_look(const char *path, bool *shards, bool *folders)
{
    char file[PATH_BYTES];
    *shards = *folders = false;
    DIR *directory = opendir(path);
    const struct dirent *entry;
    while (directory && !(*shards && *folders) && (entry = readdir(directory)) != NULL) {
        struct stat info = {.st_mode = DTTOIF(entry->d_type)};
        bool known = entry->d_type != DT_LNK && entry->d_type != DT_UNKNOWN;
        if (leftover_of(entry->d_name, true)) continue;
        if (!known && fstatat(dirfd(directory), entry->d_name, &info, 0) != 0) continue;
        if (S_ISDIR(info.st_mode)) *folders = true;
        if (!*shards && S_ISREG(info.st_mode) && path_join(file, path, entry->d_name) == OK)
            *shards = kind_of_named(file) != SHARD_NONE;
    }
    if (directory) closedir(directory);
}

/* Folders of classes beside a tar are a folder of images. */
static bool holds_shards(const char *path)
{
    bool shards, folders;
    if (mds_is_in(path)) return true;
    folder_look(path, &shards, &folders);
    return shards && !folders;
}

static bool has_shards(const char *path, const char *name, char found[PATH_BYTES])
{
    return path_join(found, path, name) == OK && holds_shards(found);
}

static bool has_both(const char *path, const char *name, char found[PATH_BYTES])
{
    bool shards = false, folders = false;
    if (path_join(found, path, name) == OK) folder_look(found, &shards, &folders);
    return shards && folders;
}

static bool has_folders(const char *path, const char *name, char found[PATH_BYTES])
{
    bool shards, folders = false;
    if (path_join(found, path, name) == OK) folder_look(found, &shards, &folders);
    return folders;
}

static const TreeKind tree_kind = {.has = has_shards}, both_kind = {.has = has_both},
                      folders_kind = {.has = has_folders};

static Status shard_note(ShardSet *set, const char *path, ShardKind kind, Split split)
{
    if (kind == SHARD_PACKED)
        return FAIL(ERR_FORMAT,
                    "'%s' is compressed: images in it cannot be read at random; unpack it first (gunzip, zstd "
                    "-d), or, if it holds folders of images, unpack these (tar -xf)",
                    path);
    TRY(shard_kind_take(&set->kind, path, kind));
    return names_add(&set->of[split], path);
}

/* What belongs to shards: their indexes, and the names of classes. */
static bool is_companion(const char *base)
{
    return ends_with(base, ".idx") || ends_with(base, ".index") || class_names_is(base);
}

static Status mds_add(const char *folder, Split split, ShardSet *set)
{
    char path[PATH_BYTES];
    Names files = {0};
    const struct dirent *entry;
    Status st = path_join(path, folder, MDS_INDEX);
    if (st == OK && access(path, F_OK) == 0) st = index_watched_add(&set->index, path);
    if (st == OK) st = mds_files(folder, &files);
    for (int i = 0; i < files.count && st == OK; i++) st = shard_note(set, files.name[i], SHARD_MDS, split);
    names_free(&files);
    DIR *directory = st == OK ? opendir(folder) : NULL;
    while (directory && st == OK && (errno = 0, entry = readdir(directory)) != NULL) {
        const char *name = entry->d_name, *leftover = leftover_of(name, entry->d_type == DT_DIR);
        if (!strcmp(name, ".") || !strcmp(name, "..") || !strcmp(name, MDS_INDEX) || is_companion(name)) continue;
        if (leftover)
            st = skips_add(&set->skips[split], SKIP_FOREIGN, leftover, folder, name);
        else if (entry->d_type == DT_REG && !ends_with(name, ".mds"))
            st = skips_add(&set->skips[split], SKIP_BESIDE, NULL, folder, name);
    }
    if (directory && st == OK && errno) st = FAIL(ERR_IO, "reading '%s': %s", folder, strerror(errno));
    if (directory) closedir(directory);
    return st;
}

/* An unpacked shard beside a packed one counts, as `gunzip -k` leaves both. */
static bool is_unpacked_beside(const char *path)
{
    char plain[PATH_BYTES];
    size_t stem = shard_packed_stem(path_base(path));
    snprintf(plain, sizeof plain, "%.*s%.*s", (int)(path_base(path) - path), path, (int)stem, path_base(path));
    return stem && access(plain, F_OK) == 0;
}

/* Take or skip a file of a folder of shards. */
static Status file_take(ShardSet *set, const char *folder, const char *name, Split split)
{
    char path[PATH_BYTES];
    const char *leftover = leftover_of(name, false);
    TRY(path_join(path, folder, name));
    if (leftover || name[0] == '.')
        return skips_add(&set->skips[split], SKIP_FOREIGN, leftover ? leftover : "hidden", folder, name);
    ShardKind kind = kind_of_named(path);
    if (kind == SHARD_PACKED && is_unpacked_beside(path))
        return skips_add(&set->skips[split], SKIP_NO_SHARD, NULL, folder, name);
    if (kind) return shard_note(set, path, kind, split);
    if (is_companion(name)) return OK;
    ShardKind found = kind_of_bytes(path);
    bool holds = found == SHARD_TAR || found == SHARD_TFRECORD;
    return skips_add(&set->skips[split], holds ? SKIP_NO_SHARD : SKIP_BESIDE, NULL, folder, name);
}

/* The shards directly in a folder. `split` SPLITS: by their names. */
static Status folder_list(const char *folder, Split split, ShardSet *set)
{
    Status st = OK;
    TRY(index_watched_add(&set->index, folder));
    if (mds_is_in(folder)) return mds_add(folder, split, set);
    DIR *directory = opendir(folder);
    if (!directory) return FAIL(ERR_IO, "cannot open '%s': %s", folder, strerror(errno));
    const struct dirent *entry;
    while (st == OK && (errno = 0, entry = readdir(directory)) != NULL) {
        struct stat info = {.st_mode = S_IFREG};
        Split of = split == SPLITS ? split_of_name(entry->d_name) : split;
        if (set->glance && set->of[of].count) continue;
        if (entry->d_type != DT_REG && fstatat(dirfd(directory), entry->d_name, &info, 0) != 0) {
            if (shard_named(entry->d_name))
                st = FAIL(ERR_FORMAT, "shard '%s/%s': %s", folder, entry->d_name, strerror(errno));
            continue;
        }
        if (S_ISREG(info.st_mode)) st = file_take(set, folder, entry->d_name, of);
    }
    if (st == OK && errno) st = FAIL(ERR_IO, "reading '%s': %s", folder, strerror(errno));
    closedir(directory);
    return st;
}

/* A link keeps its name, by which the index notices that it leads elsewhere. */
static Status shard_locate(const char *name, char path[PATH_BYTES])
{
    char here[PATH_BYTES];
    if (*name == '/')
        TRY(path_join(path, "", name + 1));
    else if (!getcwd(here, sizeof here))
        return FAIL(ERR_IO, "the current folder: %s", strerror(errno));
    else
        TRY(path_join(path, here, name));
    return access(path, F_OK) == 0 ? OK : FAIL(ERR_ARG, "shard '%s': %s", name, strerror(errno));
}

static Status list_expand(const char *path, ShardSet *set)
{
    Status st = OK;
    Names paths = {0};
    struct stat info;
    bool literal = stat(path, &info) == 0; /* a file may have braces in its name */
    TRY_OUT(literal ? names_add(&paths, path) : braces_expand(path, &paths));
    for (int i = 0; i < paths.count; i++) {
        char full[PATH_BYTES];
        TRY_OUT(shard_locate(paths.name[i], full));
        ShardKind kind = shard_kind_of(full);
        Split split = split_of_path(paths.name[i]);
        if (!kind && !holds_shards(full))
            TRY_OUT(FAIL(ERR_FORMAT, "'%s' is not a shard: expected a WebDataset tar or TFRecords", paths.name[i]));
        set->listed = set->listed && kind;
        TRY_OUT(kind ? shard_note(set, full, kind, split) : folder_list(full, split, set));
    }
out:
    names_free(&paths);
    return st;
}

bool is_shard_list(const char *path)
{
    struct stat info;
    return stat(path, &info) != 0 ? strchr(path, '{') || strstr(path, "::") : S_ISREG(info.st_mode);
}

/* A part that may have its images in its folders, or its shards a folder deeper, is not left out in silence. */
static Status folders_refuse(const char *path, char parts[SPLITS][PATH_BYTES])
{
    char others[SPLITS][PATH_BYTES];
    TRY(tree_parts(path, &folders_kind, others));
    for (Split s = SPLIT_TRAIN; s < SPLITS; s++)
        if (*others[s] && !*parts[s])
            return FAIL(
                ERR_FORMAT,
                "'%s' holds folders, but other parts of the set are shards: move the shards into it and the folders "
                "out of it, or give the shards by their names as --data-path",
                others[s]);
    return OK;
}

/* A folder that is named as a part and holds nothing yet is watched, too: what comes into it is a part of the set, or is refused. */
static Status parts_watch(const char *path, ShardSet *set)
{
    Status st = OK;
    char part[PATH_BYTES];
    struct stat info;
    TRY(index_watched_add(&set->index, path));
    DIR *directory = opendir(path);
    if (!directory) return FAIL(ERR_IO, "cannot open '%s': %s", path, strerror(errno));
    const struct dirent *entry;
    while (st == OK && (errno = 0, entry = readdir(directory)) != NULL) {
        if (split_of_word(entry->d_name, strlen(entry->d_name)) == SPLITS) continue;
        if ((st = path_join(part, path, entry->d_name)) != OK) break;
        if (stat(part, &info) == 0 && S_ISDIR(info.st_mode)) st = index_watched_add(&set->index, part);
    }
    if (st == OK && errno) st = FAIL(ERR_IO, "reading '%s': %s", path, strerror(errno));
    closedir(directory);
    return st;
}

Status shard_set_find(const char *path, ShardSet *set)
{
    char parts[SPLITS][PATH_BYTES];
    set->listed = is_shard_list(path);
    if (set->listed) return list_expand(path, set);
    char *full = realpath(path, NULL);
    if (!full) return FAIL(ERR_ARG, "data directory '%s': %s", path, strerror(errno));
    Status st = tree_parts(full, &tree_kind, parts);
    bool divided = st == OK && tree_bits(parts);
    if (divided) st = folders_refuse(full, parts);
    if (st == OK) st = divided ? parts_watch(full, set) : folder_list(full, SPLITS, set);
    for (Split s = SPLIT_TRAIN; s < SPLITS && divided && st == OK; s++)
        if (*parts[s]) st = folder_list(parts[s], s, set);
    free(full);
    for (int s = 0; s <= SPLITS; s++) names_sort(&set->of[s]);
    return st;
}

static unsigned set_bits(const ShardSet *set)
{
    unsigned bits = 0;
    for (Split s = SPLIT_TRAIN; s < SPLITS; s++)
        if (set->of[s].count) bits |= SPLIT_BIT(s);
    return bits;
}

Status shard_set_choose(const SourceConfig *config, const ShardSet *set, Split split, SplitChoice *choice)
{
    if (set->of[SPLITS].count && set_bits(set))
        return FAIL(ERR_FORMAT,
                    "'%s': expected train, val, validation or test in its name, as in those of other shards, to tell "
                    "training from evaluation",
                    set->of[SPLITS].name[0]);
    return split_choose(config, set_bits(set), split, "shards", "a tenth of each class", choice);
}

Status shard_set_check(const SourceConfig *config, ShardSet *set, Split part)
{
    char first[PATH_BYTES];
    int64_t absent;
    if (set->listed) return OK;
    TRY(shard_numbers_check(&set->of[part], &absent, first));
    if (absent && !config->partial)
        return FAIL(ERR_FORMAT,
                    "'%s' is not there, but the names of the other shards speak of it (%" PRId64
                    " of them %s not there): "
                    "copy what is missing, or use the rest with --partial-shards",
                    first, absent, absent == 1 ? "is" : "are");
    return absent ? skips_add_many(&set->skips[part], SKIP_ABSENT, "missing", first, absent) : OK;
}

bool shards_are_in(const char *path)
{
    char parts[SPLITS][PATH_BYTES];
    struct stat is;
    if (is_shard_list(path)) return stat(path, &is) != 0 || shard_kind_of(path) != SHARD_NONE;
    return holds_shards(path) || (tree_parts(path, &tree_kind, parts) == OK && tree_bits(parts));
}

bool shards_are_beside_folders(const char *path)
{
    char found[PATH_BYTES], parts[SPLITS][PATH_BYTES];
    return has_both(path, ".", found) || (tree_parts(path, &both_kind, parts) == OK && tree_bits(parts));
}

unsigned shards_splits(const char *path)
{
    ShardSet set = {.glance = true};
    unsigned bits = shard_set_find(path, &set) == OK ? set_bits(&set) : 0;
    shard_set_free(&set);
    return bits;
}

static bool part_classes(ShardSet *set, int part)
{
    char folder[PATH_BYTES];
    if (set->of[part].count == 0) return false;
    snprintf(folder, sizeof folder, "%s", set->of[part].name[0]);
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(folder, '/');
        if (!slash) break;
        *slash = 0;
        if (class_names_find(folder, set->kind == SHARD_TFRECORD, set->classes)) return true;
    }
    return false;
}

void shard_set_classes(ShardSet *set, Split part)
{
    bool found = part_classes(set, (int)part);
    for (int s = 0; s <= SPLITS && !found; s++) found = part_classes(set, s);
    if (!found) set->classes[0] = 0;
}

int shard_class_files(const char *path)
{
    static const char *const about[] = {".", ".."};
    char base[PATH_BYTES], folder[PATH_BYTES], file[PATH_BYTES], parts[SPLITS][PATH_BYTES], *end;
    int there = 0;
    snprintf(base, sizeof base, "%s", path);
    if (is_shard_list(path)) {
        if ((end = strstr(base, "::"))) *end = 0;
        base[strcspn(base, "{")] = 0;
        end = strrchr(base, '/');
        memcpy(end ? end + 1 : base, end ? "" : ".", end ? 1 : 2);
    }
    for (int i = 0; i < 2; i++)
        if (path_join(folder, base, about[i]) == OK && class_names_find(folder, true, file)) there |= 1 << i;
    if (tree_parts(base, &tree_kind, parts) != OK) return there;
    for (Split s = SPLIT_TRAIN; s < SPLITS; s++)
        if (*parts[s] && class_names_find(parts[s], true, file)) there |= 4 << s;
    return there;
}
