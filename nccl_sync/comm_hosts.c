/* Collectives between nodes: shared memory inside a node (comm_shared.h), and between their first processes, the leaders, messages
 * over a link (link.h), which is MPI, or TCP where NCCL makes the sums.
 *
 * Every process has a communication thread (comm_thread.h) that runs the collectives in the order in which they were
 * given; in a leader it opens, uses and closes the link. So a sum (hosts_chain.c) begins when the last local tower has
 * given its range, and runs while the process computes the next one. */

#include "kernels/base/progress.h"
#include "nccl_sync/hosts.h"

/* ---- the process waits for its thread, and the supervisor sees it */

static Status hosts_wait(HostsComm *c, int64_t number)
{
    atomic_store(&c->shared->awaits[c->process], true);
    Status st = comm_thread_wait(c->thread, number);
    /* It may have been long, and a process that fails in it must not pass for one that is silent until it has said so. */
    progress_made("a collective");
    atomic_store(&c->shared->awaits[c->process], false);
    return st;
}

static Status hosts_run(HostsComm *c, CommWork work, void *of)
{
    int64_t number;
    TRY(comm_thread_give(c->thread, work, of, &number));
    return hosts_wait(c, number);
}

/* ---- sums */

static HostsSum *sum_find(HostsComm *c, bool begun, size_t first, size_t count)
{
    for (int i = 0; i < HOSTS_SUMS; i++) {
        HostsSum *sum = &c->sum[i];
        if (sum->begun == begun && (!begun || (sum->first == first && sum->count == count))) return sum;
    }
    return NULL;
}

static Status sum_work(Comm *comm, void *of)
{
    return hosts_sum(comm, of);
}

static Status hosts_allreduce_begin(Comm *comm, int tower, size_t first, float *from, size_t count)
{
    HostsComm *c = hosts_of(comm);
    const Placement *place = &comm->config.place;
    shared_give(&comm->config, c->shared, tower, first, from, count);
    if (tower < place->first_tower + place->local_towers - 1) return OK;
    HostsSum *sum = sum_find(c, false, first, count);
    if (!sum) return FAIL(ERR_INTERNAL, "more than %d sums have begun and not ended", HOSTS_SUMS);
    *sum = (HostsSum){.first = first, .count = count};
    /* Before the thread gets the sum: it would find its own process late, and sleep. */
    shared_chain_moved(c->shared, &c->shared->given[c->process], ++c->given);
    TRY(comm_thread_give(c->thread, sum_work, sum, &sum->number));
    sum->begun = true;
    return OK;
}

static void times_add(CommTimes *times, const HostsSum *sum)
{
    if (times->sums++ == 0 || sum->started_ns < times->begun_ns) times->begun_ns = sum->started_ns;
    if (sum->ended_ns > times->ended_ns) times->ended_ns = sum->ended_ns;
    times->busy_ns += sum->ended_ns - sum->started_ns;
}

static Status hosts_allreduce_end(Comm *comm, size_t first, float *to, size_t count)
{
    HostsComm *c = hosts_of(comm);
    HostsSum *sum = sum_find(c, true, first, count);
    if (!sum)
        return FAIL(ERR_INTERNAL, "the sum of %zu elements from element %zu on ends without having begun", count,
                    first);
    TRY(hosts_wait(c, sum->number));
    memcpy(to, shared_result(c->shared) + first, count * sizeof *to);
    times_add(&c->times, sum);
    sum->begun = false;
    return OK;
}

static void hosts_sum_times(Comm *comm, CommTimes *times)
{
    HostsComm *c = hosts_of(comm);
    *times = c->times;
    c->times = (CommTimes){0};
}

/* ---- the other collectives, as work of the thread */

typedef struct Exchange {
    const void *mine;
    void *all; /* or what is broadcast */
    size_t bytes;
    int root;
    bool everywhere; /* a gather: on all ranks */
} Exchange;

static Status broadcast_work(Comm *comm, void *of)
{
    HostsComm *c = hosts_of(comm);
    const Exchange *x = of;
    const Placement *place = &comm->config.place;
    char *shared = c->shared->broadcast, *at = x->all;
    int request = 0;
    c->collective++;
    for (size_t done = 0; done < x->bytes; done += BROADCAST_BYTES) {
        size_t n = x->bytes - done < BROADCAST_BYTES ? x->bytes - done : BROADCAST_BYTES;
        if (place->rank == x->root) memcpy(shared, at + done, n);
        TRY(shared_barrier(&comm->config, c->shared));
        if (c->link) {
            Status st = c->link->ops->broadcast(c->link, shared, n, x->root / c->shared->ranks, &request);
            TRY(leader_wait(comm, st, request));
        }
        TRY(shared_barrier(&comm->config, c->shared));
        if (place->rank != x->root) memcpy(at + done, shared, n);
        TRY(shared_barrier(&comm->config, c->shared)); /* the area is read */
    }
    return OK;
}

static Status hosts_broadcast(Comm *comm, void *buf, size_t bytes, int root)
{
    return hosts_run(hosts_of(comm), broadcast_work, &(Exchange){NULL, buf, bytes, .root = root});
}

static Status gather_work(Comm *comm, void *of)
{
    HostsComm *c = hosts_of(comm);
    const Exchange *x = of;
    const Placement *place = &comm->config.place;
    size_t ranks = (size_t)place->ranks, per = (size_t)c->shared->ranks, piece = BROADCAST_BYTES / ranks;
    char *shared = c->shared->broadcast;
    int request = 0;
    c->collective++;
    for (size_t done = 0; done < x->bytes; done += piece) {
        size_t n = x->bytes - done < piece ? x->bytes - done : piece;
        memcpy(shared + (size_t)place->rank * n, (const char *)x->mine + done, n);
        TRY(shared_barrier(&comm->config, c->shared));
        if (c->link) {
            Status st = c->link->ops->gather(c->link, shared, per * n, x->everywhere, &request);
            TRY(leader_wait(comm, st, request));
        }
        TRY(shared_barrier(&comm->config, c->shared));
        for (size_t r = 0; x->all && r < ranks; r++) memcpy((char *)x->all + r * x->bytes + done, shared + r * n, n);
        TRY(shared_barrier(&comm->config, c->shared)); /* the area is read */
    }
    return OK;
}

static Status hosts_gather(Comm *comm, const void *mine, size_t bytes, void *all, bool everywhere)
{
    return hosts_run(hosts_of(comm), gather_work, &(Exchange){mine, all, bytes, .everywhere = everywhere});
}

static Status barrier_work(Comm *comm, void *of)
{
    HostsComm *c = hosts_of(comm);
    (void)of;
    c->collective++;
    TRY(shared_barrier(&comm->config, c->shared));
    if (c->link) TRY(leaders_meet(comm));
    return shared_barrier(&comm->config, c->shared);
}

static Status hosts_barrier(Comm *comm)
{
    return hosts_run(hosts_of(comm), barrier_work, NULL);
}

/* ---- failures and the end */

static Status look_work(Comm *comm, void *of)
{
    HostsComm *c = hosts_of(comm);
    (void)of;
    if (c->link && !c->left) TRY(leader_poll(comm));
    if (comm_shared_aborted(c->shared) < 0) return OK;
    leader_spread(comm);
    return shared_fail_aborted(&comm->config, c->shared);
}

static Status hosts_look(Comm *comm, CommWait *wait)
{
    HostsComm *c = hosts_of(comm);
    comm_wait_look(wait, &comm->config, comm_shared_progress_of_others(c->shared, c->process));
    return comm_thread_run(c->thread, look_work, NULL);
}

static Status leave_work(Comm *comm, void *of)
{
    (void)of;
    leader_spread(comm);
    return OK;
}

/* A sum in progress ends by it. */
static void hosts_abort(Comm *comm)
{
    HostsComm *c = hosts_of(comm);
    comm_shared_abort(c->shared, c->process);
    comm_thread_run_anyway(c->thread, leave_work);
}

static void hosts_text(const Comm *comm, char *text, size_t bytes)
{
    char mpi[128];
    comm_mpi_text(mpi, sizeof mpi);
    snprintf(text, bytes, "%s sums over %d nodes, in tower order", mpi, comm->config.place.nodes);
}

/* MPI is finalized only if all leaders do it. */
static Status close_work(Comm *comm, void *of)
{
    HostsComm *c = hosts_of(comm);
    (void)of;
    c->collective++;
    if (!c->link) return OK;
    if (comm_shared_aborted(c->shared) >= 0) leader_spread(comm);
    bool orderly = !c->left && leaders_meet(comm) == OK;
    c->link->ops->close(c->link, orderly);
    return OK;
}

static void hosts_close(Comm *comm)
{
    HostsComm *c = hosts_of(comm);
    if (c->thread) comm_thread_run_anyway(c->thread, close_work);
    comm_thread_end(c->thread);
    free(c->node);
    free(c->numbers);
    free(c->aware);
    free(c);
}

static const CommOps hosts_ops = {
    .allreduce_begin = hosts_allreduce_begin,
    .allreduce_end = hosts_allreduce_end,
    .broadcast = hosts_broadcast,
    .gather = hosts_gather,
    .barrier = hosts_barrier,
    .text = hosts_text,
    .sum_times = hosts_sum_times,
    .look = hosts_look,
    .abort = hosts_abort,
    .close = hosts_close,
};

/* ---- opening */

/* In node 0: the nodes agree on the run, and their towers follow each other. */
static Status nodes_check(Comm *comm, HostsComm *c)
{
    const CommConfig *config = &comm->config;
    const NodeInfo *mine = &c->node[config->place.node];
    int next = 0;
    for (int n = 0; n < config->place.nodes; n++) {
        const NodeInfo *node = &c->node[n];
        c->node[n].host[sizeof node->host - 1] = 0;
        if (node->number != n || node->nodes != mine->nodes || node->processes != mine->processes ||
            node->ranks != mine->ranks || node->all_towers != mine->all_towers || node->max_count != mine->max_count)
            return FAIL(ERR_COMM,
                        "host %s takes part as node %d of %d, with %d processes of %d in all, %d towers in all and "
                        "%" PRId64 " floats; host %s: %d of %d, %d of %d, %d towers, %" PRId64
                        " floats: start all with the same "
                        "options and the same build",
                        node->host, (int)node->number, (int)node->nodes, (int)node->processes, (int)node->ranks,
                        (int)node->all_towers, node->max_count, mine->host, (int)mine->number, (int)mine->nodes,
                        (int)mine->processes, (int)mine->ranks, (int)mine->all_towers, mine->max_count);
        if (node->first_tower != next || node->towers < 1)
            return FAIL(ERR_COMM, "host %s, node %d: its %d towers begin at tower %d, expected tower %d", node->host, n,
                        (int)node->towers, (int)node->first_tower, next);
        next += node->towers;
    }
    if (next == config->towers) return OK;
    return FAIL(ERR_COMM, "%d nodes hold %d towers, expected %d", config->place.nodes, next, config->towers);
}

/* What node 0 finds of what all say of themselves. */
typedef struct NodesVerdict {
    char why[512];      /* "": they agree, and the names of all hosts follow, each with its NUL */
    int32_t name_bytes; /* of all */
} NodesVerdict;

static Status leaders_broadcast(Comm *comm, HostsComm *c, void *buf, size_t bytes)
{
    int request = 0;
    Status st = c->link->ops->broadcast(c->link, buf, bytes, 0, &request);
    return leader_wait(comm, st, request);
}

/* Node 0 knows what all say of themselves. The others get the names of the hosts, which messages give, and nothing else, as what is sent
 * would grow with the square of the nodes. */
static Status nodes_agree(Comm *comm, HostsComm *c, char *names, size_t room)
{
    NodesVerdict verdict = {{0}, 0};
    char *at = names;
    int nodes = comm->config.place.nodes;
    if (comm->config.place.node == 0) {
        if (nodes_check(comm, c) != OK) snprintf(verdict.why, sizeof verdict.why, "%s", status_message());
        for (int n = 0; !*verdict.why && n < nodes; n++) at = stpcpy(at, c->node[n].host) + 1;
        verdict.name_bytes = (int32_t)(at - names);
    }
    TRY(leaders_broadcast(comm, c, &verdict, sizeof verdict));
    verdict.why[sizeof verdict.why - 1] = 0;
    if (*verdict.why) return FAIL(ERR_COMM, "%s", verdict.why);
    if (verdict.name_bytes < nodes || (size_t)verdict.name_bytes >= room)
        return FAIL(ERR_COMM, "node 0 sends %d bytes of names of %d hosts: another build?", (int)verdict.name_bytes,
                    nodes);
    TRY(leaders_broadcast(comm, c, names, (size_t)verdict.name_bytes));
    at = names;
    for (int n = 0; n < nodes && at < names + verdict.name_bytes; n++, at += strlen(at) + 1)
        snprintf(c->node[n].host, sizeof c->node[n].host, "%s", at);
    return OK;
}

static Status leader_open(Comm *comm, HostsComm *c, LinkOpen link_open)
{
    const Placement *place = &comm->config.place;
    int request = 0;
    c->node = calloc((size_t)place->nodes, sizeof *c->node);
    c->numbers = calloc((size_t)place->nodes, sizeof *c->numbers);
    c->aware = calloc((size_t)place->nodes, sizeof *c->aware);
    if (!c->node || !c->numbers || !c->aware)
        return FAIL(ERR_MEMORY, "no memory for the names of %d nodes", place->nodes);
    TRY(link_open(&comm->config, &c->link));
    NodeInfo *mine = &c->node[place->node];
    *mine = (NodeInfo){.number = place->node,
                       .nodes = place->nodes,
                       .processes = c->shared->ranks,
                       .ranks = place->ranks,
                       .first_tower = place->first_tower,
                       .towers = c->shared->towers,
                       .all_towers = comm->config.towers,
                       .max_count = (int64_t)comm->config.max_count};
    snprintf(mine->host, sizeof mine->host, "%s", place->host);
    c->shared->first_tower = place->first_tower;
    Status st = c->link->ops->gather(c->link, c->node, sizeof *c->node, false, &request);
    TRY(leader_wait(comm, st, request));
    size_t room = (size_t)place->nodes * sizeof mine->host + 1;
    char *names = calloc(1, room);
    if (!names) return FAIL(ERR_MEMORY, "no memory for the names of %d hosts", place->nodes);
    st = nodes_agree(comm, c, names, room);
    free(names);
    return st;
}

static Status open_work(Comm *comm, void *of)
{
    HostsComm *c = hosts_of(comm);
    c->collective++; /* who does not come to it is behind, as in all others */
    if (c->process == 0) TRY(leader_open(comm, c, *(const LinkOpen *)of));
    return shared_barrier(&comm->config, c->shared); /* first_tower is known */
}

Status comm_hosts_open(const CommConfig *config, CommShared *shared, LinkOpen link_open, Comm **made)
{
    Comm *comm;
    TRY(shared_check(config, shared));
    HostsComm *c = calloc(1, sizeof *c);
    if (!c) return FAIL(ERR_MEMORY, "no memory for the communicator of rank %d", config->place.rank);
    c->shared = shared;
    c->process = process_in_node(&config->place);
    Status st = comm_create(config, &hosts_ops, c, &comm);
    if (st != OK) {
        comm_shared_abort(shared, c->process);
        free(c);
        return st;
    }
    st = comm_thread_start(comm, &c->thread);
    if (st == OK) st = comm_thread_run(c->thread, open_work, &link_open);
    if (st == OK) {
        *made = comm;
        return OK;
    }
    comm_shared_abort(shared, c->process);
    comm_close(comm);
    return st;
}
