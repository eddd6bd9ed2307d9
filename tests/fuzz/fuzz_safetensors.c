/* Arbitrary bytes as a safetensors file: every byte of an accepted file is read. */

#include "towers/store/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    SafeTensors *file = NULL;
    size_t covered = 0;
    volatile uint8_t sum = 0; /* every byte is read */
    if (safetensors_parse(bytes, count, "fuzz", &file) != OK) return 0;
    for (int i = 0; i < safetensors_count(file); i++) {
        const StTensor *tensor = safetensors_at(file, i);
        if (safetensors_find(file, tensor->name) != tensor) __builtin_trap();
        covered += tensor->bytes;
        for (size_t k = 0; k < tensor->bytes; k++) sum = (uint8_t)(sum + ((const uint8_t *)tensor->data)[k]);
    }
    if (covered > count) __builtin_trap();
    (void)safetensors_metadata(file, "format");
    safetensors_close(file);
    return 0;
}
