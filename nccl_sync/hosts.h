/* The communicator between nodes in three parts: comm_hosts.c opens it and runs the short collectives, hosts_chain.c sums,
 * hosts_leader.c waits for other nodes and notifies them of failures. Internal to nccl_sync.
 *
 * All of it runs on the communication thread (comm_thread.h), which owns the link; the process's own thread leaves
 * contributions, queues collectives and copies results. */
#pragma once

#include "nccl_sync/comm_ops.h"
#include "nccl_sync/comm_shared.h"
#include "nccl_sync/comm_thread.h"
#include "nccl_sync/link.h"

/* What the leaders exchange at the start; the same layout in every build. */
typedef struct NodeInfo {
    int32_t number, nodes, processes, ranks, first_tower, towers, all_towers;
    int64_t max_count;
    char host[64];
} NodeInfo;

/* A sum that has begun in this process. */
typedef struct HostsSum {
    bool begun; /* by the last local tower, and not ended */
    size_t first, count;
    int64_t number;               /* in the queue */
    int64_t started_ns, ended_ns; /* of its chain; set by the communication thread */
} HostsSum;

enum { HOSTS_SUMS = 128 };

typedef struct HostsComm {
    CommShared *shared; /* borrowed */
    int process;        /* number in the node */
    CommThread *thread; /* owned */
    HostsSum sum[HOSTS_SUMS];
    int64_t given; /* sums */
    CommTimes times;

    /* of the communication thread */
    Link *link;         /* owned; NULL but in the leader */
    NodeInfo *node;     /* owned: [nodes], in the leader */
    int64_t *numbers;   /* owned: [nodes], in the leader: of the collective that each has come to */
    bool *aware;        /* owned: [nodes], in the leader: those that have reported a failure */
    int64_t collective; /* number of the current one; the same in all processes of the run */
    int64_t sums;       /* so far; likewise */
    int64_t chunks;     /* of all sums so far; likewise */
    bool left;          /* the leader has notified the others */
} HostsComm;

static inline HostsComm *hosts_of(Comm *comm)
{
    return comm->impl;
}

/* The sum of [sum->first, sum->first + sum->count) into the result area, in all processes of all nodes. */
NODISCARD Status hosts_sum(Comm *comm, HostsSum *sum);

/* ---- the leader, the first process of a node */

/* Waits for an operation of the link that was begun with `begun`. */
NODISCARD Status leader_wait(Comm *comm, Status begun, int request);
/* All of this node have come to the current collective: its leader begins to wait for other nodes. */
void leader_comes(HostsComm *c);
/* Between two polls of a wait: pauses, and looks for failures and the deadline. polls: 1, 2, ... since
 * something has moved. */
NODISCARD Status leader_look(Comm *comm, CommWait *wait, int polls);
/* Reads one message, if there is any. */
NODISCARD Status leader_poll(Comm *comm);
/* All leaders have come to this collective. */
NODISCARD Status leaders_meet(Comm *comm);
/* An error of the link itself, such as a connection that broke, ends the collectives of all nodes; passes `st` on. */
NODISCARD Status leader_failed(Comm *comm, Status st);
/* Notifies the others that a process of this node has left, or what the supervisor knows. */
void leader_spread(Comm *comm);
