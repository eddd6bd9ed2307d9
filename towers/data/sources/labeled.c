/* Reads a labels file into an index, and samples through it; rules in labeled.h. */
#include "towers/data/sources/labeled.h"

#include <xxhash.h>

#include "towers/data/sources/endings.h"
#include "towers/data/sources/indexed.h"
#include "towers/data/sources/label_file.h"
#include "towers/data/sources/tree.h"
#include "towers/files/files.h"

#define LABELS_NAME "labels.csv"

/* ---- where */

static bool labels_in(const char *path, const char *folder, char root[PATH_BYTES])
{
    char file[PATH_BYTES];
    struct stat info;
    return path_join(root, path, folder) == OK && path_join(file, root, LABELS_NAME) == OK && stat(file, &info) == 0 &&
           S_ISREG(info.st_mode);
}

static const TreeKind tree_kind = {labels_in, "a tenth of the images"};

unsigned labeled_splits(const char *path)
{
    char parts[SPLITS][PATH_BYTES];
    return tree_parts(path, &tree_kind, parts) == OK ? tree_bits(parts) : 0;
}

bool labeled_is_in(const char *path)
{
    char root[PATH_BYTES];
    return labels_in(path, ".", root) || labeled_splits(path);
}

/* ---- building the index */

static uint64_t name_hash(const LabelRow *row)
{
    return XXH3_64bits(row->name, strlen(row->name));
}

/* At least one image is for evaluation. */
static Status limit_find(const LabelFile *file, double val_split, uint64_t *limit)
{
    int64_t count = file->rows_count;
    if (count < 2)
        return FAIL(ERR_FORMAT, "--val-split %g cannot divide one image; give val/ or more images", val_split);
    uint64_t *hashes = malloc((size_t)count * sizeof *hashes);
    if (!hashes) return FAIL(ERR_MEMORY, "no memory to divide %" PRId64 " images", count);
    for (int64_t i = 0; i < count; i++) hashes[i] = name_hash(&file->rows[i]);
    *limit = split_limit(hashes, count, fmax(val_split, 1.0 / (double)count));
    free(hashes);
    return OK;
}

/* The file of a row: `name` below the root, with the ending that it may lack. */
static Status row_find(const char *root, const char *labels, const LabelRow *row, char name[PATH_BYTES],
                       struct stat *info)
{
    char path[PATH_BYTES];
    bool whole = ending_is_image(row->name);
    for (int i = 0; i < (whole ? 1 : IMAGE_ENDINGS_COUNT); i++) {
        if (snprintf(name, PATH_BYTES, "%s%s", row->name, whole ? "" : image_endings[i]) >= PATH_BYTES ||
            path_join(path, root, name) != OK)
            return FAIL(ERR_FORMAT, "'%s', line %" PRId64 ": the path is too long", labels, row->line);
        if (stat(path, info) != 0) {
            if (errno == ENOENT || errno == ENOTDIR) continue;
            return FAIL(ERR_IO, "'%s', line %" PRId64 ": '%s': %s", labels, row->line, path, strerror(errno));
        }
        if (!S_ISREG(info->st_mode) || info->st_size > (off_t)UINT32_MAX)
            return FAIL(ERR_FORMAT, "'%s', line %" PRId64 ": '%s' is not a regular file of less than 4 GiB", labels,
                        row->line, path);
        return OK;
    }
    return FAIL(ERR_FORMAT, "'%s', line %" PRId64 ": there is no image '%.200s'%s in '%s'", labels, row->line,
                row->name, whole ? "" : " (with one of " IMAGE_ENDINGS ")", root);
}

/* `labels`: the path of `file`. */
static Status builder_fill(IndexBuilder *b, const Tree *tree, const char *labels, const LabelFile *file,
                           const LabelFile *train)
{
    uint64_t limit = 0;
    b->parts.classes = calloc((size_t)train->classes_count + 1, sizeof *b->parts.classes);
    if (!b->parts.classes) return FAIL(ERR_MEMORY, "no memory for the list of %d classes", train->classes_count);
    for (int c = 0; c < train->classes_count; c++) TRY(index_string_add(b, train->classes[c], &b->parts.classes[c]));
    b->parts.classes_count = train->classes_count;
    if (tree->val_split > 0) TRY(limit_find(file, tree->val_split, &limit));
    for (int64_t i = 0; i < file->rows_count; i++) {
        const LabelRow *row = &file->rows[i];
        char name[PATH_BYTES];
        struct stat info;
        TRY(row_find(tree->root, labels, row, name, &info));
        if (tree->val_split > 0 && (name_hash(row) < limit) != (tree->split == SPLIT_VAL)) continue;
        Sample sample = {.bytes = (uint32_t)info.st_size};
        TRY(index_several_add(b, &sample, name, file->labels + row->first, row->count));
    }
    return OK;
}

static Status index_build(const Tree *tree, const char *without, const uint64_t key[2], Index *index)
{
    Status st = OK;
    LabelFile own = {0}, train = {0};
    IndexBuilder builder = {0};
    char labels[PATH_BYTES], train_labels[PATH_BYTES];
    bool other = strcmp(tree->root, tree->train) != 0;
    TRY_OUT(path_join(labels, tree->root, LABELS_NAME));
    TRY_OUT(path_join(train_labels, tree->train, LABELS_NAME));
    TRY_OUT(index_watched_add(&builder, labels));
    TRY_OUT(index_watched_add(&builder, train_labels));
    TRY_OUT(label_file_read(train_labels, without, &train));
    if (other) {
        TRY_OUT(label_file_read(labels, without, &own));
        TRY_OUT(label_file_match(&own, labels, &train, train_labels));
    }
    TRY_OUT(builder_fill(&builder, tree, labels, other ? &own : &train, &train));
    TRY_OUT(index_write(key, &builder.parts, index));
out:
    label_file_free(&own);
    label_file_free(&train);
    index_builder_free(&builder);
    return st;
}

/* ---- the source */

Status labeled_source_open(const SourceConfig *config, Split split, Source **made)
{
    Tree tree;
    uint64_t key[2];
    Index index = {0};
    bool found;
    TRY(tree_find(config, split, &tree_kind, &tree));
    tree_key(&tree, "labels 1", config->group ? config->group : "", key);
    TRY(index_find(key, &index, &found));
    if (!found) TRY(index_build(&tree, config->group, key, &index));
    return indexed_files_open(config, tree.root,
                              tree.val_split > 0 ? "folder with labels, divided" : "folder with labels", &index, made);
}
