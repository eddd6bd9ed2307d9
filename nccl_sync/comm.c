/* The communicator interface: makes the checks common to all implementations, then forwards. */
#include "nccl_sync/comm.h"

#include "kernels/clock.h"
#include "nccl_sync/comm_ops.h"
#include "nccl_sync/comm_record.h"
#include "nccl_sync/link_carried.h"

#include <unistd.h>

/* ---- what depends on the build */

Status comm_mpi_open(const CommConfig *config, CommShared *shared, Comm **made)
{
#ifdef TOWERS_HAVE_MPI
    return comm_hosts_open(config, shared, config->carrier ? link_carried_open : link_mpi_open, made);
#else
    (void)shared, (void)made;
    return FAIL(ERR_UNSUPPORTED,
                "tower processes of %d hosts, started by MPI, need MPI, which this build does not have: install "
                "libopenmpi-dev or libmpich-dev, then configure and build again; or use one host",
                config->place.groups);
#endif
}

Status comm_carrier_start(const Placement *place, struct Star *control, Carrier **made)
{
#ifdef TOWERS_HAVE_MPI
    return carrier_start(link_mpi_open, place, control, made);
#else
    (void)place, (void)control;
    *made = NULL; /* comm_mpi_open says what is missing */
    return OK;
#endif
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
#pragma weak comm_nccl_open /* nobody calls these: no device is one of NCCL's */
#pragma weak comm_nccl_memory_create
#pragma weak comm_nccl_memory_destroy
void comm_nccl_text(char *text, size_t bytes)
{
    if (bytes) *text = 0;
}
#endif

/* ---- opening and closing */

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

Status comm_join(const CommConfig *config, CommShared *shared, Device *device, Comm **made)
{
    if (device->backend->nccl)
        TRY(comm_nccl_open(config, shared, device, made));
    else if (config->place.groups > 1)
        TRY(comm_mpi_open(config, shared, made));
    else
        TRY(comm_shm_open(config, shared, made));
    comm_record_in(*made, shared);
    return OK;
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

/* ---- memory that NCCL knows */

Status comm_memory_create(Device *device, size_t bytes, CommMemory *made)
{
    const Backend *backend = device->backend;
    *made = (CommMemory){0};
    made->special = backend->nccl && comm_nccl_memory_create(bytes, &made->data);
    if (!made->special) return backend->alloc(device, bytes, &made->data);
    Status st = backend->fill(device, made->data, 0, bytes / sizeof(float));
    if (st == OK) st = backend->finish(device, STREAM_COMPUTE);
    if (st != OK) comm_memory_destroy(device, made);
    return st;
}

void comm_memory_destroy(Device *device, CommMemory *memory)
{
    if (memory->data && memory->special) comm_nccl_memory_destroy(memory->data);
    if (memory->data && !memory->special) device->backend->release(device, memory->data);
    *memory = (CommMemory){0};
}

Status comm_register(Comm *comm, const CommMemory *memory, size_t bytes)
{
    return comm->ops->register_memory ? comm->ops->register_memory(comm, memory, bytes) : OK;
}

/* ---- collectives */

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
    comm_record_begin(comm, "an all-reduce", first, count * sizeof *to);
    return comm_record_end(comm, comm->ops->allreduce_end(comm, first, to, count));
}

void comm_sum_times(Comm *comm, CommTimes *times)
{
    *times = (CommTimes){0};
    if (comm->ops->sum_times) comm->ops->sum_times(comm, times);
}

Status comm_broadcast(Comm *comm, void *buf, size_t bytes, int root)
{
    comm_record_begin(comm, "a broadcast", 0, bytes);
    return comm_record_end(comm, comm->ops->broadcast(comm, buf, bytes, root));
}

Status comm_gather(Comm *comm, const void *mine, size_t bytes, void *all)
{
    comm_record_begin(comm, "a gather", 0, bytes);
    return comm_record_end(comm, comm->ops->gather(comm, mine, bytes, all));
}

Status comm_barrier(Comm *comm)
{
    comm_record_begin(comm, "a barrier", 0, 0);
    return comm_record_end(comm, comm->ops->barrier(comm));
}

/* ---- while they run */

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

void comm_text(const Comm *comm, char *text, size_t bytes)
{
    *text = 0;
    if (comm->ops->text) comm->ops->text(comm, text, bytes);
}
