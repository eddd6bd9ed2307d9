/* Collectives between GPUs: NCCL, one rank a process.
 *
 * fast: a rank's towers are added up in their order in one buffer on the device (a single tower's gradients are read
 * where they lie), and with the last one the all-reduce of that range starts on the communication lane, beside the
 * computation. Ranks are added in NCCL's order, the same on every rank. Gradients may travel in 16 bits, in f16 divided
 * by the number of ranks on the way.
 * ordered: every tower's contribution is broadcast to all ranks and added in tower order, as comm_shm does: the same
 * bits whichever rank holds which tower. Takes a buffer for each tower.
 * Barrier, broadcast, the unique id and the news that a peer has left go through the processes' shared memory.
 *
 * Nothing here waits inside a library: communicators do not block, results are polled for, and a peer that has left or
 * a deadline ends the wait and aborts the communicator. After that nothing may be assumed about memory on
 * the device. */
#include <cuda_runtime_api.h>
#include <errno.h>
#include <nccl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nccl_sync/comm_ops.h"

enum { POLL_NS = 20000, SPINS = 200 };

enum { ENLISTED = 4 };

typedef struct NcclComm {
    Comm *control;      /* owned: comm_shm */
    CommShared *shared; /* borrowed */
    Device *device;     /* borrowed */
    ncclComm_t nccl;    /* owned; NULL before it is made and once it is aborted */
    cudaStream_t stream;
    cudaEvent_t done; /* owned: the end of the last collective */
    CommMemory sum;   /* owned: f32 [max_count]; ordered: [towers][max_count] */
    CommMemory small; /* owned: [gradients] of config.reduce, where that is 16 bits */
    float *guest;     /* owned, device: [max_count], contributions that come from host memory; several local towers */
    int *rank_of;     /* owned: [towers], ordered */
    bool narrow;      /* the gradients of this round travel in 16 bits */
    ncclRedOp_t op;   /* of gradients in 16 bits */
    float enlarge;    /* what `op` has divided them by, in f16 */
    void *handle[ENLISTED];
    int handles;
} NcclComm;

/* What came with later versions than the oldest that is supported; NULL where the library at run time has it not. */
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
#pragma weak ncclMemAlloc
#pragma weak ncclMemFree
#pragma weak ncclCommRegister
#pragma weak ncclCommDeregister
#define HAS_MEMORY (ncclMemAlloc && ncclMemFree && ncclCommRegister && ncclCommDeregister)
#else
#define HAS_MEMORY false
static ncclResult_t ncclMemAlloc(void **memory, size_t bytes)
{
    (void)memory, (void)bytes;
    return ncclInvalidUsage;
}
static ncclResult_t ncclMemFree(void *memory)
{
    (void)memory;
    return ncclInvalidUsage;
}
static ncclResult_t ncclCommRegister(const ncclComm_t comm, void *memory, size_t bytes, void **handle)
{
    (void)comm, (void)memory, (void)bytes, (void)handle;
    return ncclInvalidUsage;
}
static ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    (void)comm, (void)handle;
    return ncclInvalidUsage;
}
#endif

static bool has_memory(void)
{
    int version = 0;
    if (!HAS_MEMORY) return false;
    return ncclGetVersion(&version) == ncclSuccess && version >= NCCL_VERSION(2, 19, 0);
}

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
        if (asked != ncclSuccess) return nccl_fail(c, asked, "ncclCommGetAsyncError");
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

/* Of a communicator that does not block: what is still being begun has not failed. */
static bool is_failure(ncclResult_t result)
{
    return result != ncclSuccess && result != ncclInProgress;
}

/* Until the last all-reduce has ended on the device. */
static Status done_wait(Comm *comm, NcclComm *c)
{
    int64_t deadline = now_ms() + comm->config.timeout_ms;
    for (int polls = 0;; polls++) {
        ncclResult_t result = ncclSuccess;
        cudaError_t error = cudaEventQuery(c->done);
        if (error != cudaErrorNotReady) return cuda_check(c, error, "cudaEventQuery of the sum over the towers");
        if (polls % 64 == 0) {
            TRY(still_together(comm, c, deadline, "the sum over the towers"));
            ncclResult_t asked = ncclCommGetAsyncError(c->nccl, &result);
            if (asked != ncclSuccess || is_failure(result))
                return nccl_fail(c, asked != ncclSuccess ? asked : result,
                                 "the sum over the towers (ncclCommGetAsyncError)");
        }
        pause_between(polls);
    }
}

/* ---- the sum */

static Status place_ask(NcclComm *c, const void *memory, bool *on_host)
{
    struct cudaPointerAttributes attributes;
    TRY(cuda_check(c, cudaPointerGetAttributes(&attributes, memory), "cudaPointerGetAttributes"));
    *on_host = attributes.type == cudaMemoryTypeUnregistered || attributes.type == cudaMemoryTypeHost;
    return OK;
}

static cudaStream_t compute_stream(const NcclComm *c)
{
    return c->device->backend->stream(c->device, LANE_COMPUTE);
}

static Status copy_in(NcclComm *c, float *to, const float *from, bool on_host, size_t count)
{
    if (on_host) return c->device->backend->upload(c->device, to, from, count * sizeof *from);
    return cuda_check(c, cudaMemcpyAsync(to, from, count * sizeof *from, cudaMemcpyDeviceToDevice, compute_stream(c)),
                      "cudaMemcpyAsync of a tower's contribution");
}

/* One of our own kernels on f32 vectors: out = kind(in[0], in[1]), where in[1] may be absent. */
static Status vector_run(NcclComm *c, OpKind kind, float scale, const float *a, const float *b, float *out,
                         size_t count)
{
    const OpKernel *kernel = c->device->backend->kernels[kind];
    Tensor t = {.shape = {1, (int32_t)count, 1, 1}, .dtype = DTYPE_F32, .pitch = (int64_t)count};
    OpCall call = {
        .kind = kind, .name = "sum over towers", .in_count = b ? 2 : 1, .in = {t, t}, .out = {t}, .out_count = 1};
    if (kind == OP_AFFINE) call.attr.affine.scale = scale;
    call.in[0].data = (void *)a;
    call.in[1].data = (void *)b;
    call.out[0].data = out;
    if (kernel->prepare) TRY(kernel->prepare(c->device, &call));
    Status st = kernel->launch(c->device, &call);
    if (kernel->discard) kernel->discard(c->device, &call);
    return st;
}

/* sum[i] += x[i] */
static Status add(NcclComm *c, float *sum, const float *x, size_t count)
{
    return vector_run(c, OP_ADD, 1, sum, x, sum, count);
}

static float *sum_at(const NcclComm *c, size_t first)
{
    return (float *)c->sum.data + first;
}

static char *small_at(const Comm *comm, const NcclComm *c, size_t first)
{
    return (char *)c->small.data + first * dtype_bytes(comm->config.reduce);
}

static float *slot_at(const Comm *comm, const NcclComm *c, int tower, size_t first)
{
    return sum_at(c, (size_t)tower * comm->config.max_count + first);
}

static ncclDataType_t small_type(const Comm *comm)
{
    return comm->config.reduce == DTYPE_F16 ? ncclFloat16 : ncclBfloat16;
}

/* Gradients, and not the lanes behind them. */
static bool is_narrow(const Comm *comm, const NcclComm *c, size_t first)
{
    return c->narrow && first < comm->config.gradients;
}

/* The ranks' sums of a range, `from` of each. */
static Status reduce_start(Comm *comm, NcclComm *c, size_t first, const float *from, size_t count)
{
    ncclResult_t begun;
    bool narrow = is_narrow(comm, c, first);
    char *range = narrow ? small_at(comm, c, first) : (char *)sum_at(c, first);
    if (narrow) TRY(c->device->backend->convert(c->device, range, comm->config.reduce, from, DTYPE_F32, count));
    TRY(c->device->backend->wait(c->device, LANE_COMM, LANE_COMPUTE));
    if (narrow)
        begun = ncclAllReduce(range, range, count, small_type(comm), c->op, c->nccl, c->stream);
    else
        begun = ncclAllReduce(from, range, count, ncclFloat32, ncclSum, c->nccl, c->stream);
    return nccl_settle(comm, c, begun, "ncclAllReduce");
}

/* Every tower's contribution to every rank. */
static Status gather_start(Comm *comm, NcclComm *c, size_t first, size_t count)
{
    TRY(c->device->backend->wait(c->device, LANE_COMM, LANE_COMPUTE));
    TRY(nccl_settle(comm, c, ncclGroupStart(), "ncclGroupStart"));
    ncclResult_t begun = ncclSuccess;
    for (int t = 0; t < comm->config.towers && (begun == ncclSuccess || begun == ncclInProgress); t++) {
        float *slot = slot_at(comm, c, t, first);
        begun = ncclBroadcast(slot, slot, count, ncclFloat32, c->rank_of[t], c->nccl, c->stream);
    }
    ncclResult_t ended = ncclGroupEnd();
    if (begun != ncclSuccess && begun != ncclInProgress) return nccl_fail(c, begun, "ncclBroadcast");
    return nccl_settle(comm, c, ended, "ncclGroupEnd");
}

static Status sum_start(Comm *comm, NcclComm *c, size_t first, const float *from, size_t count)
{
    if (count == 0) return OK;
    if (!c->nccl) return FAIL(ERR_COMM, "rank %d has left the collective itself", comm->config.rank);
    if (comm->config.ordered)
        TRY(gather_start(comm, c, first, count));
    else
        TRY(reduce_start(comm, c, first, from, count));
    return cuda_check(c, cudaEventRecord(c->done, c->stream), "cudaEventRecord behind the sum over the towers");
}

/* The local towers' sum is built in their order; *from tells where it lies with the last of them. */
static Status tower_add(Comm *comm, NcclComm *c, int tower, size_t first, const float **from, bool on_host,
                        size_t count)
{
    const CommConfig *config = &comm->config;
    if (tower == config->first) {
        if (config->local == 1 && !on_host) return OK; /* read where it lies */
        TRY(copy_in(c, sum_at(c, first), *from, on_host, count));
    } else if (on_host) {
        TRY(copy_in(c, c->guest + first, *from, true, count));
        TRY(add(c, sum_at(c, first), c->guest + first, count));
    } else {
        TRY(add(c, sum_at(c, first), *from, count));
    }
    *from = sum_at(c, first);
    return OK;
}

static Status nccl_give(Comm *comm, int tower, size_t first, const float *from, size_t count)
{
    NcclComm *c = comm->impl;
    bool on_host = false;
    TRY(place_ask(c, from, &on_host));
    if (first < comm->config.gradients) c->narrow = c->small.data && !on_host;
    if (comm->config.ordered)
        TRY(copy_in(c, slot_at(comm, c, tower, first), from, on_host, count));
    else
        TRY(tower_add(comm, c, tower, first, &from, on_host, count));
    return tower == comm->config.first + comm->config.local - 1 ? sum_start(comm, c, first, from, count) : OK;
}

/* ---- the result */

static Status ordered_add(Comm *comm, NcclComm *c, size_t first, size_t count)
{
    for (int t = 1; t < comm->config.towers; t++) TRY(add(c, sum_at(c, first), slot_at(comm, c, t, first), count));
    return OK;
}

/* Back to f32, and to the sum from what `op` made of it. */
static Status widen(Comm *comm, NcclComm *c, size_t first, size_t count)
{
    float *to = sum_at(c, first);
    TRY(c->device->backend->convert(c->device, to, DTYPE_F32, small_at(comm, c, first), comm->config.reduce, count));
    if (comm->config.reduce != DTYPE_F16) return OK;
    return vector_run(c, OP_AFFINE, c->enlarge, to, NULL, to, count);
}

static Status nccl_sum(Comm *comm, size_t first, float *to, size_t count)
{
    NcclComm *c = comm->impl;
    const Backend *backend = c->device->backend;
    bool on_host = false;
    if (count == 0) return OK;
    TRY(place_ask(c, to, &on_host));
    if (on_host)
        TRY(done_wait(comm, c));
    else
        TRY(backend->wait(c->device, LANE_COMPUTE, LANE_COMM));
    if (comm->config.ordered) TRY(ordered_add(comm, c, first, count));
    if (!comm->config.ordered && is_narrow(comm, c, first)) TRY(widen(comm, c, first, count));
    if (on_host) {
        TRY(backend->download(c->device, to, sum_at(c, first), count * sizeof *to));
        return backend->finish(c->device, LANE_COMPUTE);
    }
    return copy_in(c, to, sum_at(c, first), false, count);
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

static Status nccl_look(Comm *comm)
{
    NcclComm *c = comm->impl;
    ncclResult_t result = ncclSuccess;
    TRY(still_together(comm, c, INT64_MAX, "the sum over the towers"));
    if (!c->nccl) return FAIL(ERR_COMM, "rank %d has left the collective itself", comm->config.rank);
    ncclResult_t asked = ncclCommGetAsyncError(c->nccl, &result);
    if (asked == ncclSuccess && !is_failure(result)) return OK;
    return nccl_fail(c, asked != ncclSuccess ? asked : result, "the sum over the towers (ncclCommGetAsyncError)");
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
    for (int i = 0; i < c->handles; i++) ncclCommDeregister(c->nccl, c->handle[i]);
    if (c->op != ncclSum) ncclRedOpDestroy(c->op, c->nccl);
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
    comm_memory_destroy(c->device, &c->sum);
    comm_memory_destroy(c->device, &c->small);
    if (c->guest) c->device->backend->release(c->device, c->guest);
    comm_close(c->control);
    free(c->rank_of);
    free(c);
}

static void nccl_close(Comm *comm)
{
    nccl_finalize(comm, comm->impl);
    nccl_destroy(comm->impl);
}

/* ---- memory */

bool comm_nccl_memory_create(size_t bytes, void **made)
{
    return has_memory() && ncclMemAlloc(made, bytes) == ncclSuccess;
}

void comm_nccl_memory_destroy(void *memory)
{
    ncclMemFree(memory);
}

/* That NCCL will not have it costs time, nothing else. */
static Status nccl_enlist(Comm *comm, void *memory, size_t bytes)
{
    NcclComm *c = comm->impl;
    if (c->handles == ENLISTED || comm->config.ranks == 1 || !has_memory()) return OK;
    if (ncclCommRegister(c->nccl, memory, bytes, &c->handle[c->handles]) == ncclSuccess) c->handles++;
    return OK;
}

static const CommOps nccl_ops = {
    .give = nccl_give,
    .sum = nccl_sum,
    .broadcast = nccl_broadcast,
    .barrier = nccl_barrier,
    .enlist = nccl_enlist,
    .look = nccl_look,
    .abort = nccl_abort,
    .close = nccl_close,
};

/* ---- opening */

static size_t sum_slots(const CommConfig *config)
{
    return config->ordered ? (size_t)config->towers : 1;
}

static Status memory_open(const CommConfig *config, NcclComm *c)
{
    void *memory;
    TRY(comm_memory_create(c->device, sum_slots(config) * config->max_count * sizeof(float), &c->sum));
    if (config->reduce != DTYPE_F32 && config->gradients)
        TRY(comm_memory_create(c->device, config->gradients * sizeof(float) / 2, &c->small));
    if (config->local > 1) {
        TRY(c->device->backend->alloc(c->device, config->max_count * sizeof(float), &memory));
        c->guest = memory;
    }
    c->stream = c->device->backend->stream(c->device, LANE_COMM);
    return cuda_check(c, cudaEventCreateWithFlags(&c->done, cudaEventDisableTiming), "cudaEventCreateWithFlags");
}

/* Which rank holds which tower: every rank tells of its own. */
static Status ranks_learn(const CommConfig *config, NcclComm *c)
{
    c->rank_of = calloc((size_t)config->towers, sizeof *c->rank_of);
    if (!c->rank_of) return FAIL(ERR_MEMORY, "ranks of %d towers", config->towers);
    for (int r = 0; r < config->ranks; r++) {
        int own[2] = {config->first, config->local};
        TRY(comm_broadcast(c->control, own, sizeof own, r));
        for (int t = own[0]; t < own[0] + own[1] && t < config->towers; t++) c->rank_of[t] = r;
    }
    return OK;
}

/* Rings alone add in one order whatever the run; a setting of the user's own stays. */
static Status environment_set(const Device *device)
{
    static const char *const settings[][2] = {
        {"NCCL_ALGO", "Ring"}, {"NCCL_PROTO", "Simple"}, {"NCCL_NVLS_ENABLE", "0"}};
    for (size_t i = 0; device->config.deterministic && i < sizeof settings / sizeof *settings; i++)
        if (setenv(settings[i][0], settings[i][1], 0) != 0)
            return FAIL(ERR_MEMORY, "%s: %s", settings[i][0], strerror(errno));
    return OK;
}

static Status rank_open(Comm *comm, NcclComm *c)
{
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (comm->config.ctas > 0) config.maxCTAs = comm->config.ctas;
    memset(&id, 0, sizeof id);
    TRY(environment_set(c->device));
    if (comm->config.rank == 0) {
        ncclResult_t result = ncclGetUniqueId(&id);
        if (result != ncclSuccess) return nccl_fail(c, result, "ncclGetUniqueId");
    }
    TRY(comm_broadcast(c->control, &id, sizeof id, 0));
    ncclResult_t begun = ncclCommInitRankConfig(&c->nccl, comm->config.ranks, id, comm->config.rank, &config);
    return nccl_settle(comm, c, begun, "ncclCommInitRankConfig");
}

/* f16 ends at 65504: contributions are divided by a power of two, at least the number of ranks, on their way into the
 * sum. */
static Status op_open(Comm *comm, NcclComm *c)
{
    int halvings = 0;
    c->op = ncclSum;
    if (comm->config.reduce != DTYPE_F16 || !c->small.data) return OK;
    while (1 << halvings < comm->config.ranks) halvings++;
    unsigned short share = (unsigned short)((15 - halvings) << 10); /* 2^-halvings in f16 */
    c->enlarge = (float)(1 << halvings);
    return nccl_settle(comm, c, ncclRedOpCreatePreMulSum(&c->op, &share, ncclFloat16, ncclScalarHostImmediate, c->nccl),
                       "ncclRedOpCreatePreMulSum");
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
    if (st == OK && config->ordered) st = ranks_learn(config, c);
    if (st == OK) st = comm_create(config, &nccl_ops, c, &comm);
    if (st == OK) st = rank_open(comm, c);
    if (st == OK) st = op_open(comm, c);
    if (st == OK) st = nccl_enlist(comm, c->sum.data, sum_slots(config) * config->max_count * sizeof(float));
    if (st == OK) {
        *made = comm;
        return OK;
    }
    nccl_destroy(c);
    free(comm);
    return st;
}
