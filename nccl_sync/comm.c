/* The communicator interface: makes the checks common to all implementations, then forwards. */
#include "nccl_sync/comm.h"

#include "kernels/base/clock.h"
#include "nccl_sync/comm_ops.h"
#include "nccl_sync/comm_record.h"

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

/* ---- collectives */

Status comm_register(Comm *comm, const CommMemory *memory, size_t bytes)
{
    return comm->ops->register_memory ? comm->ops->register_memory(comm, memory, bytes) : OK;
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
    if (!is_local_tower(&comm->config.place, tower))
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
    return comm_record_end(comm, comm->ops->gather(comm, mine, bytes, all, true));
}

Status comm_gather_root(Comm *comm, const void *mine, size_t bytes, void *all)
{
    comm_record_begin(comm, "a gather", 0, bytes);
    return comm_record_end(comm, comm->ops->gather(comm, mine, bytes, all, false));
}

Status comm_barrier(Comm *comm)
{
    comm_record_begin(comm, "a barrier", 0, 0);
    return comm_record_end(comm, comm->ops->barrier(comm));
}

/* ---- while they run */

void comm_wait_look(CommWait *wait, const CommConfig *config, int64_t progress_ns)
{
    int64_t silent_ms = silence_look(&wait->silence, progress_ns) / 1000000;
    wait->left_ms = config->timeout_ms + config->grace_ms - silent_ms;
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
