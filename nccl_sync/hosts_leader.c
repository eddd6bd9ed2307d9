/* The leaders of the nodes: they wait for each other, report failures to each other, and find out who is late; see hosts.h.
 *
 * Waits end by deadline, by an abort on the node, or by a message of another node. A leader whose deadline has passed names, on every
 * host, the nodes that have not come to the collective: the heartbeats of supervisors carry its number (control.h). */

#include "kernels/base/clock.h"
#include "kernels/base/pause.h"
#include "kernels/base/text.h"
#include "nccl_sync/hosts.h"

enum { LOOK_EVERY = 16 /* polls */ };

/* ---- leaving */

static void node_text(const HostsComm *c, int node, Text *text)
{
    int ranks = c->shared->ranks, first = node * ranks;
    if (*c->node[node].host)
        text_add(text, "host %s", c->node[node].host);
    else
        text_add(text, "node %d", node); /* it has not sent its name yet */
    text_add(text, " (tower process%s %d", ranks > 1 ? "es" : "", first);
    if (ranks > 1) text_add(text, "..%d", first + ranks - 1);
    text_add(text, ")");
}

/* Notifies all other leaders of what has happened, once, and stays until all have said that they know or have found it
 * themselves: a library may end a process whose peer is gone in the middle of a transfer, before it reads the message. */
static void leaders_notify(Comm *comm, HostsComm *c, const char *what)
{
    int nodes = comm->config.place.nodes, me = comm->config.place.node, unaware = nodes;
    LeaderMessage message = {.from = me}, answer;
    int64_t end = clock_ns() + DRAIN_MS * 1000000ll;
    bool heard;
    if (!c->link || c->left) return;
    c->left = true;
    c->aware[me] = true;
    snprintf(message.text, sizeof message.text, "%s", what);
    for (int n = 0; n < nodes; n++) {
        Status st = n == me ? OK : c->link->ops->notify(c->link, n, &message);
        (void)st; /* some may be gone */
    }
    while ((unaware > 0 || !c->link->ops->flushed(c->link)) && clock_ns() < end) {
        if (c->link->ops->poll(c->link, &answer, &heard) != OK) break;
        if (heard && answer.from >= 0 && answer.from < nodes) c->aware[answer.from] = true;
        if (!heard) pause_ns(POLL_NS);
        unaware = 0;
        for (int n = 0; n < nodes; n++) unaware += !c->aware[n];
    }
}

/* A failure that this leader has found: ends the collectives of its own node and of all others. */
static Status leader_fail(Comm *comm, HostsComm *c, const char *what)
{
    comm_shared_abort_by(c->shared, what);
    leaders_notify(comm, c, what);
    return shared_fail_aborted(&comm->config, c->shared);
}

void leader_spread(Comm *comm)
{
    HostsComm *c = hosts_of(comm);
    char what[COMM_MESSAGE_BYTES];
    int left = comm_shared_aborted(c->shared);
    if (left == COMM_ABORTED_ELSEWHERE)
        snprintf(what, sizeof what, "%s", c->shared->abort_text);
    else
        snprintf(what, sizeof what, "tower process %d (host %s) has left the run",
                 comm->config.place.rank - c->process + left, comm->config.place.host);
    leaders_notify(comm, c, what);
}

/* ---- waiting for other nodes */

/* Reads one message, if there is any. */
static Status message_poll(Comm *comm, HostsComm *c)
{
    LeaderMessage message;
    bool heard;
    TRY(c->link->ops->poll(c->link, &message, &heard));
    if (!heard) return OK;
    if (message.from < 0 || message.from >= comm->config.place.nodes)
        return FAIL(ERR_COMM, "a message of node %d, of %d: it is not of this program", (int)message.from,
                    comm->config.place.nodes);
    message.text[sizeof message.text - 1] = 0;
    c->aware[message.from] = true;
    return leader_fail(comm, c, message.text);
}

Status leader_poll(Comm *comm)
{
    return leader_failed(comm, message_poll(comm, hosts_of(comm)));
}

void leader_comes(HostsComm *c)
{
    atomic_store(&c->shared->looked_ns[c->process], clock_ns());
    atomic_store(&c->shared->come_to, c->collective);
}

/* One look between polls, but for the deadline. */
static Status failures_look(Comm *comm, HostsComm *c)
{
    atomic_store(&c->shared->looked_ns[c->process], clock_ns());
    if (comm_shared_aborted(c->shared) < 0) return message_poll(comm, c);
    leader_spread(comm);
    return shared_fail_aborted(&comm->config, c->shared);
}

/* The nodes that this one waits for; if all have come, all others. */
static NodesBehind nodes_late(const Comm *comm, const HostsComm *c, bool *missing)
{
    NodesBehind late;
    uint64_t word = atomic_load(&c->shared->behind);
    memcpy(&late, &word, sizeof late);
    *missing = late.count > 0;
    for (int n = 0; !*missing && n < comm->config.place.nodes; n++) {
        if (n == comm->config.place.node) continue;
        if (late.count < NODES_NAMED) late.node[late.count] = (int16_t)n;
        late.count++;
    }
    return late;
}

/* Finds who has not come, here or by what the last heartbeats say. */
static Status late_find(Comm *comm, HostsComm *c)
{
    bool missing;
    char what[COMM_MESSAGE_BYTES];
    int64_t end = clock_ns() + BEHIND_MS * 1000000ll;
    int behind = shared_behind(c->shared);
    if (behind >= 0) {
        snprintf(what, sizeof what,
                 "tower process %d (host %s) did not arrive at the collective within %.1f s (--comm-timeout)",
                 comm->config.place.rank + behind, comm->config.place.host, (double)comm->config.timeout_ms / 1000);
        return leader_fail(comm, c, what);
    }
    while (clock_ns() < end) {
        TRY(failures_look(comm, c));
        pause_ns(POLL_MAX_NS);
    }
    NodesBehind late = nodes_late(comm, c, &missing);
    Text text = text_start(what, sizeof what);
    for (int i = 0; i < late.count && i < NODES_NAMED; i++) {
        text_add(&text, i ? ", " : "");
        node_text(c, late.node[i], &text);
    }
    if (late.count > NODES_NAMED) text_add(&text, " and %d more", late.count - NODES_NAMED);
    text_add(&text,
             missing ? " did not arrive at the collective within %.1f s (--comm-timeout)"
                     : " came to the collective, but its messages did not arrive within %.1f s (--comm-timeout)",
             (double)comm->config.timeout_ms / 1000);
    return leader_fail(comm, c, what);
}

/* While the process waits for the sum, polls follow at once, and later with pauses that grow slowly. While it computes,
 * every poll takes time from it: all have a pause, which grows fast. */
static void look_pause(const HostsComm *c, int64_t polls)
{
    poll_pause(comm_thread_is_awaited(c->thread) ? polls : polls * POLL_SPINS, POLL_MAX_NS);
}

Status leader_look(Comm *comm, CommWait *wait, int polls)
{
    HostsComm *c = hosts_of(comm);
    look_pause(c, polls);
    if (polls % LOOK_EVERY) return OK;
    TRY(failures_look(comm, c));
    comm_wait_look(wait, &comm->config, comm_shared_progress_of_others(c->shared, c->process));
    return wait->left_ms > 0 ? OK : late_find(comm, c);
}

Status leader_failed(Comm *comm, Status st)
{
    HostsComm *c = hosts_of(comm);
    char what[COMM_MESSAGE_BYTES];
    if (st == OK || c->left) return st;
    snprintf(what, sizeof what, "host %s: %.300s", comm->config.place.host, status_message());
    return leader_fail(comm, c, what);
}

Status leader_wait(Comm *comm, Status begun, int request)
{
    HostsComm *c = hosts_of(comm);
    CommWait wait = {0};
    Status st = begun;
    bool ended = false;
    leader_comes(c);
    for (int polls = 1; st == OK && !ended; polls++) {
        st = c->link->ops->test(c->link, request, &ended);
        if (st == OK && !ended) st = leader_look(comm, &wait, polls);
    }
    return leader_failed(comm, st);
}

Status leaders_meet(Comm *comm)
{
    HostsComm *c = hosts_of(comm);
    int request = 0, me = comm->config.place.node;
    c->numbers[me] = c->collective;
    Status st = c->link->ops->gather(c->link, c->numbers, sizeof *c->numbers, true, &request);
    TRY(leader_wait(comm, st, request));
    for (int n = 0; n < comm->config.place.nodes; n++) {
        if (c->numbers[n] == c->collective) continue;
        char what[COMM_MESSAGE_BYTES];
        snprintf(what, sizeof what, "hosts %s and %s meet in different collectives, %" PRId64 " and %" PRId64,
                 c->node[me].host, c->node[n].host, c->collective, c->numbers[n]);
        return leader_fail(comm, c, what);
    }
    return OK;
}
