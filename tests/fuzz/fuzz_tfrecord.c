/* libFuzzer target of TFRecords and tf.Example: arbitrary bytes as a shard, and as the example of a record whose CRCs are
 * right. Every sample must lie within the file; an image, in memory, within its record. */
#include <sys/mman.h>
#include <unistd.h>

#include "towers/data/shards/example.h"
#include "towers/data/shards/shard.h"
#include "towers/data/shards/tfrecord.h"
#include "towers/files/crc32c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void list_as_shard(const uint8_t *data, size_t size)
{
    char path[64];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ShardList list = {.path = path};
    if (tfrecord_list(&list) == OK)
        for (int64_t i = 0; i < list.found.parts.samples_count; i++) {
            const Sample *s = &list.found.parts.samples[i];
            if (s->offset > size || s->bytes > size - s->offset || s->label < 0 || s->label >= SHARD_CLASSES_MAX)
                abort();
        }
    shard_list_free(&list);
    close(fd);
}

static void boxes_read(const uint8_t *data, size_t size)
{
    static const char *const keys[] = {"image/object/bbox/xmin", "image/class/label"};
    static ExampleBytes bytes;
    Feature found[2];
    float floats[4];
    int64_t ints[4];
    int count;
    bytes = (ExampleBytes){.where = "fuzz", .memory = data, .size = size};
    if (example_find(&bytes, keys, 2, found) != OK) return;
    (void)!feature_floats(&bytes, &found[0], floats, 4, &count);
    (void)!feature_ints(&bytes, &found[1], ints, 4, &count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t length[8];
    uint32_t head, foot = crc32c_masked(data, size);
    uint8_t *file = malloc(size + 16);
    Bytes record = {0};
    if (!file || bytes_reserve(&record, size) != OK) abort();
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)((uint64_t)size >> (8 * i));
    head = crc32c_masked(length, 8);
    memcpy(file, length, 8);
    memcpy(file + 8, &head, 4);
    memcpy(file + 12, data, size);
    memcpy(file + 12 + size, &foot, 4);
    list_as_shard(file, size + 16);
    list_as_shard(data, size);
    boxes_read(data, size);
    memcpy(record.data, data, size);
    record.size = size;
    if (tfrecord_image(&record, foot, "fuzz") == OK && record.size > size) abort();
    bytes_free(&record);
    free(file);
    return 0;
}
