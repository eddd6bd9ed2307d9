/* Code shared by all kinds of shards; see shard.h. */
#include "towers/data/sources/shard.h"

#include <errno.h>
#include <unistd.h>

#include "kernels/open.h"
#include "towers/data/sources/tfrecord.h"

enum { HEAD_BYTES = 512, TAR_MAGIC = 257 };

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
    if (label >= p->classes_count) {
        int64_t room = 2 * label + 16;
        uint64_t *grown = realloc(p->classes, (size_t)room * sizeof *grown);
        if (!grown) return FAIL(ERR_MEMORY, "no memory for the names of %" PRId64 " classes", label + 1);
        memset(grown + p->classes_count, 0, (size_t)(room - p->classes_count) * sizeof *grown);
        p->classes = grown;
        p->classes_count = room;
    }
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

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

static bool is_named_tar(const char *base)
{
    static const char *const parts[] = {".tgz", ".tbz2", ".txz", ".tzst"};
    bool named = strstr(base, ".tar") != NULL;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) named = named || ends_with(base, parts[i]);
    return named;
}

/* Names by the original builders and TensorFlow Datasets: "train-00000-of-01024", "flowers.tfrecord". */
static bool is_named_tfrecord(const char *base)
{
    const char *of = strstr(base, "-of-");
    return strstr(base, "tfrecord") || strstr(base, "TFRecord") ||
           (of && of - base >= 5 && strspn(of - 5, "0123456789") >= 5 && strspn(of + 4, "0123456789") >= 5);
}

static bool is_packed(const uint8_t *head)
{
    static const struct {
        size_t count;
        uint8_t bytes[6];
    } marks[] = {{2, {0x1f, 0x8b}},
                 {3, {'B', 'Z', 'h'}},
                 {4, {0x28, 0xb5, 0x2f, 0xfd}},
                 {6, {0xfd, '7', 'z', 'X', 'Z', 0}},
                 {4, {0x04, 0x22, 0x4d, 0x18}}};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (!memcmp(head, marks[i].bytes, marks[i].count)) return true;
    return false;
}

ShardKind shard_sniff(const char *path)
{
    static const char *const beside[] = {".idx", ".txt",  ".json", ".md",     ".index",  ".md5",  ".sha1",
                                         ".csv", ".yaml", ".log",  ".sha256", ".sha512", ".pbtxt"};
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    uint8_t head[HEAD_BYTES] = {0};
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++)
        if (ends_with(base, beside[i])) return SHARD_NONE;
    int fd = regular_open(path, O_RDONLY, NULL);
    ShardKind named = is_named_tar(base) ? SHARD_TAR : is_named_tfrecord(base) ? SHARD_TFRECORD : SHARD_NONE;
    if (named && (ends_with(base, ".parquet") || ends_with(base, ".arrow"))) named = SHARD_TABLE;
    if (fd < 0) return named;
    ssize_t got = pread(fd, head, sizeof head, 0);
    close(fd);
    if (got < 0) got = 0;
    if (got >= TAR_MAGIC + 5 && !memcmp(head + TAR_MAGIC, "ustar", 5)) return SHARD_TAR;
    if (got >= TFRECORD_HEAD && tfrecord_begins(head)) return SHARD_TFRECORD;
    return named && is_packed(head) ? SHARD_PACKED : named; /* a damaged shard is not passed over */
}
