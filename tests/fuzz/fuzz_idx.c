/* libFuzzer target of the IDX reader: arbitrary bytes, as labels and as images. Accepted data must be complete. */

#include "towers/data/sources/idx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_as(int dimensions, const uint8_t *data, size_t size)
{
    Idx idx;
    if (idx_parse("fuzz", data, size, dimensions, &idx) != OK) return;
    unsigned sum = 0;
    for (size_t i = 0; i < idx.bytes; i++) sum += idx.data[i];
    if ((int64_t)idx.bytes != idx.size[0] * idx.size[1] * idx.size[2] * idx.size[3] || sum > 255 * idx.bytes) abort();
    idx_free(&idx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_as(IDX_LABELS, data, size);
    try_as(IDX_IMAGES, data, size);
    return 0;
}
