/* libFuzzer target of the index of a data set: arbitrary bytes after a header with the right checksum. No offset of an
 * accepted index may point outside of it. */
#include <xxhash.h>

#include "towers/data/listing/index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint64_t key[2] = {1, 2};
    Index index;
    if (size < sizeof(IndexHeader)) return 0;
    uint8_t *copy = malloc(size);
    if (!copy) abort();
    memcpy(copy, data, size);
    IndexHeader *header = (IndexHeader *)(void *)copy;
    memcpy(header->magic, "TWRINDEX", 8);
    header->version = INDEX_VERSION;
    header->sample_bytes = sizeof(Sample);
    header->key[0] = key[0];
    header->key[1] = key[1];
    header->sum = XXH3_64bits(copy + sizeof *header, size - sizeof *header);
    if (index_parse(copy, size, key, &index) == OK) {
        size_t sum = 0;
        for (int64_t i = 0; i < index.header->classes; i++) sum += strlen(index_string(&index, index.classes[i]));
        for (int64_t i = 0; i < index.header->watched; i++) sum += strlen(index_string(&index, index.watched[i].path));
        for (int64_t i = 0; i < index.header->samples; i++) {
            sum += strlen(index_string(&index, index.samples[i].name));
            if (index.samples[i].label < 0 || index.samples[i].label >= index.header->classes) abort();
            if (index.samples[i].file > 0 && index.samples[i].file >= index.header->watched) abort();
        }
        for (int64_t i = 0; index.list_first && i < index.header->samples; i++)
            for (uint64_t k = index.list_first[i]; k < index.list_first[i + 1]; k++)
                if (index.lists[k] < 0 || index.lists[k] >= index.header->classes) abort();
        Inventory inventory;
        index_inventory(&index, &inventory);
        for (SkipReason why = 0; why < SKIP_REASONS; why++)
            if (inventory.skipped[why].count)
                sum += strlen(inventory.skipped[why].first) + strlen(inventory.skipped[why].kinds);
        if (sum == SIZE_MAX) abort();
    }
    free(copy);
    return 0;
}
