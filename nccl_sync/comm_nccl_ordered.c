/* The sum in tower order over several ranks: all-to-all, own sum, all-gather.
 *
 * A range is cut into as many chunks as there are ranks. Rank r receives chunk r of every tower and adds them in order; then
 * all ranks gather the sums (the pairwise exchange of Thakur et al., "Optimization of Collective Communication Operations in
 * MPICH", IJHPCA 19, 2005). With a tower on each of n ranks, each receives 2 (n - 1) / n times the gradients, as from a ring.
 * NCCL only copies: no bit depends on its version, its algorithm, or the rank that holds a tower.
 *
 * Memory: the towers of a rank share one gradient arena, so the contributions of all but the last are kept. The last is sent
 * from where it lies. Chunks of ranges that are in flight at the same time lie side by side. */
#include "nccl_sync/comm_nccl.h"

/* ---- chunks */

/* Floats of a rank's chunk: NCCL and our kernels move 16 bytes at once. */
static size_t chunk_floats(const Comm *comm, size_t count)
{
    size_t lines = 4 * (size_t)comm->config.place.ranks;
    return (count + lines - 1) / lines * 4;
}

/* ... of which the range fills so many; 0 in the last chunks of a short one. */
static size_t chunk_filled(const ReduceRange *range, int rank)
{
    size_t from = (size_t)rank * range->chunk, left = from < range->count ? range->count - from : 0;
    return left < range->chunk ? left : range->chunk;
}

/* The first place in the room of a rank's chunks that no other range uses. */
static Status chunk_place(const Comm *comm, const NcclComm *c, ReduceRange *range)
{
    bool moved = true;
    range->chunk = chunk_floats(comm, range->count);
    range->chunk_at = 0;
    while (moved) {
        moved = false;
        for (int i = 0; i < c->ranges; i++) {
            const ReduceRange *other = &c->range[i];
            if (other == range || range->chunk_at >= other->chunk_at + other->chunk ||
                other->chunk_at >= range->chunk_at + range->chunk)
                continue;
            range->chunk_at = other->chunk_at + other->chunk;
            moved = true;
        }
    }
    if (range->chunk_at + range->chunk <= comm_chunks(&comm->config)) return OK;
    return FAIL(ERR_INTERNAL, "the chunks of all-reduces in progress exceed their room of %zu elements",
                comm_chunks(&comm->config));
}

/* Chunk `rank` of the sums; all of them follow each other. */
static float *gathered_at(const Comm *comm, const NcclComm *c, const ReduceRange *range, int rank)
{
    return (float *)c->gathered.data + (size_t)comm->config.place.ranks * range->chunk_at + (size_t)rank * range->chunk;
}

/* ---- contributions */

/* The part of c->sum that keeps this tower's contribution from the device, or that of the last tower from the host. */
static float *kept_at(const Comm *comm, const NcclComm *c, int tower, size_t first)
{
    int local = tower - comm->config.place.first_tower;
    bool last = local == comm->config.place.local_towers - 1;
    return (float *)c->sum.data + (size_t)local * comm_slot(&comm->config) +
           (last ? comm_staged_at(&comm->config, first) : first);
}

float *nccl_ordered_place(const Comm *comm, const NcclComm *c, int tower, size_t first, float *from, bool on_host)
{
    bool last = tower == comm->config.place.first_tower + comm->config.place.local_towers - 1;
    return last && !on_host ? from : kept_at(comm, c, tower, first);
}

/* The whole contribution of a tower of this rank. */
static const float *own_at(const Comm *comm, const NcclComm *c, const ReduceRange *range, int tower)
{
    bool last = tower == comm->config.place.first_tower + comm->config.place.local_towers - 1;
    return last ? range->at : kept_at(comm, c, tower, range->first);
}

/* This rank's chunk of a tower's contribution: where it lies, or where it is received. */
static float *chunk_of(const Comm *comm, const NcclComm *c, const ReduceRange *range, int tower)
{
    const Placement *place = &comm->config.place;
    if (is_local_tower(place, tower))
        return (float *)own_at(comm, c, range, tower) + (size_t)place->rank * range->chunk;
    int other = tower < place->first_tower ? tower : tower - place->local_towers;
    return c->chunks + (size_t)other * comm_chunks(&comm->config) + range->chunk_at;
}

/* ---- the three parts */

static ncclResult_t tower_send(const Comm *comm, NcclComm *c, const ReduceRange *range, int tower)
{
    ncclResult_t begun = ncclSuccess;
    const float *from = own_at(comm, c, range, tower);
    for (int r = 0; r < comm->config.place.ranks && !nccl_failed(begun); r++) {
        size_t count = r == comm->config.place.rank ? 0 : chunk_filled(range, r);
        if (count > 0) begun = ncclSend(from + (size_t)r * range->chunk, count, ncclFloat32, r, c->nccl, c->stream);
    }
    return begun;
}

static ncclResult_t tower_receive(const Comm *comm, NcclComm *c, const ReduceRange *range, int tower)
{
    size_t count = chunk_filled(range, comm->config.place.rank);
    if (count == 0) return ncclSuccess;
    return ncclRecv(chunk_of(comm, c, range, tower), count, ncclFloat32, c->rank_of[tower], c->nccl, c->stream);
}

/* Between two ranks messages are matched in order, which is that of the sender's towers. */
static Status chunks_exchange(Comm *comm, NcclComm *c, const ReduceRange *range)
{
    ncclResult_t begun = ncclGroupStart();
    if (begun != ncclSuccess) return nccl_fail(c, begun, "ncclGroupStart");
    for (int t = 0; t < comm->config.towers && !nccl_failed(begun); t++)
        begun =
            is_local_tower(&comm->config.place, t) ? tower_send(comm, c, range, t) : tower_receive(comm, c, range, t);
    ncclResult_t ended = ncclGroupEnd();
    if (nccl_failed(begun)) return nccl_fail(c, begun, "ncclSend or ncclRecv");
    return nccl_settle(comm, c, ended, "ncclGroupEnd");
}

static Status chunk_sum(Comm *comm, NcclComm *c, const ReduceRange *range)
{
    const float *from[OP_MAX_IN];
    int rank = comm->config.place.rank, towers = comm->config.towers, vectors = 0;
    size_t count = chunk_filled(range, rank);
    float *sum = gathered_at(comm, c, range, rank);
    for (int tower = 0; tower < towers && count > 0; tower++) {
        from[vectors++] = chunk_of(comm, c, range, tower);
        if (vectors < OP_MAX_IN && tower + 1 < towers) continue;
        TRY(c->device->backend->add(c->device, STREAM_COMM, from, vectors, sum, count));
        from[0] = sum, vectors = 1;
    }
    return OK;
}

Status nccl_ordered_start(Comm *comm, NcclComm *c, ReduceRange *range)
{
    TRY(chunk_place(comm, c, range));
    TRY(c->device->backend->wait(c->device, STREAM_COMM, STREAM_COMPUTE));
    TRY(chunks_exchange(comm, c, range));
    TRY(chunk_sum(comm, c, range));
    range->at = gathered_at(comm, c, range, 0);
    ncclResult_t begun = ncclAllGather(gathered_at(comm, c, range, comm->config.place.rank), range->at, range->chunk,
                                       ncclFloat32, c->nccl, c->stream);
    return nccl_settle(comm, c, begun, "ncclAllGather");
}
