/* libFuzzer target of the WebDataset tar reader: arbitrary bytes as a shard. Every sample that is accepted must lie within
 * the file and have a name and a label in range. */
#include <sys/mman.h>
#include <unistd.h>

#include "towers/data/shards/shard.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ShardList list = {.path = path};
    if (tar_list(&list) == OK)
        for (int64_t i = 0; i < list.found.parts.samples_count; i++) {
            const Sample *s = &list.found.parts.samples[i];
            if (s->offset > size || s->bytes > size - s->offset || s->label < 0 || s->label >= SHARD_CLASSES_MAX)
                abort();
            if (s->name + strlen(list.found.parts.strings + s->name) >= list.found.parts.strings_bytes) abort();
        }
    shard_list_free(&list);
    close(fd);
    return 0;
}
