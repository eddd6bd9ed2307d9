/* Arbitrary bytes as a zip with a file of weights: what is unpacked is read whole. */
#include "towers/store/weight_archive.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    WeightEntry found;
    volatile uint8_t sum = 0;
    if (weight_archive_take(bytes, count, "fuzz", &found) != OK) return 0;
    for (size_t i = 0; i < found.count; i++) sum = (uint8_t)(sum + ((const uint8_t *)found.bytes)[i]);
    free(found.bytes);
    return 0;
}
