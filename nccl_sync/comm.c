/* The communicator interface: makes the checks common to all implementations, then forwards. */
#include "nccl_sync/comm.h"

#include "kernels/clock.h"
#include "kernels/text.h"
#include "nccl_sync/comm_ops.h"
#include "nccl_sync/comm_shared.h"
#include "nccl_sync/link.h"

#include <unistd.h>

Status comm_create(const CommConfig *config, const CommOps *ops, void *impl, Comm **made)
{
    if (config->place.local_towers < 1 || config->place.first_tower < 0 ||
        config->place.first_tower + config->place.local_towers > config->towers)
        return FAIL(ERR_ARG, "rank %d: towers %d..%d are not part of 0..%d", config->place.rank,
                    config->place.first_tower, config->place.first_tower + config->place.local_towers - 1,
                    config->towers - 1);
    Comm *comm = calloc(1, sizeof *comm);
    if (!comm) return FAIL(ERR_MEMORY, "no memory for the communicator of rank %d", config->place.rank);
    *comm = (Comm){.ops = ops, .config = *config, .impl = impl};
    *made = comm;
    return OK;
}

Status comm_mpi_open(const CommConfig *config, CommShared *shared, Comm **made)
{
#ifdef TOWERS_HAVE_MPI
    return comm_hosts_open(config, shared, link_mpi_open, made);
#else
    (void)shared, (void)made;
    return FAIL(ERR_UNSUPPORTED,
                "tower processes of %d hosts, started by MPI, need MPI, which this build does not have: install "
                "libopenmpi-dev or libmpich-dev, then configure and build again; or use one host",
                config->place.groups);
#endif
}

static Status join(const CommConfig *config, CommShared *shared, Device *device, Comm **made)
{
#ifdef TOWERS_HAVE_CUDA
    if (device->backend->nccl) return comm_nccl_open(config, shared, device, made);
#else
    (void)device;
#endif
    return config->place.groups <= 1 ? comm_shm_open(config, shared, made) : comm_mpi_open(config, shared, made);
}

Status comm_join(const CommConfig *config, CommShared *shared, Device *device, Comm **made)
{
    TRY(join(config, shared, device, made));
    comm_record_in(*made, shared);
    return OK;
}

/* ---- the flight recorder */

void comm_record_in(Comm *comm, CommShared *shared)
{
    comm->record = &shared->record[group_rank(&comm->config.place)];
}

static void record_begin(Comm *comm, const char *what, size_t first, size_t bytes)
{
    CommRecord *record = comm->record;
    if (!record || atomic_load(&record->waits)) return; /* the one that failed stays */
    atomic_store(&record->what, what);
    atomic_store(&record->first, (int64_t)first);
    atomic_store(&record->bytes, (int64_t)bytes);
    atomic_store(&record->at_ns, clock_ns());
    atomic_store(&record->waits, true);
    atomic_fetch_add(&record->number, 1);
}

/* One that fails stays as one that is waited for. */
static Status record_end(Comm *comm, Status st)
{
    if (!comm->record || st != OK) return st;
    atomic_store(&comm->record->waits, false);
    atomic_store(&comm->record->at_ns, clock_ns());
    return OK;
}

bool comm_record_text(const CommShared *shared, int first_rank, int64_t waited_ms, char *text, size_t bytes)
{
    bool hangs = false;
    Text list = text_start(text, bytes);
    for (int r = 0; r < shared->ranks; r++) {
        const CommRecord *record = &shared->record[r];
        bool waits = atomic_load(&record->waits);
        int64_t number = atomic_load(&record->number), age_ms = (clock_ns() - atomic_load(&record->at_ns)) / 1000000;
        if (number == 0) continue;
        hangs |= waits && age_ms > waited_ms;
        text_add(&list, "%srank %d %s collective %lld, %s", list.used ? "; " : "", first_rank + r,
                 waits ? "waits in" : "ended", (long long)number, atomic_load(&record->what));
        if (atomic_load(&record->bytes))
            text_add(&list, " of %lld bytes from element %lld", (long long)atomic_load(&record->bytes),
                     (long long)atomic_load(&record->first));
        text_add(&list, waits ? ", for %.1f s" : ", %.1f s ago", (double)age_ms * 1e-3);
    }
    return hangs;
}

bool comm_mpi_text(char *text, size_t bytes)
{
#ifdef TOWERS_HAVE_MPI
    link_mpi_text(text, bytes);
    return true;
#else
    if (bytes) *text = 0;
    return false;
#endif
}

_Noreturn void comm_exit(int code)
{
#ifdef TOWERS_HAVE_MPI
    link_mpi_exit(code);
#else
    _exit(code);
#endif
}

#ifndef TOWERS_HAVE_CUDA
void comm_nccl_text(char *text, size_t bytes)
{
    if (bytes) *text = 0;
}
#endif

Status comm_memory_create(Device *device, size_t bytes, CommMemory *made)
{
    const Backend *backend = device->backend;
    *made = (CommMemory){0};
#ifdef TOWERS_HAVE_CUDA
    if (backend->nccl && comm_nccl_memory_create(bytes, &made->data)) {
        made->special = true;
        Status st = backend->fill(device, made->data, 0, bytes / sizeof(float));
        if (st == OK) st = backend->finish(device, STREAM_COMPUTE);
        if (st != OK) comm_memory_destroy(device, made);
        return st;
    }
#endif
    return backend->alloc(device, bytes, &made->data);
}

void comm_memory_destroy(Device *device, CommMemory *memory)
{
    if (!memory->data) return;
#ifdef TOWERS_HAVE_CUDA
    if (memory->special) comm_nccl_memory_destroy(memory->data);
#endif
    if (!memory->special) device->backend->release(device, memory->data);
    *memory = (CommMemory){0};
}

/* The last tower's gradients become the sum in place. The gradients of a rank's other towers are overwritten by then, so
 * their sum has a buffer; with `ordered` every tower's contribution has one. */
CommSpace comm_space(const CommConfig *config)
{
    bool several = config->place.local_towers > 1, narrow = config->reduce != DTYPE_F32 && config->place.ranks > 1;
    size_t room = config->max_count * sizeof(float), staged = comm_staged(config) * sizeof(float);
    return (CommSpace){.sum = config->ordered ? (size_t)config->towers * room
                              : several       ? room
                                              : staged,
                       .small = narrow ? config->gradients * dtype_bytes(config->reduce) : 0,
                       .guest = several && !config->ordered ? staged : 0,
                       .relay = config->place.ranks > 1 ? COMM_RELAY_BYTES : 0};
}

/* In shared memory every tower has a slot, but those of the process with tower 0 have one together; several processes have
 * a result, of which each computes a part. */
size_t comm_bytes(const Backend *backend, const CommConfig *config)
{
    CommSpace space = comm_space(config);
    size_t slot = config->max_count * sizeof(float), ranks = (size_t)group_ranks(&config->place);
    if (backend->nccl) return space.sum + space.small + space.guest + space.relay;
    size_t slots = config->place.first_tower == 0 ? 1 : (size_t)config->place.local_towers;
    return slots * slot + (config->place.ranks > 1 ? (slot + ranks - 1) / ranks : 0);
}

/* By NCCL's sources, version 2.30: on every channel a rank has a buffer for each rank that it receives from, which is one in a
 * ring and two in a tree, and a small one for each that it sends to, in units of CUDA's allocations. The first holds what the
 * three protocols need (computeBuffSizes of init.cc, p2pRecvSetup of transport/p2p.cc); issue 1685 of NVIDIA/nccl lists 10 and
 * 2 MiB on H100s. NVLink has up to 24 channels, PCI Express 2 (graph/search.cc, doubled in graph/connect.cc). Besides, a switch
 * adds in buffers for each of its GPUs (transport/nvls.cc). Ranks of other hosts need more, and registered memory needs less. */
size_t comm_library_bytes(const Backend *backend, const CommConfig *config, bool deterministic)
{
    enum { LL = 512 << 10, LL128 = 4800 << 10, SIMPLE = 4 << 20, UNIT = 2 << 20, SWITCH = 2 << 20 };
    enum { OF_NVLINK = 24, OF_PCI = 2, OF_SWITCH = 16, SWITCH_GPUS = 32 };
    DeviceLinks links;
    if (config->place.ranks < 2 || !backend->links) return 0;
    backend->links(&links);
    const char *simple = getenv("NCCL_BUFFSIZE");
    bool rings = deterministic || config->ordered; /* alone: no trees, no sums in the switch */
    size_t received = LL + LL128 + (simple ? strtoull(simple, NULL, 10) : SIMPLE),
           local = (size_t)group_ranks(&config->place), most = config->ctas > 0 ? (size_t)config->ctas : OF_NVLINK,
           channels = links.nvlink ? OF_NVLINK : OF_PCI, added = rings || !links.multicast ? 0 : OF_SWITCH;
    if (channels > most) channels = most;
    if (added > most) added = most;
    if (local > SWITCH_GPUS) local = SWITCH_GPUS;
    return channels * (rings ? 1 : 3) * ((received + UNIT - 1) / UNIT * UNIT + UNIT) + added * local * SWITCH;
}

Status comm_register(Comm *comm, const CommMemory *memory, size_t bytes)
{
    return comm->ops->register_memory ? comm->ops->register_memory(comm, memory, bytes) : OK;
}

void comm_text(const Comm *comm, char *text, size_t bytes)
{
    *text = 0;
    if (comm->ops->text) comm->ops->text(comm, text, bytes);
}

static Status range_check(const Comm *comm, size_t first, size_t count)
{
    if (count > comm->config.max_count || first > comm->config.max_count - count)
        return FAIL(ERR_INTERNAL, "a collective over %zu elements from element %zu exceeds the buffer of %zu", count,
                    first, comm->config.max_count);
    return OK;
}

Status comm_allreduce_begin(Comm *comm, int tower, size_t first, float *from, size_t count)
{
    TRY(range_check(comm, first, count));
    if (tower < comm->config.place.first_tower ||
        tower >= comm->config.place.first_tower + comm->config.place.local_towers)
        return FAIL(ERR_INTERNAL, "rank %d contributes for tower %d, which belongs to another rank",
                    comm->config.place.rank, tower);
    return comm->ops->allreduce_begin(comm, tower, first, from, count);
}

Status comm_allreduce_end(Comm *comm, size_t first, float *to, size_t count)
{
    TRY(range_check(comm, first, count));
    record_begin(comm, "an all-reduce", first, count * sizeof *to);
    return record_end(comm, comm->ops->allreduce_end(comm, first, to, count));
}

void comm_sum_times(Comm *comm, CommTimes *times)
{
    *times = (CommTimes){0};
    if (comm->ops->sum_times) comm->ops->sum_times(comm, times);
}

Status comm_broadcast(Comm *comm, void *buf, size_t bytes, int root)
{
    record_begin(comm, "a broadcast", 0, bytes);
    return record_end(comm, comm->ops->broadcast(comm, buf, bytes, root));
}

Status comm_gather(Comm *comm, const void *mine, size_t bytes, void *all)
{
    record_begin(comm, "a gather", 0, bytes);
    return record_end(comm, comm->ops->gather(comm, mine, bytes, all));
}

Status comm_barrier(Comm *comm)
{
    record_begin(comm, "a barrier", 0, 0);
    return record_end(comm, comm->ops->barrier(comm));
}

void comm_wait_look(CommWait *wait, const CommConfig *config, int64_t progress_ns)
{
    enum { PAUSE_MS = 1000 };
    int64_t now = clock_ns() / 1000000, waited = now - wait->looked_ms;
    if (!wait->looked_ms || progress_ns > wait->progress_ns)
        wait->left_ms = config->timeout_ms + config->grace_ms;
    else if (waited < PAUSE_MS) /* longer: we were stopped, as the others may have been */
        wait->left_ms -= waited;
    wait->looked_ms = now;
    wait->progress_ns = progress_ns;
}

Status comm_look(Comm *comm, CommWait *wait)
{
    return comm->ops->look(comm, wait);
}

void comm_abort(Comm *comm)
{
    if (comm) comm->ops->abort(comm);
}

void comm_close(Comm *comm)
{
    if (!comm) return;
    comm->ops->close(comm);
    free(comm);
}

const CommConfig *comm_config(const Comm *comm)
{
    return &comm->config;
}
