/* Counting calls, making them fail, tracking live objects. */
#include "tests/gpu/fake_cuda/fake.h"

#include <cublasLt.h>
#include <cudnn.h>
#include <execinfo.h>
#include <inttypes.h>
#include <nccl.h>
#include <string.h>
#include <unistd.h>

enum { NAMES = 256 };

typedef struct Named {
    const char *name; /* a literal */
    int64_t count;
} Named;

static Named counts[NAMES], alive[NAMES];
static int64_t calls, fail_at, requests, fail_request_at, fails_in;
static const char *failed, *without_memory, *fails_name;
static bool failed_in_capture, loses, lost;
static uint64_t *survey;
static int64_t survey_room;
static pid_t begun; /* the process that has initialized CUDA; 0: none has */

static struct {
    char *text;
    size_t room, used;
} diary;

static Named *named(Named *table, const char *name)
{
    int i = 0;
    while (i < NAMES - 1 && table[i].name && strcmp(table[i].name, name) != 0) i++;
    if (!table[i].name) table[i].name = name;
    return &table[i];
}

void fake_note(const char *name)
{
    named(counts, name)->count++;
    size_t line = strlen(name) + 1;
    if (diary.used + line < diary.room)
        diary.used += (size_t)snprintf(diary.text + diary.used, diary.room - diary.used, "%s\n", name);
    else
        diary.room = 0; /* full: what comes later must not follow a gap */
}

/* Who called: the return addresses, hashed. */
static uint64_t stack_number(void)
{
    enum { FRAMES = 7 };
    void *frame[FRAMES];
    uint64_t hash = 14695981039346656037u;
    int count = backtrace(frame, FRAMES);
    for (int i = 0; i < count; i++) hash = (hash ^ (uint64_t)(uintptr_t)frame[i]) * 1099511628211u;
    return hash;
}

static int failure_code(FakeLibrary library)
{
    static const int codes[] = {[FAKE_CUDA] = cudaErrorLaunchFailure,
                                [FAKE_CUDNN] = CUDNN_STATUS_EXECUTION_FAILED,
                                [FAKE_CUBLAS] = CUBLAS_STATUS_INTERNAL_ERROR,
                                [FAKE_NCCL] = ncclSystemError};
    return codes[library];
}

/* cublas_api.h, cudnn_graph.h; NCCL says of cudaErrorMemoryAllocation that a call of CUDA failed. */
static int memory_code(FakeLibrary library)
{
    static const int codes[] = {[FAKE_CUDA] = cudaErrorMemoryAllocation,
                                [FAKE_CUDNN] = CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED,
                                [FAKE_CUBLAS] = CUBLAS_STATUS_ALLOC_FAILED,
                                [FAKE_NCCL] = ncclUnhandledCudaError};
    return codes[library];
}

static int capture_code(FakeLibrary library)
{
    static const int codes[] = {[FAKE_CUDA] = cudaErrorStreamCaptureUnsupported,
                                [FAKE_CUDNN] = CUDNN_STATUS_EXECUTION_FAILED,
                                [FAKE_CUBLAS] = CUBLAS_STATUS_NOT_SUPPORTED,
                                [FAKE_NCCL] = ncclInvalidUsage};
    return codes[library];
}

/* CUDA does not work in a process that was forked by one that has initialized it, which all but the versions do; cuInit
 * returns CUDA_ERROR_NOT_INITIALIZED (issue 10443 of triton-lang/triton, on 8 H100). */
static bool is_poisoned(FakeLibrary library, const char *name)
{
    if (library != FAKE_CUDA || strstr(name, "GetVersion")) return false;
    if (!begun) begun = getpid();
    return begun != getpid();
}

void fake_processes_begin(void)
{
    begun = 0;
}

/* Calls by which a run waits: how many it makes depends on how long it waits. */
static bool is_question(const char *name)
{
    return strcmp(name, "cudaEventQuery") == 0 || strcmp(name, "ncclCommGetAsyncError") == 0;
}

int fake_enter(FakeLibrary library, const char *name)
{
    fake_note(name);
    if (is_poisoned(library, name)) return (int)fake_error(cudaErrorInitializationError);
    calls++;
    bool asks = is_question(name);
    requests += !asks;
    bool fails = calls == fail_at || (!asks && requests == fail_request_at);
    if (lost) return library == FAKE_CUDA ? (int)fake_error(cudaErrorLaunchFailure) : failure_code(library);
    if (calls < survey_room) survey[calls] = stack_number();
    if (without_memory && strcmp(name, without_memory) == 0) {
        failed = name;
        fake_gpu_nccl_message("Cuda failure 2 'out of memory'");
        return library == FAKE_CUDA ? (int)fake_error(cudaErrorMemoryAllocation) : memory_code(library);
    }
    bool is_named = fails_name && strcmp(name, fails_name) == 0 && --fails_in == 0;
    bool taken = fake_device_gone();
    fails = fails || is_named || taken;
    if (!fails && !fake_spoils_capture(name)) return 0;
    int code = fails ? failure_code(library) : capture_code(library);
    if (library == FAKE_CUDA) fake_error((cudaError_t)code);
    if (!fails) return code;
    failed = name;
    failed_in_capture = fake_any_capturing();
    lost = loses || taken;
    return code;
}

void fake_born(const char *kind)
{
    named(alive, kind)->count++;
}

void fake_died(const char *kind)
{
    named(alive, kind)->count--;
}

/* ---- for tests */

int64_t fake_gpu_calls(void)
{
    return calls;
}

int64_t fake_gpu_requests(void)
{
    return requests;
}

static void failures_clear(void)
{
    fail_at = fail_request_at = 0;
    failed = NULL;
    failed_in_capture = loses = lost = false;
    fake_error(cudaSuccess);
}

void fake_gpu_fail_call(int64_t number)
{
    failures_clear();
    fail_at = number;
}

void fake_gpu_fail_request(int64_t number)
{
    failures_clear();
    fail_request_at = number;
}

void fake_gpu_lose_device(int64_t number)
{
    fake_gpu_fail_call(number);
    loses = true;
}

void fake_gpu_fail_memory(const char *name)
{
    without_memory = name;
    failed = NULL;
}

void fake_gpu_fail_named(const char *name, int64_t nth)
{
    fails_name = name;
    fails_in = nth;
    failed = NULL;
}

void fake_gpu_survey(uint64_t *stacks, int64_t room)
{
    survey = stacks;
    survey_room = stacks ? room : 0;
}

void fake_gpu_log(char *text, size_t room)
{
    diary.text = text;
    diary.room = text ? room : 0;
    diary.used = 0;
}

const char *fake_gpu_failed(void)
{
    return failed;
}

bool fake_gpu_failed_in_capture(void)
{
    return failed_in_capture;
}

int64_t fake_gpu_count(const char *name)
{
    return named(counts, name)->count;
}

int64_t fake_gpu_count_like(const char *prefix)
{
    int64_t sum = 0;
    for (int i = 0; i < NAMES && counts[i].name; i++)
        if (strncmp(counts[i].name, prefix, strlen(prefix)) == 0) sum += counts[i].count;
    return sum;
}

void fake_gpu_counts_clear(void)
{
    memset(counts, 0, sizeof counts);
}

void fake_gpu_counts_print(FILE *to)
{
    for (int i = 0; i < NAMES && counts[i].name; i++)
        fprintf(to, "  %6" PRId64 " %s\n", counts[i].count, counts[i].name);
}

int fake_gpu_alive(FILE *to)
{
    int64_t sum = 0;
    for (int i = 0; i < NAMES && alive[i].name; i++) {
        if (alive[i].count) fprintf(to, "  %" PRId64 " of %s not destroyed\n", alive[i].count, alive[i].name);
        sum += alive[i].count < 0 ? -alive[i].count : alive[i].count;
    }
    return (int)sum;
}

void fake_gpu_reset(void)
{
    calls = requests = 0;
    fake_processes_begin();
    fake_gpu_fail_call(0);
    fake_gpu_fail_memory(NULL);
    fake_gpu_nccl_message("no details");
    fake_gpu_fail_named(NULL, 0);
    fake_gpu_counts_clear();
    fake_gpu_log(NULL, 0);
    fake_gpu_schedule(GPU_LAZY, 1);
    fake_gpu_ignore_waits(false);
    fake_gpu_without_kernels(0);
    fake_gpu_memory((size_t)256 << 20);
    fake_gpu_guard(false);
    fake_gpu_devices(1);
    fake_gpu_hang(false);
    fake_gpu_ends_after(0);
    fake_gpu_first(0);
    fake_gpu_gone(NULL);
    fake_gpu_nccl_version(FAKE_GPU_NCCL_VERSION);
    fake_gpu_on_abort(NULL);
    fake_gpu_engine(-1, 0, false);
    fake_gpu_launch_time(0, 0);
    fake_gpu_engines(INT32_MAX);
    fake_gpu_adversary(0);
    fake_gpu_engines_lost(0, 0);
    fake_gpu_engine_refused(-1, 0);
    fake_gpu_cudnn_version(CUDNN_VERSION);
    fake_gpu_windows(GPU_WINDOWS_MADE);
    fake_gpu_break_comm(ncclSuccess);
}
