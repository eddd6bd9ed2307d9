/* towers itself on fake GPUs: linked with its main, so that scripts can start it like the real one. A host has FAKE_GPUS
 * devices (default 2), of which CUDA_VISIBLE_DEVICES, a list of consecutive numbers, shows some. */
#include "tests/gpu/fake_cuda/fake_gpu.h"

#include <stdlib.h>
#include <string.h>

static int number_after(const char *text, int otherwise)
{
    return text && *text ? (int)strtol(text, NULL, 10) : otherwise;
}

__attribute__((constructor)) static void devices_from_environment(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES"), *last = visible ? strrchr(visible, ',') : NULL;
    int devices = number_after(getenv("FAKE_GPUS"), 2), first = number_after(visible, 0),
        end = visible ? number_after(last ? last + 1 : visible, -1) + 1 : devices;
    fake_gpu_reset();
    fake_gpu_first(first);
    fake_gpu_devices(end > devices ? 0 : end - first);
    fake_gpu_memory((size_t)1 << 30);
}
