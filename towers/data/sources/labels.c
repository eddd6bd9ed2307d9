/* A source that reads from another and changes the label; see labels.h. */
#include "towers/data/sources/labels.h"

#include "towers/data/sources/reader.h"
#include "towers/files/files.h"

typedef struct Relabeled {
    Source base;
    const char **names; /* owned: [base.info.classes] */
    char *text;         /* owned: of the names; NULL: they are those of `from` */
    int32_t *map;       /* owned: the new label of each label of `from` */
    uint64_t *first;    /* owned: of each sample and the end, into `lists`; NULL: samples have one label */
    int32_t *lists;     /* owned */
} Relabeled;

static Status relabeled_read(const Source *source, int64_t index, Bytes *bytes, int32_t *label)
{
    const Relabeled *r = (const Relabeled *)source;
    TRY(source_read(r->base.from, index, bytes, label));
    *label = r->map[*label];
    return OK;
}

static int32_t relabeled_label(const Source *source, int64_t index)
{
    const Relabeled *r = (const Relabeled *)source;
    return r->map[source_label(r->base.from, index)];
}

static int32_t relabeled_labels(const Source *source, int64_t index, const int32_t **labels)
{
    const Relabeled *r = (const Relabeled *)source;
    *labels = r->lists + r->first[index];
    return (int32_t)(r->first[index + 1] - r->first[index]);
}

static void relabeled_close(Source *source)
{
    Relabeled *r = (Relabeled *)source;
    free(r->names);
    free(r->text);
    free(r->map);
    free(r->first);
    free(r->lists);
    free(r);
}

static int by_number(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* The new labels of samples with any number of them, increasing in each. */
static Status lists_fill(Relabeled *r)
{
    int64_t samples = r->base.info.count;
    const int32_t *labels;
    uint64_t all = 0;
    for (int64_t i = 0; i < samples; i++) all += (uint64_t)source_labels(r->base.from, i, &labels);
    r->first = calloc((size_t)samples + 1, sizeof *r->first);
    r->lists = calloc((size_t)all + 1, sizeof *r->lists);
    if (!r->first || !r->lists) return FAIL(ERR_MEMORY, "no memory for the classes of %" PRId64 " images", samples);
    for (int64_t i = 0; i < samples; i++) {
        int32_t count = source_labels(r->base.from, i, &labels), *own = r->lists + r->first[i];
        for (int32_t k = 0; k < count; k++) own[k] = r->map[labels[k]];
        qsort(own, (size_t)count, sizeof *own, by_number);
        r->first[i + 1] = r->first[i] + (uint64_t)count;
    }
    return OK;
}

/* A source with as many classes, whose names and map are to be filled in. */
static Status relabel(Source **source, int classes, Relabeled **made)
{
    const SourceInfo *info = source_info(*source);
    Relabeled *r = calloc(1, sizeof *r);
    const char **names = calloc((size_t)classes + 1, sizeof *names);
    int32_t *map = calloc((size_t)info->classes + 1, sizeof *map);
    if (!r || !names || !map) {
        free(r);
        free(names);
        free(map);
        source_close(*source);
        *source = NULL;
        return FAIL(ERR_MEMORY, "no memory for the names of %d classes", classes);
    }
    *r = (Relabeled){.base = {.info = *info,
                              .from = *source,
                              .read = relabeled_read,
                              .label = relabeled_label,
                              .labels = relabeled_labels,
                              .close = relabeled_close},
                     .names = names,
                     .map = map};
    r->base.info.classes = classes;
    r->base.info.class_names = names;
    *source = &r->base;
    *made = r;
    return OK;
}

Status source_background(Source **source)
{
    Relabeled *r;
    TRY(relabel(source, source_info(*source)->classes + 1, &r));
    r->base.info.background = true;
    const SourceInfo *info = source_info(r->base.from);
    r->names[0] = "background";
    for (int i = 0; i < info->classes; i++) {
        r->names[i + 1] = info->class_names[i];
        r->map[i] = i + 1;
    }
    return OK;
}

Status source_unlabeled(Source **source)
{
    Relabeled *r;
    TRY(relabel(source, 1, &r));
    r->names[0] = "";
    return OK;
}

/* ---- the classes of another side */

/* Its names, and where it has none, those of the source. */
static Status names_copy(Relabeled *r, const ClassList *among)
{
    const SourceInfo *info = source_info(r->base.from);
    size_t bytes = 1;
    for (int i = 0; i < among->count; i++) r->names[i] = among->names ? among->names[i] : "";
    for (int i = 0; i < info->classes; i++)
        if (r->map[i] >= 0 && !*r->names[r->map[i]]) r->names[r->map[i]] = info->class_names[i];
    for (int i = 0; i < among->count; i++) bytes += strlen(r->names[i]) + 1;
    char *at = r->text = malloc(bytes);
    if (!at) return FAIL(ERR_MEMORY, "no memory for the names of %d classes", among->count);
    for (int i = 0; i < among->count; i++) {
        size_t own = strlen(r->names[i]) + 1;
        r->names[i] = memcpy(at, r->names[i], own);
        at += own;
    }
    return OK;
}

/* Whether the classes are those of the source already, by number and name. */
static bool changes_nothing(const Relabeled *r, const ClassList *among)
{
    const SourceInfo *info = source_info(r->base.from);
    bool same = info->classes == among->count;
    for (int i = 0; same && i < info->classes; i++) same = r->map[i] == i && !strcmp(r->names[i], info->class_names[i]);
    return same;
}

static Status match_fill(Relabeled *r, const ClassList *among, ClassRule rule, Text *remark)
{
    Status st = OK;
    const SourceInfo *info = source_info(r->base.from);
    int64_t *samples = calloc((size_t)info->classes + 1, sizeof *samples);
    bool *used = calloc((size_t)info->classes + 1, sizeof *used);
    if (!samples || !used) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the counts of %d classes", info->classes));
    source_classes_count(r->base.from, samples);
    for (int i = 0; i < info->classes; i++) used[i] = samples[i] > 0;
    const ClassList of = {.whose = info->name,
                          .names = info->class_names,
                          .used = used,
                          .count = info->classes,
                          .first = info->first_label - info->background,
                          .origin = info->first_origin};
    TRY_OUT(class_match(&of, among, rule, r->map, remark));
    TRY_OUT(names_copy(r, among));
    if (info->multi_label && !changes_nothing(r, among)) TRY_OUT(lists_fill(r));
out:
    free(samples);
    free(used);
    return st;
}

Status source_match(Source **source, const ClassList *among, ClassRule rule, Text *remark)
{
    Relabeled *r;
    TRY(relabel(source, among->count, &r));
    Status st = match_fill(r, among, rule, remark);
    if (st == OK && changes_nothing(r, among)) {
        *source = r->base.from;
        relabeled_close(&r->base);
    } else if (st != OK) {
        source_close(*source);
        *source = NULL;
    }
    return st;
}
