/* Reads a labels file into an index, and samples through it; rules in labeled.h. */
#include "towers/data/sources/labeled.h"

#include <fts.h>
#include <xxhash.h>

#include "towers/data/classes/label_file.h"
#include "towers/data/listing/endings.h"
#include "towers/data/listing/equal_files.h"
#include "towers/data/listing/leftovers.h"
#include "towers/data/listing/names.h"
#include "towers/data/sources/indexed.h"
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

/* An image of the set. */
typedef struct Listed {
    char *name; /* owned: below the root */
    uint64_t bytes;
    const LabelRow *row;
} Listed;

typedef struct LabeledList {
    const Tree *tree;
    Listed *images;  /* owned: [count] */
    bool *evaluates; /* owned: [count], with --val-split */
    int64_t count;
} LabeledList;

static void listing_free(LabeledList *l)
{
    for (int64_t i = 0; l->images && i < l->count; i++) free(l->images[i].name);
    free(l->images);
    free(l->evaluates);
}

static int by_image(const void *a, const void *b)
{
    const Listed *x = *(const Listed *const *)a, *y = *(const Listed *const *)b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->row->line > y->row->line) - (x->row->line < y->row->line);
}

/* No image is in two rows, with its ending in one and without it in the other. */
static Status listing_check(const LabeledList *l, const char *labels)
{
    Status st = OK;
    const Listed **sorted = malloc(((size_t)l->count + 1) * sizeof *sorted);
    if (!sorted) return FAIL(ERR_MEMORY, "no memory for the names of %" PRId64 " images", l->count);
    for (int64_t i = 0; i < l->count; i++) sorted[i] = &l->images[i];
    qsort(sorted, (size_t)l->count, sizeof *sorted, by_image);
    for (int64_t i = 1; st == OK && i < l->count; i++)
        if (!strcmp(sorted[i]->name, sorted[i - 1]->name))
            st = FAIL(ERR_FORMAT, "'%s', line %" PRId64 ": '%.200s' is listed already, in line %" PRId64 " as '%.200s'",
                      labels, sorted[i]->row->line, sorted[i]->row->name, sorted[i - 1]->row->line,
                      sorted[i - 1]->row->name);
    free(sorted);
    return st;
}

/* `labels`: the path of `file`. */
static Status listing_fill(LabeledList *l, const char *labels, const LabelFile *file)
{
    l->images = calloc((size_t)file->rows_count + 1, sizeof *l->images);
    l->evaluates = calloc((size_t)file->rows_count + 1, sizeof *l->evaluates);
    if (!l->images || !l->evaluates) return FAIL(ERR_MEMORY, "no memory for %" PRId64 " images", file->rows_count);
    for (; l->count < file->rows_count; l->count++) {
        char name[PATH_BYTES];
        struct stat info;
        TRY(row_find(l->tree->root, labels, &file->rows[l->count], name, &info));
        l->images[l->count] = (Listed){strdup(name), (uint64_t)info.st_size, &file->rows[l->count]};
        if (!l->images[l->count].name) return FAIL(ERR_MEMORY, "no memory for the names of images");
    }
    return listing_check(l, labels);
}

static Status listed_path(const void *context, int64_t number, char path[PATH_BYTES])
{
    const LabeledList *l = context;
    return path_join(path, l->tree->root, l->images[number].name);
}

static Status equal_join(const LabeledList *l)
{
    uint64_t *bytes = calloc((size_t)l->count + 1, sizeof *bytes);
    if (!bytes) return FAIL(ERR_MEMORY, "no memory to divide %" PRId64 " images", l->count);
    for (int64_t i = 0; i < l->count; i++) bytes[i] = l->images[i].bytes;
    Status st = equal_files_join(&(EqualFiles){l->count, bytes, listed_path, l}, NULL, l->evaluates);
    free(bytes);
    return st;
}

/* At least one image is for evaluation. */
static Status listing_divide(const SourceConfig *config, const LabelFile *file, LabeledList *l)
{
    double val_split = l->tree->val_split;
    if (val_split <= 0) return OK;
    if (l->count < 2)
        return FAIL(ERR_FORMAT, "--val-split %g cannot divide one image; give val/ or more images", val_split);
    uint64_t *hashes = malloc((size_t)l->count * sizeof *hashes);
    if (!hashes) return FAIL(ERR_MEMORY, "no memory to divide %" PRId64 " images", l->count);
    for (int64_t i = 0; i < l->count; i++) hashes[i] = name_hash(&file->rows[i]);
    uint64_t limit = split_limit(hashes, l->count, fmax(val_split, 1.0 / (double)l->count));
    for (int64_t i = 0; i < l->count; i++) l->evaluates[i] = name_hash(&file->rows[i]) < limit;
    free(hashes);
    return config->equal_apart ? OK : equal_join(l);
}

static Status builder_fill(IndexBuilder *b, const LabeledList *l, const LabelFile *file, const LabelFile *train)
{
    for (int c = 0; c < train->classes_count; c++) TRY(index_class_add(b, train->classes[c]));
    for (int64_t i = 0; i < l->count; i++) {
        const LabelRow *row = &file->rows[i];
        if (l->tree->val_split > 0 && l->evaluates[i] != (l->tree->split == SPLIT_VAL)) continue;
        Sample sample = {.bytes = (uint32_t)l->images[i].bytes};
        TRY(index_multi_label_add(b, &sample, l->images[i].name, file->labels + row->first, row->count));
    }
    return OK;
}

/* What lies below the folder and is in no row. The folders are watched, as files may come. */
static Status others_skip(const char *root, const Names *listed, IndexBuilder *b, Skips *skips)
{
    char copy[PATH_BYTES];
    char *roots[] = {copy, NULL};
    Status st = OK;
    FTSENT *entry;
    snprintf(copy, sizeof copy, "%s", root);
    FTS *walk = fts_open(roots, FTS_LOGICAL | FTS_NOCHDIR, NULL);
    if (!walk) return FAIL(ERR_IO, "cannot open '%s': %s", root, strerror(errno));
    while (st == OK && (errno = 0, entry = fts_read(walk)) != NULL) {
        bool folder = entry->fts_info == FTS_D, below = entry->fts_level > 0;
        const char *leftover = below ? leftover_of(entry->fts_name, folder) : NULL, *name = entry->fts_name;
        bool unlisted = below && names_find(listed, entry->fts_path + strlen(root) + 1) < 0;
        if (entry->fts_info == FTS_DP) continue;
        if (leftover) (void)fts_set(walk, entry, FTS_SKIP);
        if (folder && !leftover) st = index_watched_add(b, entry->fts_path);
        if (leftover && unlisted)
            st = skips_add_many(skips, SKIP_FOREIGN, leftover, entry->fts_path, 1);
        else if (entry->fts_info == FTS_F && unlisted && ending_is_image(name))
            st = skips_add(skips, SKIP_UNLISTED, NULL, root, entry->fts_path + strlen(root) + 1);
        else if (entry->fts_info == FTS_F && unlisted && strcmp(name, LABELS_NAME) != 0)
            st = skips_add(skips, SKIP_KIND, NULL, root, entry->fts_path + strlen(root) + 1);
    }
    if (st == OK && errno) st = FAIL(ERR_IO, "reading '%s': %s", root, strerror(errno));
    fts_close(walk);
    return st;
}

static Status skips_put(const LabeledList *l, IndexBuilder *b)
{
    Names listed = {0};
    Skips skips = {0};
    Status st = OK;
    for (int64_t i = 0; i < l->count; i++) TRY_OUT(names_add(&listed, l->images[i].name));
    names_sort(&listed);
    TRY_OUT(others_skip(l->tree->root, &listed, b, &skips));
    TRY_OUT(index_skips_put(b, &skips));
out:
    names_free(&listed);
    skips_free(&skips);
    return st;
}

/* The first row of a file without a header would be taken for one; its image may be named without its ending. */
static Status header_check(const char *root, const char *labels, const LabelFile *file)
{
    char name[PATH_BYTES], other[PATH_BYTES];
    struct stat info;
    if (row_find(root, labels, &(LabelRow){.name = file->first, .line = 1}, name, &info) != OK) return OK;
    for (int64_t i = 0; i < file->rows_count; i++)
        if (row_find(root, labels, &file->rows[i], other, &info) == OK && !strcmp(name, other)) return OK;
    return FAIL(
        ERR_FORMAT,
        "'%s', line 1: expected a header, found '%.200s', which is the image '%s' that no other line lists: give "
        "the columns names in a first line, for example \"file,labels\"",
        labels, file->first, name);
}

/* The marks in the files of all parts of the set, which are watched. */
static Status marks_find(const SourceConfig *config, const Tree *tree, IndexBuilder *b, unsigned *marks)
{
    char parts[SPLITS][PATH_BYTES], labels[PATH_BYTES];
    unsigned has;
    TRY(tree_parts(config->path, &tree_kind, parts));
    has = tree_bits(parts);
    for (Split s = SPLIT_TRAIN; s < SPLITS; s++) {
        if (has ? !*parts[s] : s != SPLIT_TRAIN) continue;
        TRY(path_join(labels, has ? parts[s] : tree->root, LABELS_NAME));
        TRY(index_watched_add(b, labels));
        TRY(label_file_marks(labels, config->group, marks));
    }
    return OK;
}

/* What a reader took for the separator, and what came of it. */
static Status note_set(const LabelFile *train, unsigned marks, IndexBuilder *b)
{
    char text[1024];
    Text note = text_start(text, sizeof text);
    const char *separator = label_separator(marks);
    if (train->columns) return OK;
    text_add(&note, *separator == ' ' ? "labels are separated by blanks" : "labels are separated by '%s'", separator);
    text_add(&note, " (" LABELS_NAME "): %d classes, ", train->classes_count);
    class_names_text(train->classes, train->classes_count, &note);
    return index_note_set(b, text);
}

static Status index_build(const SourceConfig *config, const Tree *tree, const uint64_t key[2], Index *index)
{
    Status st = OK;
    LabelFile own = {0}, train = {0};
    LabeledList listing = {.tree = tree};
    IndexBuilder builder = {0};
    char labels[PATH_BYTES], train_labels[PATH_BYTES];
    bool other = strcmp(tree->root, tree->train) != 0;
    unsigned marks = 0;
    TRY_OUT(path_join(labels, tree->root, LABELS_NAME));
    TRY_OUT(path_join(train_labels, tree->train, LABELS_NAME));
    TRY_OUT(marks_find(config, tree, &builder, &marks));
    TRY_OUT(label_file_read(train_labels, config->group, marks, &train));
    TRY_OUT(header_check(tree->train, train_labels, &train));
    TRY_OUT(label_file_answers_refuse(&train, train_labels));
    TRY_OUT(label_file_mixed_refuse(&train, train_labels, marks));
    if (other) {
        TRY_OUT(label_file_read(labels, config->group, marks, &own));
        TRY_OUT(header_check(tree->root, labels, &own));
        TRY_OUT(label_file_match(&own, labels, &train, train_labels));
    }
    TRY_OUT(note_set(&train, marks, &builder));
    TRY_OUT(listing_fill(&listing, labels, other ? &own : &train));
    TRY_OUT(listing_divide(config, other ? &own : &train, &listing));
    TRY_OUT(builder_fill(&builder, &listing, other ? &own : &train, &train));
    if (builder.parts.samples_count == 0)
        TRY_OUT(FAIL(ERR_FORMAT, "'%s': --val-split %g leaves no image for evaluation, as all are equal", tree->root,
                     tree->val_split));
    TRY_OUT(skips_put(&listing, &builder));
    TRY_OUT(index_write(key, &builder.parts, index));
out:
    listing_free(&listing);
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
    char more[PATH_BYTES];
    TRY(tree_find(config, split, &tree_kind, &tree));
    bool together = tree.val_split > 0 && !config->equal_apart;
    snprintf(more, sizeof more, "%s%s", config->group ? config->group : "", together ? " equal together" : "");
    tree_key(&tree, "labels 4", more, key);
    TRY(index_find(key, &index, &found));
    if (!found) TRY(index_build(config, &tree, key, &index));
    return indexed_files_open(config, tree.root,
                              tree.val_split > 0 ? "folder with labels, divided" : "folder with labels", &index, made);
}
