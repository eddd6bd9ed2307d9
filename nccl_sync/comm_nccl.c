/* Collectives between GPUs: ncclAllReduce, one rank a process.
 *
 * The sum of a round is built in one buffer on the device. The first local tower's contribution is copied into it,
 * those of further local towers are added in their order; with the last one the all-reduce of that range starts on the
 * communication lane, beside the computation. Towers of other ranks are added in NCCL's order, the same on every rank.
 * Barrier, broadcast, the unique id and the news that a peer has left go through the processes' shared memory.
 *
 * Nothing here waits inside a library: communicators do not block, results are polled for, and a peer that has left or
 * a deadline ends the wait and aborts the communicator. After that nothing may be assumed about memory on the device.
 */
#include <cuda_runtime_api.h>
#include <errno.h>
#include <nccl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nccl_sync/comm_ops.h"

enum { POLL_NS = 20000, SPINS = 200 };

typedef struct NcclComm {
    Comm *control;      /* owned: comm_shm */
    CommShared *shared; /* borrowed */
    Device *device;     /* borrowed */
    ncclComm_t nccl;    /* owned; NULL before it is made and once it is aborted */
    cudaStream_t stream;
    cudaEvent_t done; /* owned: the end of the last all-reduce */
    float *sum;       /* owned, device: [max_count] */
    float *guest;     /* owned, device: [max_count], contributions that come from host memory */
} NcclComm;

/* ---- waiting */

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void pause_between(int polls)
{
    struct timespec t = {.tv_nsec = POLL_NS};
    if (polls > SPINS) nanosleep(&t, NULL);
}

static void nccl_leave(NcclComm *c)
{
    if (c->nccl) ncclCommAbort(c->nccl);
    c->nccl = NULL;
}

static Status nccl_fail(NcclComm *c, ncclResult_t result, const char *what)
{
    Status st = FAIL(ERR_COMM, "NCCL: %s in %s (%s)", ncclGetErrorString(result), what,
                     c->nccl ? ncclGetLastError(c->nccl) : "no communicator");
    nccl_leave(c);
    return st;
}

/* Peers that have left, and the deadline. */
static Status still_together(Comm *comm, NcclComm *c, int64_t deadline, const char *what)
{
    int left = comm_shared_aborted(c->shared);
    if (left < 0 && now_ms() < deadline) return OK;
    nccl_leave(c);
    if (left >= 0) return FAIL(ERR_COMM, "tower process %d left; the others cannot go on without it", left);
    comm_shared_abort(c->shared, comm->config.rank);
    return FAIL(ERR_COMM, "%s of rank %d did not end within %.1f s (--comm-timeout)", what, comm->config.rank,
                (double)comm->config.timeout_ms / 1000);
}

/* A call on a communicator that does not block has only begun when it says ncclInProgress. */
static Status nccl_settle(Comm *comm, NcclComm *c, ncclResult_t result, const char *what)
{
    int64_t deadline = now_ms() + comm->config.timeout_ms;
    for (int polls = 0; result == ncclInProgress; polls++) {
        ncclResult_t asked = ncclCommGetAsyncError(c->nccl, &result);
        if (asked != ncclSuccess) return nccl_fail(c, asked, what);
        if (result != ncclInProgress) break;
        if (polls % 64 == 0) {
            Status st = still_together(comm, c, deadline, what);
            if (st != OK) return st;
        }
        pause_between(polls);
    }
    return result == ncclSuccess ? OK : nccl_fail(c, result, what);
}

static Status cuda_check(NcclComm *c, cudaError_t error, const char *what)
{
    if (error == cudaSuccess) return OK;
    nccl_leave(c);
    return FAIL(ERR_DEVICE, "CUDA: %s in %s", cudaGetErrorString(error), what);
}

/* Until the last all-reduce has ended on the device. */
static Status done_wait(Comm *comm, NcclComm *c)
{
    int64_t deadline = now_ms() + comm->config.timeout_ms;
    for (int polls = 0;; polls++) {
        ncclResult_t result = ncclSuccess;
        cudaError_t error = cudaEventQuery(c->done);
        if (error != cudaErrorNotReady) return cuda_check(c, error, "the sum over the towers");
        if (polls % 64 == 0) {
            TRY(still_together(comm, c, deadline, "the sum over the towers"));
            if (ncclCommGetAsyncError(c->nccl, &result) != ncclSuccess || result != ncclSuccess)
                return nccl_fail(c, result, "the sum over the towers");
        }
        pause_between(polls);
    }
}

/* ---- the sum */

static bool on_host(const void *memory)
{
    struct cudaPointerAttributes attributes;
    if (cudaPointerGetAttributes(&attributes, memory) != cudaSuccess) return true;
    return attributes.type == cudaMemoryTypeUnregistered || attributes.type == cudaMemoryTypeHost;
}

static Status copy_in(NcclComm *c, float *to, const float *from, size_t count)
{
    const Backend *backend = c->device->backend;
    if (on_host(from)) return backend->upload(c->device, to, from, count * sizeof *from);
    cudaStream_t compute = backend->stream(c->device, LANE_COMPUTE);
    return cuda_check(c, cudaMemcpyAsync(to, from, count * sizeof *from, cudaMemcpyDeviceToDevice, compute),
                      "a tower's contribution");
}

/* sum[i] += x[i] */
static Status add(NcclComm *c, float *sum, const float *x, size_t count)
{
    const OpKernel *kernel = c->device->backend->kernels[OP_ADD];
    Tensor t = {.shape = {1, (int32_t)count, 1, 1}, .dtype = DTYPE_F32, .pitch = (int64_t)count};
    OpCall call = {.kind = OP_ADD, .name = "sum over towers", .in_count = 2, .in = {t, t}, .out = {t}, .out_count = 1};
    call.in[0].data = call.out[0].data = sum;
    call.in[1].data = (void *)x;
    if (kernel->prepare) TRY(kernel->prepare(c->device, &call));
    Status st = kernel->launch(c->device, &call);
    if (kernel->discard) kernel->discard(c->device, &call);
    return st;
}

static Status reduce_start(Comm *comm, NcclComm *c, size_t first, size_t count)
{
    float *range = c->sum + first;
    if (!c->nccl) return FAIL(ERR_COMM, "rank %d has left the collective itself", comm->config.rank);
    TRY(c->device->backend->wait(c->device, LANE_COMM, LANE_COMPUTE));
    TRY(nccl_settle(comm, c, ncclAllReduce(range, range, count, ncclFloat32, ncclSum, c->nccl, c->stream),
                    "all-reduce"));
    return cuda_check(c, cudaEventRecord(c->done, c->stream), "the sum over the towers");
}

static Status nccl_give(Comm *comm, int tower, size_t first, const float *from, size_t count)
{
    NcclComm *c = comm->impl;
    if (tower == comm->config.first) {
        TRY(copy_in(c, c->sum + first, from, count));
    } else {
        const float *there = from;
        if (on_host(from)) {
            TRY(copy_in(c, c->guest + first, from, count));
            there = c->guest + first;
        }
        TRY(add(c, c->sum + first, there, count));
    }
    return tower == comm->config.first + comm->config.local - 1 ? reduce_start(comm, c, first, count) : OK;
}

static Status nccl_sum(Comm *comm, size_t first, float *to, size_t count)
{
    NcclComm *c = comm->impl;
    const Backend *backend = c->device->backend;
    TRY(done_wait(comm, c));
    if (on_host(to)) {
        TRY(backend->download(c->device, to, c->sum + first, count * sizeof *to));
        return backend->finish(c->device, LANE_COMPUTE);
    }
    return copy_in(c, to, c->sum + first, count);
}

/* ---- the rest is the processes' */

static Status nccl_broadcast(Comm *comm, void *buf, size_t bytes, int root)
{
    return comm_broadcast(((NcclComm *)comm->impl)->control, buf, bytes, root);
}

static Status nccl_barrier(Comm *comm)
{
    return comm_barrier(((NcclComm *)comm->impl)->control);
}

static void nccl_abort(Comm *comm)
{
    NcclComm *c = comm->impl;
    comm_abort(c->control);
    nccl_leave(c);
}

/* An orderly end needs all ranks; where one has left, the communicator is aborted instead. */
static void nccl_finalize(Comm *comm, NcclComm *c)
{
    if (!c->nccl) return;
    if (comm_shared_aborted(c->shared) >= 0 || nccl_settle(comm, c, ncclCommFinalize(c->nccl), "finalize") != OK)
        nccl_leave(c);
    else
        ncclCommDestroy(c->nccl);
    c->nccl = NULL;
}

static void nccl_destroy(NcclComm *c)
{
    if (!c) return;
    nccl_leave(c);
    if (c->done) cudaEventDestroy(c->done);
    if (c->sum) c->device->backend->release(c->device, c->sum);
    if (c->guest) c->device->backend->release(c->device, c->guest);
    comm_close(c->control);
    free(c);
}

static void nccl_close(Comm *comm)
{
    nccl_finalize(comm, comm->impl);
    nccl_destroy(comm->impl);
}

static const CommOps nccl_ops = {
    .give = nccl_give,
    .sum = nccl_sum,
    .broadcast = nccl_broadcast,
    .barrier = nccl_barrier,
    .abort = nccl_abort,
    .close = nccl_close,
};

/* ---- opening */

static Status memory_open(const CommConfig *config, NcclComm *c)
{
    void *memory;
    TRY(c->device->backend->alloc(c->device, config->max_count * sizeof(float), &memory));
    c->sum = memory;
    if (config->local > 1) {
        TRY(c->device->backend->alloc(c->device, config->max_count * sizeof(float), &memory));
        c->guest = memory;
    }
    c->stream = c->device->backend->stream(c->device, LANE_COMM);
    return cuda_check(c, cudaEventCreateWithFlags(&c->done, cudaEventDisableTiming), "an event");
}

static Status rank_open(Comm *comm, NcclComm *c)
{
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    memset(&id, 0, sizeof id);
    if (comm->config.rank == 0) {
        ncclResult_t result = ncclGetUniqueId(&id);
        if (result != ncclSuccess) return nccl_fail(c, result, "ncclGetUniqueId");
    }
    TRY(comm_broadcast(c->control, &id, sizeof id, 0));
    ncclResult_t begun = ncclCommInitRankConfig(&c->nccl, comm->config.ranks, id, comm->config.rank, &config);
    return nccl_settle(comm, c, begun, "the start of the communicator");
}

Status comm_nccl_open(const CommConfig *config, CommShared *shared, Device *device, Comm **made)
{
    Comm *comm = NULL;
    NcclComm *c = calloc(1, sizeof *c);
    if (!c) return FAIL(ERR_MEMORY, "communicator of rank %d", config->rank);
    c->shared = shared;
    c->device = device;
    Status st = comm_shm_open(config, shared, &c->control);
    if (st == OK) st = memory_open(config, c);
    if (st == OK) st = comm_create(config, &nccl_ops, c, &comm);
    if (st == OK) st = rank_open(comm, c);
    if (st == OK) {
        *made = comm;
        return OK;
    }
    nccl_destroy(c);
    free(comm);
    return st;
}
