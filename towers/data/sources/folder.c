/* Reads an ImageFolder tree into an index, and samples through it; rules in folder.h. Classes are scanned by several
 * threads, each taking one class at a time. */
#include "towers/data/sources/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <xxhash.h>

#include "kernels/base/array.h"
#include "towers/data/listing/endings.h"
#include "towers/data/listing/equal_files.h"
#include "towers/data/listing/leftovers.h"
#include "towers/data/listing/names.h"
#include "towers/data/listing/parallel.h"
#include "towers/data/sources/indexed.h"
#include "towers/data/sources/tree.h"
#include "towers/files/files.h"

enum { DEPTH_MAX = 64 };

/* ---- the folders of a data set */

typedef struct Found {
    char *path;          /* owned: below the class's folder */
    size_t folder_bytes; /* length of the folder part, with its slash */
    uint32_t bytes;
    bool evaluates; /* --val-split keeps it for evaluation */
} Found;

typedef struct ClassScan {
    const char *name; /* borrowed */
    Found *files;
    int64_t count;
    Names folders;    /* all directories, as full paths */
    Watched *watched; /* owned: [folders.count], as they were when they were opened */
    Skips skips;
    char *problem; /* owned: why the class is left without images, with SourceConfig.problems; or NULL */
} ClassScan;

typedef struct Scan {
    const char *root; /* borrowed */
    bool goes_on;     /* after a problem of a class */
    ClassScan *classes;
    int count;
} Scan;

static bool is_dots(const char *name)
{
    return !strcmp(name, ".") || !strcmp(name, "..");
}

static bool is_directory(int at, const struct dirent *entry)
{
    struct stat info;
    if (entry->d_type == DT_DIR) return true;
    if (entry->d_type != DT_LNK && entry->d_type != DT_UNKNOWN) return false;
    return fstatat(at, entry->d_name, &info, 0) == 0 && S_ISDIR(info.st_mode);
}

/* What other programs left behind, hidden folders among it, are neither classes nor images. */
static const char *leftover_entry(int at, const struct dirent *entry)
{
    return leftover_of(entry->d_name, is_directory(at, entry));
}

/* An entry behind its link; *there is false if it was removed meanwhile. What a link that leads nowhere stands for, a class or a folder
 * of images on a disk that is away, cannot be known; to leave it out would train on the rest as if it were all. */
static Status entry_examine(int at, const char *path, const char *name, struct stat *info, bool *there)
{
    *there = fstatat(at, name, info, 0) == 0;
    if (*there) return OK;
    int error = errno;
    if (error == ELOOP) return FAIL(ERR_FORMAT, "'%s/%s' is a circular symbolic link", path, name);
    if (error != ENOENT) return FAIL(ERR_IO, "'%s/%s': %s", path, name, strerror(error));
    if (fstatat(at, name, info, AT_SYMLINK_NOFOLLOW) != 0) return OK;
    return FAIL(ERR_FORMAT, "'%s/%s': a broken symbolic link", path, name);
}

/* `skips`, if not NULL, receives the images that lie beside the folders, and what is left out; links that lead nowhere are refused. */
static Status subfolders(const char *path, Names *names, Skips *skips)
{
    Status st = OK;
    DIR *directory = opendir(path);
    if (!directory) return FAIL(ERR_IO, "cannot open '%s': %s", path, strerror(errno));
    const struct dirent *entry;
    while (st == OK && (errno = 0, entry = readdir(directory)) != NULL) {
        const char *name = entry->d_name, *leftover = leftover_entry(dirfd(directory), entry);
        bool folder = is_directory(dirfd(directory), entry), there = true;
        struct stat info;
        if (is_dots(name) || (leftover && !skips)) continue;
        if (skips && !folder && !leftover && entry->d_type != DT_REG)
            st = entry_examine(dirfd(directory), path, name, &info, &there);
        if (st != OK || !there) continue;
        if (leftover)
            st = skips_add(skips, SKIP_FOREIGN, leftover, path, name);
        else if (folder)
            st = names_add(names, name);
        else if (skips && ending_is_image(name))
            st = skips_add(skips, SKIP_LOOSE, NULL, path, name);
    }
    if (st == OK && errno) st = FAIL(ERR_IO, "reading '%s': %s", path, strerror(errno));
    closedir(directory);
    names_sort(names);
    return st;
}

/* Images that lie in the directory itself. */
bool folder_is_flat(const char *path)
{
    bool any = false;
    const struct dirent *entry;
    DIR *directory = opendir(path);
    while (directory && !any && (entry = readdir(directory)) != NULL)
        any = ending_is_image(entry->d_name) && !leftover_of(entry->d_name, false) &&
              !is_directory(dirfd(directory), entry);
    if (directory) closedir(directory);
    return any;
}

bool folder_is_in(const char *path)
{
    Names names = {0};
    bool any = false;
    if (subfolders(path, &names, NULL) == OK)
        for (int i = 0; i < names.count; i++) any = any || strcmp(names.name[i], "fashion-mnist") != 0;
    names_free(&names);
    return any;
}

/* ---- one class */

/* A directory on the path to the current one, for the detection of link cycles. */
typedef struct WalkStep {
    dev_t device;
    ino_t inode;
} WalkStep;

typedef struct Walk {
    const Scan *scan;
    ClassScan *class;
    WalkStep way[DEPTH_MAX];
} Walk;

static Status file_add(ClassScan *class, const char *folder, const char *name, const struct stat *info)
{
    if (info->st_size > (off_t)UINT32_MAX)
        return FAIL(ERR_FORMAT, "'%s/%s%s' has %" PRId64 " bytes: expected an image of less than 4 GiB", class->name,
                    folder, name, info->st_size);
    TRY(array_grow(&class->files, class->count, sizeof *class->files, "the list of images"));
    Found *found = &class->files[class->count];
    if (asprintf(&found->path, "%s%s", folder, name) < 0) return FAIL(ERR_MEMORY, "no memory for the list of images");
    found->folder_bytes = strlen(folder);
    found->bytes = (uint32_t)info->st_size;
    class->count++;
    return OK;
}

static Status folder_walk(Walk *walk, const char *path, const char *folder, int depth);

/* Take one entry of a directory whose path below the class is `folder` ("", or with a slash at its end). */
static Status entry_take(Walk *walk, int at, const char *path, const char *folder, const char *name, int depth)
{
    struct stat info;
    bool image = ending_is_image(name), there;
    TRY(entry_examine(at, path, name, &info, &there));
    if (!there) return OK;
    if (S_ISDIR(info.st_mode)) {
        char below[PATH_BYTES], whole[PATH_BYTES];
        if (snprintf(below, sizeof below, "%s%s/", folder, name) >= PATH_BYTES)
            return FAIL(ERR_FORMAT, "'%s/%s': the path is too long", path, name);
        TRY(path_join(whole, path, name));
        return folder_walk(walk, whole, below, depth + 1);
    }
    if (!image && name[0] == '.') return skips_add(&walk->class->skips, SKIP_FOREIGN, "hidden", path, name);
    if (!image) return skips_add(&walk->class->skips, SKIP_KIND, NULL, path, name);
    if (!S_ISREG(info.st_mode))
        return FAIL(ERR_FORMAT, "'%s/%s' has an image extension but is not a regular file; remove it", path, name);
    return file_add(walk->class, folder, name, &info);
}

static Status folder_read(Walk *walk, DIR *directory, const char *path, const char *folder, int depth)
{
    struct stat info;
    if (fstat(dirfd(directory), &info) != 0) return FAIL(ERR_IO, "cannot examine '%s': %s", path, strerror(errno));
    for (int i = 0; i < depth; i++)
        if (walk->way[i].device == info.st_dev && walk->way[i].inode == info.st_ino)
            return FAIL(ERR_FORMAT, "'%s' is a symbolic link to a folder that contains it", path);
    walk->way[depth] = (WalkStep){info.st_dev, info.st_ino};
    ClassScan *class = walk->class;
    TRY(array_grow(&class->watched, class->folders.count, sizeof *class->watched, "the list of folders"));
    class->watched[class->folders.count] = watched_of(&info);
    TRY(names_add(&class->folders, path));
    const struct dirent *entry;
    while ((errno = 0, entry = readdir(directory)) != NULL) {
        const char *leftover = leftover_entry(dirfd(directory), entry);
        if (is_dots(entry->d_name)) continue;
        TRY(leftover ? skips_add(&class->skips, SKIP_FOREIGN, leftover, path, entry->d_name)
                     : entry_take(walk, dirfd(directory), path, folder, entry->d_name, depth));
    }
    return errno ? FAIL(ERR_IO, "reading '%s': %s", path, strerror(errno)) : OK;
}

static Status folder_walk(Walk *walk, const char *path, const char *folder, int depth)
{
    if (depth == DEPTH_MAX) return FAIL(ERR_FORMAT, "'%s': folders are nested more than %d deep", path, DEPTH_MAX);
    DIR *directory = opendir(path);
    if (!directory) return FAIL(ERR_IO, "cannot open '%s': %s", path, strerror(errno));
    Status st = folder_read(walk, directory, path, folder, depth);
    closedir(directory);
    return st;
}

static int by_folder_and_name(const void *a, const void *b)
{
    const Found *x = a, *y = b;
    size_t shorter = x->folder_bytes < y->folder_bytes ? x->folder_bytes : y->folder_bytes;
    if (shorter > 0) { /* compared without the last slash, as folder names */
        int order = memcmp(x->path, y->path, shorter - 1);
        if (order == 0 && x->folder_bytes != y->folder_bytes) return x->folder_bytes < y->folder_bytes ? -1 : 1;
        if (order) return order;
    } else if (x->folder_bytes != y->folder_bytes) {
        return x->folder_bytes < y->folder_bytes ? -1 : 1;
    }
    return strcmp(x->path + x->folder_bytes, y->path + y->folder_bytes);
}

static Status class_scan(const Scan *scan, ClassScan *class)
{
    char path[PATH_BYTES];
    Walk walk = {.scan = scan, .class = class};
    TRY(path_join(path, scan->root, class->name));
    TRY(folder_walk(&walk, path, "", 0));
    if (class->count) qsort(class->files, (size_t) class->count, sizeof *class->files, by_folder_and_name);
    return OK;
}

/* What is wrong with the class whose folder has no image, and with how many others. */
static Status class_is_empty(const Scan *scan, const ClassScan *class, int others)
{
    char more[96] = "";
    if (others)
        snprintf(more, sizeof more, " (so it is with %d other%s; towers data check DIR names all)", others,
                 others == 1 ? "" : "s");
    bool others_there = skips_count(&class->skips, SKIP_KIND) > 0;
    return FAIL(ERR_FORMAT, "class folder '%s/%s' has no image (" IMAGE_ENDINGS ")%s%s: %s or remove the folder%s",
                scan->root, class->name, others_there ? ", only other files: " : "",
                skips_kinds(&class->skips, SKIP_KIND),
                others_there ? "convert them, as by 'mogrify -format png FILE' (ImageMagick)" IMAGE_ENDINGS_LACKING ","
                             : "add images",
                more);
}

/* ---- all classes, by threads */

static void class_files_free(ClassScan *class)
{
    for (int64_t k = 0; k < class->count; k++) free(class->files[k].path);
    free(class->files);
    class->files = NULL;
    class->count = 0;
}

static Status scan_item(void *context, int thread, int64_t item)
{
    Scan *scan = context;
    ClassScan *class = &scan->classes[item];
    (void)thread;
    Status st = class_scan(scan, class);
    if (st == OK && scan->goes_on && class->count == 0) st = class_is_empty(scan, class, 0);
    if (st != ERR_FORMAT || !scan->goes_on) return st;
    class_files_free(class);
    class->problem = strdup(status_message());
    return class->problem ? OK : FAIL(ERR_MEMORY, "no memory for a message");
}

/* A class without an image is an error; with `problems`, which receives it and others, the class is kept. */
static Status scan_check(const Scan *scan, Names *problems)
{
    const ClassScan *first = NULL;
    int empty = 0;
    for (int i = 0; i < scan->count; i++) {
        const ClassScan *class = &scan->classes[i];
        if (class->problem) TRY(names_add(problems, class->problem));
        if (!problems && class->count == 0 && empty++ == 0) first = class;
    }
    return first ? class_is_empty(scan, first, empty - 1) : OK;
}

static Status scan_open(const SourceConfig *config, const char *root, const Names *classes, Scan *scan)
{
    *scan = (Scan){.root = root, .goes_on = config->problems != NULL};
    scan->classes = calloc((size_t)classes->count + 1, sizeof *scan->classes);
    if (!scan->classes) return FAIL(ERR_MEMORY, "no memory for the list of %d classes", classes->count);
    scan->count = classes->count;
    for (int i = 0; i < classes->count; i++) scan->classes[i].name = classes->name[i];
    TRY(parallel_run(&(Parallel){.count = scan->count,
                                 .work = scan_item,
                                 .context = scan,
                                 .progress = config->progress,
                                 .progress_context = config->context}));
    return scan_check(scan, config->problems);
}

static void scan_close(Scan *scan)
{
    for (int i = 0; scan->classes && i < scan->count; i++) {
        ClassScan *class = &scan->classes[i];
        class_files_free(class);
        skips_free(&class->skips);
        names_free(&class->folders);
        free(class->watched);
        free(class->problem);
    }
    free(scan->classes);
}

/* ---- dividing the images between splits */

static uint64_t name_hash(const ClassScan *class, const Found *file)
{
    return XXH3_64bits_withSeed(file->path, strlen(file->path), XXH3_64bits(class->name, strlen(class->name)));
}

static Status class_divide(ClassScan *class, double val_split)
{
    if (class->count == 0) return OK;
    uint64_t *hashes = malloc((size_t) class->count * sizeof *hashes);
    if (!hashes) return FAIL(ERR_MEMORY, "no memory to divide %" PRId64 " images", class->count);
    for (int64_t i = 0; i < class->count; i++) hashes[i] = name_hash(class, &class->files[i]);
    uint64_t limit = split_limit(hashes, class->count, val_split);
    for (int64_t i = 0; i < class->count; i++) class->files[i].evaluates = name_hash(class, &class->files[i]) < limit;
    free(hashes);
    return OK;
}

/* All files in one list, class by class. */
typedef struct AllFiles {
    const Scan *scan;
    int32_t *classes;
    Found **files;
    uint64_t *bytes;
    bool *evaluates;
} AllFiles;

static Status file_path(const void *context, int64_t number, char path[PATH_BYTES])
{
    const AllFiles *all = context;
    const Scan *scan = all->scan;
    int n = snprintf(path, PATH_BYTES, "%s/%s/%s", scan->root, scan->classes[all->classes[number]].name,
                     all->files[number]->path);
    return n < PATH_BYTES ? OK : FAIL(ERR_FORMAT, "'%s': the path of an image is too long", scan->root);
}

static Status equal_join(const Scan *scan)
{
    Status st = OK;
    size_t count = 0, used = 0;
    for (int c = 0; c < scan->count; c++) count += (size_t)scan->classes[c].count;
    AllFiles all = {scan, calloc(count + 1, sizeof *all.classes), calloc(count + 1, sizeof *all.files),
                    calloc(count + 1, sizeof *all.bytes), calloc(count + 1, sizeof *all.evaluates)};
    if (!all.classes || !all.files || !all.bytes || !all.evaluates)
        TRY_OUT(FAIL(ERR_MEMORY, "no memory to divide %zu images", count));
    for (int c = 0; c < scan->count; c++)
        for (int64_t i = 0; i < scan->classes[c].count; i++, used++) {
            all.classes[used] = c;
            all.files[used] = &scan->classes[c].files[i];
            all.bytes[used] = all.files[used]->bytes;
            all.evaluates[used] = all.files[used]->evaluates;
        }
    TRY_OUT(equal_files_join(&(EqualFiles){(int64_t)count, all.bytes, file_path, &all}, all.classes, all.evaluates));
    for (size_t i = 0; i < count; i++) all.files[i]->evaluates = all.evaluates[i];
out:
    free(all.classes);
    free(all.files);
    free(all.bytes);
    free(all.evaluates);
    return st;
}

static Status scan_divide(const SourceConfig *config, const Tree *tree, Scan *scan)
{
    if (tree->val_split <= 0) return OK;
    for (int c = 0; c < scan->count; c++) TRY(class_divide(&scan->classes[c], tree->val_split));
    return config->equal_apart ? OK : equal_join(scan);
}

/* ---- building the index */

static Status class_add(IndexBuilder *b, const ClassScan *class, int label, const Tree *tree)
{
    for (int64_t i = 0; i < class->count; i++) {
        const Found *file = &class->files[i];
        if (tree->val_split > 0 && file->evaluates != (tree->split == SPLIT_VAL)) continue;
        Sample sample = {.bytes = file->bytes, .label = label};
        TRY(index_sample_add(b, &sample, file->path));
    }
    for (int i = 0; i < class->folders.count; i++)
        TRY(index_watched_put(b, class->folders.name[i], &class->watched[i]));
    return OK;
}

static Status skips_put(IndexBuilder *b, const Scan *scan, Skips *all)
{
    for (int i = 0; i < scan->count; i++) TRY(skips_join(all, &scan->classes[i].skips));
    return index_skips_put(b, all);
}

/* `map`: the class among those of the training images of each class that was scanned. */
static Status builder_fill(IndexBuilder *b, const Scan *scan, const Names *train, const int32_t *map, const Tree *tree)
{
    for (int i = 0; i < train->count; i++) TRY(index_class_add(b, train->name[i]));
    for (int i = 0; i < scan->count; i++) TRY(class_add(b, &scan->classes[i], map[i], tree));
    return OK;
}

/* ---- the tree */

static bool has_folder(const char *path, const char *name, char found[PATH_BYTES])
{
    struct stat info;
    return path_join(found, path, name) == OK && stat(found, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Whether a folder that has the name of a part is one: it holds folders, or lies beside parts only. Else it is a class of
 * trains beside other vehicles. */
static bool has_part(const char *path, const char *name, char found[PATH_BYTES])
{
    Names below = {0}, beside = {0};
    if (!has_folder(path, name, found) || subfolders(found, &below, NULL) != OK) return false;
    bool part = below.count > 0 || subfolders(path, &beside, NULL) != OK, classes = false;
    for (int i = 0; i < beside.count; i++) classes |= split_of_word(beside.name[i], strlen(beside.name[i])) == SPLITS;
    names_free(&below);
    names_free(&beside);
    return part || !classes;
}

static const TreeKind of_classes = {has_part, "a tenth of each class"}, of_images = {has_folder, "a tenth"};

unsigned folder_splits(const char *path)
{
    char parts[SPLITS][PATH_BYTES];
    return tree_parts(path, &of_classes, parts) == OK ? tree_bits(parts) : 0;
}

bool folder_part_is_flat(const char *path, Split split)
{
    char parts[SPLITS][PATH_BYTES];
    return tree_parts(path, &of_classes, parts) == OK && *parts[split] && !folder_is_in(parts[split]) &&
           folder_is_flat(parts[split]);
}

/* map[classes->count]; owned by the caller. */
static Status classes_find(const Tree *tree, const Names *classes, const Names *train, int32_t **map)
{
    char root[PATH_BYTES + 2], learned[PATH_BYTES + 2];
    if (train->count < 1) return FAIL(ERR_FORMAT, "'%s' has no folders: expected one per class", tree->train);
    if (classes->count < 1) return FAIL(ERR_FORMAT, "'%s' has no folders: expected one per class", tree->root);
    snprintf(root, sizeof root, "'%s'", tree->root);
    snprintf(learned, sizeof learned, "'%s'", tree->train);
    const ClassList of = {.whose = root, .names = (const char *const *)classes->name, .count = classes->count},
                    among = {.whose = learned, .names = (const char *const *)train->name, .count = train->count};
    *map = calloc((size_t)classes->count, sizeof **map);
    if (!*map) return FAIL(ERR_MEMORY, "no memory for the list of %d classes", classes->count);
    return class_match(&of, &among, CLASSES_SPELLED, *map, NULL);
}

/* Folders that are all named as parts of a set, of several ones, are no classes: "train_images" and "test_images" of Kaggle,
 * "train2017" and "val2017" of COCO. In a folder that is a part they can be nothing else than classes. */
static Status parts_check(const char *path, const Names *classes)
{
    char list[256];
    Text names = text_start(list, sizeof list);
    const char *slash = strrchr(path, '/'), *own = slash ? slash + 1 : path;
    unsigned bits = 0;
    if (split_of_word(own, strlen(own)) != SPLITS) return OK;
    for (int i = 0; i < classes->count; i++) {
        Split part = split_of_folder(classes->name[i]);
        if (part == SPLITS) return OK;
        bits |= SPLIT_BIT(part);
    }
    if (!(bits & (bits - 1))) return OK;
    class_names_text((const char *const *)classes->name, classes->count, &names);
    return FAIL(
        ERR_FORMAT,
        "the folders in '%s' are named as parts of a set, not as its classes: %s; name them train, val and test, "
        "each with a folder for each class (a class of such a name needs another one)",
        path, list);
}

/* `class`: NULL, or the only class, whose folder has no folders of classes; "." is the folder itself. */
static Status index_build(const SourceConfig *config, const Tree *tree, const char *class, const uint64_t key[2],
                          Index *index)
{
    Status st = OK;
    Names classes = {0}, train = {0};
    Scan scan = {0};
    Skips skips = {0}, beside_train = {0};
    IndexBuilder builder = {0};
    int32_t *map = NULL;
    TRY_OUT(index_watched_add(&builder, tree->root));
    TRY_OUT(index_watched_add(&builder, tree->train));
    TRY_OUT(class ? names_add(&classes, class) : subfolders(tree->root, &classes, &skips));
    TRY_OUT(class ? names_add(&train, class) : subfolders(tree->train, &train, &beside_train));
    if (!config->unlabeled) TRY_OUT(parts_check(tree->root, &classes));
    TRY_OUT(classes_find(tree, &classes, &train, &map));
    TRY_OUT(scan_open(config, tree->root, &classes, &scan));
    TRY_OUT(scan_divide(config, tree, &scan));
    TRY_OUT(builder_fill(&builder, &scan, &train, map, tree));
    TRY_OUT(skips_put(&builder, &scan, &skips));
    if (builder.parts.samples_count == 0) {
        bool known = config->problems && config->problems->count;
        st = known
                 ? FAIL(ERR_FORMAT, "%s", config->problems->name[0])
                 : FAIL(ERR_FORMAT, "'%s': --val-split %g leaves no image for evaluation", tree->root, tree->val_split);
        goto out;
    }
    TRY_OUT(index_write(key, &builder.parts, index));
out:
    if (scan.classes) scan_close(&scan);
    skips_free(&skips);
    skips_free(&beside_train);
    index_builder_free(&builder);
    names_free(&classes);
    names_free(&train);
    free(map);
    return st;
}

/* ---- the source */

/* Images that lie in a part itself have no labels: its name is that of no class. */
static Status labels_check(const SourceConfig *config, const Tree *tree)
{
    const char *base = strrchr(tree->root, '/') + 1;
    Split part = split_of_word(base, strlen(base));
    bool within = strcmp(tree->root, tree->train) != 0;
    if (part == SPLITS) return OK;
    return FAIL(
        ERR_FORMAT,
        "the images in '%s' have no labels: expected a folder for each class; to predict them: towers predict RUN "
        "%s%s%s",
        tree->root, config->path, within ? " --split " : "", within ? split_name(part) : "");
}

/* Make the folder above the root, and its name the only class; above "/" is nothing. */
static void class_of_root(Tree *tree, char class[PATH_BYTES])
{
    char *slash = strrchr(tree->root, '/');
    snprintf(class, PATH_BYTES, "%s", slash[1] ? slash + 1 : ".");
    slash[slash == tree->root] = 0;
    memcpy(tree->train, tree->root, sizeof tree->train);
}

Status folder_source_open(const SourceConfig *config, Split split, Source **made)
{
    Tree tree;
    uint64_t key[2];
    Index index = {0};
    bool found = false;
    char class[PATH_BYTES] = "", more[PATH_BYTES + 64];
    Text text = text_start(more, sizeof more);
    TRY(tree_find(config, split, config->unlabeled ? &of_images : &of_classes, &tree));
    bool flat = !folder_is_in(tree.root) && folder_is_flat(tree.root);
    if (config->unlabeled && (folder_is_flat(tree.train) || flat)) strcpy(class, ".");
    if (!config->unlabeled && config->whole && flat) {
        TRY(labels_check(config, &tree));
        class_of_root(&tree, class);
    }
    if (*class) text_add(&text, " flat %s", class);
    if (tree.val_split > 0 && !config->equal_apart) text_add(&text, " equal together");
    if (config->problems) text_add(&text, " with problems"); /* of no use to others */
    tree_key(&tree, "folder 3", more, key);
    if (!config->problems) TRY(index_find(key, &index, &found));
    if (!found) TRY(index_build(config, &tree, *class ? class : NULL, key, &index));
    return indexed_files_open(config, tree.root, tree.val_split > 0 ? "folder of images, divided" : "folder of images",
                              &index, made);
}
