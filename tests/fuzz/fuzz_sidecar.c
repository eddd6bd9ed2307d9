/* libFuzzer target of the records of shards: arbitrary bytes behind a checksum that is right. Every sample of an accepted record lies within
 * the shard, with a name and a label in range. */
#include <xxhash.h>

#include "towers/data/shards/sidecar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD_BYTES = 104, SUM_AT = 96, SIZE_AT = 16 };

/* Make the sum of the first record right, so that what lies behind it is looked at. */
static void sum_mend(uint8_t *bytes, size_t size)
{
    uint64_t record;
    memcpy(&record, bytes + SIZE_AT, sizeof record);
    if (record < HEAD_BYTES || record > size) return;
    uint64_t sum = XXH3_64bits(bytes + HEAD_BYTES, record - HEAD_BYTES);
    memcpy(bytes + SUM_AT, &sum, sizeof sum);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Sidecar made;
    ShardList list = {.path = "set/a.tar"};
    uint8_t *copy = malloc(size + 1);
    if (!copy) abort();
    memcpy(copy, data, size);
    if (size >= HEAD_BYTES) sum_mend(copy, size);
    if (sidecar_parse("towers.index", copy, size, &made, &list) == OK) {
        const IndexParts *p = &list.found.parts;
        if (made.size > size || !*made.name || strchr(made.name, '/') || p->samples_count != made.samples) abort();
        for (int64_t i = 0; i < p->samples_count; i++) {
            const Sample *s = &p->samples[i];
            if (s->offset > made.bytes || s->bytes > made.bytes - s->offset || s->label < 0 ||
                s->label >= SHARD_CLASSES_MAX)
                abort();
            if (s->name + strlen(p->strings + s->name) >= p->strings_bytes) abort();
        }
        for (int64_t i = 0; i < p->classes_count; i++)
            if (strlen(shard_class_name(&list, i)) > size) abort();
        for (SkipReason why = 0; why < SKIP_REASONS; why++)
            if (strlen(skips_first(&list.skips, why)) + strlen(skips_kinds(&list.skips, why)) >
                2 * size + SKIP_KINDS_BYTES + 64)
                abort();
    }
    shard_list_free(&list);
    free(copy);
    return 0;
}
