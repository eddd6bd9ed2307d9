/* Reads a labels file into an index, and samples through it; rules in labeled.h. */
#include "towers/data/labeled.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "towers/data/folder.h"
#include "towers/data/indexed.h"
#include "towers/data/label_file.h"
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

bool labeled_is_in(const char *path)
{
    char root[PATH_BYTES];
    return labels_in(path, ".", root) || labels_in(path, "train", root);
}

bool labeled_is_divided(const char *path)
{
    char root[PATH_BYTES];
    return labels_in(path, "train", root) && (labels_in(path, "val", root) || labels_in(path, "test", root));
}

typedef struct Tree {
    char root[PATH_BYTES], train[PATH_BYTES]; /* of this split's images, and of those for training */
    char labels[PATH_BYTES], train_labels[PATH_BYTES];
    double val_split; /* 0: all images */
    Split split;
} Tree;

static Status tree_find(const SourceConfig *config, Split split, Tree *tree)
{
    char *path = realpath(config->path, NULL);
    if (!path) return FAIL(ERR_ARG, "data directory '%s': %s", config->path, strerror(errno));
    bool has_train = labels_in(path, "train", tree->train),
         has_val = has_train && (labels_in(path, "val", tree->root) || labels_in(path, "test", tree->root));
    if (!has_train) snprintf(tree->train, sizeof tree->train, "%s", path);
    free(path);
    tree->val_split = has_val ? 0 : config->val_split;
    tree->split = split;
    if (has_val && config->val_split > 0)
        return FAIL(ERR_ARG, "--val-split: '%s' already has images for evaluation, in %s", config->path,
                    strrchr(tree->root, '/') + 1);
    if (!has_val && config->val_split <= 0 && !config->whole)
        return FAIL(ERR_ARG,
                    "'%s' has no images for evaluation: expected train/" LABELS_NAME " and val/" LABELS_NAME
                    " (or test/), or --val-split 0.1 to keep a tenth of the images",
                    config->path);
    if (split == SPLIT_TRAIN || !has_val) memcpy(tree->root, tree->train, sizeof tree->root);
    TRY(path_join(tree->labels, tree->root, LABELS_NAME));
    return path_join(tree->train_labels, tree->train, LABELS_NAME);
}

static void tree_key(const Tree *tree, uint64_t key[2])
{
    char text[2 * PATH_BYTES + 72];
    int n = snprintf(text, sizeof text, "labels 1\n%s\n%s\n%d %.17g", tree->root, tree->train,
                     tree->val_split > 0 ? (int)tree->split : 0, tree->val_split);
    XXH128_hash_t hash = XXH3_128bits(text, (size_t)n);
    key[0] = hash.low64;
    key[1] = hash.high64;
}

/* ---- building the index */

static uint64_t name_hash(const LabelRow *row)
{
    return XXH3_64bits(row->name, strlen(row->name));
}

static int by_hash(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Rows whose hash is below *limit are for evaluation: round(rows * val_split) of them, at least one and never all. */
static Status limit_find(const LabelFile *file, double val_split, uint64_t *limit)
{
    int64_t wanted = llrint((double)file->rows_count * val_split);
    *limit = 0;
    if (wanted < 1) wanted = 1;
    if (wanted >= file->rows_count) wanted = file->rows_count - 1;
    if (wanted <= 0)
        return FAIL(ERR_FORMAT, "--val-split %g cannot divide one image; give val/ or more images", val_split);
    uint64_t *hashes = malloc((size_t)file->rows_count * sizeof *hashes);
    if (!hashes) return FAIL(ERR_MEMORY, "no memory to divide %" PRId64 " images", file->rows_count);
    for (int64_t i = 0; i < file->rows_count; i++) hashes[i] = name_hash(&file->rows[i]);
    qsort(hashes, (size_t)file->rows_count, sizeof *hashes, by_hash);
    *limit = hashes[wanted];
    free(hashes);
    return OK;
}

/* The file of a row: `name` below the root, with the extension that it may lack. */
static Status row_find(const Tree *tree, const LabelRow *row, char name[PATH_BYTES], struct stat *info)
{
    static const char *const endings[] = {"", ".jpg", ".jpeg", ".png", ".webp", ".ppm", ".pgm"};
    char path[PATH_BYTES];
    int first = folder_takes(row->name) ? 0 : 1, end = first ? (int)(sizeof endings / sizeof *endings) : 1;
    for (int i = first; i < end; i++) {
        if (snprintf(name, PATH_BYTES, "%s%s", row->name, endings[i]) >= PATH_BYTES ||
            path_join(path, tree->root, name) != OK)
            return FAIL(ERR_FORMAT, "'%s', line %" PRId64 ": the path is too long", tree->labels, row->line);
        if (stat(path, info) != 0) {
            if (errno == ENOENT || errno == ENOTDIR) continue;
            return FAIL(ERR_IO, "'%s', line %" PRId64 ": '%s': %s", tree->labels, row->line, path, strerror(errno));
        }
        if (!S_ISREG(info->st_mode) || info->st_size > (off_t)UINT32_MAX)
            return FAIL(ERR_FORMAT, "'%s', line %" PRId64 ": '%s' is not a regular file of less than 4 GiB",
                        tree->labels, row->line, path);
        return OK;
    }
    return FAIL(ERR_FORMAT, "'%s', line %" PRId64 ": there is no image '%.200s'%s in '%s'", tree->labels, row->line,
                row->name, first ? " (with .jpg .jpeg .png .webp .ppm or .pgm)" : "", tree->root);
}

static Status builder_fill(IndexBuilder *b, const Tree *tree, const LabelFile *file, const LabelFile *train)
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
        TRY(row_find(tree, row, name, &info));
        if (tree->val_split > 0 && (name_hash(row) < limit) != (tree->split == SPLIT_TEST)) continue;
        Sample sample = {.bytes = (uint32_t)info.st_size};
        TRY(index_several_add(b, &sample, name, file->labels + row->first, row->count));
    }
    return OK;
}

static Status index_build(const Tree *tree, const uint64_t key[2], Index *index)
{
    Status st = OK;
    LabelFile own = {0}, train = {0};
    IndexBuilder builder = {0};
    bool other = strcmp(tree->labels, tree->train_labels) != 0;
    TRY_OUT(index_watched_add(&builder, tree->labels));
    TRY_OUT(index_watched_add(&builder, tree->train_labels));
    TRY_OUT(label_file_read(tree->train_labels, &train));
    if (other) {
        TRY_OUT(label_file_read(tree->labels, &own));
        TRY_OUT(label_file_match(&own, tree->labels, &train, tree->train_labels));
    }
    TRY_OUT(builder_fill(&builder, tree, other ? &own : &train, &train));
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
    TRY(tree_find(config, split, &tree));
    tree_key(&tree, key);
    TRY(index_find(key, &index, &found));
    if (!found) TRY(index_build(&tree, key, &index));
    return indexed_files_open(config, tree.root,
                              tree.val_split > 0 ? "folder with labels, divided" : "folder with labels", &index, made);
}
