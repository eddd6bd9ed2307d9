/* The fake GPU rejects what a real one would: CUDA in a fork of a process that uses it, calls that invalidate a capture,
 * copies in a graph from memory that has been freed, forks that are not joined, pages registered twice, pinned memory that
 * is freed while copies use it, operands whose place or size differs from the plan's, times of events that have none, matrix
 * products that cuBLASLt does not do, operators that NCCL does not know. */
#include <cublasLt.h>
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/libraries/cudnn_plan.h"
#include "tests/gpu/fake_cuda/fake_gpu.h"
#include "tests/support/unit.h"

static Device device;

static int device_open(void **state)
{
    const Backend *backend;
    DeviceConfig config = {DEVICE_USUAL, .threads = 1};
    fake_gpu_reset();
    return backend_find("cuda", &backend, NULL, 0) == OK && backend->open(&config, &device) == OK ? 0 : -1;
}

static int device_close(void **state)
{
    device.backend->close(&device);
    return fake_gpu_alive(stderr);
}

/* ---- NCCL: nonblocking communicators, and operators of one's own */

static ncclResult_t comm_asked(ncclComm_t comm)
{
    ncclResult_t result = ncclInProgress;
    while (result == ncclInProgress)
        if (ncclCommGetAsyncError(comm, &result) != ncclSuccess) return ncclInternalError;
    return result;
}

/* A program that has used CUDA before counts the devices itself, because a child of it cannot. This test and the next are the
 * first: what was found is kept. */
TEST(test_search_after_use_of_cuda)
{
    int count, ending;
    fake_gpu_reset();
    pid_t child = fork();
    if (child == 0) _exit(cudaSetDevice(0) != cudaSuccess || cuda_device_list(NULL, &count) != OK || count != 1);
    assert_int_equal(waitpid(child, &ending, 0), child);
    assert_int_equal(ending, 0);
}

/* cuInit hangs: the search for devices ends all the same. */
/* fault: F41 */
TEST(test_search_that_hangs)
{
    int count;
    fake_gpu_reset();
    fake_gpu_hang(true);
    assert_int_equal(cuda_device_list(NULL, &count), ERR_DEVICE);
    assert_non_null(strstr(status_message(), "did not end within 180 s: the driver does not answer"));
    fake_gpu_hang(false);
    assert_int_equal(cuda_device_list(NULL, &count), OK);
    assert_int_equal(count, 1);
}

TEST_WITH(test_operators_and_ends_of_nccl, device_open, device_close)
{
    ncclComm_t comm;
    ncclUniqueId id;
    ncclRedOp_t op;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    unsigned short half = 0x3800;
    void *memory;
    cudaStream_t stream = device.backend->stream(&device, STREAM_COMM);
    config.blocking = 0;
    assert_int_equal(device.backend->alloc(&device, 64, &memory), OK);
    assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
    assert_int_equal(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInProgress);
    assert_int_equal(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat16, ncclScalarHostImmediate, comm),
                     ncclInvalidArgument); /* a call is in progress */
    assert_int_equal(comm_asked(comm), ncclSuccess);
    assert_int_equal(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat16, ncclScalarHostImmediate, comm), ncclSuccess);
    assert_int_equal(ncclAllReduce(memory, memory, 8, ncclFloat32, op, comm, stream), ncclInvalidArgument);
    assert_int_equal(ncclAllReduce(memory, memory, 8, ncclFloat16, op, comm, stream), ncclInProgress);
    assert_int_equal(comm_asked(comm), ncclSuccess);
    assert_int_equal(ncclRedOpDestroy(ncclSum, comm), ncclInvalidArgument);
    assert_int_equal(ncclRedOpDestroy(op, comm), ncclSuccess);
    assert_int_equal(ncclRedOpDestroy(op, comm), ncclInvalidArgument);
    assert_int_equal(ncclAllReduce(memory, memory, 8, ncclFloat16, op, comm, stream), ncclInvalidArgument);
    assert_int_equal(ncclCommFinalize(comm), ncclInProgress);
    assert_int_equal(comm_asked(comm), ncclSuccess);
    assert_int_equal(ncclCommFinalize(comm), ncclInvalidArgument);
    assert_int_equal(device.backend->finish(&device, STREAM_COMM), OK);
    assert_int_equal(ncclCommDestroy(comm), ncclSuccess);
    device.backend->release(&device, memory);
}

/* ---- captures */

static void capture_begin(void)
{
    assert_int_equal(cuda_capture_begin(&device), OK);
}

/* The capture has come to nothing, and the stream works as before. */
static void capture_is_spoilt(void)
{
    void *graph = NULL, *memory = NULL;
    assert_int_equal(cuda_capture_end(&device, &graph), ERR_DEVICE);
    assert_null(graph);
    assert_int_equal(device.backend->alloc(&device, 64, &memory), OK);
    device.backend->release(&device, memory);
}

TEST_WITH(test_capture_of_allocation, device_open, device_close)
{
    void *memory = NULL;
    capture_begin();
    assert_int_not_equal(device.backend->alloc(&device, 64, &memory), OK);
    capture_is_spoilt();
}

TEST_WITH(test_capture_of_waiting, device_open, device_close)
{
    bool reached;
    assert_int_equal(device.backend->mark(&device, 0), OK);
    capture_begin();
    assert_int_not_equal(device.backend->reached(&device, 0, &reached), OK);
    capture_is_spoilt();
    capture_begin();
    assert_int_not_equal(device.backend->finish(&device, STREAM_COPY), OK);
    capture_is_spoilt();
}

TEST_WITH(test_capture_of_pageable_memory, device_open, device_close)
{
    static float host[16];
    void *memory = NULL;
    assert_int_equal(device.backend->alloc(&device, sizeof host, &memory), OK);
    capture_begin();
    assert_int_not_equal(device.backend->download(&device, host, memory, sizeof host), OK);
    assert_int_equal(
        cudaMemcpyAsync(memory, host, sizeof host, cudaMemcpyHostToDevice, cuda_stream(&device, STREAM_COMPUTE)),
        cudaErrorStreamCaptureUnsupported);
    void *graph = NULL;
    assert_int_equal(cuda_capture_end(&device, &graph), OK);
    cuda_graph_free(&device, graph);
    device.backend->release(&device, memory);
}

/* Work on another stream that the capture has been forked to must be joined before its end. */
TEST_WITH(test_capture_of_a_fork, device_open, device_close)
{
    void *memory = NULL, *graph = NULL;
    assert_int_equal(device.backend->alloc(&device, 64, &memory), OK);
    for (int joins = 0; joins < 2; joins++) {
        capture_begin();
        assert_int_equal(device.backend->wait(&device, STREAM_COPY, STREAM_COMPUTE), OK);
        assert_int_equal(cudaMemsetAsync(memory, 0, 64, cuda_stream(&device, STREAM_COPY)), cudaSuccess);
        if (joins) assert_int_equal(device.backend->wait(&device, STREAM_COMPUTE, STREAM_COPY), OK);
        if (!joins) capture_is_spoilt();
    }
    assert_int_equal(cuda_capture_end(&device, &graph), OK);
    cuda_graph_free(&device, graph);
    capture_begin(); /* joined too early: work came after */
    assert_int_equal(device.backend->wait(&device, STREAM_COPY, STREAM_COMPUTE), OK);
    assert_int_equal(device.backend->wait(&device, STREAM_COMPUTE, STREAM_COPY), OK);
    assert_int_equal(cudaMemsetAsync(memory, 0, 64, cuda_stream(&device, STREAM_COPY)), cudaSuccess);
    capture_is_spoilt();
    device.backend->release(&device, memory);
}

/* ---- errors that wait for somebody to ask */

/* A question that was answered with "not yet", or memory that could not be had, is not the next launch's failure. */
TEST_WITH(test_stale_errors, device_open, device_close)
{
    void *memory = NULL, *more = NULL;
    bool reached = true;
    assert_int_equal(device.backend->alloc(&device, 64, &memory), OK);
    fake_gpu_schedule(GPU_SHUFFLED, 1);
    for (int i = 0; i < 64 && reached; i++) {
        assert_int_equal(device.backend->mark(&device, 0), OK);
        assert_int_equal(device.backend->reached(&device, 0, &reached), OK);
    }
    assert_false(reached);
    assert_int_equal(device.backend->fill(&device, memory, 1, 16), OK);
    assert_int_equal(device.backend->alloc(&device, (size_t)1 << 40, &more), ERR_MEMORY);
    assert_int_equal(device.backend->fill(&device, memory, 1, 16), OK);
    assert_int_equal(cudaMalloc(&more, (size_t)1 << 40), cudaErrorMemoryAllocation); /* nobody has looked at that one */
    assert_int_equal(device.backend->fill(&device, memory, 1, 16), ERR_MEMORY);
    device.backend->release(&device, memory);
}

TEST_WITH(test_pages_registered_twice, device_open, device_close)
{
    enum { PAGE = 4096 };
    char *host = aligned_alloc(PAGE, 3 * PAGE);
    assert_int_equal(cudaHostRegister(host, PAGE + 1, cudaHostRegisterDefault), cudaSuccess);
    assert_int_equal(cudaHostRegister(host + PAGE + 64, PAGE, cudaHostRegisterDefault),
                     cudaErrorHostMemoryAlreadyRegistered);
    assert_int_equal(cudaHostRegister(host + 2 * PAGE, PAGE, cudaHostRegisterDefault), cudaSuccess);
    assert_int_equal(cudaHostUnregister(host + PAGE), cudaErrorHostMemoryNotRegistered);
    assert_int_equal(cudaHostUnregister(host + 2 * PAGE), cudaSuccess);
    assert_int_equal(cudaHostUnregister(host), cudaSuccess);
    (void)cudaGetLastError();
    free(host);
}

/* Copies read pinned memory when the device comes to them. Nothing that frees it waits for them by itself: after
 * PIN_NOT the owner of a loader's memory frees it, and closing the device frees the rings. */
TEST_WITH(test_pinned_memory_in_use, device_open, device_close)
{
    enum { LARGE = 2 << 20 };
    void *memory = NULL, *host = pages_alloc(LARGE);
    char *back = malloc(LARGE);
    assert_int_equal(device.backend->alloc(&device, LARGE, &memory), OK);
    device.backend->pin(&device, host, LARGE, PIN_UPLOADS);
    memset(host, 1, LARGE);
    assert_int_equal(device.backend->upload(&device, memory, host, LARGE), OK);
    device.backend->pin(&device, host, LARGE, PIN_NOT);
    memset(host, 2, LARGE);
    assert_int_equal(device.backend->download(&device, back, memory, LARGE), OK);
    assert_int_equal(back[LARGE - 1], 1);
    device.backend->release(&device, memory);
    assert_int_equal(device.backend->alloc(&device, 64, &memory), OK);
    assert_int_equal(device.backend->upload(&device, memory, host, 64), OK);
    device_close(state);
    assert_int_equal(fake_gpu_alive(stderr), 1); /* `memory` */
    assert_int_equal(cudaFree(memory), cudaSuccess);
    assert_int_equal(device_open(state), 0);
    free(host);
    free(back);
}

/* ---- operands of a plan */

enum { CHANNELS = 8, BYTES = CHANNELS * CHANNELS * (int)sizeof(float) };

TEST_WITH(test_operands, device_open, device_close)
{
    const Shape shape = {CHANNELS, CHANNELS, 1, 1};
    const CudnnSpec spec = {
        .x = shape, .w = shape, .y = shape, .window = {.kh = 1, .kw = 1, .stride_h = 1, .stride_w = 1}};
    CudnnGraph *g = NULL;
    CudnnPlan *plan = NULL;
    CudnnRules rules = {0};
    void *memory[4];
    int found = 0;
    assert_int_equal(cudnn_graph_create(cuda_device(&device)->cudnn, &spec, &g), OK);
    assert_int_equal(cudnn_plans(g, &rules, 1, &plan, &found), OK);
    for (int i = 0; i < 3; i++) assert_int_equal(device.backend->alloc(&device, BYTES + 16, &memory[i]), OK);
    assert_int_equal(device.backend->alloc(&device, cudnn_plan_workspace(plan), &memory[3]), OK);
    char *a = memory[0], *b = memory[1], *c = memory[2];
    assert_int_equal(cudnn_plan_run(plan, a, b, c, NULL, memory[3]), OK);
    assert_int_equal(cudnn_plan_run(plan, a, b, c + 16, NULL, memory[3]), OK);
    assert_int_equal(cudnn_plan_run(plan, a + 4, b, c, NULL, memory[3]), ERR_DEVICE);  /* not aligned */
    assert_int_equal(cudnn_plan_run(plan, a, b + 32, c, NULL, memory[3]), ERR_DEVICE); /* over the end */
    assert_int_equal(cudnn_plan_run(plan, a, b, NULL, NULL, memory[3]), ERR_DEVICE);   /* nowhere */
    assert_int_equal(cudnn_plan_run(plan, a, b, c, NULL, (char *)memory[3] + 16),
                     ERR_DEVICE); /* too little workspace */
    assert_int_equal(device.backend->finish(&device, STREAM_COMPUTE), OK);
    for (int i = 0; i < 4; i++) device.backend->release(&device, memory[i]);
    cudnn_plan_destroy(plan);
    cudnn_graph_destroy(g);
}

/* ---- times */

TEST_WITH(test_times_of_events, device_open, device_close)
{
    float ms;
    void *memory;
    cudaEvent_t first, second, untimed;
    cudaStream_t stream = cuda_stream(&device, STREAM_COMPUTE);
    assert_int_equal(device.backend->alloc(&device, 64, &memory), OK);
    assert_int_equal(cudaEventCreate(&first), cudaSuccess);
    assert_int_equal(cudaEventCreate(&second), cudaSuccess);
    assert_int_equal(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming), cudaSuccess);
    fake_gpu_schedule(GPU_LAZY, 1);
    assert_int_equal(cudaEventRecord(first, stream), cudaSuccess);
    assert_int_equal(cudaEventElapsedTime(&ms, first, second), cudaErrorInvalidResourceHandle); /* never recorded */
    (void)cudaGetLastError();
    assert_int_equal(device.backend->fill(&device, memory, 1, 16), OK);
    assert_int_equal(cudaEventRecord(second, stream), cudaSuccess);
    assert_int_equal(cudaEventRecord(untimed, stream), cudaSuccess);
    assert_int_equal(cudaEventElapsedTime(&ms, first, second), cudaErrorNotReady);
    assert_int_equal(cudaEventSynchronize(second), cudaSuccess);
    assert_int_equal(cudaEventElapsedTime(&ms, first, second), cudaSuccess);
    assert_int_equal(cudaEventElapsedTime(&ms, first, untimed), cudaErrorInvalidResourceHandle);
    (void)cudaGetLastError();
    cudaEventDestroy(first);
    cudaEventDestroy(second);
    cudaEventDestroy(untimed);
    device.backend->release(&device, memory);
}

/* ---- matrix products */

enum { SIZE = 16 };

typedef struct Asked {
    cublasComputeType_t compute;
    cudaDataType_t scale, a, b, d;
    uint64_t inner_of_b;
    cublasStatus_t answer;
} Asked;

/* D = A B; returns the number of algorithms without workspace, the first of which `algo` receives. */
static int product_ask(const Asked *asked, cublasLtMatmulAlgo_t *algo, cublasStatus_t *check)
{
    int found = 0;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t how;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t results[4], checked;
    assert_int_equal(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(cublasLtMatmulDescCreate(&how, asked->compute, asked->scale), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(cublasLtMatrixLayoutCreate(&a, asked->a, SIZE, SIZE, SIZE), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(cublasLtMatrixLayoutCreate(&b, asked->b, asked->inner_of_b, SIZE, SIZE), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(cublasLtMatrixLayoutCreate(&d, asked->d, SIZE, SIZE, SIZE), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &found,
                                                          sizeof found),
                     CUBLAS_STATUS_INVALID_VALUE); /* 8 bytes */
    cublasStatus_t st = cublasLtMatmulAlgoGetHeuristic(handle, how, a, b, d, d, preference, 4, results, &found);
    assert_int_equal(st, asked->answer);
    *check = cublasLtMatmulAlgoCheck(handle, how, a, b, d, d, algo, &checked);
    if (found) *algo = results[0].algo;
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatrixLayoutDestroy(a);
    cublasLtMatrixLayoutDestroy(b);
    cublasLtMatrixLayoutDestroy(d);
    cublasLtMatmulDescDestroy(how);
    cublasLtDestroy(handle);
    return found;
}

TEST_WITH(test_matrix_products, device_open, device_close)
{
    const cublasComputeType_t plain = CUBLAS_COMPUTE_32F, tf32 = CUBLAS_COMPUTE_32F_FAST_TF32;
    const cublasStatus_t yes = CUBLAS_STATUS_SUCCESS, no = CUBLAS_STATUS_NOT_SUPPORTED;
    const Asked rows[] = {
        {plain, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, SIZE, yes},
        {tf32, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, SIZE, yes},
        {plain, CUDA_R_32F, CUDA_R_16F, CUDA_R_16F, CUDA_R_32F, SIZE, yes},
        {tf32, CUDA_R_32F, CUDA_R_16F, CUDA_R_16F, CUDA_R_16F, SIZE, no},     /* TF32 is made of f32 */
        {plain, CUDA_R_16F, CUDA_R_16F, CUDA_R_16F, CUDA_R_16F, SIZE, no},    /* alpha and beta */
        {plain, CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF, CUDA_R_32F, SIZE, no},   /* two types */
        {plain, CUDA_R_32F, CUDA_R_16F, CUDA_R_16F, CUDA_R_16BF, SIZE, no},   /* another one in the end */
        {plain, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, SIZE - 1, no} /* sizes */
    };
    cublasLtMatmulAlgo_t algo = {0};
    cublasStatus_t check;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(product_ask(&rows[i], &algo, &check), rows[i].answer == yes); /* the other one needs memory */
        assert_int_equal(check, no); /* the algorithm of the row before */
    }
    (void)product_ask(&rows[0], &algo, &check);
    (void)product_ask(&rows[0], &algo, &check);
    assert_int_equal(check, yes);
}

/* ---- what is written down of calls */

/* A process that waits asks as often as it takes: the log may fill up at any time, and still ends with a whole line. */
TEST_WITH(test_log_that_is_full, device_open, device_close)
{
    static const char line[] = "cudaStreamSynchronize\n";
    char log[3 * sizeof line];
    for (size_t room = 1; room < sizeof log; room++) {
        memset(log, 0, sizeof log);
        fake_gpu_log(log, room);
        for (int i = 0; i < 4; i++) assert_int_equal(device.backend->finish(&device, STREAM_COMPUTE), OK);
        fake_gpu_log(NULL, 0);
        size_t used = strlen(log);
        assert_int_equal(used, (room - 1) / (sizeof line - 1) * (sizeof line - 1));
        for (size_t at = 0; at < used; at += sizeof line - 1) assert_memory_equal(log + at, line, sizeof line - 1);
    }
}

/* Kernels for compute capability 8.0 do not run on 7.5, and a driver that is older than the compiler, or has no compiler of
 * its own, cannot make new ones for 10.0: the build is to blame, and what to change is said. */
TEST_WITH(test_build_for_other_gpus, device_open, device_close)
{
    static const cudaError_t errors[] = {cudaErrorNoKernelImageForDevice, cudaErrorUnsupportedPtxVersion,
                                         cudaErrorJitCompilerNotFound, cudaErrorJitCompilationDisabled};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        Device other = {0};
        fake_gpu_without_kernels((int)errors[i]);
        assert_fails(device.backend->open(&(DeviceConfig){DEVICE_USUAL, .threads = 1}, &other), ERR_UNSUPPORTED,
                     "-DTOWERS_CUDA_ARCHITECTURES=90");
    }
    fake_gpu_without_kernels(0);
}
