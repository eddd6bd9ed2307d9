/* The rest of the CUDA runtime: the device, copies, fills, host functions, and launches of the emulated kernels. */
#include "kernels/base/near_cores.h"
#include "tests/gpu/fake_cuda/fake.h"

#include <poll.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

/* ---- the device */

static int devices = 1, first_device, current;
static const _Atomic unsigned *gone;
static bool chosen; /* this process uses `current` */
static bool hangs;
static cudaError_t last_error;

void fake_gpu_devices(int count)
{
    devices = count;
}

void fake_gpu_hang(bool now)
{
    hangs = now;
}

int __real_poll(struct pollfd *of, nfds_t count, int ms);
int __wrap_poll(struct pollfd *of, nfds_t count, int ms);
int __wrap_poll(struct pollfd *of, nfds_t count, int ms)
{
    return hangs && ms > 0 ? 0 : __real_poll(of, count, ms);
}

/* What _FORTIFY_SOURCE makes of poll. */
int __wrap___poll_chk(struct pollfd *of, nfds_t count, int ms, size_t room);
int __wrap___poll_chk(struct pollfd *of, nfds_t count, int ms, size_t room)
{
    (void)room;
    return __wrap_poll(of, count, ms);
}

/* The kernel ends a process only when the driver has given back what it had. */
static int64_t ends_after_ms;
static struct timespec killed_at;

void fake_gpu_ends_after(int64_t ms)
{
    ends_after_ms = ms;
    killed_at = (struct timespec){0};
}

int __real_kill(pid_t pid, int number);
int __wrap_kill(pid_t pid, int number);
int __wrap_kill(pid_t pid, int number)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (number == SIGKILL && !killed_at.tv_sec) killed_at = now;
    int64_t ms = (now.tv_sec - killed_at.tv_sec) * 1000 + (now.tv_nsec - killed_at.tv_nsec) / 1000000;
    return number == SIGKILL && ms < ends_after_ms ? 0 : __real_kill(pid, number);
}

void fake_gpu_first(int first)
{
    first_device = first;
}

uint64_t fake_device_id(int ordinal)
{
    const char *host = getenv("NCCL_HOSTID");
    uint64_t hash = 14695981039346656037u;
    for (const char *c = host ? host : ""; *c; c++) hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    return (hash ^ (uint64_t)(first_device + ordinal)) * 1099511628211u;
}

int fake_device_current(void)
{
    return current;
}

void fake_gpu_gone(const _Atomic unsigned *lost)
{
    gone = lost;
    chosen = false;
}

bool fake_device_gone(void)
{
    return gone && chosen && *gone >> current & 1;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    ENTER(CUDA, cudaGetDeviceCount);
    while (hangs) pause();
    *count = devices;
    return devices ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaSetDevice(int ordinal)
{
    ENTER(CUDA, cudaSetDevice);
    if (gone && *gone >> ordinal & 1) return fake_error(cudaErrorDevicesUnavailable);
    if (ordinal < 0 || ordinal >= devices) return cudaErrorInvalidDevice;
    current = ordinal;
    chosen = true;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *ordinal)
{
    ENTER(CUDA, cudaGetDevice);
    *ordinal = current;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int ordinal)
{
    uint64_t id = fake_device_id(ordinal);
    ENTER(CUDA, cudaGetDeviceProperties);
    memset(p, 0, sizeof *p);
    memcpy(&p->uuid, &id, sizeof id);
    strcpy(p->name, "Fake GPU");
    p->major = 9;
    p->pciBusID = 0x3b + first_device + ordinal;
    p->multiProcessorCount = 4;
    p->l2CacheSize = 1 << 16;
    p->sharedMemPerMultiprocessor = 228 << 10;
    return cudaSuccess;
}

/* The linker sends near_cores_read here, so that the PCI devices of these GPUs are in the folder FAKE_SYSTEM. */
void __real_near_cores_read(const char *root, const char *address, NearCores *near);
void __wrap_near_cores_read(const char *root, const char *address, NearCores *near);
void __wrap_near_cores_read(const char *root, const char *address, NearCores *near)
{
    const char *system = getenv("FAKE_SYSTEM");
    __real_near_cores_read(system ? system : root, address, near);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int ordinal)
{
    (void)attribute, (void)ordinal;
    ENTER(CUDA, cudaDeviceGetAttribute);
    *value = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attribute, int from, int to)
{
    ENTER(CUDA, cudaDeviceGetP2PAttribute);
    if (from == to || from < 0 || from >= devices || to < 0 || to >= devices) return cudaErrorInvalidDevice;
    *value = attribute == cudaDevP2PAttrNativeAtomicSupported;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    ENTER(CUDA, cudaDeviceGetStreamPriorityRange);
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    ENTER(CUDA, cudaDriverGetVersion);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    ENTER(CUDA, cudaRuntimeGetVersion);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation ? "out of memory" : "a failure of the fake";
}

const char *cudaGetErrorName(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorFake";
}

cudaError_t fake_error(cudaError_t error)
{
    last_error = error;
    return error;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

/* ---- copies */

typedef struct Copy {
    void *to;
    const void *from;
    size_t bytes;
    int value;    /* of a fill */
    char image[]; /* of pageable memory, as it was when the copy was asked for */
} Copy;

static bool copy_run(void *context)
{
    const Copy *copy = context;
    memcpy(copy->to, copy->from, copy->bytes);
    return true;
}

static bool fill_run(void *context)
{
    const Copy *copy = context;
    memset(copy->to, copy->value, copy->bytes);
    return true;
}

static Copy *copy_create(void *to, const void *from, size_t bytes, bool keep)
{
    Copy *copy = malloc(sizeof *copy + (keep ? bytes : 0));
    if (!copy) return NULL;
    *copy = (Copy){.to = to, .from = from, .bytes = bytes};
    if (!keep) return copy;
    memcpy(copy->image, from, bytes);
    copy->from = copy->image;
    return copy;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    ENTER(CUDA, cudaMemcpyAsync);
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice,
         from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (bytes == 0) return cudaSuccess;
    if (fake_on_device(to, bytes) != to_device || fake_on_device(from, bytes) != from_device)
        return cudaErrorInvalidValue;
    bool pageable_from = !from_device && !fake_on_host_pinned(from, bytes),
         pageable_to = !to_device && !fake_on_host_pinned(to, bytes);
    if ((pageable_to || pageable_from) && fake_is_capturing(stream)) { /* a graph would read what is there later */
        fake_note("spoilt capture");
        return cudaErrorStreamCaptureUnsupported;
    }
    Copy *copy = copy_create(to, from, bytes, pageable_from);
    if (!copy) return cudaErrorMemoryAllocation;
    const void *host = to_device && !from_device && !pageable_from ? from : from_device && !to_device ? to : NULL;
    cudaError_t error = fake_queue(stream, &(FakeWork){"cudaMemcpyAsync", copy_run, free, copy, host});
    if (error != cudaSuccess || !pageable_to) return error;
    fake_note("implicit synchronization");
    while (!fake_stream_try(stream)) continue;
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    ENTER(CUDA, cudaMemsetAsync);
    if (bytes == 0) return cudaSuccess;
    if (!fake_on_device(to, bytes)) return cudaErrorInvalidValue;
    Copy *fill = copy_create(to, NULL, bytes, false);
    if (!fill) return cudaErrorMemoryAllocation;
    fill->value = value;
    return fake_queue(stream, &(FakeWork){"cudaMemsetAsync", fill_run, free, fill});
}

/* ---- functions of the host */

typedef struct HostCall {
    cudaHostFn_t function;
    void *data;
} HostCall;

static bool host_run(void *context)
{
    const HostCall *call = context;
    call->function(call->data);
    return true;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data)
{
    ENTER(CUDA, cudaLaunchHostFunc);
    HostCall *call = malloc(sizeof *call);
    if (!call) return cudaErrorMemoryAllocation;
    *call = (HostCall){function, data};
    return fake_queue(stream, &(FakeWork){"cudaLaunchHostFunc", host_run, free, call});
}

/* ---- our own kernels: the emulation hands its launches over */

typedef struct KernelJob { /* as cuda_emulation.h has it */
    const char *name;
    void (*run)(void *context);
    void (*drop)(void *context);
    void *context;
} KernelJob;

typedef struct Kernel {
    KernelJob job;
} Kernel;

static bool kernel_run(void *context)
{
    const Kernel *kernel = context;
    kernel->job.run(kernel->job.context);
    return true;
}

static void kernel_drop(void *context)
{
    Kernel *kernel = context;
    kernel->job.drop(kernel->job.context);
    free(kernel);
}

static int without_kernels;

void fake_gpu_without_kernels(int error)
{
    without_kernels = error;
}

static int kernel_queue(const KernelJob *job, void *stream)
{
    int code = without_kernels ? without_kernels : fake_enter(FAKE_CUDA, "kernel");
    fake_time_pass(fake_launch_time(false));
    if (code) (void)cudaGetLastError();
    Kernel *kernel = code ? NULL : malloc(sizeof *kernel);
    if (!kernel) {
        job->drop(job->context);
        return code ? code : (int)cudaErrorMemoryAllocation;
    }
    kernel->job = *job;
    cudaError_t queued = fake_queue(stream, &(FakeWork){job->name, kernel_run, kernel_drop, kernel}),
                before = cudaGetLastError(); /* the launch itself returns nothing: whoever asks finds this, too */
    return (int)(queued != cudaSuccess ? queued : before);
}

extern int (*emulated_queue)(const KernelJob *job, void *stream);

__attribute__((constructor)) static void kernels_take_over(void)
{
    emulated_queue = kernel_queue;
}

/* ---- calls that do nothing here: one line each in fake_nothing.def */

#define NOTHING(library, result, name, parameters)                                                                     \
    result name parameters                                                                                             \
    {                                                                                                                  \
        ENTER(library, name);                                                                                          \
        return (result)0;                                                                                              \
    }
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "tests/gpu/fake_cuda/fake_nothing.def"
