/* NVRTC, the compiler of cuDNN's runtime-compiled engines; see cudnn_library.h. */
#include "kernels/cuda/libraries/cudnn_library.h"

#include <dlfcn.h>

void nvrtc_hold(void)
{
    char name[32];
    snprintf(name, sizeof name, "libnvrtc.so.%d", CUDART_VERSION / 1000);
    (void)dlopen(name, RTLD_LAZY | RTLD_NODELETE); /* if it is not there, cuDNN does without it */
}
