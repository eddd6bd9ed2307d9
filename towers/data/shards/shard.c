/* Code shared by all kinds of shards; see shard.h. */
#include "towers/data/shards/shard.h"

#include "kernels/base/array.h"

Status shard_add(ShardList *list, const char *where, uint64_t offset, uint64_t bytes, int64_t label, uint32_t flags,
                 const char *name)
{
    if (label < 0 || label >= SHARD_CLASSES_MAX)
        return FAIL(ERR_FORMAT, "'%s': %s (offset %" PRIu64 "): expected a label from 0 to %d, found %" PRId64,
                    list->path, where, offset, SHARD_CLASSES_MAX - 1, label);
    if (bytes == 0 || bytes > UINT32_MAX)
        return FAIL(ERR_FORMAT,
                    "'%s': %s (offset %" PRIu64 ") has %" PRIu64 " bytes: expected an image of 1 byte to 4 GiB",
                    list->path, where, offset, bytes);
    Sample sample = {.offset = offset, .bytes = (uint32_t)bytes, .label = (int32_t)label, .flags = flags};
    TRY(index_sample_add(&list->found, &sample, name));
    return OK;
}

const char *shard_class_name(const ShardList *list, int64_t label)
{
    const IndexParts *p = &list->found.parts;
    return label < p->classes_count && p->classes[label] ? p->strings + p->classes[label] - 1 : "";
}

/* What a sample and the one that named the class of its label first say about it. */
static Status names_differ(const ShardList *first, const ShardList *list, int64_t sample, int64_t label,
                           const char *name)
{
    int64_t by = first->named_by[label];
    return FAIL(ERR_FORMAT,
                "the class of label %" PRId64 " has two names: '%s' in '%s' (%s, offset %" PRIu64 ") and '%s' in '%s' "
                "(%s, offset %" PRIu64
                "): the shards were built with different lists of classes, or one label is wrong",
                label, shard_class_name(first, label), first->path,
                first->found.parts.strings + first->found.parts.samples[by].name, first->found.parts.samples[by].offset,
                name, list->path, list->found.parts.strings + list->found.parts.samples[sample].name,
                list->found.parts.samples[sample].offset);
}

Status shard_class(ShardList *list, int64_t label, const char *name)
{
    IndexParts *p = &list->found.parts;
    int64_t sample = p->samples_count - 1, count;
    while (label >= (count = p->classes_count)) {
        TRY(ARRAY_ADD(list->named_by, count, "the names of classes", -1));
        TRY(ARRAY_ADD(p->classes, p->classes_count, "the names of classes", 0));
    }
    if (p->classes[label])
        return strcmp(shard_class_name(list, label), name) ? names_differ(list, list, sample, label, name) : OK;
    TRY(index_string_add(&list->found, name, &p->classes[label]));
    p->classes[label]++;
    list->named_by[label] = sample;
    return OK;
}

Status shard_names_compare(const ShardList *a, const ShardList *b, int64_t label)
{
    const char *name = shard_class_name(b, label), *other = shard_class_name(a, label);
    return *name && *other && strcmp(name, other) ? names_differ(a, b, b->named_by[label], label, name) : OK;
}

void shard_list_free(ShardList *list)
{
    index_builder_free(&list->found);
    skips_free(&list->skips);
    free(list->named_by);
    *list = (ShardList){0};
}
