/* The sum over the towers of several hosts: a chain in tower order; see hosts.h.
 *
 * A range is cut into chunks. Node n receives the partial sum of a chunk, that of all towers of the nodes before it, into
 * its result area; each of its processes adds its part of the contributions, in tower order; the leader sends the chunk on to
 * node n + 1. The last node has the result, which travels back the same way. Every element is added from the left in
 * tower order, as comm_shm.c does, hence the same bits on any number of hosts; a tree would be faster on many hosts and
 * round differently. Each host sends and receives a range twice, and the last chunk is 2 (nodes - 1) messages behind the
 * first.
 *
 * The chain of a range begins when the last local tower of each process has given it. A process gives a range again only
 * after it has copied the last result, so that neither its contributions nor the result area are in use then. */
#include "kernels/base/clock.h"
#include "nccl_sync/hosts.h"

enum {
    CHUNK = 1 << 16, /* floats */
    WINDOW = 4       /* messages in progress, of each of the four flows */
};

/* Chunks that go one way between this leader and a neighbor, in order. */
typedef struct Flow {
    bool sends;
    int peer; /* -1: there is no neighbor on this side */
    int64_t begun, ended;
    int request[WINDOW];
} Flow;

typedef struct Range {
    float *at; /* in the result area */
    size_t count;
    int64_t chunks;
} Range;

static size_t chunk_count(const Range *range, int64_t chunk)
{
    size_t left = range->count - (size_t)chunk * CHUNK;
    return left < CHUNK ? left : CHUNK;
}

/* Begins the messages of chunks below `limit`, and notes which have ended. */
static Status flow_move(HostsComm *c, const Range *range, Flow *flow, int64_t limit, bool *moved)
{
    const LinkOps *ops = c->link->ops;
    while (flow->begun < limit && flow->begun - flow->ended < WINDOW) {
        float *at = range->at + (size_t)flow->begun * CHUNK;
        size_t bytes = chunk_count(range, flow->begun) * sizeof *at;
        int *request = &flow->request[flow->begun % WINDOW];
        TRY(flow->sends ? ops->send(c->link, flow->peer, at, bytes, request)
                        : ops->receive(c->link, flow->peer, at, bytes, request));
        flow->begun++;
        *moved = true;
    }
    for (bool ended = true; ended && flow->ended < flow->begun;) {
        TRY(ops->test(c->link, flow->request[flow->ended % WINDOW], &ended));
        if (!ended) break;
        flow->ended++;
        *moved = true;
    }
    return OK;
}

/* Adds this process's part of a chunk to its partial sum. */
static void chunk_add(const Comm *comm, HostsComm *c, const Range *range, int64_t chunk)
{
    CommShared *shared = c->shared;
    float *at = range->at + (size_t)chunk * CHUNK;
    size_t from, to;
    shared_part(&comm->config, shared, chunk_count(range, chunk), &from, &to);
    shared_add(shared, (size_t)(at - shared_result(shared)) + from, to - from, comm->config.place.node > 0, at + from,
               NULL);
    atomic_store(&shared->added[c->process], c->chunks + chunk + 1);
}

/* Chunks of this range to which all processes of the node have added their parts. */
static int64_t chunks_added(const HostsComm *c)
{
    int64_t least = INT64_MAX;
    for (int r = 0; r < c->shared->ranks; r++) {
        int64_t added = atomic_load(&c->shared->added[r]);
        if (added < least) least = added;
    }
    return least - c->chunks;
}

static Status sum_lead(Comm *comm, HostsComm *c, const Range *range)
{
    int node = comm->config.place.node, last = comm->config.place.nodes - 1;
    Flow partial_in = {false, node - 1}, partial_out = {true, node + 1};
    Flow result_in = {false, node + 1}, result_out = {true, node - 1};
    int64_t added = 0, partials = 0, resulted = 0;
    CommWait wait = {0};
    for (int polls = 1; resulted < range->chunks || (node > 0 && result_out.ended < range->chunks); polls++) {
        bool moved = false;
        if (node > 0) TRY(flow_move(c, range, &partial_in, range->chunks, &moved));
        int64_t came = node > 0 ? partial_in.ended : range->chunks;
        if (came > partials) shared_chain_moved(c->shared, &c->shared->partials, c->chunks + (partials = came));
        if (added < partials) {
            chunk_add(comm, c, range, added++);
            moved = true;
        }
        int64_t ready = chunks_added(c);
        if (node < last) TRY(flow_move(c, range, &partial_out, ready, &moved));
        if (node < last) TRY(flow_move(c, range, &result_in, partial_out.ended, &moved));
        int64_t done = node < last ? result_in.ended : ready;
        if (done > resulted) shared_chain_moved(c->shared, &c->shared->resulted, c->chunks + (resulted = done));
        if (node > 0) TRY(flow_move(c, range, &result_out, resulted, &moved));
        if (moved) polls = 0;
        if (moved) wait = (CommWait){0};
        TRY(leader_look(comm, &wait, polls));
    }
    return OK;
}

static Status sum_follow(Comm *comm, HostsComm *c, const Range *range)
{
    CommShared *shared = c->shared;
    for (int64_t chunk = 0; chunk < range->chunks; chunk++) {
        TRY(shared_chain_wait(&comm->config, shared, &shared->partials, c->chunks + chunk + 1, 0));
        chunk_add(comm, c, range, chunk);
    }
    return shared_chain_wait(&comm->config, shared, &shared->resulted, c->chunks + range->chunks, 0);
}

Status hosts_sum(Comm *comm, HostsSum *sum)
{
    HostsComm *c = hosts_of(comm);
    CommShared *shared = c->shared;
    Range range = {shared_result(shared) + sum->first, sum->count, (int64_t)((sum->count + CHUNK - 1) / CHUNK)};
    c->collective++;
    c->sums++;
    for (int r = 0; r < shared->ranks; r++)
        TRY(shared_chain_wait(&comm->config, shared, &shared->given[r], c->sums, r));
    sum->started_ns = clock_ns();
    if (c->link) leader_comes(c);
    TRY(c->link ? leader_failed(comm, sum_lead(comm, c, &range)) : sum_follow(comm, c, &range));
    sum->ended_ns = clock_ns();
    c->chunks += range.chunks;
    return OK;
}
