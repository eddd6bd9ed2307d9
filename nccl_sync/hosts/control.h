/* A control plane: connections between the nodes of a run on several hosts. TCP; rank 0 listens, all others connect to
 * it. The supervisors have one, on which they control the run; the first tower processes of all hosts have another one if
 * NCCL, without MPI, connects them (nccl_sync/link_control.c).
 *
 * A frame is a head {magic, kind, bytes} and that many bytes of content; frames.def is the table of all of them. First the
 * nodes meet: control_open refuses other jobs, other builds and ranks that come twice, and names those that do not come.
 * A closed connection is a dead node. After control_watch each sends a heartbeat a second, and silence that is longer than
 * the timeout is a lost node: control_serve does both, and nothing else, so that a heartbeat is a sign of life of the one thread that
 * serves. The root cause is the first failure that rank 0 learns of, or finds: it reports it to all, and
 * later ones do not count. Clocks of hosts are never compared: only durations travel.
 *
 * Calls may come from several threads. */
#pragma once

#include "nccl_sync/hosts/frames.h"

typedef struct ControlPlane ControlPlane;

enum { CONTROL_RANKS_MAX = 4096 };

/* Texts are borrowed for the life of the control plane. */
typedef struct ControlConfig {
    int rank, ranks;
    const char *host;        /* this one's name; NULL: that of the machine */
    const char *master;      /* the host of rank 0 */
    int port;                /* on which rank 0 listens */
    Secret secret;           /* which only nodes of this job know */
    const char *secret_from; /* what it was made of */
    const char *channel;     /* of the handshake: "control", "link" */
    const char *part;        /* of a node that holds its connections: "supervisor" */
    bool any_build;          /* nodes of other builds are welcome */
    /* Called when the nodes have not met for seconds, and once a minute from then on: "for rank 1, 2 (...)". NULL: nobody
     * wants to know. */
    void (*waits)(void *context, double seconds, const char *for_whom);
    void *waits_context;
    int64_t timeout_ms;
} ControlConfig;

/* Meet all nodes of the job. ERR_COMM names the ranks that have not come within the timeout. */
NODISCARD Status control_open(const ControlConfig *config, ControlPlane **made);
/* Ends the connections; NULL is fine. A node that ends early with an error first reports why: control_fail. */
void control_close(ControlPlane *control);
/* For a thread that storage may delay beyond control_close: the memory stays until it is released. */
void control_keep(ControlPlane *control);
void control_release(ControlPlane *control);
/* In a forked child: close its copies of the descriptors, so that the death of this node is seen. */
void control_forget(ControlPlane *control);

/* A hash of this program's file: nodes of one run have the same, unless config->any_build. */
uint64_t control_build(void);

int control_rank(const ControlPlane *control);
int control_ranks(const ControlPlane *control);
const char *control_host(const ControlPlane *control, int rank); /* its name; "" if unknown */

/* Before the fork; collective. Every rank receives the bytes of rank 0: owned by the caller, followed by a zero byte. On
 * rank 0 *bytes is its own memory and is not replaced. */
NODISCARD Status control_broadcast(ControlPlane *control, char **bytes, size_t *count);
/* Before the fork; collective. Every rank receives what each gives: all[ranks][bytes]. `what` is for messages: "has not
 * sent WHAT". */
NODISCARD Status control_gather(ControlPlane *control, const void *mine, size_t bytes, const char *what, void *all);
/* Returns when all ranks have called it. ERR_COMM after the timeout, or the failure of another rank. */
NODISCARD Status control_barrier(ControlPlane *control, const char *what);

/* ---- without waiting: the parts of a broadcast or gather, and messages (link_control.c) */

/* Receive what has come and send what is due. The first failure, unless a message waits that may explain it. */
NODISCARD Status control_pump(ControlPlane *control);
/* Queue bytes: rank 0 to any rank, the others to rank 0. */
void control_post(ControlPlane *control, int to, const void *bytes, size_t count);
/* Whether the next bytes that `from` has posted are there; then they are moved to `to`. ERR_COMM for another number of bytes. */
NODISCARD Status control_collect(ControlPlane *control, int from, void *to, size_t bytes, bool *came);
/* A message to any rank. */
void control_notify(ControlPlane *control, int to, const void *message, size_t bytes);
bool control_poll(ControlPlane *control, void *message, size_t bytes); /* the next one to this rank, if there is any */
bool control_flushed(ControlPlane *control);                           /* everything has left this process */

/* ---- while towers run */

/* Start heartbeats, and take silence for a lost node. */
void control_watch(ControlPlane *control);
/* Receive what has come and send what is due; never waits. alive_ns: when a tower of this node last showed a sign of
 * life, by clock_ns(). Call several times a second. */
void control_serve(ControlPlane *control, int64_t alive_ns);
/* When a tower of the other nodes last did, by clock_ns() of this host, as far as known; 0: unknown. It was estimated
 * when the heartbeat came, so it moves by the delays of the network even if no tower shows any life. */
int64_t control_others_alive(ControlPlane *control);
/* The collective to which all towers of this node have come: its heartbeats say so. */
void control_come(ControlPlane *control, int64_t collective);
/* The nodes for which this one's towers wait, by the last heartbeats: those that have come to the earliest of all collectives, where this
 * one has come to a later. */
NodesBehind control_behind(ControlPlane *control);
/* Ask all nodes to save and stop. */
void control_stop(ControlPlane *control, int signal_number);
int control_stop_asked(ControlPlane *control); /* the signal that any rank received, or 0 */
/* Report the failure of this node to all others. Only the first failure counts. */
void control_fail(ControlPlane *control, const ControlEnd *end);
/* The first failure that this node knows of, if there is one; after control_end that of the result. */
bool control_failed(ControlPlane *control, ControlEnd *failure);
/* Whether rank 0 has left without a result, so that it cannot report anything. */
bool control_orphaned(ControlPlane *control);

/* ---- files (towers/supervisor/host_files.h) */

/* On rank 0: whether it takes files; what comes is kept for control_file_next, or dropped. Not before the last barrier or gathering,
 * which hold no lock; before control_watch, which files wait for that come earlier. */
void control_take(ControlPlane *control, bool takes);
/* What is done with a CONTROL_FILE or CONTROL_PIECE of another rank. False: rank 0 does not want the file of this head. */
typedef bool ControlTake(void *context, int rank, ControlKind kind, const void *content, size_t bytes);
/* By a thread of its own, which a disk may delay: `take` the next one, without the lock, so that all else goes on meanwhile. False
 * if none has come within so many seconds, or none is taken. */
bool control_file_next(ControlPlane *control, int seconds, ControlTake *take, void *context);
/* To rank 0, from another rank. Waits until the message can be queued: ERR_COMM if rank 0 is gone, or takes nothing: for
 * some seconds if it is silent, too, for minutes if it is alive. */
NODISCARD Status control_send(ControlPlane *control, ControlKind kind, const void *content, size_t bytes);
/* Whether rank 0 has answered that it does not want this file. */
bool control_unwanted(ControlPlane *control, const ControlFile *file);
/* Whether rank 0 waits for nothing any more: the result has come, or rank 0 has left or is silent. */
bool control_over(ControlPlane *control);

/* ---- the end */

/* Give the result of this node, and never wait: false until those of the others have come, and with them the one that all exit with.
 * Call it beside control_serve. Ranks that are dead or silent are not waited for long. */
NODISCARD bool control_end(ControlPlane *control, const ControlEnd *mine, ControlEnd *result);
/* After a control_end with success, where all nodes go on: as before control_watch. A rank that has left by then has failed. */
void control_again(ControlPlane *control);
/* control_end waits no longer, and chooses from what is known. */
void control_leave(ControlPlane *control);
