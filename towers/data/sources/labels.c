/* A source that reads from another and changes the label; see labels.h. */
#include "towers/data/sources/labels.h"

#include "towers/data/sources/reader.h"
#include "towers/files/files.h"
#include "towers/files/utf8.h"

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

/* ---- classes by their names */

/* The place of a name; of names that occur several times, as in ImageNet, each belongs to the one with as many before it. */
static int place_of(const char *const *names, int count, const char *name, int before)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(names[i], name) && before-- == 0) return i;
    return -1;
}

static Status names_copy(Relabeled *r, const char *const *names, int count)
{
    size_t bytes = 0;
    for (int i = 0; i < count; i++) bytes += strlen(names[i]) + 1;
    char *at = r->text = malloc(bytes + 1);
    if (!at) return FAIL(ERR_MEMORY, "no memory for the names of %d classes", count);
    for (int i = 0; i < count; i++) {
        size_t own = strlen(names[i]) + 1;
        r->names[i] = memcpy(at, names[i], own);
        at += own;
    }
    return OK;
}

/* "ant, bee, cat and 7 more" */
static void names_list(const char *const *names, int count, char *text, size_t bytes)
{
    enum { SHOWN = 8 };
    Text list = text_start(text, bytes);
    for (int i = 0; i < count && i < SHOWN; i++) text_add(&list, "%s%s", i ? ", " : "", names[i]);
    if (count > SHOWN) text_add(&list, " and %d more", count - SHOWN);
}

static Status match_fill(Relabeled *r, const char *const *names, int count)
{
    const SourceInfo *info = source_info(r->base.from);
    char known[512];
    TRY(names_copy(r, names, count));
    names_list(names, count, known, sizeof known);
    for (int i = 0; i < info->classes; i++) {
        int before = 0;
        char name[PATH_BYTES]; /* as records have it */
        utf8_escape(name, sizeof name, info->class_names[i]);
        for (int k = 0; k < i; k++) before += !strcmp(info->class_names[k], info->class_names[i]);
        r->map[i] = place_of(names, count, name, before);
        if (r->map[i] < 0)
            return FAIL(ERR_FORMAT,
                        "%s has a class '%s', which the network does not know; its %d classes are %s; rename it as "
                        "in the training, or remove its images",
                        info->name, name, count, known);
    }
    return info->several ? lists_fill(r) : OK;
}

Status source_match(Source **source, const char *const *names, int count)
{
    const SourceInfo *info = source_info(*source);
    bool named = info->classes > 0, same = info->classes == count;
    for (int i = 0; i < info->classes; i++) {
        named = named && *info->class_names[i];
        same = same && !strcmp(info->class_names[i], names[i]);
    }
    Relabeled *r;
    if (same || !named) return OK;
    TRY(relabel(source, count, &r));
    Status st = match_fill(r, names, count);
    if (st == OK) return OK;
    source_close(*source);
    *source = NULL;
    return st;
}
