/* cuDNN as a library; see cudnn_library.h. */
#include "kernels/cuda/libraries/cudnn_library.h"
#include "kernels/cuda/libraries/cudnn_descriptor.h"

enum { OLDEST = 90000, WITH_DESCRIPTIONS = 90800 /* of devices */ };

void plan_refused(PlanRefusals *refused)
{
    if (refused && refused->count++ == 0) snprintf(refused->first, sizeof refused->first, "%s", status_message());
}

static Status descriptions_check(void)
{
    char text[64];
    if (DESCRIBED && cudnnGetVersion() >= WITH_DESCRIPTIONS) return OK;
    cudnn_describe(text, sizeof text);
    return FAIL(ERR_UNSUPPORTED, "%s cannot describe a device that is not present: expected cuDNN 9.8 or newer", text);
}

Status cudnn_open(cudaStream_t stream, PlanRefusals *refused, CudnnLibrary **made)
{
    Status st = OK;
    if (cudnnGetVersion() < OLDEST)
        return FAIL(ERR_UNSUPPORTED, "expected cuDNN 9.0 or newer at run time, found version %zu (cudnnGetVersion)",
                    cudnnGetVersion());
    CudnnLibrary *library = calloc(1, sizeof *library);
    if (!library) return FAIL(ERR_MEMORY, "no memory for the cuDNN handle");
    library->refused = refused;
    nvrtc_hold();
    TRY_CUDNN_OUT(cudnnCreate(&library->handle));
    TRY_CUDNN_OUT(cudnnSetStream(library->handle, stream));
    *made = library;
    library = NULL;
out:
    cudnn_close(library);
    return st;
}

Status cudnn_open_described(const char *json, CudnnLibrary **made)
{
    Status st = OK;
    TRY(descriptions_check());
    CudnnLibrary *library = calloc(1, sizeof *library);
    if (!library) return FAIL(ERR_MEMORY, "no memory for the cuDNN device description");
    nvrtc_hold();
    TRY_OUT(descriptor_create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &library->device));
    TRY_OUT(
        set(library->device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)strlen(json), json));
    TRY_OUT(finalize(library->device));
    *made = library;
    library = NULL;
out:
    cudnn_close(library);
    return st;
}

void cudnn_close(CudnnLibrary *library)
{
    if (!library) return;
    descriptor_destroy(&library->device);
    if (library->handle) cudnnDestroy(library->handle);
    free(library);
}

void cudnn_describe(char *text, size_t bytes)
{
    size_t v = cudnnGetVersion();
    snprintf(text, bytes, "cuDNN %zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
}

Status cudnn_device_json(int ordinal, char *json, size_t bytes)
{
    Status st = OK;
    Descriptor device = NULL;
    int32_t id = ordinal;
    int64_t written = 0;
    TRY(descriptions_check());
    TRY_OUT(descriptor_create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &device));
    TRY_OUT(set(device, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, &id));
    TRY_OUT(finalize(device));
    TRY_CUDNN_OUT(cudnnBackendGetAttribute(device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                           (int64_t)bytes - 1, &written, json));
    json[written < (int64_t)bytes ? written : (int64_t)bytes - 1] = 0;
out:
    descriptor_destroy(&device);
    return st;
}
