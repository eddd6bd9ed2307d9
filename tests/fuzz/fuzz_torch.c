/* Arbitrary bytes as a file of torch.save: every byte of an accepted tensor is read. */
#include "towers/store/torch_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    SafeTensors *file = NULL;
    volatile uint8_t sum = 0;
    if (torch_file_parse(bytes, count, "fuzz", &file) != OK) return 0;
    for (int i = 0; i < safetensors_count(file); i++) {
        const StTensor *tensor = safetensors_at(file, i);
        if (safetensors_find(file, tensor->name) != tensor) __builtin_trap();
        for (size_t k = 0; k < tensor->bytes; k++) sum = (uint8_t)(sum + ((const uint8_t *)tensor->data)[k]);
    }
    safetensors_close(file);
    return 0;
}
