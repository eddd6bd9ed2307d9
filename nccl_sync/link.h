/* Link: messages between the first processes of all nodes, their leaders. Internal to nccl_sync.
 *
 * Nothing here waits: operations are started, and tested until they have ended; hosts_leader.c holds the deadlines. All
 * calls come from one thread. link_mpi.c carries sums too; link_control.c everything else, for NCCL. */
#pragma once

#include "nccl_sync/comm.h"

/* A failure, reported outside of all collectives to one leader. */
typedef struct LeaderMessage {
    int32_t from;                  /* the sender's node */
    char text[COMM_MESSAGE_BYTES]; /* what has happened */
} LeaderMessage;

typedef struct Link Link;
typedef struct LinkOps {
    /* Begin an operation; *request names it until link_test says that it has ended, and until then the memory is in use.
     * Operations of one kind with one peer end in the order in which both have begun them. */
    Status (*send)(Link *link, int to, const void *from, size_t bytes, int *request);
    Status (*receive)(Link *link, int from, void *to, size_t bytes, int *request);
    /* All leaders together, in the same order. */
    Status (*broadcast)(Link *link, void *buf, size_t bytes, int root, int *request);
    /* all [nodes][bytes]; the own part is there. everywhere: in all nodes; else in node 0, and the others only give theirs. */
    Status (*gather)(Link *link, void *all, size_t bytes, bool everywhere, int *request);
    Status (*test)(Link *link, int request, bool *ended);
    /* A message may be lost if the receiver has left. */
    Status (*notify)(Link *link, int to, const LeaderMessage *message);
    Status (*poll)(Link *link, LeaderMessage *message, bool *heard);
    bool (*flushed)(Link *link); /* no message is still on its way out of this process */
    /* orderly: all leaders do so, and nothing is in progress. Otherwise memory in use stays so until the process ends. */
    void (*close)(Link *link, bool orderly);
} LinkOps;
struct Link {
    const LinkOps *ops; /* borrowed, static */
};

enum { LINK_REQUESTS = 64 }; /* in progress at a time */

/* The communicator of a process in one of several nodes (comm_hosts.c); `link_open` is called in the leaders. */
typedef Status (*LinkOpen)(const CommConfig *config, Link **made);
NODISCARD Status comm_hosts_open(const CommConfig *config, CommShared *shared, LinkOpen link_open, Comm **made);

/* In builds with MPI. Initializes MPI, in a leader. */
NODISCARD Status link_mpi_open(const CommConfig *config, Link **made);
/* Meets the leaders of all nodes at config->master. */
NODISCARD Status link_control_open(const CommConfig *config, Link **made);
void link_mpi_text(char *text, size_t bytes);
_Noreturn void link_mpi_exit(int code); /* as comm_exit */
