/* Which shards a path names, and which split each is for; see shard_set.h. */
#include "towers/data/sources/shard_set.h"

#include <dirent.h>

#include "kernels/open.h"
#include "towers/data/sources/class_names.h"
#include "towers/data/sources/tfrecord.h"

static const char *const kind_names[SHARD_KINDS] = {
    [SHARD_TAR] = "WebDataset tars", [SHARD_TFRECORD] = "TFRecords", [SHARD_MDS] = "MDS shards"};

void shard_set_free(ShardSet *set)
{
    for (int s = 0; s <= SPLITS; s++) names_free(&set->of[s]);
    index_builder_free(&set->index);
}

/* ---- the kind of a file, by its first bytes */

static bool is_named_tar(const char *base)
{
    static const char *const parts[] = {".tgz", ".tbz2", ".txz", ".tzst"};
    bool named = strstr(base, ".tar") != NULL;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) named = named || ends_with(base, parts[i]);
    return named;
}

/* Names by the original builders and TensorFlow Datasets: "train-00000-of-01024", "flowers.tfrecord". */
static bool is_named_tfrecord(const char *base)
{
    const char *of = strstr(base, "-of-");
    return strstr(base, "tfrecord") || strstr(base, "TFRecord") ||
           (of && of - base >= 5 && strspn(of - 5, "0123456789") >= 5 && strspn(of + 4, "0123456789") >= 5);
}

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

static ShardKind shard_sniff(const char *path)
{
    enum { HEAD_BYTES = 512, TAR_MAGIC = 257 };
    static const char *const beside[] = {".idx", ".txt",  ".json", ".md",     ".index",  ".md5",  ".sha1",
                                         ".csv", ".yaml", ".log",  ".sha256", ".sha512", ".pbtxt"};
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    uint8_t head[HEAD_BYTES] = {0};
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++)
        if (ends_with(base, beside[i])) return SHARD_NONE;
    int fd = regular_open(path, O_RDONLY, NULL);
    ShardKind named = is_named_tar(base) ? SHARD_TAR : is_named_tfrecord(base) ? SHARD_TFRECORD : SHARD_NONE;
    if (named && (ends_with(base, ".parquet") || ends_with(base, ".arrow"))) named = SHARD_TABLE;
    if (fd < 0) return named;
    ssize_t got = pread(fd, head, sizeof head, 0);
    close(fd);
    if (got < 0) got = 0;
    if (got >= TAR_MAGIC + 5 && !memcmp(head + TAR_MAGIC, "ustar", 5)) return SHARD_TAR;
    if (got >= TFRECORD_HEAD && tfrecord_begins(head)) return SHARD_TFRECORD;
    return named && is_packed(head) ? SHARD_PACKED : named; /* a damaged shard is not passed over */
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
        if (entry->d_name[0] == '.') continue;
        if (!known && fstatat(dirfd(directory), entry->d_name, &info, 0) != 0) continue;
        if (S_ISDIR(info.st_mode)) *folders = true;
        if (!*shards && S_ISREG(info.st_mode) && path_join(file, path, entry->d_name) == OK)
            *shards = shard_sniff(file) != SHARD_NONE;
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

static const TreeKind tree_kind = {.has = has_shards}, both_kind = {.has = has_both};

static Status shard_note(ShardSet *set, const char *path, ShardKind kind, Split split)
{
    if (kind == SHARD_PACKED)
        return FAIL(ERR_FORMAT,
                    "'%s' is compressed: images in it cannot be read at random; unpack it first (gunzip, zstd "
                    "-d)",
                    path);
    if (kind == SHARD_TABLE)
        return FAIL(ERR_FORMAT,
                    "'%s' is a table, which is not read: write its images to files, CLASS/NAME.jpg, or to WebDataset "
                    "tars",
                    path);
    if (set->kind && kind != set->kind)
        return FAIL(ERR_FORMAT, "'%s' is one of the %s, but others are %s: expected one kind", path, kind_names[kind],
                    kind_names[set->kind]);
    set->kind = kind;
    return names_add(&set->of[split], path);
}

static Status mds_add(const char *folder, Split split, ShardSet *set)
{
    char path[PATH_BYTES];
    Names files = {0};
    Status st = path_join(path, folder, "index.json");
    if (st == OK) st = index_watched_add(&set->index, path);
    if (st == OK) st = mds_files(folder, &files);
    for (int i = 0; i < files.count && st == OK; i++) st = shard_note(set, files.name[i], SHARD_MDS, split);
    names_free(&files);
    return st;
}

/* The shards directly in a folder. `split` SPLITS: by their names. */
static Status folder_list(const char *folder, Split split, ShardSet *set)
{
    Status st = OK;
    char path[PATH_BYTES];
    TRY(index_watched_add(&set->index, folder));
    if (mds_is_in(folder)) return mds_add(folder, split, set);
    DIR *directory = opendir(folder);
    if (!directory) return FAIL(ERR_IO, "cannot open '%s': %s", folder, strerror(errno));
    const struct dirent *entry;
    while (st == OK && (errno = 0, entry = readdir(directory)) != NULL) {
        struct stat info = {.st_mode = S_IFREG};
        Split of = split == SPLITS ? split_of_name(entry->d_name) : split;
        if (entry->d_name[0] == '.' || (set->glance && set->of[of].count)) continue;
        st = path_join(path, folder, entry->d_name);
        if (st == OK && entry->d_type != DT_REG && fstatat(dirfd(directory), entry->d_name, &info, 0) != 0) {
            if (shard_sniff(path)) st = FAIL(ERR_FORMAT, "shard '%s': %s", path, strerror(errno));
            continue;
        }
        if (st == OK && !S_ISREG(info.st_mode)) continue;
        ShardKind kind = st == OK ? shard_sniff(path) : SHARD_NONE;
        if (kind) st = shard_note(set, path, kind, of);
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
        ShardKind kind = shard_sniff(full);
        Split split = split_of_path(paths.name[i]);
        if (!kind && !holds_shards(full))
            TRY_OUT(FAIL(ERR_FORMAT, "'%s' is not a shard: expected a WebDataset tar or TFRecords", paths.name[i]));
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

Status shard_set_find(const char *path, ShardSet *set)
{
    char parts[SPLITS][PATH_BYTES];
    if (is_shard_list(path)) return list_expand(path, set);
    char *full = realpath(path, NULL);
    if (!full) return FAIL(ERR_ARG, "data directory '%s': %s", path, strerror(errno));
    Status st = tree_parts(full, &tree_kind, parts);
    bool divided = st == OK && tree_bits(parts);
    if (st == OK) st = divided ? index_watched_add(&set->index, full) : folder_list(full, SPLITS, set);
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

bool shards_are_in(const char *path)
{
    char parts[SPLITS][PATH_BYTES];
    struct stat is;
    if (is_shard_list(path)) return stat(path, &is) != 0 || shard_sniff(path) != SHARD_NONE;
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

void shard_set_classes(ShardSet *set)
{
    char folder[PATH_BYTES];
    for (int s = 0; s <= SPLITS; s++) {
        if (set->of[s].count == 0) continue;
        snprintf(folder, sizeof folder, "%s", set->of[s].name[0]);
        for (int up = 0; up < 2; up++) {
            char *slash = strrchr(folder, '/');
            if (!slash) break;
            *slash = 0;
            if (class_names_find(folder, set->classes)) return;
        }
    }
    set->classes[0] = 0;
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
        if (path_join(folder, base, about[i]) == OK && class_names_find(folder, file)) there |= 1 << i;
    if (tree_parts(base, &tree_kind, parts) != OK) return there;
    for (Split s = SPLIT_TRAIN; s < SPLITS; s++)
        if (*parts[s] && class_names_find(parts[s], file)) there |= 4 << s;
    return there;
}
