/* Code shared by all kinds of shards; see shard.h. */
#include "towers/data/sources/shard.h"

#include <errno.h>
#include <unistd.h>

#include "kernels/array.h"

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

Status shard_class(ShardList *list, int64_t label, const char *name)
{
    IndexParts *p = &list->found.parts;
    while (label >= p->classes_count) TRY(ARRAY_ADD(p->classes, p->classes_count, "the names of classes", 0));
    if (p->classes[label]) return OK;
    TRY(index_string_add(&list->found, name, &p->classes[label]));
    p->classes[label]++;
    return OK;
}

Status shard_list(ShardKind kind, ShardList *list)
{
    if (kind == SHARD_TAR) return tar_list(list);
    return kind == SHARD_MDS ? mds_list(list) : tfrecord_list(list);
}

Status shard_pread(int fd, const char *path, uint64_t offset, void *to, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(fd, (char *)to + done, bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return FAIL(ERR_IO, "cannot read '%s' at offset %" PRIu64 ": %s", path, offset + done, strerror(errno));
        if (got == 0)
            return FAIL(ERR_FORMAT,
                        "'%s' ends at offset %" PRIu64 ", where %zu more bytes were expected: it is cut off", path,
                        offset + done, bytes - done);
        done += (size_t)got;
    }
    return OK;
}
