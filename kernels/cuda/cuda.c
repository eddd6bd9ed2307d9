/* The GPU as a device: memory, streams, copies, and the table of its kernels.
 *
 * Each kind of stream is one CUDA stream that does not wait for the default stream; events order them.
 * One process uses one device. */
#include "kernels/cuda/cuda.h"

#include "kernels/cuda/convert.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/libraries/cublas.h"
#include "kernels/cuda/libraries/cudnn_library.h"
#include "kernels/cuda/libraries/nvml.h"
#include "kernels/cuda/plan_cache.h"
#include "kernels/cuda/staging.h"

enum { OLDEST_SM = 75 };
static const size_t LARGE_UPLOAD = (size_t)1 << 20;

/* ---- open, close */

static Status properties_read(CudaDevice *cuda, int ordinal)
{
    struct cudaDeviceProp p;
    TRY_CUDA(cudaGetDeviceProperties(&p, ordinal));
    cuda->ordinal = ordinal;
    cuda->sm = p.major * 10 + p.minor;
    cuda->sm_count = p.multiProcessorCount;
    cuda->l2_bytes = (size_t)p.l2CacheSize;
    cuda->shared_bytes = p.sharedMemPerMultiprocessor;
    snprintf(cuda->name, sizeof cuda->name, "%s", p.name);
    if (cuda->sm >= OLDEST_SM) return OK;
    return FAIL(ERR_UNSUPPORTED, "cuda device %d (%s) has compute capability %d.%d, expected %d.%d or newer", ordinal,
                p.name, p.major, p.minor, OLDEST_SM / 10, OLDEST_SM % 10);
}

static void cuda_destroy(CudaDevice *cuda)
{
    if (!cuda) return;
    cuda_freed(cudaDeviceSynchronize()); /* copies may still read the pinned memory of `staging` */
    plan_cache_close(cuda->plans);
    cublas_close(cuda->cublas);
    cudnn_close(cuda->cudnn);
    staging_close(cuda->staging);
    cuda_freed(cudaFree(cuda->scratch));
    for (int i = 0; i < BACKEND_MARKS; i++)
        if (cuda->mark[i]) cuda_freed(cudaEventDestroy(cuda->mark[i]));
    for (int stream = 0; stream < STREAM_COUNT; stream++) {
        if (cuda->event[stream]) cuda_freed(cudaEventDestroy(cuda->event[stream]));
        if (cuda->stream[stream]) cuda_freed(cudaStreamDestroy(cuda->stream[stream]));
    }
    free(cuda);
}

static Status ordinal_check(int ordinal)
{
    int count = 0;
    TRY(cuda_device_list(NULL, &count));
    if (count < 1) return FAIL(ERR_DEVICE, "no CUDA device is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES");
    if (ordinal >= 0 && ordinal < count) return OK;
    return FAIL(ERR_ARG, "cuda device %d: this machine has %d, numbered from 0 (see --gpus)", ordinal, count);
}

/* No code for this GPU: none was compiled for it, and its driver cannot compile that for older ones. */
static bool lacks_code(cudaError_t error)
{
    return error == cudaErrorNoKernelImageForDevice || error == cudaErrorUnsupportedPtxVersion ||
           error == cudaErrorJitCompilerNotFound || error == cudaErrorJitCompilationDisabled;
}

static Status cuda_open(const DeviceConfig *config, Device *device)
{
    Status st = OK;
    CudaDevice *cuda = NULL;
    NearCores near;
    TRY(ordinal_check(config->ordinal));
    cuda_near_cores(config->ordinal, &near); /* before the driver's threads begin, and memory is pinned */
    if (config->near_cores > 0) near_cores_take(&near, config->near_cores);
    TRY_CUDA(cudaSetDevice(config->ordinal));
    cuda = calloc(1, sizeof *cuda);
    if (!cuda) return FAIL(ERR_MEMORY, "no memory for the cuda device %d", config->ordinal);
    TRY_OUT(properties_read(cuda, config->ordinal));
    int least, greatest;
    TRY_CUDA_OUT(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    for (int stream = 0; stream < STREAM_COUNT; stream++) {
        int priority = stream == STREAM_COMM ? greatest : least;
        TRY_CUDA_OUT(cudaStreamCreateWithPriority(&cuda->stream[stream], cudaStreamNonBlocking, priority));
        TRY_CUDA_OUT(cudaEventCreateWithFlags(&cuda->event[stream], cudaEventDisableTiming));
    }
    for (int i = 0; i < BACKEND_MARKS; i++)
        TRY_CUDA_OUT(cudaEventCreateWithFlags(&cuda->mark[i], cudaEventDisableTiming));
    TRY_OUT(staging_open(&cuda->staging));
    TRY_CUDA_OUT(cudaMalloc(&cuda->scratch, KERNEL_SQUARE_SUM_BYTES));
    cudaError_t filled =
        convert_fill(cuda->scratch, 0, KERNEL_SQUARE_SUM_BYTES / sizeof(float), cuda->stream[STREAM_COMPUTE]);
    if (lacks_code(filled))
        TRY_OUT(FAIL(ERR_UNSUPPORTED,
                     "this build has no kernels for cuda device %d (%s, compute capability %d.%d): configure it with "
                     "-DTOWERS_CUDA_ARCHITECTURES=%d",
                     cuda->ordinal, cuda->name, cuda->sm / 10, cuda->sm % 10, cuda->sm));
    if (filled != cudaSuccess) TRY_OUT(cuda_failed(filled, __FILE__, __LINE__, "convert_fill"));
    device->refused = (PlanRefusals){0};
    TRY_OUT(cublas_open(&cuda->cublas)); /* before cuDNN, which looks for the library too */
    TRY_OUT(cudnn_open(cuda->stream[STREAM_COMPUTE], &device->refused, &cuda->cudnn));
    TRY_OUT(plan_cache_open(cuda->name, &cuda->plans));
    device->backend = &cuda_backend;
    device->config = *config;
    device->impl = cuda;
    device->unconfirmed = 0;
    cuda = NULL;
out:
    cuda_destroy(cuda);
    return st;
}

static void cuda_close(Device *device)
{
    cuda_destroy(device->impl);
    device->impl = NULL;
}

/* ---- memory */

static Status out_of_memory(const CudaDevice *cuda, size_t bytes)
{
    size_t free_bytes = 0, total = 0;
    if (cudaMemGetInfo(&free_bytes, &total) != cudaSuccess) {
        (void)cudaGetLastError();
        free_bytes = total = 0;
    }
    return FAIL(
        ERR_MEMORY,
        "out of memory on cuda device %d (%s): %zu MiB more are needed, %zu of %zu MiB are free" CUDA_MEMORY_REMEDY,
        cuda->ordinal, cuda->name, bytes >> 20, free_bytes >> 20, total >> 20);
}

static Status cuda_memory(Device *device, size_t *free_bytes, size_t *total)
{
    (void)device;
    TRY_CUDA(cudaMemGetInfo(free_bytes, total));
    return OK;
}

static Status cuda_alloc(Device *device, size_t bytes, void **made)
{
    void *memory = NULL;
    cudaError_t error = cudaMalloc(&memory, bytes ? bytes : 1);
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return out_of_memory(cuda_device(device), bytes);
    }
    if (error != cudaSuccess) return cuda_failed(error, __FILE__, __LINE__, "cudaMalloc");
    error = cudaMemsetAsync(memory, 0, bytes, cuda_stream(device, STREAM_COMPUTE));
    if (error == cudaSuccess) error = cudaStreamSynchronize(cuda_stream(device, STREAM_COMPUTE));
    if (error != cudaSuccess) cuda_freed(cudaFree(memory));
    if (error != cudaSuccess)
        return cuda_failed(error, __FILE__, __LINE__, "cudaMemsetAsync, cudaStreamSynchronize of new memory");
    *made = memory;
    return OK;
}

static void cuda_release(Device *device, void *memory)
{
    (void)device;
    cuda_freed(cudaFree(memory));
}

/* Where it is refused (limits on locked memory), uploads go through the ring as all others do. CUDA does not promise that
 * the end of a registration waits for copies, and the owner frees the memory then. */
static void cuda_pin(Device *device, void *host, size_t bytes, PinFor use)
{
    Staging *staging = cuda_device(device)->staging;
    if (!use) cuda_freed(cudaDeviceSynchronize());
    cudaError_t error = use ? cudaHostRegister(host, bytes, cudaHostRegisterDefault) : cudaHostUnregister(host);
    if (error != cudaSuccess) (void)cudaGetLastError();
    if (use == PIN_UPLOADS && error == cudaSuccess && bytes >= LARGE_UPLOAD) staging_expect(staging, bytes);
}

static size_t cuda_upload_bytes(size_t bytes)
{
    return bytes >= LARGE_UPLOAD ? STAGING_BUFFERS * bytes : 0;
}

static bool is_pinned(const void *host)
{
    struct cudaPointerAttributes attributes;
    if (cudaPointerGetAttributes(&attributes, host) == cudaSuccess) return attributes.type == cudaMemoryTypeHost;
    (void)cudaGetLastError();
    return false;
}

static Status cuda_upload(Device *device, void *to, const void *host, size_t bytes)
{
    CudaDevice *cuda = cuda_device(device);
    if (bytes >= LARGE_UPLOAD && is_pinned(host))
        return staging_upload_pinned(cuda->staging, to, host, bytes, cuda->stream[STREAM_COMPUTE],
                                     cuda->stream[STREAM_COPY]);
    return staging_upload(cuda_device(device)->staging, to, host, bytes, cuda_stream(device, STREAM_COMPUTE));
}

static Status cuda_uploaded(Device *device)
{
    return staging_wait(cuda_device(device)->staging);
}

static Status cuda_download(Device *device, void *host, const void *from, size_t bytes)
{
    TRY_CUDA(cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, cuda_stream(device, STREAM_COMPUTE)));
    return OK;
}

static Status cuda_fill(Device *device, void *to, float value, size_t count)
{
    TRY_CUDA(convert_fill(to, value, (int64_t)count, cuda_stream(device, STREAM_COMPUTE)));
    return OK;
}

static Status cuda_convert(Device *device, void *to, Dtype to_dtype, const void *from, Dtype from_dtype, size_t count)
{
    TRY_CUDA(convert_flat(to, to_dtype, from, from_dtype, (int64_t)count, cuda_stream(device, STREAM_COMPUTE)));
    return OK;
}

/* ---- streams */

static Status cuda_wait(Device *device, StreamKind waiter, StreamKind on)
{
    CudaDevice *cuda = cuda_device(device);
    TRY_CUDA(cudaEventRecord(cuda->event[on], cuda->stream[on]));
    TRY_CUDA(cudaStreamWaitEvent(cuda->stream[waiter], cuda->event[on], 0));
    return OK;
}

static Status cuda_finish(Device *device, StreamKind stream)
{
    TRY_CUDA(cudaStreamSynchronize(cuda_stream(device, stream)));
    return OK;
}

static Status cuda_mark(Device *device, int number)
{
    TRY_CUDA(cudaEventRecord(cuda_device(device)->mark[number], cuda_stream(device, STREAM_COMPUTE)));
    return OK;
}

static Status cuda_reached(Device *device, int number, bool *reached)
{
    cudaError_t error = cudaEventQuery(cuda_device(device)->mark[number]);
    *reached = error != cudaErrorNotReady;
    if (!*reached) (void)cudaGetLastError(); /* no error, but the check behind the next launch could find it */
    if (!*reached || error == cudaSuccess) return OK;
    return cuda_failed(error, __FILE__, __LINE__, "cudaEventQuery of a step's results");
}

static void *cuda_backend_stream(Device *device, StreamKind stream)
{
    return cuda_stream(device, stream);
}

/* "NVIDIA H200, 132 multiprocessors, 139 GiB, driver for CUDA 13.0, cuDNN 9.19.0" */
static void cuda_describe(Device *device, char *text, size_t bytes)
{
    const CudaDevice *cuda = cuda_device(device);
    char library[64];
    int driver = 0;
    size_t free_bytes = 0, total = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
    if (cudaMemGetInfo(&free_bytes, &total) != cudaSuccess) total = 0;
    cudnn_describe(library, sizeof library);
    snprintf(text, bytes, "%s, %d multiprocessors, %zu GiB, driver for CUDA %d.%d, %s", cuda->name, cuda->sm_count,
             total >> 30, driver / 1000, driver % 1000 / 10, library);
}

static const OpKernel *const kernels[OP_COUNT] = {
#define OP(KIND, name, ...) [OP_##KIND] = &cuda_##name,
#include "kernels/ops.def"
};

static Status cuda_choices_text(Device *device, char **text, int *chosen)
{
    return plan_cache_text(cuda_device(device)->plans, text, chosen);
}

static Status cuda_choices_take(Device *device, const char *text, bool *taken)
{
    return plan_cache_take(cuda_device(device)->plans, text, taken);
}

const Backend cuda_backend = {
    .name = "cuda",
    .nccl = true,
    .device_list = cuda_device_list,
    .near_cores = cuda_near_cores,
    .links = cuda_links,
    .telemetry = &cuda_telemetry,
    .open = cuda_open,
    .close = cuda_close,

    .memory = cuda_memory,
    .alloc = cuda_alloc,
    .release = cuda_release,
    .upload = cuda_upload,
    .download = cuda_download,
    .fill = cuda_fill,
    .convert = cuda_convert,
    .pin = cuda_pin,
    .upload_bytes = cuda_upload_bytes,
    .kernels = kernels,
    .storage = op_storage,
    .op_time = cuda_op_time,
    .choices_text = cuda_choices_text,
    .choices_take = cuda_choices_take,
    .optimizer_apply = cuda_optimizer_apply,
    .square_sum = cuda_square_sum,
    .hash = cuda_hash,
    .l2_term = cuda_l2_term,
    .average = cuda_average,
    .add = cuda_add_vectors,
    .gate_extras = cuda_gate_extras,
    .gate_decide = cuda_gate_decide,
    .mark = cuda_mark,
    .reached = cuda_reached,
    .uploaded = cuda_uploaded,
    .capture_begin = cuda_capture_begin,
    .capture_end = cuda_capture_end,
    .graph_launch = cuda_graph_launch,
    .graph_free = cuda_graph_free,
    .conv_ends = true,
    .weights_copy = cuda_weights_copy,
    .wait = cuda_wait,
    .finish = cuda_finish,
    .stream = cuda_backend_stream,
    .describe = cuda_describe,
};
