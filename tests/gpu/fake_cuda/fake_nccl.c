/* NCCL between processes, through memory that they share: forked ones, or programs that the unique id has given the name of
 * its file. Two ranks on one device are refused there, as by NCCL; a test's ranks have a device each.
 *
 * A collective is queued on its stream like other work; it copies the rank's part into a slot and is done when all ranks
 * have done so. Sums are taken in an order that changes along the buffer, as in a ring: the same on every rank, but not
 * the order of ranks. If ranks meet in collectives of different kind, size, type, operator or root, the result is NaN.
 * Messages between two ranks come in groups, which count as one collective; those that do not fit each other arrive as NaN.
 * A communicator needs the same unique ids, in the same order, on all ranks. Communicators do not block: a call only starts an operation, which is complete after some queries; another call before
 * that is misuse. Windows return ncclSuccess at once but are created later, as in 2.28 to 2.30. An abort waits for the
 * kernels in flight; those of windows ignore it before 2.29.7. */
#include "tests/gpu/fake_cuda/fake.h"
#include "tests/support/reference.h"

#include <fcntl.h>
#include <nccl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    RANKS_MAX = 64,
    FILE_BYTES = 64 << 20,
    SLOTS = 32,
    QUESTIONS = 2,
    MESSAGES = 4, /* a group of them may bring so many times what another collective may */
    RING_PIECE = 16,
    SCALED_OPS = 8,
    REGISTRATIONS_MAX = 8
};
enum { WINDOWS_HEED_ABORT = NCCL_VERSION(2, 29, 7) };

typedef struct Slot {
    _Atomic int generation, arrived, left, known;
    _Atomic size_t bytes; /* of the first to come */
    _Atomic int what;     /* likewise: what_of */
    _Atomic bool mixed;   /* another one brought something else */
} Slot;

struct GpuWorld {
    int ranks;
    size_t bytes, room, mapped;  /* bytes: most of a collective; room: from one rank's part to the next one's */
    _Atomic int joined, windows; /* ranks that are there; that have begun a window, of all windows */
    _Atomic int root;            /* the process that has made the unique id */
    _Atomic uint64_t device[RANKS_MAX], ids[RANKS_MAX]; /* ids: a hash of those that the rank was given */
    Slot slot[SLOTS];
    _Alignas(64) char data[]; /* [SLOTS][ranks][room] */
};

/* Memory that a communicator has registered. */
typedef struct Registration {
    const char *at;
    size_t bytes;
    bool window;
} Registration;

struct ncclComm {
    int users; /* the caller, and queued work */
    int rank, ranks, questions, sequence;
    bool aborted, met;   /* met: all ranks have joined */
    ncclResult_t failed; /* for good */
    bool finalized;
    struct {
        bool live;
        Dtype dtype;
        double scale;
    } reduction[SCALED_OPS];
    Registration registered[REGISTRATIONS_MAX];
    int registered_count, windows;   /* windows: begun so far */
    Registration *beginning;         /* a window that waits for the other ranks */
    ncclWindow_t *window;            /* where it is wanted */
    char path[sizeof(ncclUniqueId)]; /* of the file; "" without */
};

static GpuWorld *world;
static bool world_is_file;
static int64_t reduced, received;
static int version = FAKE_GPU_NCCL_VERSION, groups;
static void (*on_abort)(void);
static ncclResult_t broken;
static int64_t joins_after_ms;
static const char *last_message = "no details";
static GpuWindows windows;
static ncclComm_t of_group;

static size_t world_room(size_t bytes)
{
    return MESSAGES * (bytes + 4096) / 64 * 64;
}

GpuWorld *fake_gpu_world_create(int ranks, size_t bytes)
{
    size_t mapped = sizeof(GpuWorld) + SLOTS * (size_t)ranks * world_room(bytes);
    GpuWorld *made = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED) return NULL;
    made->ranks = ranks;
    made->bytes = bytes;
    made->room = world_room(bytes);
    made->mapped = mapped;
    world = made;
    fake_processes_begin();
    return made;
}

void fake_gpu_world_destroy(GpuWorld *made)
{
    if (made) munmap(made, made->mapped);
    world = NULL;
}

int64_t fake_gpu_reduced(void)
{
    return reduced;
}

int64_t fake_gpu_received(void)
{
    return received;
}

void fake_gpu_break_comm(int result)
{
    broken = (ncclResult_t)result;
}

void fake_gpu_windows(GpuWindows wanted)
{
    windows = wanted;
}

void fake_gpu_nccl_version(int wanted)
{
    version = wanted;
}

void fake_gpu_joins_after(int64_t ms)
{
    joins_after_ms = ms;
}

void fake_gpu_on_abort(void (*function)(void))
{
    on_abort = function;
}

/* ---- a world in a file, which is sparse: only what collectives use is stored */

static bool file_name(char *path, size_t room)
{
    const char *folder = getenv("TMPDIR");
    int fd = snprintf(path, room, "%s/fake-nccl-XXXXXX", folder ? folder : "/tmp") < (int)room ? mkstemp(path) : -1;
    if (fd >= 0) close(fd);
    return fd >= 0;
}

/* Every rank opens it, in any order: new memory is zero, and they all write the same. */
static bool file_open(const char *path, int ranks)
{
    size_t mapped = sizeof(GpuWorld) + SLOTS * (size_t)ranks * world_room(FILE_BYTES);
    if (world) munmap(world, world->mapped);
    world = NULL;
    int fd = ranks <= RANKS_MAX ? open(path, O_RDWR) : -1;
    if (fd >= 0 && ftruncate(fd, (off_t)mapped) == 0)
        world = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (fd >= 0) close(fd);
    if (world == MAP_FAILED) world = NULL;
    if (!world) return false;
    world_is_file = true;
    world->ranks = ranks;
    world->bytes = FILE_BYTES;
    world->room = world_room(FILE_BYTES);
    world->mapped = mapped;
    return true;
}

/* All have joined: the name is not needed any more. */
static ncclResult_t all_joined(ncclComm_t comm)
{
    for (int r = 0; world && !comm->met && r < comm->ranks; r++)
        if (atomic_load(&world->ids[r]) != atomic_load(&world->ids[comm->rank])) return ncclInvalidUsage;
    comm->met = true;
    if (!*comm->path) return ncclSuccess;
    (void)unlink(comm->path);
    *comm->path = 0;
    const char *several = version >= NCCL_VERSION(2, 30, 0) ? getenv("NCCL_MULTI_RANK_GPU_ENABLE") : NULL;
    for (int r = 0; r < comm->ranks && !(several && *several == '1'); r++)
        if (r != comm->rank && atomic_load(&world->device[r]) == atomic_load(&world->device[comm->rank]))
            return ncclInvalidUsage;
    return ncclSuccess;
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
    static int made;
    memset(id, 7, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "id %d of process %d", ++made, (int)getpid());
    if (!world || world_is_file) return file_name(id->internal, sizeof id->internal) ? ncclSuccess : ncclSystemError;
    int before = world ? atomic_exchange(&world->root, (int)getpid()) : 0;
    if (before && before != (int)getpid()) {
        atomic_store(&world->joined, 0);
        atomic_store(&world->windows, 0);
        memset(world->slot, 0, sizeof world->slot);
    }
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclRemoteError ? "remote process exited" : "a failure of the fake";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm; /* nccl.h: "currently unused and can be set to NULL" */
    return last_message;
}

void fake_gpu_nccl_message(const char *message)
{
    last_message = message;
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

/* After a call has begun, nobody may call again before it has been asked about (ncclCommEnsureReady in init.cc). */
static ncclResult_t ready(ncclComm_t comm)
{
    if (comm->questions) return ncclInvalidArgument;
    return comm->aborted || comm->failed ? ncclInvalidUsage : ncclSuccess;
}

static ncclResult_t begin(ncclComm_t comm)
{
    ncclResult_t is_ready = ready(comm);
    if (is_ready != ncclSuccess) return is_ready;
    if (groups) {
        of_group = comm;
        return ncclSuccess;
    }
    comm->questions = QUESTIONS;
    return ncclInProgress;
}

/* Each id is another one. */
static bool ids_are_whole(const ncclUniqueId *ids, int count, int ranks)
{
    static const ncclUniqueId none;
    bool whole = count >= 1 && count <= ranks;
    for (int i = 0; whole && i < count; i++) {
        whole = memcmp(&ids[i], &none, sizeof none) != 0;
        for (int k = 0; whole && k < i; k++) whole = memcmp(&ids[i], &ids[k], sizeof *ids) != 0;
    }
    return whole;
}

static ncclResult_t comm_make(ncclComm_t *made, int ranks, int rank, int count, const ncclUniqueId *ids,
                              const ncclConfig_t *config)
{
    bool by_file = ids->internal[0] == '/';
    if (by_file && !file_open(ids->internal, ranks)) return ncclSystemError;
    if (config->blocking != 0 || getenv("NCCL_COMM_BLOCKING") || ranks > (world ? world->ranks : 1) ||
        ranks > RANKS_MAX || rank < 0 || rank >= ranks || !ids_are_whole(ids, count, ranks))
        return ncclInvalidArgument;
    ncclComm_t comm = calloc(1, sizeof *comm);
    if (!comm) return ncclSystemError;
    usleep((useconds_t)joins_after_ms * 1000);
    *comm = (struct ncclComm){.users = 1, .rank = rank, .ranks = ranks, .questions = QUESTIONS};
    if (by_file) {
        memcpy(comm->path, ids->internal, sizeof comm->path);
        atomic_store(&world->device[rank], fake_device_id(fake_device_current()));
    }
    if (world) {
        atomic_store(&world->ids[rank], XXH3_64bits(ids, (size_t)count * sizeof *ids));
        atomic_fetch_add(&world->joined, 1);
    }
    *made = comm;
    fake_born("communicator");
    return ncclInProgress;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *made, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    ENTER(NCCL, ncclCommInitRankConfig);
    return comm_make(made, ranks, rank, 1, &id, config);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t *made, int ranks, int rank, int count, ncclUniqueId *ids,
                                      ncclConfig_t *config)
{
    ENTER(NCCL, ncclCommInitRankScalable);
    if (version < NCCL_VERSION(2, 23, 0)) return ncclInvalidUsage;
    return comm_make(made, ranks, rank, count, ids, config);
}

static Registration *registration_add(ncclComm_t comm, const void *memory, size_t bytes, bool window)
{
    if (comm->registered_count == REGISTRATIONS_MAX || !fake_on_device(memory, bytes)) return NULL;
    comm->registered[comm->registered_count] = (Registration){memory, bytes, window};
    fake_born(window ? "window" : "registration");
    return &comm->registered[comm->registered_count++];
}

static Registration *registration_find(ncclComm_t comm, const void *at, size_t bytes)
{
    const char *first = at;
    for (int i = 0; i < comm->registered_count; i++) {
        Registration *found = &comm->registered[i];
        if (first >= found->at && first + bytes <= found->at + found->bytes) return found;
    }
    return NULL;
}

static void window_finish(ncclComm_t comm)
{
    if (comm->window && comm->beginning) *comm->window = (ncclWindow_t)comm->beginning->at;
    if (comm->window && windows == GPU_WINDOWS_REFUSED_LATE) comm->failed = ncclUnhandledCudaError;
    comm->window = NULL;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result)
{
    ENTER(NCCL, ncclCommGetAsyncError);
    bool waiting = world && (atomic_load(&world->joined) < comm->ranks ||
                             (comm->window && atomic_load(&world->windows) < comm->ranks * comm->windows));
    if (!waiting && !comm->failed) comm->failed = all_joined(comm);
    if (!waiting && comm->questions > 0) comm->questions--;
    if (!waiting && !comm->questions) window_finish(comm);
    *result = broken != ncclSuccess ? broken : waiting || comm->questions ? ncclInProgress : comm->failed;
    return ncclSuccess;
}

static void comm_end(ncclComm_t comm)
{
    fake_died("communicator");
    comm_leave(comm);
}

static void registration_drop(ncclComm_t comm, Registration *found)
{
    fake_died(found->window ? "window" : "registration");
    *found = comm->registered[--comm->registered_count];
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    int code = fake_enter(FAKE_NCCL, "ncclCommAbort");
    if (on_abort) on_abort();
    comm->aborted = true;
    if (comm->users > 1) fake_all_drain();
    while (comm->registered_count)
        registration_drop(comm, comm->registered); /* an abort forgets them; an orderly end must not have any */
    for (int i = 0; i < SCALED_OPS; i++)
        if (comm->reduction[i].live) fake_died("reduction");
    comm_end(comm);
    return code;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    ENTER(NCCL, ncclCommFinalize);
    if (comm->finalized) return ncclInvalidArgument;
    comm->finalized = true;
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
    const char *registers = getenv("NCCL_LOCAL_REGISTER");
    *handle = NULL;
    if (registers && *registers == '0') return ncclSuccess; /* register/register.cc */
    if (comm->questions) return ncclInvalidUsage;           /* it changes what the call under way changes */
    Registration *found = registration_add(comm, memory, bytes, false);
    if (!found) return ncclInvalidArgument;
    *handle = memory;
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    int code = fake_enter(FAKE_NCCL, "ncclCommDeregister");
    Registration *found = comm->questions ? NULL : registration_find(comm, handle, 1);
    if (!found || found->at != handle || found->window) return ncclInvalidArgument;
    registration_drop(comm, found);
    return code;
}

/* Does what a call has only begun to write lie where the caller's functions keep their own? */
static bool is_fleeting(const void *at)
{
    return (uintptr_t)at - (uintptr_t)__builtin_frame_address(0) < (uintptr_t)1 << 20;
}

/* Begun by every rank before it is there for any; memory of ncclMemAlloc, or something else that is mapped. */
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *memory, size_t bytes, ncclWindow_t *window, int flags)
{
    ENTER(NCCL, ncclCommWindowRegister);
    if (windows == GPU_WINDOWS_REFUSED) return ncclInvalidUsage;
    if (is_fleeting(window) || version < NCCL_VERSION(2, 27, 0) || flags != NCCL_WIN_COLL_SYMMETRIC ||
        !fake_on_nccl_memory(memory) || (uintptr_t)memory % NCCL_WIN_REQUIRED_ALIGNMENT != 0)
        return ncclInvalidArgument;
    ncclResult_t begun = begin(comm);
    if (begun == ncclInvalidUsage) return begun;
    bool makes = windows == GPU_WINDOWS_MADE;
    Registration *found = makes ? registration_add(comm, memory, bytes, true) : NULL;
    if (makes && !found) return ncclInvalidArgument;
    comm->windows++;
    comm->window = window;
    comm->beginning = found;
    *window = NULL;
    if (world) atomic_fetch_add(&world->windows, 1);
    return ncclSuccess;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window)
{
    int code = fake_enter(FAKE_NCCL, "ncclCommWindowDeregister");
    Registration *found = registration_find(comm, window, 1);
    if (!found || found->at != (const char *)window || !found->window) return ncclInvalidArgument;
    ncclResult_t begun = begin(comm);
    if (begun != ncclInProgress) return begun;
    registration_drop(comm, found);
    return (ncclResult_t)code; /* ncclSuccess: begun all the same */
}

/* The types that are asked for. */
static bool dtype_of(ncclDataType_t type, Dtype *dtype)
{
    *dtype = type == ncclFloat16                                                    ? DTYPE_F16
             : type == (ncclDataType_t)9 /* ncclBfloat16, which C has since 2.24 */ ? DTYPE_BF16
                                                                                    : DTYPE_F32;
    return *dtype != DTYPE_F32 || type == ncclFloat32;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm)
{
    ENTER(NCCL, ncclRedOpCreatePreMulSum);
    Dtype dtype;
    int i = 0;
    ncclResult_t is_ready = ready(comm);
    if (is_ready != ncclSuccess) return is_ready;
    while (i < SCALED_OPS && comm->reduction[i].live) i++;
    if (residence != ncclScalarHostImmediate || !dtype_of(type, &dtype) || i == SCALED_OPS) return ncclInvalidArgument;
    comm->reduction[i].live = true;
    comm->reduction[i].dtype = dtype;
    comm->reduction[i].scale = dtype_load(dtype, scalar, 0);
    *op = (ncclRedOp_t)(ncclNumOps + i);
    fake_born("reduction");
    return ncclSuccess;
}

/* The number of a live operator of the communicator; -1: of none (enqueue.cc, misc/argcheck.cc). */
static int reduction_of(ncclComm_t comm, ncclRedOp_t op)
{
    int i = (int)op - (int)ncclNumOps;
    return i >= 0 && i < SCALED_OPS && comm->reduction[i].live ? i : -1;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    int code = fake_enter(FAKE_NCCL, "ncclRedOpDestroy"), i = reduction_of(comm, op);
    if (i < 0) return ncclInvalidArgument;
    comm->reduction[i].live = false;
    fake_died("reduction");
    return code;
}

/* ---- collectives */

typedef enum CollectiveKind { ALL_REDUCE = 0, BROADCAST, ALL_GATHER, EXCHANGE } CollectiveKind;

/* From or to a peer: a send or a receive of a group. */
typedef struct Message {
    bool sends;
    int peer;
    char *at;
    size_t bytes;
} Message;

typedef struct Collective {
    CollectiveKind kind;
    ncclComm_t comm; /* shared */
    const void *from;
    void *to;
    size_t count; /* of one rank */
    Dtype dtype;
    bool scaled; /* by the operator of each rank, which may differ */
    double scale;
    int root, sequence;
    bool arrived;
    int known;        /* how the communicator knows the memory: not, as a buffer, as a window */
    Message *message; /* owned [messages], of an EXCHANGE */
    int messages;
} Collective;

static char *part_of(const Collective *c, int rank)
{
    return world->data + ((size_t)(c->sequence % SLOTS) * (size_t)c->comm->ranks + (size_t)rank) * world->room;
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

/* ---- messages, each behind a header {peer, bytes} in its rank's part; the last header has no peer */

typedef struct MessageHeader {
    int64_t peer, bytes;
} MessageHeader;

static size_t messages_bytes(const Collective *c)
{
    size_t bytes = sizeof(MessageHeader);
    for (int i = 0; i < c->messages; i++)
        if (c->message[i].sends) bytes += sizeof(MessageHeader) + c->message[i].bytes;
    return bytes;
}

static void messages_bring(const Collective *c, char *to)
{
    for (int i = 0; i < c->messages; i++) {
        const Message *m = &c->message[i];
        if (!m->sends) continue;
        memcpy(to, &(MessageHeader){m->peer, (int64_t)m->bytes}, sizeof(MessageHeader));
        memcpy(to + sizeof(MessageHeader), m->at, m->bytes);
        to += sizeof(MessageHeader) + m->bytes;
    }
    memcpy(to, &(MessageHeader){-1, 0}, sizeof(MessageHeader));
}

/* Message number `number` of `peer` to this rank; NULL: there are fewer, or it is not of this size. */
static const char *message_find(const Collective *c, int peer, int number, size_t bytes)
{
    MessageHeader header;
    for (const char *at = part_of(c, peer);; at += sizeof header + (size_t)header.bytes) {
        memcpy(&header, at, sizeof header);
        if (header.peer < 0) return NULL;
        if (header.peer != c->comm->rank || number-- > 0) continue;
        return header.bytes == (int64_t)bytes ? at + sizeof header : NULL;
    }
}

/* A message that nobody receives, or that is awaited in vain, would keep the library waiting: all are worth nothing then. */
static bool messages_fit(const Collective *c, int number[])
{
    for (int i = 0; i < c->messages; i++) {
        const Message *m = &c->message[i];
        if (!m->sends && !message_find(c, m->peer, number[m->peer]++, m->bytes)) return false;
    }
    for (int r = 0; r < c->comm->ranks; r++) {
        MessageHeader header;
        int sent = 0;
        for (const char *at = part_of(c, r);; at += sizeof header + (size_t)header.bytes) {
            memcpy(&header, at, sizeof header);
            if (header.peer < 0) break;
            sent += header.peer == c->comm->rank;
        }
        if (sent != number[r]) return false;
    }
    return true;
}

static void messages_do(const Collective *c)
{
    int number[RANKS_MAX] = {0}, next[RANKS_MAX] = {0};
    bool fit = messages_fit(c, number);
    for (int i = 0; i < c->messages; i++) {
        const Message *m = &c->message[i];
        if (m->sends) continue;
        if (fit)
            memcpy(m->at, message_find(c, m->peer, next[m->peer]++, m->bytes), m->bytes);
        else
            memset(m->at, 0xff, m->bytes);
    }
}

/* ---- what a collective does */

static void collective_do(const Collective *c)
{
    size_t bytes = c->count * dtype_bytes(c->dtype);
    int ranks = c->comm->ranks;
    if (c->kind == EXCHANGE) messages_do(c);
    if (c->kind == ALL_REDUCE) sum_up(c);
    if (c->kind == BROADCAST) memmove(c->to, ranks > 1 ? part_of(c, c->root) : c->from, bytes);
    for (int r = 0; c->kind == ALL_GATHER && r < ranks; r++)
        memmove((char *)c->to + (size_t)r * bytes, ranks > 1 ? part_of(c, r) : c->from, bytes);
}

/* What all ranks of a collective must agree on beside its size; not 0. */
static int what_of(const Collective *c)
{
    return 1 + (int)c->kind + 4 * (int)c->dtype + 32 * c->scaled + 64 * c->root;
}

static void collective_bring(Collective *c, Slot *slot)
{
    size_t bytes = c->count * dtype_bytes(c->dtype), first = 0;
    if (c->kind == EXCHANGE)
        messages_bring(c, part_of(c, c->comm->rank));
    else
        memcpy(part_of(c, c->comm->rank), c->from, bytes);
    int what = what_of(c), other = 0;
    if ((!atomic_compare_exchange_strong(&slot->bytes, &first, bytes) && first != bytes) ||
        (!atomic_compare_exchange_strong(&slot->what, &other, what) && other != what))
        atomic_store(&slot->mixed, true);
    c->arrived = true;
    atomic_fetch_add(&slot->known, c->known);
    atomic_fetch_add(&slot->arrived, 1);
}

static void collective_spoil(const Collective *c)
{
    if (c->to) memset(c->to, 0xff, c->count * dtype_bytes(c->dtype));
    for (int i = 0; i < c->messages; i++)
        if (!c->message[i].sends) memset(c->message[i].at, 0xff, c->message[i].bytes);
}

/* False until all ranks have brought their part. */
static bool collective_meet(Collective *c)
{
    Slot *slot = &world->slot[c->sequence % SLOTS];
    int ranks = c->comm->ranks;
    if (!c->arrived && atomic_load(&slot->generation) != c->sequence / SLOTS) return false;
    if (!c->arrived) collective_bring(c, slot);
    if (atomic_load(&slot->arrived) < ranks) return false;
    if (!atomic_load(&slot->mixed) && atomic_load(&slot->known) == c->known * ranks)
        collective_do(c);
    else /* nor would ranks that know the memory differently take the same kernel */
        collective_spoil(c);
    if (atomic_fetch_add(&slot->left, 1) + 1 < ranks) return true;
    atomic_store(&slot->known, 0);
    atomic_store(&slot->bytes, 0);
    atomic_store(&slot->what, 0);
    atomic_store(&slot->mixed, false);
    atomic_store(&slot->arrived, 0);
    atomic_store(&slot->left, 0);
    atomic_fetch_add(&slot->generation, 1);
    return true;
}

static bool collective_run(void *context)
{
    Collective *c = context;
    if (c->comm->aborted && (c->known != 2 || version >= WINDOWS_HEED_ABORT)) { /* its result is worth nothing */
        collective_spoil(c);
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
    free(c->message);
    free(c);
}

/* What a rank receives in all, by a ring. */
static int64_t collective_receives(const Collective *c, size_t bytes)
{
    int64_t ranks = c->comm->ranks, each = (int64_t)bytes, messages = 0;
    for (int i = 0; i < c->messages; i++) messages += c->message[i].sends ? 0 : (int64_t)c->message[i].bytes;
    switch (c->kind) {
    case ALL_REDUCE: return 2 * (ranks - 1) * each / ranks;
    case BROADCAST: return c->root == c->comm->rank ? 0 : each;
    case ALL_GATHER: return (ranks - 1) * each;
    case EXCHANGE: return messages;
    }
    return 0;
}

static ncclResult_t collective_start(const Collective *wanted, ncclDataType_t type, ncclRedOp_t op, cudaStream_t stream)
{
    ncclComm_t comm = wanted->comm;
    Dtype dtype;
    int reduction = reduction_of(comm, op);
    /* nccl.h: an operator is for its datatype only. Others than these the fake does not compute. */
    if (!dtype_of(type, &dtype) || (op != ncclSum && (reduction < 0 || comm->reduction[reduction].dtype != dtype)))
        return ncclInvalidArgument;
    ncclResult_t begun = begin(comm);
    if (begun == ncclInvalidUsage) return begun;
    Collective *c = malloc(sizeof *c);
    if (!c) return ncclSystemError;
    *c = *wanted;
    c->dtype = dtype;
    c->scaled = reduction >= 0;
    c->scale = c->scaled ? comm->reduction[reduction].scale : 1;
    c->sequence = comm->sequence++;
    const Registration *found = registration_find(comm, c->to, 1);
    c->known = !found ? 0 : found->window ? 2 : 1;
    size_t bytes = c->count * dtype_bytes(c->dtype), parts = c->kind == ALL_GATHER ? (size_t)comm->ranks : 1;
    bool sends = c->kind != BROADCAST || c->root == comm->rank;
    comm->users++;
    if ((world && bytes > world->bytes) || !fake_on_device(c->to, parts * bytes) ||
        (sends && !fake_on_device(c->from, bytes))) {
        collective_drop(c);
        return ncclInvalidArgument;
    }
    if (!sends) c->from = c->to; /* nothing of it is read */
    /* NCCL moves 16 bytes at once only between addresses that allow it, else single elements, which are bytes in a broadcast
     * (reduceCopy of device/common_kernel.h, collTaskAppend of enqueue.cc). */
    if (((uintptr_t)c->from | (uintptr_t)c->to) % 16) fake_note("misaligned collective");
    received += collective_receives(c, bytes);
    cudaError_t error = fake_queue(stream, &(FakeWork){"collective", collective_run, collective_drop, c});
    return error == cudaSuccess ? begun : ncclUnhandledCudaError;
}

/* ---- groups, and the messages in them */

static Collective *exchange; /* of the group that is open; NULL: it has no messages */
static cudaStream_t exchange_stream;
static ncclResult_t group_failed;

ncclResult_t ncclGroupStart(void); /* the header declares them without a prototype */
ncclResult_t ncclGroupEnd(void);

ncclResult_t ncclGroupStart(void)
{
    ENTER(NCCL, ncclGroupStart);
    groups++;
    return ncclSuccess;
}

static ncclResult_t exchange_start(void)
{
    Collective *c = exchange;
    exchange = NULL;
    if (!c) return ncclSuccess;
    c->sequence = c->comm->sequence++;
    received += collective_receives(c, 0);
    return fake_queue(exchange_stream, &(FakeWork){"collective", collective_run, collective_drop, c}) == cudaSuccess
               ? ncclSuccess
               : ncclUnhandledCudaError;
}

/* After a failure in a group nothing of its messages is begun, as in ncclGroupEndInternal. */
ncclResult_t ncclGroupEnd(void)
{
    int code = fake_enter(FAKE_NCCL, "ncclGroupEnd");
    ncclComm_t comm = of_group;
    if (--groups > 0) return code;
    if (!code) code = group_failed;
    if (code && exchange) collective_drop(exchange);
    if (code) exchange = NULL;
    of_group = NULL;
    group_failed = ncclSuccess;
    if (code || !comm) return code;
    ncclResult_t begun = exchange_start();
    comm->questions = QUESTIONS;
    return begun == ncclSuccess ? ncclInProgress : begun;
}

static ncclResult_t message_check(const Message *m, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)
{
    ncclResult_t begun = groups ? begin(comm) : ncclInvalidUsage; /* alone the fake does not do them, nor to oneself */
    if (begun != ncclSuccess) return begun;
    if (type != ncclFloat32 || m->peer < 0 || m->peer >= comm->ranks || m->peer == comm->rank ||
        !fake_on_device(m->at, m->bytes) || (exchange && (exchange->comm != comm || exchange_stream != stream)))
        return ncclInvalidArgument;
    return ncclSuccess;
}

static ncclResult_t message_add(Message m, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)
{
    ncclResult_t checked = message_check(&m, type, comm, stream);
    if (checked != ncclSuccess) return checked;
    if (!exchange) {
        exchange = calloc(1, sizeof *exchange);
        if (!exchange) return ncclSystemError;
        *exchange = (Collective){.kind = EXCHANGE, .comm = comm};
        exchange_stream = stream;
        comm->users++;
    }
    Message *more = realloc(exchange->message, ((size_t)exchange->messages + 1) * sizeof *more);
    if (!more) return ncclSystemError;
    exchange->message = more;
    more[exchange->messages++] = m;
    if ((uintptr_t)m.at % 16) fake_note("misaligned collective");
    return messages_bytes(exchange) <= world->room ? ncclSuccess : ncclInvalidArgument;
}

static ncclResult_t group_keeps(ncclResult_t result)
{
    if (result != ncclSuccess) group_failed = result;
    return result;
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    int code = fake_enter(FAKE_NCCL, "ncclSend");
    return group_keeps(
        code ? (ncclResult_t)code
             : message_add((Message){true, peer, (char *)from, count * sizeof(float)}, type, comm, stream));
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    int code = fake_enter(FAKE_NCCL, "ncclRecv");
    return group_keeps(code ? (ncclResult_t)code
                            : message_add((Message){false, peer, to, count * sizeof(float)}, type, comm, stream));
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream)
{
    ENTER(NCCL, ncclAllReduce);
    reduced += (int64_t)count;
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
