/* Reads an ImageFolder tree into an index, and samples through it; rules in folder.h. Classes are scanned by several
 * threads, each taking one class at a time. */
#include "towers/data/sources/folder.h"

#include <dirent.h>
#include <xxhash.h>

#include "kernels/array.h"
#include "towers/data/sources/endings.h"
#include "towers/data/sources/indexed.h"
#include "towers/data/sources/names.h"
#include "towers/data/sources/parallel.h"
#include "towers/data/sources/tree.h"
#include "towers/files/files.h"

enum { DEPTH_MAX = 64 };

/* ---- the folders of a data set */

typedef struct Found {
    char *path;          /* owned: below the class's folder */
    size_t folder_bytes; /* length of the folder part, with its slash */
    uint32_t bytes;
} Found;

typedef struct ClassScan {
    const char *name; /* borrowed */
    Found *files;
    int64_t count;
    Names folders;    /* all directories, as full paths */
    Watched *watched; /* owned: [folders.count], as they were when they were opened */
    Ignored ignored;
} ClassScan;

typedef struct Scan {
    const char *root; /* borrowed */
    ClassScan *classes;
    int count;
} Scan;

static bool is_directory(int at, const struct dirent *entry)
{
    struct stat info;
    if (entry->d_type == DT_DIR) return true;
    if (entry->d_type != DT_LNK && entry->d_type != DT_UNKNOWN) return false;
    return fstatat(at, entry->d_name, &info, 0) == 0 && S_ISDIR(info.st_mode);
}

/* Hidden folders hold what programs keep for themselves (.git, .ipynb_checkpoints), and are no classes. */
static bool is_hidden_folder(int at, const struct dirent *entry)
{
    return entry->d_name[0] == '.' && is_directory(at, entry);
}

/* `ignored`, if not NULL, receives the images that lie beside the folders. */
static Status subfolders(const char *path, Names *names, Ignored *ignored)
{
    Status st = OK;
    DIR *directory = opendir(path);
    if (!directory) return FAIL(ERR_IO, "cannot open '%s': %s", path, strerror(errno));
    const struct dirent *entry;
    while (st == OK && (errno = 0, entry = readdir(directory)) != NULL) {
        bool folder = is_directory(dirfd(directory), entry);
        if (folder && entry->d_name[0] != '.') st = names_add(names, entry->d_name);
        if (!folder && ignored && ending_is_image(entry->d_name)) st = ignored_add(ignored, path, entry->d_name);
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
        any = ending_is_image(entry->d_name) && !is_directory(dirfd(directory), entry);
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
    bool image = ending_is_image(name);
    if (fstatat(at, name, &info, 0) != 0) {
        if (errno == ELOOP) return FAIL(ERR_FORMAT, "'%s/%s' is a circular symbolic link", path, name);
        if (errno == ENOENT && !image) return OK;
        return FAIL(errno == ENOENT ? ERR_FORMAT : ERR_IO, "'%s/%s': %s", path, name,
                    errno == ENOENT ? "a broken symbolic link" : strerror(errno));
    }
    if (S_ISDIR(info.st_mode)) {
        char below[PATH_BYTES], whole[PATH_BYTES];
        if (snprintf(below, sizeof below, "%s%s/", folder, name) >= PATH_BYTES)
            return FAIL(ERR_FORMAT, "'%s/%s': the path is too long", path, name);
        TRY(path_join(whole, path, name));
        return folder_walk(walk, whole, below, depth + 1);
    }
    if (!image) return name[0] == '.' ? OK : ignored_add(&walk->class->ignored, path, name);
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
        if (is_hidden_folder(dirfd(directory), entry)) continue;
        TRY(entry_take(walk, dirfd(directory), path, folder, entry->d_name, depth));
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
    char others[IGNORED_TEXT_BYTES];
    ignored_text(&class->ignored, others);
    if (class->count == 0)
        return FAIL(ERR_FORMAT,
                    "class folder '%s' has no image (" IMAGE_ENDINGS ")%s%s: add images or remove the folder", path,
                    class->ignored.count ? ", only other files: " : "", others);
    qsort(class->files, (size_t) class->count, sizeof *class->files, by_folder_and_name);
    return OK;
}

/* ---- all classes, by threads */

static Status scan_item(void *context, int thread, int64_t item)
{
    Scan *scan = context;
    (void)thread;
    return class_scan(scan, &scan->classes[item]);
}

static Status scan_open(const SourceConfig *config, const char *root, const Names *classes, Scan *scan)
{
    *scan = (Scan){.root = root};
    scan->classes = calloc((size_t)classes->count + 1, sizeof *scan->classes);
    if (!scan->classes) return FAIL(ERR_MEMORY, "no memory for the list of %d classes", classes->count);
    scan->count = classes->count;
    for (int i = 0; i < classes->count; i++) scan->classes[i].name = classes->name[i];
    return parallel_run(&(Parallel){.count = scan->count,
                                    .work = scan_item,
                                    .context = scan,
                                    .progress = config->progress,
                                    .progress_context = config->context});
}

static void scan_close(Scan *scan)
{
    for (int i = 0; scan->classes && i < scan->count; i++) {
        ClassScan *class = &scan->classes[i];
        for (int64_t k = 0; k < class->count; k++) free(class->files[k].path);
        free(class->files);
        ignored_free(&class->ignored);
        names_free(&class->folders);
        free(class->watched);
    }
    free(scan->classes);
}

/* ---- dividing a class's images between splits */

static uint64_t name_hash(const ClassScan *class, const Found *file)
{
    return XXH3_64bits_withSeed(file->path, strlen(file->path), XXH3_64bits(class->name, strlen(class->name)));
}

static Status limit_find(const ClassScan *class, double val_split, uint64_t *limit)
{
    uint64_t *hashes = malloc((size_t) class->count * sizeof *hashes);
    if (!hashes) return FAIL(ERR_MEMORY, "no memory to divide %" PRId64 " images", class->count);
    for (int64_t i = 0; i < class->count; i++) hashes[i] = name_hash(class, &class->files[i]);
    *limit = split_limit(hashes, class->count, val_split);
    free(hashes);
    return OK;
}

/* ---- building the index */

static Status class_add(IndexBuilder *b, const ClassScan *class, int label, const Tree *tree)
{
    uint64_t limit = 0;
    if (tree->val_split > 0) TRY(limit_find(class, tree->val_split, &limit));
    for (int64_t i = 0; i < class->count; i++) {
        const Found *file = &class->files[i];
        if (tree->val_split > 0 && (name_hash(class, file) < limit) != (tree->split == SPLIT_VAL)) continue;
        Sample sample = {.bytes = file->bytes, .label = label};
        TRY(index_sample_add(b, &sample, file->path));
    }
    for (int i = 0; i < class->folders.count; i++)
        TRY(index_watched_put(b, class->folders.name[i], &class->watched[i]));
    return OK;
}

static Status ignored_note(IndexBuilder *b, const Scan *scan, Ignored *all)
{
    char text[IGNORED_TEXT_BYTES];
    for (int i = 0; i < scan->count; i++) TRY(ignored_join(all, &scan->classes[i].ignored));
    b->parts.ignored = all->count;
    if (!all->count) return OK;
    ignored_text(all, text);
    TRY(index_string_add(b, text, &b->parts.ignored_kinds));
    return index_string_add(b, all->first, &b->parts.first_ignored);
}

static Status builder_fill(IndexBuilder *b, const Scan *scan, const Names *classes, const Tree *tree)
{
    b->parts.classes = calloc((size_t)classes->count + 1, sizeof *b->parts.classes);
    if (!b->parts.classes) return FAIL(ERR_MEMORY, "no memory for the list of %d classes", classes->count);
    for (int i = 0; i < classes->count; i++) TRY(index_string_add(b, classes->name[i], &b->parts.classes[i]));
    b->parts.classes_count = classes->count;
    for (int i = 0; i < scan->count; i++)
        TRY(class_add(b, &scan->classes[i], names_find(classes, scan->classes[i].name), tree));
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

static Status classes_check(const Tree *tree, const Names *classes, const Names *train)
{
    if (train->count < 1) return FAIL(ERR_FORMAT, "'%s' has no folders: expected one per class", tree->train);
    if (classes->count < 1) return FAIL(ERR_FORMAT, "'%s' has no folders: expected one per class", tree->root);
    for (int i = 0; i < classes->count; i++)
        if (names_find(train, classes->name[i]) < 0)
            return FAIL(ERR_FORMAT, "'%s' has a class '%s' that is missing in '%s'", tree->root, classes->name[i],
                        tree->train);
    return OK;
}

/* `class`: NULL, or the only class, whose folder has no folders of classes; "." is the folder itself. */
static Status index_build(const SourceConfig *config, const Tree *tree, const char *class, const uint64_t key[2],
                          Index *index)
{
    Status st = OK;
    Names classes = {0}, train = {0};
    Scan scan = {0};
    Ignored ignored = {0};
    IndexBuilder builder = {0};
    TRY_OUT(index_watched_add(&builder, tree->root));
    TRY_OUT(index_watched_add(&builder, tree->train));
    TRY_OUT(class ? names_add(&classes, class) : subfolders(tree->root, &classes, &ignored));
    TRY_OUT(class ? names_add(&train, class) : subfolders(tree->train, &train, NULL));
    TRY_OUT(classes_check(tree, &classes, &train));
    TRY_OUT(scan_open(config, tree->root, &classes, &scan));
    TRY_OUT(builder_fill(&builder, &scan, &train, tree));
    TRY_OUT(ignored_note(&builder, &scan, &ignored));
    if (builder.parts.samples_count == 0) {
        st = FAIL(ERR_FORMAT, "'%s': --val-split %g leaves no image for evaluation", tree->root, tree->val_split);
        goto out;
    }
    TRY_OUT(index_write(key, &builder.parts, index));
out:
    if (scan.classes) scan_close(&scan);
    ignored_free(&ignored);
    index_builder_free(&builder);
    names_free(&classes);
    names_free(&train);
    return st;
}

/* ---- the source */

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
    bool found;
    char class[PATH_BYTES] = "", more[PATH_BYTES + 8] = "";
    TRY(tree_find(config, split, config->unlabeled ? &of_images : &of_classes, &tree));
    if (folder_is_flat(tree.train) && config->unlabeled) strcpy(class, ".");
    if (!folder_is_in(tree.root) && folder_is_flat(tree.root) && !config->unlabeled && config->whole)
        class_of_root(&tree, class);
    if (*class) snprintf(more, sizeof more, " flat %s", class);
    tree_key(&tree, "folder 2", more, key);
    TRY(index_find(key, &index, &found));
    if (!found) TRY(index_build(config, &tree, *class ? class : NULL, key, &index));
    return indexed_files_open(config, tree.root, tree.val_split > 0 ? "folder of images, divided" : "folder of images",
                              &index, made);
}
