/* The backends of this build; see backend.h. A build with CUDA adds cuda_backend. */
#include "kernels/backend.h"

#include <unistd.h>

#ifdef TOWERS_HAVE_CPU
extern const Backend cpu_backend;
#endif
#ifdef TOWERS_HAVE_CUDA
extern const Backend cuda_backend;
#endif

#if defined TOWERS_HAVE_CPU && defined TOWERS_HAVE_CUDA
const char backends_built[] = "cpu cuda";
#elif defined TOWERS_HAVE_CPU
const char backends_built[] = "cpu";
#else
const char backends_built[] = "cuda";
#endif

static Status find_cpu(const Backend **found)
{
#ifdef TOWERS_HAVE_CPU
    *found = &cpu_backend;
    return OK;
#else
    (void)found;
    return FAIL(ERR_UNSUPPORTED, "this build has no cpu backend: install oneDNN (libdnnl-dev) and configure again");
#endif
}

static Status find_cuda(const Backend **found)
{
#ifdef TOWERS_HAVE_CUDA
    int count = 0;
    TRY(cuda_backend.device_list(NULL, &count));
    if (count < 1) return FAIL(ERR_DEVICE, "no CUDA device is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES");
    *found = &cuda_backend;
    return OK;
#else
    (void)found;
    return FAIL(ERR_UNSUPPORTED, "this build has no cuda backend: install CUDA, cuDNN and NCCL and configure again");
#endif
}

Status backend_find(const char *name, const Backend **found, char *why, size_t why_bytes)
{
    if (why && why_bytes) why[0] = 0;
    if (strcmp(name, "cpu") == 0) return find_cpu(found);
    if (strcmp(name, "cuda") == 0) return find_cuda(found);
    if (strcmp(name, "auto") != 0) return FAIL(ERR_ARG, "no backend is called '%s': use cpu, cuda or auto", name);
    if (find_cuda(found) == OK) return OK;
#ifndef TOWERS_HAVE_CPU
    return FAIL(ERR_DEVICE, "%s (and this build has no cpu backend to fall back to)", status_message());
#endif
#ifdef TOWERS_HAVE_CUDA
    if (why && why_bytes) snprintf(why, why_bytes, "%s", status_message());
#else
    if (why && why_bytes)
        snprintf(why, why_bytes, "this build has no cuda backend"); /* how to get one: --device cuda */
#endif
    return find_cpu(found);
}

bool backend_gpu_expected(void)
{
#ifdef TOWERS_HAVE_CUDA
    return true;
#else
    return access("/proc/driver/nvidia/version", F_OK) == 0;
#endif
}

Status backend_device_count(const Backend *backend, int *count)
{
    if (backend->device_list) return backend->device_list(NULL, count);
    *count = 1;
    return OK;
}

Status backend_device_list(const Backend *backend, DeviceId *id, int *count)
{
    *count = 0;
    if (!backend->device_list) return OK;
    TRY(backend->device_list(id, count));
    if (*count > BACKEND_DEVICES_MAX) *count = BACKEND_DEVICES_MAX;
    return OK;
}

void *pages_alloc(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return aligned_alloc(page, bytes / page * page + page);
}
