/* Information about a GPU for scripts/gpu_check.sh: `gpu_driver describe` (one line), `gpu_driver json` (cuDNN's own
 * description of the device), `gpu_driver memory` (bytes per second of a copy on the device). */
#ifdef TOWERS_HAVE_CUDA

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/libraries/cudnn_library.h"

static Status json_print(Device *device)
{
    static char json[1 << 16];
    TRY(cudnn_device_json(device->config.ordinal, json, sizeof json));
    puts(json);
    return OK;
}

/* Bytes read and written by a copy, a second. */
static Status memory_print(Device *device)
{
    enum { ROUNDS = 20 };
    const size_t bytes = (size_t)1 << 30;
    cudaStream_t stream = cuda_stream(device, STREAM_COMPUTE);
    cudaEvent_t start, end;
    void *from, *to;
    float ms = 0;
    TRY(device->backend->alloc(device, bytes, &from));
    TRY(device->backend->alloc(device, bytes, &to));
    TRY_CUDA(cudaEventCreate(&start));
    TRY_CUDA(cudaEventCreate(&end));
    TRY_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
    TRY_CUDA(cudaEventRecord(start, stream));
    for (int i = 0; i < ROUNDS; i++) TRY_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
    TRY_CUDA(cudaEventRecord(end, stream));
    TRY_CUDA(cudaEventSynchronize(end));
    TRY_CUDA(cudaEventElapsedTime(&ms, start, end));
    printf("%.4g\n", 2.0 * (double)bytes * ROUNDS / ((double)ms * 1e-3));
    device->backend->release(device, from);
    device->backend->release(device, to);
    return OK;
}

static Status answer(const char *question)
{
    const Backend *backend;
    Device device = {0};
    DeviceConfig config = {DEVICE_USUAL, .threads = 1};
    char text[512];
    TRY(backend_find("cuda", &backend, NULL, 0));
    TRY(backend->open(&config, &device));
    Status st = OK;
    backend->describe(&device, text, sizeof text);
    if (strcmp(question, "json") == 0)
        st = json_print(&device);
    else if (strcmp(question, "memory") == 0)
        st = memory_print(&device);
    else
        puts(text);
    backend->close(&device);
    return st;
}

int main(int count, char **words)
{
    Status st = answer(count > 1 ? words[1] : "describe");
    if (st != OK) status_print(stderr, st, 1);
    return status_exit_code(st);
}

#else

#include "kernels/base/status.h"

int main(void)
{
    fputs("this build has no CUDA backend\n", stderr);
    return 5;
}

#endif
