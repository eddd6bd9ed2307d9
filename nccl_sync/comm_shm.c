/* Collectives between the tower processes of one node, through anonymous memory that the supervisor mapped before it
 * forked them.
 *
 * comm_allreduce_begin puts the tower's contribution there (shared_give). comm_allreduce_end: barrier; each rank adds its part
 * of the range over all contributions, in tower order, and puts it into the result area; barrier; each rank copies
 * out what the others put there. The order of the additions is that of the tower numbers, so the sum does not depend on
 * which process holds which tower, nor on timing. */
#include "nccl_sync/comm_ops.h"
#include "nccl_sync/comm_shared.h"

static Status shm_barrier(Comm *comm)
{
    return shared_barrier(&comm->config, comm->impl);
}

static Status shm_allreduce_begin(Comm *comm, int tower, size_t first, float *from, size_t count)
{
    shared_give(&comm->config, comm->impl, tower, first, from, count);
    return OK;
}

static Status shm_allreduce_end(Comm *comm, size_t first, float *to, size_t count)
{
    CommShared *shared = comm->impl;
    float *result = shared_result(shared) + first;
    size_t mine, end;
    shared_part(&comm->config, shared, count, &mine, &end);
    TRY(shm_barrier(comm));
    shared_add(shared, first + mine, end - mine, false, to + mine, shared->ranks > 1 ? result + mine : NULL);
    TRY(shm_barrier(comm));
    memcpy(to, result, mine * sizeof *to);
    memcpy(to + end, result + end, (count - end) * sizeof *to);
    return OK;
}

static Status shm_broadcast(Comm *comm, void *buf, size_t bytes, int root)
{
    CommShared *shared = comm->impl;
    char *at = buf;
    for (size_t done = 0; done < bytes; done += BROADCAST_BYTES) {
        size_t n = bytes - done < BROADCAST_BYTES ? bytes - done : BROADCAST_BYTES;
        if (comm->config.place.rank == root) memcpy(shared->broadcast, at + done, n);
        TRY(shm_barrier(comm));
        if (comm->config.place.rank != root) memcpy(at + done, shared->broadcast, n);
        TRY(shm_barrier(comm));
    }
    return OK;
}

static Status shm_gather(Comm *comm, const void *mine, size_t bytes, void *all, bool everywhere)
{
    (void)everywhere; /* all ranks see the memory */
    CommShared *shared = comm->impl;
    size_t ranks = (size_t)shared->ranks, rank = (size_t)comm->config.place.rank, piece = BROADCAST_BYTES / ranks;
    for (size_t done = 0; done < bytes; done += piece) {
        size_t n = bytes - done < piece ? bytes - done : piece;
        memcpy(shared->broadcast + rank * n, (const char *)mine + done, n);
        TRY(shm_barrier(comm));
        for (size_t r = 0; all && r < ranks; r++) memcpy((char *)all + r * bytes + done, shared->broadcast + r * n, n);
        TRY(shm_barrier(comm));
    }
    return OK;
}

static Status shm_look(Comm *comm, CommWait *wait)
{
    CommShared *shared = comm->impl;
    comm_wait_look(wait, &comm->config, comm_shared_progress_of_others(shared, comm->config.place.rank));
    return atomic_load(&shared->aborted) ? shared_fail_aborted(&comm->config, shared) : OK;
}

static void shm_abort(Comm *comm)
{
    comm_shared_abort(comm->impl, comm->config.place.rank);
}

static void shm_close(Comm *comm)
{
    (void)comm; /* the mapping belongs to the supervisor */
}

static const CommOps shm_ops = {
    .allreduce_begin = shm_allreduce_begin,
    .allreduce_end = shm_allreduce_end,
    .broadcast = shm_broadcast,
    .gather = shm_gather,
    .barrier = shm_barrier,
    .look = shm_look,
    .abort = shm_abort,
    .close = shm_close,
};

Status comm_shm_open(const CommConfig *config, CommShared *shared, Comm **made)
{
    TRY(shared_check(config, shared));
    return comm_create(config, &shm_ops, shared, made);
}
