/* Data sets of shards: finds them, divides them between the splits, indexes them with several threads, and reads samples
 * by the index; rules in shards.h. */
#include "towers/data/sources/shards.h"

#include <dirent.h>
#include <pthread.h>
#include <xxhash.h>

#include "towers/data/sources/class_names.h"
#include "towers/data/sources/indexed.h"
#include "towers/data/sources/parallel.h"
#include "towers/data/sources/reader.h"
#include "towers/data/sources/shard.h"
#include "towers/data/sources/tfrecord.h"
#include "towers/data/sources/tree.h"
#include "towers/files/files.h"

/* Shards that stay open between images: shard `file` in slot file % SLOTS, unless another one is being read there. */
enum { SLOTS = 128 };

typedef struct Slot {
    uint32_t file;
    int fd; /* owned; -1: none */
    int users;
} Slot;

typedef struct ShardsSource {
    Source base;
    Index index;
    const char **names; /* owned array of strings of the index */
    int64_t *first;     /* owned: of each shard that has samples */
    pthread_mutex_t *lock;
    Slot *slots; /* owned, as the lock, which protects them */
} ShardsSource;

static void shards_close(Source *source);

static const char *const kind_names[SHARD_KINDS] = {
    [SHARD_TAR] = "WebDataset tars", [SHARD_TFRECORD] = "TFRecords", [SHARD_MDS] = "MDS shards"};
static const char *const format_names[SHARD_KINDS][2][2] =
    {/* [kind][labels from 1][divided] */
     [SHARD_TAR] = {{"WebDataset tars", "WebDataset tars, divided"},
                    {"WebDataset tars, labels from 1", "WebDataset tars, labels from 1, divided"}},
     [SHARD_TFRECORD] = {{"TFRecords", "TFRecords, divided"},
                         {"TFRecords, labels from 1", "TFRecords, labels from 1, divided"}},
     [SHARD_MDS] = {{"MDS shards", "MDS shards, divided"},
                    {"MDS shards, labels from 1", "MDS shards, labels from 1, divided"}}};
/* IndexHeader.kind is the ShardKind, and this bit if labels begin with 1. */
enum { KIND_FROM_ONE = 1 << 8, NAME_BYTES = 1024 };
/* So many classes need no samples. */
enum { CLASSES_FREE = 1000 };

/* ---- which shards, and which split each is for */

typedef struct ShardSet {
    Names of[SPLITS + 1]; /* of each split; the last: those whose names do not tell */
    ShardKind kind;
    bool glance;              /* one shard of each split is enough */
    char classes[PATH_BYTES]; /* the file with their names, "" if there is none */
    IndexBuilder index;       /* watches the folders and index files that the shards were found in */
} ShardSet;

static void set_free(ShardSet *set)
{
    for (int s = 0; s <= SPLITS; s++) names_free(&set->of[s]);
    index_builder_free(&set->index);
}

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

static Status list_expand(const char *path, ShardSet *set)
{
    Status st = OK;
    Names paths = {0};
    struct stat info;
    bool literal = stat(path, &info) == 0; /* a file may have braces in its name */
    TRY_OUT(literal ? names_add(&paths, path) : braces_expand(path, &paths));
    for (int i = 0; i < paths.count; i++) {
        char *full = realpath(paths.name[i], NULL);
        if (!full) {
            st = FAIL(ERR_ARG, "shard '%s': %s", paths.name[i], strerror(errno));
            goto out;
        }
        ShardKind kind = shard_sniff(full);
        st = kind ? shard_note(set, full, kind, split_of_path(paths.name[i]))
                  : FAIL(ERR_FORMAT, "'%s' is not a shard: expected a WebDataset tar or TFRecords", paths.name[i]);
        free(full);
        TRY_OUT(st);
    }
out:
    names_free(&paths);
    return st;
}

static bool is_list(const char *path)
{
    struct stat info;
    return stat(path, &info) != 0 ? strchr(path, '{') || strstr(path, "::") : S_ISREG(info.st_mode);
}

static Status set_find(const char *path, ShardSet *set)
{
    char parts[SPLITS][PATH_BYTES];
    if (is_list(path)) return list_expand(path, set);
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

static Status set_choose(const SourceConfig *config, const ShardSet *set, Split split, SplitChoice *choice)
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
    if (is_list(path)) return stat(path, &is) != 0 || shard_sniff(path) != SHARD_NONE;
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
    unsigned bits = set_find(path, &set) == OK ? set_bits(&set) : 0;
    set_free(&set);
    return bits;
}

/* classes.txt beside the shards, or in the folder above. */
static void classes_find(ShardSet *set)
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

/* ---- listing all shards, by several threads */

typedef struct Listing {
    ShardKind kind;
    ShardList *lists; /* owned: [count] */
    int count;
} Listing;

static Status listing_item(void *context, int thread, int64_t item)
{
    Listing *l = context;
    (void)thread;
    return shard_list(l->kind, &l->lists[item]);
}

static Status listing_run(const SourceConfig *config, const Names *files, Listing *l)
{
    l->lists = calloc((size_t)files->count + 1, sizeof *l->lists);
    if (!l->lists) return FAIL(ERR_MEMORY, "no memory for the list of %d shards", files->count);
    l->count = files->count;
    for (int i = 0; i < files->count; i++) l->lists[i].path = files->name[i];
    return parallel_run(&(Parallel){.count = files->count,
                                    .work = listing_item,
                                    .context = l,
                                    .progress = config->progress,
                                    .progress_context = config->context});
}

static int64_t listing_samples(const Listing *l)
{
    int64_t count = 0;
    for (int i = 0; i < l->count; i++) count += l->lists[i].found.parts.samples_count;
    return count;
}

static void labels_range(const Listing *l, int32_t *least, int32_t *most)
{
    *least = INT32_MAX;
    *most = -1;
    for (int i = 0; i < l->count; i++)
        for (int64_t k = 0; k < l->lists[i].found.parts.samples_count; k++) {
            int32_t label = l->lists[i].found.parts.samples[k].label;
            if (label > *most) *most = label;
            if (label < *least) *least = label;
        }
}

/* The name that a shard gives to a label, or "". */
static const char *class_name(const Listing *l, int64_t label)
{
    for (int i = 0; i < l->count; i++) {
        const IndexParts *p = &l->lists[i].found.parts;
        if (label < p->classes_count && p->classes[label]) return p->strings + p->classes[label] - 1;
    }
    return "";
}

/* ---- dividing the samples of each class between the splits */

typedef struct Draw {
    int32_t label;
    uint64_t hash;
} Draw;

static uint64_t sample_hash(const ShardList *list, const Sample *sample)
{
    const char *slash = strrchr(list->path, '/'), *shard = slash ? slash + 1 : list->path;
    const char *name = list->found.parts.strings + sample->name;
    return XXH3_64bits_withSeed(name, strlen(name), XXH3_64bits(shard, strlen(shard)) + sample->offset);
}

static int by_label_and_hash(const void *a, const void *b)
{
    const Draw *x = a, *y = b;
    if (x->label != y->label) return x->label < y->label ? -1 : 1;
    return (x->hash > y->hash) - (x->hash < y->hash);
}

/* limits[label]: samples whose hash is below it are for evaluation, round(count * val_split) of a class, never all. */
static Status limits_find(const Listing *l, double val_split, int32_t first_label, int classes, uint64_t *limits)
{
    int64_t count = listing_samples(l), n = 0;
    Draw *draws = malloc((size_t)(count + 1) * sizeof *draws);
    if (!draws) return FAIL(ERR_MEMORY, "no memory to divide %" PRId64 " images", count);
    for (int i = 0; i < l->count; i++) {
        const IndexParts *p = &l->lists[i].found.parts;
        for (int64_t k = 0; k < p->samples_count; k++)
            draws[n++] = (Draw){p->samples[k].label, sample_hash(&l->lists[i], &p->samples[k])};
    }
    qsort(draws, (size_t)n, sizeof *draws, by_label_and_hash);
    memset(limits, 0, (size_t)classes * sizeof *limits);
    for (int64_t first = 0, end; first < n; first = end) {
        for (end = first + 1; end < n && draws[end].label == draws[first].label;) end++;
        int64_t wanted = llrint((double)(end - first) * val_split);
        if (wanted >= end - first) wanted = end - first - 1;
        if (wanted > 0) limits[draws[first].label - first_label] = draws[first + wanted].hash;
    }
    free(draws);
    return OK;
}

/* ---- building the index */

typedef struct Request {
    const SourceConfig *config;
    Split split;
    double val_split; /* 0: all samples of the shards are the split's */
    uint64_t key[2];
} Request;

/* Labels of TFRecords begin with 1 if there is none of 0, and the largest is the number of the names, if that is known:
 * the original builders keep 0 for the background. */
static bool labels_from_one(LabelBase base, ShardKind kind, int32_t least, int32_t most, int names)
{
    if (base != LABEL_BASE_AUTO) return base == LABEL_BASE_1;
    return kind == SHARD_TFRECORD && least >= 1 && most >= least && (names == 0 || most == names);
}

/* The names of the classes: those of the training split, or of their file, or of the shards; and *first, the label of the
 * first class. */
static Status classes_add(const SourceConfig *config, const ShardSet *set, const Listing *l, const Index *train,
                          IndexBuilder *b, int32_t *first)
{
    Names names = {0};
    char folder[PATH_BYTES];
    Status st = OK;
    int32_t least, most;
    labels_range(l, &least, &most);
    if (*set->classes) {
        snprintf(folder, sizeof folder, "%s", set->classes);
        *strrchr(folder, '/') = 0;
        TRY_OUT(class_names_read(folder, SHARD_CLASSES_MAX, &names));
    }
    bool one = train ? train->header->kind & KIND_FROM_ONE
                     : labels_from_one(config->label_base, set->kind, least, most, names.count);
    *first = one;
    b->parts.kind = (uint64_t)set->kind | (one ? KIND_FROM_ONE : 0);
    int count = train ? (int)train->header->classes : names.count ? names.count : most + 1 - *first;
    if (!train && !names.count && count > listing_samples(l) + CLASSES_FREE)
        TRY_OUT(FAIL(ERR_FORMAT,
                     "'%s': the largest label of %" PRId64 " samples is %d: expected less than %" PRId64
                     " without a list of names; if there are as many classes, name them in classes.txt",
                     config->path, listing_samples(l), most, listing_samples(l) + CLASSES_FREE));
    b->parts.classes = calloc((size_t)(count > 0 ? count : 0) + 1, sizeof *b->parts.classes);
    if (!b->parts.classes) st = FAIL(ERR_MEMORY, "no memory for the list of %d classes", count);
    for (int i = 0; i < count && st == OK; i++)
        st = index_string_add(b,
                              train         ? index_string(train, train->classes[i])
                              : names.count ? names.name[i]
                                            : class_name(l, i + *first),
                              &b->parts.classes[i]);
    b->parts.classes_count = count > 0 ? count : 0;
out:
    names_free(&names);
    return st;
}

static Status label_check(const ShardSet *set, const ShardList *list, const Sample *sample, int32_t first,
                          int64_t classes)
{
    if (sample->label < first)
        return FAIL(ERR_FORMAT, "'%s': %s at offset %" PRIu64 " has label %d, but labels begin with 1 (--label-base)",
                    list->path, list->found.parts.strings + sample->name, sample->offset, sample->label);
    if (sample->label - first < classes) return OK;
    return FAIL(ERR_FORMAT, "'%s': %s at offset %" PRIu64 " has label %d, but %s %" PRId64 " classes", list->path,
                list->found.parts.strings + sample->name, sample->offset, sample->label,
                *set->classes ? set->classes : "the training samples have", classes);
}

/* Adds the samples of all shards that belong to the split. */
static Status samples_add(const Request *r, const ShardSet *set, const Listing *l, uint32_t first_file,
                          int32_t first_label, IndexBuilder *b)
{
    Status st = OK;
    double val_split = r->val_split;
    int classes = (int)b->parts.classes_count;
    for (int i = 0; i < l->count; i++)
        for (int64_t k = 0; k < l->lists[i].found.parts.samples_count; k++)
            TRY(label_check(set, &l->lists[i], &l->lists[i].found.parts.samples[k], first_label, classes));
    uint64_t *limits = calloc((size_t)classes + 1, sizeof *limits);
    if (!limits) return FAIL(ERR_MEMORY, "no memory for %d classes", classes);
    if (val_split > 0) TRY_OUT(limits_find(l, val_split, first_label, classes, limits));
    for (int i = 0; i < l->count; i++) {
        const IndexParts *p = &l->lists[i].found.parts;
        for (int64_t k = 0; k < p->samples_count; k++) {
            Sample sample = p->samples[k];
            bool is_test = val_split > 0 && sample_hash(&l->lists[i], &sample) < limits[sample.label - first_label];
            if (val_split > 0 && is_test != (r->split == SPLIT_VAL)) continue;
            sample.file = first_file + (uint32_t)i;
            sample.label -= first_label;
            TRY_OUT(index_sample_add(b, &sample, p->strings + p->samples[k].name));
        }
    }
out:
    free(limits);
    return st;
}

/* `train`: NULL, or the index of the training samples, whose classes are those of all. */
static Status index_build(const Request *r, ShardSet *set, const Names *files, const Index *train, Index *index)
{
    Status st = OK;
    IndexBuilder *b = &set->index;
    int32_t first_label = 0;
    Listing listing = {.kind = set->kind};
    if (*set->classes) TRY_OUT(index_watched_add(b, set->classes));
    b->parts.train = train ? train->header->sum : 0;
    uint32_t first_file = (uint32_t)b->parts.watched_count;
    for (int i = 0; i < files->count; i++) TRY_OUT(index_watched_add(b, files->name[i]));
    TRY_OUT(listing_run(r->config, files, &listing));
    TRY_OUT(classes_add(r->config, set, &listing, train, b, &first_label));
    TRY_OUT(samples_add(r, set, &listing, first_file, first_label, b));
    if (b->parts.samples_count == 0) {
        st = listing_samples(&listing) == 0
                 ? FAIL(ERR_FORMAT, "'%s': no sample in %d shards", r->config->path, files->count)
                 : FAIL(ERR_FORMAT, "'%s': --val-split %g leaves no image for evaluation", r->config->path,
                        r->config->val_split);
        goto out;
    }
    TRY_OUT(index_write(r->key, &b->parts, index));
out:
    for (int i = 0; i < listing.count; i++) index_builder_free(&listing.lists[i].found);
    free(listing.lists);
    return st;
}

/* Which folders about the shards have a file of class names: a new one must not go unnoticed. */
static int class_files(const char *path)
{
    static const char *const about[] = {".", ".."};
    char base[PATH_BYTES], folder[PATH_BYTES], file[PATH_BYTES], parts[SPLITS][PATH_BYTES], *end;
    int there = 0;
    snprintf(base, sizeof base, "%s", path);
    if (is_list(path)) {
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

static void request_key(Request *r)
{
    /* Whether the whole of a set without parts may be evaluated: for training it may not, though an index is there. */
    int whole = r->config->whole && r->split != SPLIT_TRAIN;
    char text[3 * PATH_BYTES], here[PATH_BYTES] = "", *full = NULL;
    if (is_list(r->config->path)) {
        if (!getcwd(here, sizeof here)) here[0] = 0;
    } else {
        full = realpath(r->config->path, NULL);
    }
    const char *path = full ? full : r->config->path; /* a list may be of any length */
    XXH128_hash_t of_path = XXH3_128bits(path, strlen(path));
    int n = snprintf(text, sizeof text, "shards 3\n%s\n%016" PRIx64 "%016" PRIx64 "\n%d %d %d %d %.17g", here,
                     (uint64_t)of_path.high64, (uint64_t)of_path.low64, (int)r->split, whole,
                     (int)r->config->label_base, class_files(r->config->path), r->config->val_split);
    free(full);
    XXH128_hash_t hash = XXH3_128bits(text, n < (int)sizeof text ? (size_t)n : sizeof text);
    r->key[0] = hash.low64;
    r->key[1] = hash.high64;
}

static Status index_open(const SourceConfig *config, Split split, Index *index);

/* The index of the training samples: that of the open source, or *own, which is unmapped by the caller. */
static Status train_open(const SourceConfig *config, Index *own, const Index **train)
{
    *train =
        config->train && config->train->close == shards_close ? &((const ShardsSource *)config->train)->index : own;
    return *train == own ? index_open(config, SPLIT_TRAIN, own) : OK;
}

/* Find or build the index of a split. The others need the classes of the training samples, if there are any. */
static Status index_open(const SourceConfig *config, Split split, Index *index)
{
    Status st = OK;
    bool found;
    ShardSet set = {0};
    SplitChoice choice;
    Index own = {0};
    const Index *train = NULL;
    Request request = {.config = config, .split = split};
    request_key(&request);
    TRY(index_find(request.key, index, &found));
    if (found && !index->header->train) return OK;
    if (found) {
        TRY_OUT(train_open(config, &own, &train));
        if (train->header->sum == index->header->train) goto out;
        index_unmap(index);
    }
    TRY_OUT(set_find(config->path, &set));
    TRY_OUT(set_choose(config, &set, split, &choice));
    classes_find(&set);
    request.val_split = choice.divided ? config->val_split : 0;
    bool trained = split != SPLIT_TRAIN && (choice.divided || set.of[SPLIT_TRAIN].count);
    if (trained && !train) TRY_OUT(train_open(config, &own, &train));
    TRY_OUT(index_build(&request, &set, &set.of[choice.from], trained ? train : NULL, index));
out:
    index_unmap(&own);
    set_free(&set);
    return st;
}

/* ---- the source */

static ShardKind kind_of(const ShardsSource *s)
{
    return (ShardKind)(s->index.header->kind & ~(uint64_t)KIND_FROM_ONE);
}

static const char *shard_path(const ShardsSource *s, int64_t index)
{
    return index_string(&s->index, s->index.watched[s->index.samples[index].file].path);
}

static void shards_where(const Source *source, int64_t index, char *text, size_t bytes)
{
    const ShardsSource *s = (const ShardsSource *)source;
    const Sample *sample = &s->index.samples[index];
    snprintf(text, bytes, "%s: %s, offset %" PRIu64, shard_path(s, index), index_string(&s->index, sample->name),
             sample->offset);
}

static Slot *slot_of(const ShardsSource *s, uint32_t file)
{
    return &s->slots[file % SLOTS];
}

/* An open descriptor of a shard, for shard_release. */
static Status shard_acquire(const ShardsSource *s, const Sample *sample, const char *path, int *fd)
{
    Status st = OK;
    uint64_t size;
    pthread_mutex_lock(s->lock);
    Slot *slot = slot_of(s, sample->file);
    bool other = slot->fd >= 0 && slot->file != sample->file;
    if (other && !slot->users) {
        close(slot->fd);
        slot->fd = -1;
        other = false;
    }
    if (other || slot->fd < 0) st = file_open(path, OF_USER, ERR_FORMAT, UINT64_MAX, fd, &size);
    if (st == OK && !other) {
        if (slot->fd < 0) *slot = (Slot){.file = sample->file, .fd = *fd};
        *fd = slot->fd;
        slot->users++;
    }
    pthread_mutex_unlock(s->lock);
    return st;
}

static void shard_release(const ShardsSource *s, const Sample *sample, int fd)
{
    pthread_mutex_lock(s->lock);
    Slot *slot = slot_of(s, sample->file);
    if (slot->fd == fd)
        slot->users--;
    else
        close(fd);
    pthread_mutex_unlock(s->lock);
}

/* A shard that was removed or replaced has no name any more; one that was written to has other times. */
static Status shard_check(int fd, const char *path, const Watched *then)
{
    struct stat info;
    if (fstat(fd, &info) != 0) return FAIL(ERR_IO, "cannot stat '%s': %s", path, strerror(errno));
    if (info.st_nlink == 0 || (int64_t)info.st_size != then->bytes || watched_of(&info).time_ns != then->time_ns)
        return FAIL(ERR_FORMAT, "'%s' has changed since it was indexed: start again to index it again", path);
    return OK;
}

static Status shards_read(const Source *source, int64_t index, Bytes *bytes, int32_t *label)
{
    const ShardsSource *s = (const ShardsSource *)source;
    const Sample *sample = &s->index.samples[index];
    const char *path = shard_path(s, index);
    int fd;
    TRY(sample_size_check(sample->bytes));
    TRY(bytes_reserve(bytes, sample->bytes));
    TRY(shard_acquire(s, sample, path, &fd));
    Status st = shard_check(fd, path, &s->index.watched[sample->file]);
    if (st == OK) st = shard_pread(fd, path, sample->offset, bytes->data, sample->bytes);
    shard_release(s, sample, fd);
    bytes->size = sample->bytes;
    bytes->raw_c = 0;
    *label = sample->label;
    if (st == OK && kind_of(s) == SHARD_MDS && sample->flags) {
        bytes->raw_h = (int32_t)(sample->flags >> 16);
        bytes->raw_w = (int32_t)(sample->flags & 0xffff);
        bytes->raw_c = 3;
    }
    if (st != OK || kind_of(s) != SHARD_TFRECORD) return st;
    char where[PATH_BYTES + NAME_BYTES];
    shards_where(source, index, where, sizeof where);
    return tfrecord_image(bytes, sample->flags, where);
}

static int32_t shards_label(const Source *source, int64_t index)
{
    return ((const ShardsSource *)source)->index.samples[index].label;
}

static void shards_hint(const Source *source, int64_t index)
{
    const ShardsSource *s = (const ShardsSource *)source;
    const Sample *sample = &s->index.samples[index];
    bytes_hint(shard_path(s, index), sample->offset, sample->bytes);
}

static void shards_hint_shard(const Source *source, int shard)
{
    const ShardsSource *s = (const ShardsSource *)source;
    bytes_hint(shard_path(s, s->first[shard]), 0, 0);
}

static void shards_close(Source *source)
{
    ShardsSource *s = (ShardsSource *)source;
    if (!s) return;
    for (int i = 0; s->slots && i < SLOTS; i++)
        if (s->slots[i].fd >= 0) close(s->slots[i].fd);
    if (s->lock) pthread_mutex_destroy(s->lock);
    free(s->lock);
    free(s->slots);
    index_unmap(&s->index);
    free(s->names);
    free(s->first);
    free(s);
}

/* Samples of a shard follow each other in the index. */
static Status firsts_find(ShardsSource *s)
{
    const IndexHeader *h = s->index.header;
    s->first = malloc((size_t)(h->watched + 1) * sizeof *s->first);
    if (!s->first) return FAIL(ERR_MEMORY, "no memory for the list of %" PRId64 " shards", h->watched);
    for (int64_t i = 0; i < h->samples; i++) {
        if (i > 0 && s->index.samples[i].file <= s->index.samples[i - 1].file) {
            if (s->index.samples[i].file == s->index.samples[i - 1].file) continue;
            return FAIL(ERR_FORMAT, "an index whose shards are not in order");
        }
        s->first[s->base.info.shards++] = i;
    }
    s->first[s->base.info.shards] = h->samples;
    s->base.info.shard_first = s->first;
    return OK;
}

static Status describe(const SourceConfig *config, Split split, ShardsSource *s)
{
    const IndexHeader *h = s->index.header;
    uint64_t kind = h->kind & ~(uint64_t)KIND_FROM_ONE;
    if (kind >= SHARD_KINDS || !kind_names[kind] || h->watched == 0)
        return FAIL(ERR_FORMAT, "'%s': an index of an unknown kind of shards", config->path);
    const char *format =
        format_names[kind][(h->kind & KIND_FROM_ONE) != 0][config->val_split > 0 && split != SPLIT_TEST];
    TRY(indexed_describe(config, &s->index, format, &s->base.info, &s->names));
    return firsts_find(s);
}

Status shards_source_open(const SourceConfig *config, Split split, Source **made)
{
    Status st = OK;
    ShardsSource *s = calloc(1, sizeof *s);
    if (!s) return FAIL(ERR_MEMORY, "no memory for the reader for '%s'", config->path);
    s->base.read = shards_read;
    s->base.label = shards_label;
    s->base.where = shards_where;
    s->base.hint = shards_hint;
    s->base.hint_shard = shards_hint_shard;
    s->base.close = shards_close;
    s->slots = malloc(SLOTS * sizeof *s->slots);
    s->lock = malloc(sizeof *s->lock);
    if (!s->slots || !s->lock) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the reader for '%s'", config->path));
    pthread_mutex_init(s->lock, NULL);
    for (int i = 0; i < SLOTS; i++) s->slots[i].fd = -1, s->slots[i].users = 0;
    TRY_OUT(index_open(config, split, &s->index));
    TRY_OUT(describe(config, split, s));
    *made = &s->base;
    s = NULL;
out:
    shards_close((Source *)s);
    return st;
}
