/* A source that reads from another and changes the label; see labels.h. */
#include "towers/data/sources/labels.h"

#include <stdlib.h>
#include <string.h>

#include "towers/data/sources/reader.h"

typedef struct Relabeled {
    Source base;
    Source *from;       /* owned */
    const char **names; /* owned array of strings of `from` */
    int32_t times, plus;
} Relabeled;

static Status relabeled_read(const Source *source, int64_t index, Bytes *bytes, int32_t *label)
{
    const Relabeled *r = (const Relabeled *)source;
    TRY(source_read(r->from, index, bytes, label));
    *label = *label * r->times + r->plus;
    return OK;
}

static int32_t relabeled_label(const Source *source, int64_t index)
{
    const Relabeled *r = (const Relabeled *)source;
    return source_label(r->from, index) * r->times + r->plus;
}

static void relabeled_where(const Source *source, int64_t index, char *text, size_t bytes)
{
    source_where(((const Relabeled *)source)->from, index, text, bytes);
}

static void relabeled_hint(const Source *source, int64_t index)
{
    source_hint(((const Relabeled *)source)->from, index);
}

static void relabeled_hint_shard(const Source *source, int shard)
{
    source_hint_shard(((const Relabeled *)source)->from, shard);
}

static void relabeled_close(Source *source)
{
    Relabeled *r = (Relabeled *)source;
    source_close(r->from);
    free(r->names);
    free(r);
}

static Status relabel(Source **source, int32_t times, int32_t plus)
{
    const SourceInfo *info = source_info(*source);
    int classes = info->classes * times + 1;
    Relabeled *r = calloc(1, sizeof *r);
    const char **names = calloc((size_t)classes, sizeof *names);
    if (!r || !names) {
        free(r);
        free(names);
        source_close(*source);
        *source = NULL;
        return FAIL(ERR_MEMORY, "no memory for the names of %d classes", classes);
    }
    names[0] = plus ? "background" : "";
    for (int i = 1; i < classes; i++) names[i] = info->class_names[i - 1];
    *r = (Relabeled){.base = {.info = *info,
                              .read = relabeled_read,
                              .label = relabeled_label,
                              .where = relabeled_where,
                              .hint = relabeled_hint,
                              .hint_shard = relabeled_hint_shard,
                              .close = relabeled_close},
                     .from = *source,
                     .names = names,
                     .times = times,
                     .plus = plus};
    r->base.info.classes = classes;
    r->base.info.class_names = names;
    *source = &r->base;
    return OK;
}

Status source_background(Source **source)
{
    return relabel(source, 1, 1);
}

Status source_unlabeled(Source **source)
{
    return relabel(source, 0, 0);
}
