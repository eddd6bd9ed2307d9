/* libFuzzer target of MDS: arbitrary bytes as a shard, and as index.json of an empty folder. Every sample that is accepted
 * must lie within the file. */
#include <fcntl.h>

#include "tests/fuzz/fuzz_folder.h"
#include "towers/data/shards/shard.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[96];
    folder_make();
    snprintf(path, sizeof path, "%s/index.json", folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    close(fd);
    ShardList list = {.path = path};
    if (mds_list(&list) == OK)
        for (int64_t i = 0; i < list.found.parts.samples_count; i++) {
            const Sample *s = &list.found.parts.samples[i];
            if (s->offset > size || s->bytes > size - s->offset || s->label < 0 || s->label >= SHARD_CLASSES_MAX)
                abort();
            if (s->flags && s->bytes != 3 * (s->flags >> 16) * (s->flags & 0xffff)) abort();
        }
    shard_list_free(&list);
    Names files = {0};
    if (mds_is_in(folder)) (void)!mds_files(folder, &files);
    names_free(&files);
    return 0;
}
