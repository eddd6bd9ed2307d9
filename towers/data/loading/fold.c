/* Dealing samples into parts, and a source that reads some samples of another; see fold.h. */
#include "towers/data/loading/fold.h"

#include <xxhash.h>

#include "kernels/base/text.h"
#include "kernels/philox.h"
#include "towers/data/classes/class_match.h"
#include "towers/data/classes/label_file.h"
#include "towers/data/classes/look_alike.h"
#include "towers/data/listing/equal_files.h"
#include "towers/data/sources/reader.h"
#include "towers/files/files.h"

enum { STREAM = 0x666f6c64 /* "fold" */ };

static uint64_t draw(uint64_t seed, uint64_t id)
{
    Philox p = philox(seed, (uint32_t)id, (uint32_t)(id >> 32), 0, STREAM);
    return (uint64_t)p.v[0] << 32 | p.v[1];
}

/* The class that samples are dealt by: the first of several. */
static int32_t stratum(const Source *source, int64_t i)
{
    const int32_t *labels;
    if (!source_info(source)->multi_label) return source_label(source, i);
    return source_labels(source, i, &labels) ? labels[0] : source_info(source)->classes;
}

/* ---- without groups */

typedef struct Dealt {
    int32_t label;
    uint64_t random;
    int64_t sample;
} Dealt;

static int by_class(const void *a, const void *b)
{
    const Dealt *x = a, *y = b;
    if (x->label != y->label) return x->label < y->label ? -1 : 1;
    if (x->random != y->random) return x->random < y->random ? -1 : 1;
    return x->sample < y->sample ? -1 : x->sample > y->sample;
}

static Status sample_path(const void *context, int64_t number, char path[PATH_BYTES])
{
    uint64_t bytes;
    return source_file(context, number, path, PATH_BYTES, &bytes)
               ? OK
               : FAIL(ERR_INTERNAL, "sample %" PRId64 " of %s is no file", number, source_info(context)->name);
}

static Status equal_join(const Source *source, int32_t *part)
{
    Status st = OK;
    char path[PATH_BYTES];
    int64_t count = source_info(source)->count;
    uint64_t size;
    if (!source_file(source, 0, path, sizeof path, &size)) return OK;
    uint64_t *bytes = calloc((size_t)count, sizeof *bytes);
    int64_t *first = calloc((size_t)count, sizeof *first);
    if (!bytes || !first) TRY_OUT(FAIL(ERR_MEMORY, "no memory to divide %" PRId64 " samples", count));
    for (int64_t i = 0; i < count; i++) (void)source_file(source, i, path, sizeof path, &bytes[i]);
    TRY_OUT(equal_files_find(&(EqualFiles){count, bytes, sample_path, source}, first));
    for (int64_t i = 0; i < count; i++) part[i] = part[first[i]];
out:
    free(bytes);
    free(first);
    return st;
}

/* Dealing goes on with the next class where the last one ended, so all parts have nearly the same size. */
static Status deal(const Source *source, const FoldConfig *config, int32_t *part)
{
    int64_t count = source_info(source)->count;
    Dealt *all = calloc((size_t)count + 1, sizeof *all);
    if (!all) return FAIL(ERR_MEMORY, "no memory to divide %" PRId64 " samples", count);
    for (int64_t i = 0; i < count; i++) all[i] = (Dealt){stratum(source, i), draw(config->seed, (uint64_t)i), i};
    qsort(all, (size_t)count, sizeof *all, by_class);
    for (int64_t i = 0; i < count; i++) part[all[i].sample] = (int32_t)(i % config->folds);
    free(all);
    return config->equal_apart ? OK : equal_join(source, part);
}

/* ---- the group of each sample */

/* The name of the `level`-th folder above the file of a path, in place; NULL if there is none. */
static char *folder_name(char *path, int level)
{
    for (int i = 0; i < level; i++) {
        char *slash = strrchr(path, '/');
        if (!slash || slash == path) return NULL;
        *slash = 0;
    }
    char *name = strrchr(path, '/');
    return name ? name + 1 : path;
}

int fold_folder(const char *group)
{
    char *end;
    long level = strtol(group, &end, 10);
    return *group && !*end && level >= 1 && level < PATH_BYTES ? (int)level : 0;
}

/* The labels.csv of the samples: the nearest one above the first of them, in the data's folder or below it. */
static Status labels_find(const Source *source, const FoldConfig *config, char path[PATH_BYTES])
{
    char where[PATH_BYTES] = "", *slash, *root = realpath(config->labels, NULL);
    size_t least = root ? strlen(root) : 0;
    free(root);
    if (source_info(source)->count) source_where(source, 0, where, sizeof where);
    while ((slash = strrchr(where, '/')) && (size_t)(slash - where) >= least) {
        *slash = 0;
        TRY(path_join(path, where, "labels.csv"));
        if (access(path, F_OK) == 0) return OK;
    }
    return path_join(path, config->labels, "labels.csv");
}

typedef struct Groups {
    char root[PATH_BYTES]; /* folder of the labels file, as samples' places begin */
    LabelFile file;        /* rows sorted by name */
} Groups;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const LabelRow *)a)->name, ((const LabelRow *)b)->name);
}

static Status groups_read(const Source *source, const FoldConfig *config, Groups *groups)
{
    char path[PATH_BYTES];
    TRY(labels_find(source, config, path));
    snprintf(groups->root, sizeof groups->root, "%.*s", (int)(strrchr(path, '/') - path + 1), path);
    TRY(label_file_read(path, config->group, 0, &groups->file)); /* its labels do not matter */
    qsort(groups->file.rows, (size_t)groups->file.rows_count, sizeof *groups->file.rows, by_name);
    return OK;
}

/* A name in labels.csv may lack the extension. */
static const char *group_find(const LabelFile *file, char *name)
{
    const LabelRow wanted = {.name = name};
    const LabelRow *found = bsearch(&wanted, file->rows, (size_t)file->rows_count, sizeof *file->rows, by_name);
    char *dot = found ? NULL : strrchr(name, '.');
    if (dot && !strchr(dot, '/')) {
        *dot = 0;
        found = bsearch(&wanted, file->rows, (size_t)file->rows_count, sizeof *file->rows, by_name);
    }
    return found ? found->group : NULL;
}

/* The path in the place of a sample: below the root, and in a shard, "SHARD: FOLDER/FILE, offset 512", behind its name,
 * because a folder may be in several shards. */
static char *path_of(const Source *source, const char *root, char *where)
{
    size_t bytes = strlen(root);
    char *path = where + (strncmp(where, root, bytes) ? 0 : bytes);
    for (char *colon; source_info(source)->shard_first && (colon = strstr(path, ": "));) path = colon + 2;
    return path;
}

typedef struct SampleOfGroup {
    uint64_t group; /* a hash of its name */
    int64_t sample;
} SampleOfGroup;

static Status members_find(const Source *source, const FoldConfig *config, SampleOfGroup *members)
{
    Status st = OK;
    Groups groups = {0};
    int folder = fold_folder(config->group);
    if (!folder) TRY_OUT(groups_read(source, config, &groups));
    for (int64_t i = 0; i < source_info(source)->count; i++) {
        char where[PATH_BYTES], text[PATH_BYTES];
        source_where(source, i, where, sizeof where);
        memcpy(text, where, sizeof text);
        char *path = path_of(source, groups.root, text);
        const char *group = folder ? folder_name(path, folder) : group_find(&groups.file, path);
        if (!group || !*group)
            TRY_OUT(FAIL(ERR_ARG, "--fold-group %s: %s has no such %s", config->group, where,
                         folder ? "folder" : "group in labels.csv"));
        if (!folder && label_is_missing(group))
            TRY_OUT(
                FAIL(ERR_ARG,
                     "--fold-group %s: %s has '%s' in labels.csv, which is what programs write for a missing value: "
                     "give it a group of its own, or leave its line out",
                     config->group, where, group));
        members[i] = (SampleOfGroup){XXH3_64bits(group, strlen(group)), i};
    }
out:
    label_file_free(&groups.file);
    return st;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

Status fold_groups_remark(const Source *source, const FoldConfig *config, Text *remark)
{
    Status st = OK;
    Groups groups = {0};
    const char **names = NULL;
    char why[ALIKE_BYTES];
    int alike, left_out, pair[2], count = 0;
    if (!config->group || fold_folder(config->group)) return OK;
    TRY_OUT(groups_read(source, config, &groups));
    const LabelFile *file = &groups.file;
    names = malloc(((size_t)file->rows_count + 1) * sizeof *names);
    if (!names) TRY_OUT(FAIL(ERR_MEMORY, "no memory for %" PRId64 " groups", file->rows_count));
    for (int64_t i = 0; i < file->rows_count; i++) names[i] = file->rows[i].group;
    qsort(names, (size_t)file->rows_count, sizeof *names, by_text);
    for (int64_t i = 0; i < file->rows_count; i++)
        if (!i || strcmp(names[i], names[count - 1]) != 0) names[count++] = names[i];
    TRY_OUT(classes_alike(&(ClassList){.names = names, .count = count}, &alike, &left_out, pair, why));
    if (alike)
        text_add(remark,
                 "warning: --fold-group %s: %d of %d groups have names that look like another's, so that images of one "
                 "group may be in both parts: '%s' and '%s': %s",
                 config->group, alike, count, names[pair[0]], names[pair[1]], why);
    else if (count == file->rows_count)
        text_add(remark, "warning: --fold-group %s: no two images have the same group, so that it keeps none together",
                 config->group);
    if (alike && left_out) text_add(remark, "; %d more are too many to compare", left_out);
out:
    free(names);
    label_file_free(&groups.file);
    return st;
}

/* ---- with groups */

typedef struct SampleGroup {
    uint64_t random;
    int64_t first, count; /* in the members */
} SampleGroup;

static int by_group(const void *a, const void *b)
{
    const SampleOfGroup *x = a, *y = b;
    if (x->group != y->group) return x->group < y->group ? -1 : 1;
    return x->sample < y->sample ? -1 : x->sample > y->sample;
}

static int by_size(const void *a, const void *b)
{
    const SampleGroup *x = a, *y = b;
    if (x->count != y->count) return x->count > y->count ? -1 : 1;
    if (x->random != y->random) return x->random < y->random ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Samples of each class in each part so far, and in all. */
typedef struct Counts {
    double *in, *all; /* [folds][classes], [classes]; owned */
    int64_t *size;    /* [folds]; owned */
    int classes;
} Counts;

/* The growth of the sum of squared class shares: least where these samples are most missed. */
static double cost(const Source *source, const Counts *c, const SampleOfGroup *members, int64_t count, int fold)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        int32_t label = stratum(source, members[i].sample);
        sum += (2 * c->in[(size_t)fold * (size_t)c->classes + (size_t)label] + 1) / (c->all[label] * c->all[label]);
    }
    return sum;
}

static void group_place(const Source *source, const FoldConfig *config, Counts *c, const SampleOfGroup *members,
                        int64_t count, int32_t *part)
{
    int best = 0;
    double least = 0;
    for (int f = 0; f < config->folds; f++) {
        double now = cost(source, c, members, count, f);
        bool better = now < least || (now == least && c->size[f] < c->size[best]);
        if (f == 0 || better) best = f, least = now;
    }
    for (int64_t i = 0; i < count; i++) {
        c->in[(size_t)best * (size_t)c->classes + (size_t)stratum(source, members[i].sample)]++;
        part[members[i].sample] = best;
    }
    c->size[best] += count;
}

static int64_t groups_make(const FoldConfig *config, SampleOfGroup *members, int64_t count, SampleGroup *groups)
{
    int64_t made = 0;
    qsort(members, (size_t)count, sizeof *members, by_group);
    for (int64_t i = 0; i < count; i++) {
        if (i == 0 || members[i].group != members[i - 1].group)
            groups[made++] = (SampleGroup){.random = draw(config->seed, members[i].group), .first = i};
        groups[made - 1].count++;
    }
    qsort(groups, (size_t)made, sizeof *groups, by_size);
    return made;
}

static Status groups_deal(const Source *source, const FoldConfig *config, int32_t *part)
{
    Status st = OK;
    int64_t count = source_info(source)->count;
    Counts c = {.classes = source_info(source)->classes + 1};
    SampleOfGroup *members = calloc((size_t)count + 1, sizeof *members);
    SampleGroup *groups = calloc((size_t)count + 1, sizeof *groups);
    c.in = calloc((size_t)config->folds * (size_t)c.classes, sizeof *c.in);
    c.all = calloc((size_t)c.classes, sizeof *c.all);
    c.size = calloc((size_t)config->folds, sizeof *c.size);
    if (!members || !groups || !c.in || !c.all || !c.size)
        TRY_OUT(FAIL(ERR_MEMORY, "no memory to divide %" PRId64 " samples", count));
    TRY_OUT(members_find(source, config, members));
    for (int64_t i = 0; i < count; i++) c.all[stratum(source, i)]++;
    int64_t made = groups_make(config, members, count, groups);
    if (made < config->folds)
        TRY_OUT(FAIL(ERR_ARG, "--fold-group %s: %s has %" PRId64 " groups, too few for %d folds", config->group,
                     source_info(source)->name, made, config->folds));
    for (int64_t g = 0; g < made; g++)
        group_place(source, config, &c, members + groups[g].first, groups[g].count, part);
out:
    free(members);
    free(groups);
    free(c.in);
    free(c.all);
    free(c.size);
    return st;
}

Status fold_parts(const Source *source, const FoldConfig *config, int32_t *part)
{
    const SourceInfo *info = source_info(source);
    if (info->count < config->folds)
        return FAIL(ERR_ARG, "--fold: %s has %" PRId64 " training images, too few for %d folds", info->name,
                    info->count, config->folds);
    return config->group ? groups_deal(source, config, part) : deal(source, config, part);
}

/* ---- some samples of a source */

static Status subset_fill(Source *s, const FoldConfig *config, bool evaluation)
{
    SourceInfo *info = &s->info;
    int32_t *part = calloc((size_t)info->count + 1, sizeof *part);
    int64_t count = 0;
    if (!part || !s->ids) {
        free(part);
        return FAIL(ERR_MEMORY, "no memory to divide %" PRId64 " samples", info->count);
    }
    Status st = fold_parts(s->from, config, part);
    for (int64_t i = 0; st == OK && i < info->count; i++)
        if ((part[i] == config->fold - 1) == evaluation) s->ids[count++] = i;
    free(part);
    XXH128_hash_t sum = XXH3_128bits_withSeed(s->ids, (size_t)count * sizeof *s->ids, info->fingerprint[0]);
    info->fingerprint[0] = sum.low64;
    info->fingerprint[1] ^= sum.high64;
    info->count = count;
    return st;
}

Status source_fold(Source **source, const FoldConfig *config, bool evaluation)
{
    Source *s = calloc(1, sizeof *s);
    if (!s) {
        source_close(*source);
        *source = NULL;
        return FAIL(ERR_MEMORY, "no memory for a fold");
    }
    s->info = *source_info(*source);
    s->from = *source;
    s->ids = calloc((size_t)s->info.count + 1, sizeof *s->ids);
    s->info.shard_first = NULL;
    s->info.shards = 0;
    s->info.elsewhere = false;
    *source = s;
    Status st = subset_fill(s, config, evaluation);
    if (st == OK) return OK;
    source_close(*source);
    *source = NULL;
    return st;
}
