/* NCCL between forked processes, through memory that they share.
 *
 * A collective is queued on its stream like everything else; it copies the rank's part into a slot and is done when all
 * ranks have done so. Sums are taken in an order that changes along the buffer, as a ring's does: the same on every
 * rank, not that of the ranks. Communicators do not block: a call has only begun, and is settled after a few questions;
 * another call before that is misuse. */
#include "tests/fake_cuda/fake.h"
#include "tests/support/reference.h"

#include <math.h>
#include <nccl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SLOTS = 32, QUESTIONS = 2, RING_PIECE = 16, SCALED_OPS = 8 };

typedef struct Slot {
    _Atomic int generation, arrived, left;
} Slot;

struct GpuWorld {
    int ranks;
    size_t bytes, mapped;
    _Atomic int joined;
    Slot slot[SLOTS];
    _Alignas(64) char data[]; /* [SLOTS][ranks][bytes] */
};

struct ncclComm {
    int users; /* the caller, and queued work */
    int rank, ranks, questions, sequence, scaled_ops;
    bool aborted;
    int registrations;
    double scale[SCALED_OPS];
};

static GpuWorld *world;
static int version = NCCL_VERSION_CODE, groups;
static ncclResult_t broken;
static ncclComm_t of_group;

GpuWorld *fake_gpu_world_create(int ranks, size_t bytes)
{
    size_t mapped = sizeof(GpuWorld) + SLOTS * (size_t)ranks * bytes;
    GpuWorld *made = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED) return NULL;
    made->ranks = ranks;
    made->bytes = bytes;
    made->mapped = mapped;
    world = made;
    return made;
}

void fake_gpu_world_destroy(GpuWorld *made)
{
    if (made) munmap(made, made->mapped);
    world = NULL;
}

void fake_gpu_break_comm(int result)
{
    broken = (ncclResult_t)result;
}

void fake_gpu_nccl_version(int wanted)
{
    version = wanted;
}

/* ---- the library */

ncclResult_t ncclGetVersion(int *found)
{
    ENTER(NCCL, ncclGetVersion);
    *found = version;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    ENTER(NCCL, ncclGetUniqueId);
    memset(id, 7, sizeof *id);
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclRemoteError ? "remote process exited" : "a failure of the fake";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return "no details";
}

ncclResult_t ncclMemAlloc(void **made, size_t bytes)
{
    ENTER(NCCL, ncclMemAlloc);
    return fake_memory_create(FAKE_NCCL_MEMORY, bytes, made) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void *memory)
{
    int code = fake_enter(FAKE_NCCL, "ncclMemFree");
    cudaError_t error = fake_memory_destroy(FAKE_NCCL_MEMORY, memory);
    return code ? (ncclResult_t)code : error == cudaSuccess ? ncclSuccess : ncclInvalidUsage;
}

/* ---- communicators */

static void comm_leave(ncclComm_t comm)
{
    if (--comm->users == 0) free(comm);
}

/* A call has begun; nobody may call again before it has been asked about. */
static ncclResult_t begin(ncclComm_t comm)
{
    if (comm->aborted || comm->questions) return ncclInvalidUsage;
    if (groups) {
        of_group = comm;
        return ncclSuccess;
    }
    comm->questions = QUESTIONS;
    return ncclInProgress;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *made, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    (void)id;
    ENTER(NCCL, ncclCommInitRankConfig);
    if (config->blocking != 0 || ranks != (world ? world->ranks : 1)) return ncclInvalidArgument;
    ncclComm_t comm = calloc(1, sizeof *comm);
    if (!comm) return ncclSystemError;
    *comm = (struct ncclComm){.users = 1, .rank = rank, .ranks = ranks, .questions = QUESTIONS};
    if (world) atomic_fetch_add(&world->joined, 1);
    *made = comm;
    fake_born("communicator");
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result)
{
    ENTER(NCCL, ncclCommGetAsyncError);
    bool waiting = world && atomic_load(&world->joined) < comm->ranks;
    if (!waiting && comm->questions > 0) comm->questions--;
    *result = broken != ncclSuccess ? broken : waiting || comm->questions ? ncclInProgress : ncclSuccess;
    return ncclSuccess;
}

static void comm_end(ncclComm_t comm)
{
    for (; comm->registrations > 0; comm->registrations--) fake_died("registration");
    fake_died("communicator");
    comm_leave(comm);
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    int code = fake_enter(FAKE_NCCL, "ncclCommAbort");
    comm->aborted = true;
    comm_end(comm);
    return code;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    ENTER(NCCL, ncclCommFinalize);
    return begin(comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    int code = fake_enter(FAKE_NCCL, "ncclCommDestroy");
    comm_end(comm);
    return code;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *memory, size_t bytes, void **handle)
{
    ENTER(NCCL, ncclCommRegister);
    if (!fake_on_device(memory, bytes)) return ncclInvalidArgument;
    comm->registrations++;
    *handle = memory;
    fake_born("registration");
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    int code = fake_enter(FAKE_NCCL, "ncclCommDeregister");
    if (!handle || !comm->registrations) return ncclInvalidArgument;
    comm->registrations--;
    fake_died("registration");
    return code;
}

ncclResult_t ncclGroupStart(void); /* the header declares them without a prototype */
ncclResult_t ncclGroupEnd(void);

ncclResult_t ncclGroupStart(void)
{
    ENTER(NCCL, ncclGroupStart);
    groups++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    int code = fake_enter(FAKE_NCCL, "ncclGroupEnd");
    ncclComm_t comm = of_group;
    if (--groups > 0) return code;
    of_group = NULL;
    if (code || !comm) return code;
    comm->questions = QUESTIONS;
    return ncclInProgress;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm)
{
    ENTER(NCCL, ncclRedOpCreatePreMulSum);
    Dtype dtype = type == ncclFloat16 ? DTYPE_F16 : type == ncclBfloat16 ? DTYPE_BF16 : DTYPE_F32;
    if (residence != ncclScalarHostImmediate || comm->scaled_ops == SCALED_OPS) return ncclInvalidArgument;
    comm->scale[comm->scaled_ops] = dtype_load(dtype, scalar, 0);
    *op = (ncclRedOp_t)(ncclNumOps + comm->scaled_ops++);
    fake_born("reduction");
    return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    (void)op, (void)comm;
    int code = fake_enter(FAKE_NCCL, "ncclRedOpDestroy");
    fake_died("reduction");
    return code;
}

/* ---- collectives */

typedef enum CollectiveKind { ALL_REDUCE = 0, BROADCAST, ALL_GATHER } CollectiveKind;

typedef struct Collective {
    CollectiveKind kind;
    ncclComm_t comm; /* shared */
    const void *from;
    void *to;
    size_t count; /* of one rank */
    Dtype dtype;
    double scale;
    int root, sequence;
    bool arrived;
} Collective;

static char *part_of(const Collective *c, int rank)
{
    return world->data + ((size_t)(c->sequence % SLOTS) * (size_t)c->comm->ranks + (size_t)rank) * world->bytes;
}

static void sum_up(const Collective *c)
{
    int ranks = c->comm->ranks;
    for (size_t i = 0; i < c->count; i++) {
        double sum = 0;
        for (int k = 0; k < ranks; k++) {
            int rank = (int)((i / RING_PIECE + (size_t)k) % (size_t)ranks);
            double part = dtype_load(c->dtype, ranks > 1 ? part_of(c, rank) : c->from, (int64_t)i);
            sum = dtype_round(c->dtype, sum + dtype_round(c->dtype, c->scale * part));
        }
        dtype_store(c->dtype, c->to, (int64_t)i, sum);
    }
}

static void collective_do(const Collective *c)
{
    size_t bytes = c->count * dtype_bytes(c->dtype);
    int ranks = c->comm->ranks;
    if (c->kind == ALL_REDUCE) sum_up(c);
    if (c->kind == BROADCAST) memmove(c->to, ranks > 1 ? part_of(c, c->root) : c->from, bytes);
    for (int r = 0; c->kind == ALL_GATHER && r < ranks; r++)
        memmove((char *)c->to + (size_t)r * bytes, ranks > 1 ? part_of(c, r) : c->from, bytes);
}

/* False until all ranks have brought their part. */
static bool collective_meet(Collective *c)
{
    Slot *slot = &world->slot[c->sequence % SLOTS];
    int ranks = c->comm->ranks;
    if (!c->arrived) {
        if (atomic_load(&slot->generation) != c->sequence / SLOTS) return false;
        memcpy(part_of(c, c->comm->rank), c->from, c->count * dtype_bytes(c->dtype));
        c->arrived = true;
        atomic_fetch_add(&slot->arrived, 1);
    }
    if (atomic_load(&slot->arrived) < ranks) return false;
    collective_do(c);
    if (atomic_fetch_add(&slot->left, 1) + 1 < ranks) return true;
    atomic_store(&slot->arrived, 0);
    atomic_store(&slot->left, 0);
    atomic_fetch_add(&slot->generation, 1);
    return true;
}

static bool collective_run(void *context)
{
    Collective *c = context;
    if (c->comm->aborted) { /* its result is worth nothing */
        memset(c->to, 0xff, c->count * dtype_bytes(c->dtype));
        return true;
    }
    if (c->comm->ranks > 1) return collective_meet(c);
    collective_do(c);
    return true;
}

static void collective_drop(void *context)
{
    Collective *c = context;
    comm_leave(c->comm);
    free(c);
}

static ncclResult_t collective_start(const Collective *wanted, ncclDataType_t type, ncclRedOp_t op, cudaStream_t stream)
{
    ncclComm_t comm = wanted->comm;
    ncclResult_t begun = begin(comm);
    if (begun == ncclInvalidUsage) return begun;
    Collective *c = malloc(sizeof *c);
    if (!c) return ncclSystemError;
    *c = *wanted;
    c->dtype = type == ncclFloat16 ? DTYPE_F16 : type == ncclBfloat16 ? DTYPE_BF16 : DTYPE_F32;
    c->scale = (int)op >= (int)ncclNumOps ? comm->scale[(int)op - (int)ncclNumOps] : 1;
    c->sequence = comm->sequence++;
    size_t bytes = c->count * dtype_bytes(c->dtype), parts = c->kind == ALL_GATHER ? (size_t)comm->ranks : 1;
    bool sends = c->kind != BROADCAST || c->root == comm->rank;
    comm->users++;
    if ((world && bytes > world->bytes) || !fake_on_device(c->to, parts * bytes) ||
        (sends && !fake_on_device(c->from, bytes))) {
        collective_drop(c);
        return ncclInvalidArgument;
    }
    if (!sends) c->from = c->to; /* nothing of it is read */
    cudaError_t error = fake_queue(stream, &(FakeWork){"collective", collective_run, collective_drop, c});
    return error == cudaSuccess ? begun : ncclUnhandledCudaError;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream)
{
    ENTER(NCCL, ncclAllReduce);
    return collective_start(&(Collective){.kind = ALL_REDUCE, .comm = comm, .from = from, .to = to, .count = count},
                            type, op, stream);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream)
{
    ENTER(NCCL, ncclBroadcast);
    return collective_start(
        &(Collective){.kind = BROADCAST, .comm = comm, .from = from, .to = to, .count = count, .root = root}, type,
        ncclSum, stream);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    ENTER(NCCL, ncclAllGather);
    return collective_start(&(Collective){.kind = ALL_GATHER, .comm = comm, .from = from, .to = to, .count = count},
                            type, ncclSum, stream);
}
