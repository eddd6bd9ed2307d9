/* Collectives between GPUs by NCCL, with one rank per process.
 *
 * fast: a rank adds its towers in order, the last one in place; then the all-reduce of that range starts in place, on
 * the communication stream, parallel to the computation: no second buffer, no copy. Ranks are added in NCCL's order,
 * the same on every rank. Gradients may travel in 16 bits (in f16 divided by the number of ranks on the way): that
 * takes a buffer of 16 bits, and the sum is written back in f32.
 * ordered: every tower's contribution travels as it is, and is added in tower order, as comm_shm does: the same bits
 * whichever rank holds which tower. Each rank adds a part of the elements (comm_nccl_ordered.c). Not in place: it needs
 * about two buffers of the gradients' size where there is a tower on each rank.
 * A single rank has nothing to reduce: no communicator is created, and its towers are added in order. The sums are in
 * comm_nccl_sum.c.
 * Barrier, small broadcasts and those before the first sum, the unique ids and the flag that a peer has left use the
 * processes' shared memory; between hosts messages over MPI, or over TCP where no MPI has started them.
 *
 * No call blocks inside the library: communicators are nonblocking, results are polled, and the wait ends if a peer has
 * left or the deadline has passed. After an error this rank makes no more calls and sets the flag for its peers.
 * ncclCommAbort is called later, by comm_abort or comm_close, after the caller has recorded the error: it waits for
 * running kernels and may itself hang. After an error the content of device memory is undefined. */
#include <errno.h>

#include "nccl_sync/comm_nccl.h"

/* It came after the oldest supported version; NULL if the library at run time does not have it. */
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 0)
#pragma weak ncclCommInitRankScalable
#define HAS_ROOTS (ncclCommInitRankScalable != NULL)
#else
#define HAS_ROOTS false
#define ncclCommInitRankScalable nccl_lacks
#endif

enum {
    ROOT_RANKS = 128, /* PyTorch's and XLA's choice, too */
    ROOTS_MAX = 32,
    RELAY_MIN = 1 << 16 /* bytes of a broadcast that NCCL makes */
};

/* ---- the other collectives, between the hosts' processors */

/* A piece of a large broadcast, through device memory; as floats, whose bits a broadcast does not change. */
static Status piece_broadcast(Comm *comm, NcclComm *c, char *piece, size_t bytes, int root)
{
    const Backend *backend = c->device->backend;
    bool mine = comm->config.place.rank == root;
    if (mine) TRY(backend->upload(c->device, c->relay, piece, bytes));
    TRY(backend->wait(c->device, STREAM_COMM, STREAM_COMPUTE));
    size_t floats = (bytes + sizeof(float) - 1) / sizeof(float);
    ncclResult_t begun = ncclBroadcast(c->relay, c->relay, floats, ncclFloat32, root, c->nccl, c->stream);
    TRY(nccl_settle(comm, c, begun, "ncclBroadcast"));
    TRY(nccl_done_record(c, "cudaEventRecord behind a broadcast"));
    TRY(nccl_done_wait(comm, c, "a broadcast"));
    if (mine) return OK;
    TRY(backend->download(c->device, piece, c->relay, bytes));
    return backend->finish(c->device, STREAM_COMPUTE);
}

/* What is small goes by the processors, at once; what is large by NCCL, whose rings and trees do not send everything
 * through the first host. Before the first sum, which the self-test compares, GPUs may not reach each other, or change what they pass on:
 * until then nothing else goes between them. */
static bool by_processors(const NcclComm *c, size_t bytes)
{
    return !c->nccl || bytes < RELAY_MIN || !c->summed;
}

static Status nccl_broadcast(Comm *comm, void *buf, size_t bytes, int root)
{
    NcclComm *c = comm->impl;
    if (by_processors(c, bytes)) return comm_broadcast(c->control, buf, bytes, root);
    if (c->left) return nccl_fail_left(comm);
    for (size_t done = 0; done < bytes; done += COMM_RELAY_BYTES) {
        size_t left = bytes - done;
        TRY(piece_broadcast(comm, c, (char *)buf + done, left < COMM_RELAY_BYTES ? left : COMM_RELAY_BYTES, root));
    }
    return OK;
}

static Status nccl_gather(Comm *comm, const void *mine, size_t bytes, void *all, bool everywhere)
{
    NcclComm *c = comm->impl;
    if (!everywhere) return comm_gather_root(c->control, mine, bytes, all);
    if (by_processors(c, bytes)) return comm_gather(c->control, mine, bytes, all);
    memcpy((char *)all + (size_t)comm->config.place.rank * bytes, mine, bytes);
    for (int r = 0; r < comm->config.place.ranks; r++)
        TRY(nccl_broadcast(comm, (char *)all + (size_t)r * bytes, bytes, r));
    return OK;
}

static Status nccl_barrier(Comm *comm)
{
    return comm_barrier(((NcclComm *)comm->impl)->control);
}

static void nccl_end(NcclComm *c)
{
    c->left = true;
    if (c->nccl) ncclCommAbort(c->nccl);
    c->nccl = NULL;
}

static void nccl_abort(Comm *comm)
{
    NcclComm *c = comm->impl;
    comm_abort(c->control);
    nccl_end(c);
}

/* An orderly end needs all ranks; where one has left, nccl_destroy aborts the communicator instead. */
static void nccl_finalize(Comm *comm, NcclComm *c)
{
    if (!c->nccl || c->left || comm_shared_aborted(c->shared) >= 0) return;
    nccl_deregister(comm, c);
    if (!c->left && c->op != ncclSum) ncclRedOpDestroy(c->op, c->nccl);
    if (c->left || nccl_settle(comm, c, ncclCommFinalize(c->nccl), "finalize") != OK) return;
    ncclCommDestroy(c->nccl);
    c->nccl = NULL;
}

static void nccl_destroy(NcclComm *c)
{
    if (!c) return;
    nccl_end(c);
    if (c->first) cudaEventDestroy(c->first);
    if (c->done) cudaEventDestroy(c->done);
    comm_memory_destroy(c->device, &c->sum);
    comm_memory_destroy(c->device, &c->small);
    comm_memory_destroy(c->device, &c->gathered);
    if (c->chunks) c->device->backend->release(c->device, c->chunks);
    if (c->guest) c->device->backend->release(c->device, c->guest);
    if (c->relay) c->device->backend->release(c->device, c->relay);
    comm_close(c->control);
    free(c->rank_of);
    free(c);
}

static void nccl_close(Comm *comm)
{
    nccl_finalize(comm, comm->impl);
    nccl_destroy(comm->impl);
}

/* The gradient arena is registered only if NCCL sums there: not in 16 bits, and not if NCCL sums nothing. */
static Status nccl_register_memory(Comm *comm, const CommMemory *memory, size_t bytes)
{
    NcclComm *c = comm->impl;
    return comm_exchanges(&comm->config) || c->small.data ? OK : nccl_register(comm, c, memory, bytes);
}

void comm_nccl_text(char *text, size_t bytes)
{
    int version = 0;
    if (ncclGetVersion(&version) != ncclSuccess) version = 0;
    snprintf(text, bytes, "NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

static void nccl_text(const Comm *comm, char *text, size_t bytes)
{
    static const char *const places[] = {
        [REGISTERED_NOT] = "unregistered memory",
        [REGISTERED_BUFFER] = "registered memory",
        [REGISTERED_WINDOW] = "a symmetric window",
    };
    const NcclComm *c = comm->impl;
    char version[32];
    if (comm->config.place.ranks == 1) return;
    comm_nccl_text(version, sizeof version);
    snprintf(text, bytes, "%s sums %s, in %s", version,
             comm->config.ordered ? "in tower order"
             : c->small.data      ? "the gradients in 16 bits"
                                  : "the gradients in place",
             places[c->registered_count ? c->registered[0].as : REGISTERED_NOT]);
}

static const CommOps nccl_ops = {
    .allreduce_begin = nccl_allreduce_begin,
    .allreduce_end = nccl_allreduce_end,
    .broadcast = nccl_broadcast,
    .gather = nccl_gather,
    .barrier = nccl_barrier,
    .register_memory = nccl_register_memory,
    .text = nccl_text,
    .look = nccl_look,
    .abort = nccl_abort,
    .close = nccl_close,
};

/* ---- opening */

static Status memory_open(const CommConfig *config, NcclComm *c)
{
    void *memory = NULL;
    CommSpace space = comm_space(config);
    TRY(comm_memory_create(c->device, space.sum ? space.sum : sizeof(float), &c->sum));
    if (space.small) TRY(comm_memory_create(c->device, space.small, &c->small));
    if (space.guest) TRY(c->device->backend->alloc(c->device, space.guest, &memory));
    c->guest = memory, memory = NULL;
    if (space.gathered) TRY(comm_memory_create(c->device, space.gathered, &c->gathered));
    if (space.chunks) TRY(c->device->backend->alloc(c->device, space.chunks, &memory));
    c->chunks = memory;
    if (space.relay) TRY(c->device->backend->alloc(c->device, space.relay, &c->relay));
    c->stream = c->device->backend->stream(c->device, STREAM_COMM);
    TRY(nccl_cuda_check(c, cudaEventCreateWithFlags(&c->first, cudaEventDisableTiming), "cudaEventCreateWithFlags"));
    return nccl_cuda_check(c, cudaEventCreateWithFlags(&c->done, cudaEventDisableTiming), "cudaEventCreateWithFlags");
}

/* Collects which rank holds which tower from all ranks. */
static Status ranks_learn(const CommConfig *config, NcclComm *c)
{
    Status st = OK;
    const int own[2] = {config->place.first_tower, config->place.local_towers};
    int(*all)[2] = calloc((size_t)config->place.ranks, sizeof *all);
    c->rank_of = calloc((size_t)config->towers, sizeof *c->rank_of);
    if (!c->rank_of || !all) TRY_OUT(FAIL(ERR_MEMORY, "no memory for ranks of %d towers", config->towers));
    TRY_OUT(comm_gather(c->control, own, sizeof own, all));
    for (int r = 0; r < config->place.ranks; r++)
        for (int t = all[r][0]; t < all[r][0] + all[r][1] && t < config->towers; t++) c->rank_of[t] = r;
out:
    free(all);
    return st;
}

/* A unique id is a root: a thread of the process that made it, which sends each of its ranks the place of the next one. With
 * thousands of ranks a single root is slow. */
static Status roots_choose(Comm *comm, NcclComm *c, int *roots)
{
    int ranks = comm->config.place.ranks, each = comm->config.root_ranks ? comm->config.root_ranks : ROOT_RANKS, able;
    *roots = 1;
    if (ranks <= each) return OK;
    TRY(nccl_ranks_ask(comm, c, HAS_ROOTS && nccl_library_is(NCCL_VERSION(2, 23, 0)), &able));
    if (able == ranks) *roots = (ranks - 1) / each + 1;
    if (*roots > ROOTS_MAX) *roots = ROOTS_MAX;
    return OK;
}

/* NCCL divides the ranks evenly between the roots; the first rank of each part makes the id. */
static Status ids_exchange(Comm *comm, NcclComm *c, int roots, ncclUniqueId *ids)
{
    int ranks = comm->config.place.ranks, each = ranks / roots, more = ranks % roots;
    for (int i = 0, first = 0; i < roots; first += each + (i < more), i++) {
        if (comm->config.place.rank == first) {
            ncclResult_t result = ncclGetUniqueId(&ids[i]);
            if (result != ncclSuccess) return nccl_fail(c, result, "ncclGetUniqueId");
        }
        TRY(comm_broadcast(c->control, &ids[i], sizeof ids[i], first));
    }
    return OK;
}

/* A setting of the user is kept. */
static Status setting_give(const char *name, const char *value)
{
    return setenv(name, value, 0) == 0 ? OK : FAIL(ERR_MEMORY, "%s: %s", name, strerror(errno));
}

/* NCCL refuses a GPU that two ranks of a host have, unless it is told otherwise, from 2.30 on; until then hosts are told apart by a
 * setting (busId and hostHash of init.cc), and ranks of different ones are connected by the network. */
static Status gpu_share(const Comm *comm)
{
    char rank[16];
    if (nccl_library_is(NCCL_VERSION(2, 30, 0))) return setting_give("NCCL_MULTI_RANK_GPU_ENABLE", "1");
    snprintf(rank, sizeof rank, "%d", comm->config.place.rank);
    return setting_give("NCCL_HOSTID", rank);
}

static Status rank_open(Comm *comm, NcclComm *c)
{
    ncclUniqueId ids[ROOTS_MAX];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    int ranks = comm->config.place.ranks, rank = comm->config.place.rank, roots;
    if (ranks == 1) return OK;
    config.blocking = 0;
    if (unsetenv("NCCL_COMM_BLOCKING") != 0) /* which would override it, and with it all deadlines */
        return FAIL(ERR_INTERNAL, "NCCL_COMM_BLOCKING: %s", strerror(errno));
    if (comm->config.ctas > 0) config.maxCTAs = comm->config.ctas;
    memset(ids, 0, sizeof ids);
    if (comm->config.shared_gpu) TRY(gpu_share(comm));
    /* Only rings add in the same order in every run. */
    static const char *const settings[][2] = {
        {"NCCL_ALGO", "Ring"}, {"NCCL_PROTO", "Simple"}, {"NCCL_NVLS_ENABLE", "0"}};
    for (size_t i = 0; c->device->config.deterministic && i < sizeof settings / sizeof *settings; i++)
        TRY(setting_give(settings[i][0], settings[i][1]));
    TRY(roots_choose(comm, c, &roots));
    TRY(ids_exchange(comm, c, roots, ids));
    ncclResult_t begun = roots > 1 ? ncclCommInitRankScalable(&c->nccl, ranks, rank, roots, ids, &config)
                                   : ncclCommInitRankConfig(&c->nccl, ranks, ids[0], rank, &config);
    return nccl_settle(comm, c, begun, roots > 1 ? "ncclCommInitRankScalable" : "ncclCommInitRankConfig");
}

/* f16 ends at 65504: contributions are divided by a power of two, at least the number of ranks, before the
 * sum. */
static Status op_open(Comm *comm, NcclComm *c)
{
    int halvings = 0;
    c->op = ncclSum;
    if (comm->config.reduce != DTYPE_F16 || !c->small.data) return OK;
    while (1 << halvings < comm->config.place.ranks) halvings++;
    unsigned short share =
        (unsigned short)(halvings < 15 ? (15 - halvings) << 10 : 1 << (24 - halvings)); /* 2^-halvings */
    c->enlarge = (float)(1 << halvings);
    return nccl_settle(comm, c, ncclRedOpCreatePreMulSum(&c->op, &share, ncclFloat16, ncclScalarHostImmediate, c->nccl),
                       "ncclRedOpCreatePreMulSum");
}

Status comm_nccl_open(const CommConfig *config, CommShared *shared, Device *device, Comm *control, Comm **made)
{
    Status st = OK;
    Comm *comm = NULL;
    const CommSpace space = comm_space(config);
    NcclComm *c = calloc(1, sizeof *c);
    if (!c) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the communicator of rank %d", config->place.rank));
    c->control = control;
    c->shared = shared;
    c->process = process_in_node(&config->place);
    c->device = device;
    TRY_OUT(memory_open(config, c));
    if (comm_exchanges(config)) TRY_OUT(ranks_learn(config, c));
    TRY_OUT(comm_create(config, &nccl_ops, c, &comm));
    TRY_OUT(rank_open(comm, c));
    TRY_OUT(op_open(comm, c));
    if (space.gathered) TRY_OUT(nccl_register(comm, c, &c->gathered, space.gathered));
    if (c->small.data) TRY_OUT(nccl_register(comm, c, &c->small, space.small));
    *made = comm;
    return OK;
out:
    comm_abort(control); /* the others learn of it, and do not wait for this rank until their deadline */
    if (!c) comm_close(control);
    nccl_destroy(c);
    free(comm);
    return st;
}
