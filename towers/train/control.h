/* Control: the channel between the supervisors of a run on several hosts. TCP; rank 0 listens, all others connect to it.
 *
 * A frame is a head {magic, kind, bytes} and that many bytes of content: control_frames.h. Before towers are forked the
 * programs meet (control_open refuses other jobs, other builds and ranks that come twice, and names those that do not
 * come), receive what rank 0 has decided, and wait for each other. While towers run, each supervisor sends a heartbeat a
 * second; the channel carries the first failure, stop requests and, at the end, the result that all programs exit with.
 * A closed connection is a dead program. Silence longer than the timeout is a lost one. Clocks of hosts are never
 * compared: only durations travel.
 *
 * Calls may come from several threads. */
#ifndef TOWERS_TRAIN_CONTROL_H
#define TOWERS_TRAIN_CONTROL_H

#include <stddef.h>

#include "towers/replica/launch.h"
#include "towers/train/control_frames.h"

typedef struct Control Control;

/* Meet all programs of the job. ERR_COMM names the ranks that have not come within timeout_ms. */
NODISCARD Status control_open(const Launch *launch, int64_t timeout_ms, Control **made);
/* Ends the connections; NULL is fine. A program that ends early with an error first tells why: control_fail. */
void control_close(Control *control);
/* In a forked child: close its copies of the descriptors, so that the death of this program is seen. */
void control_forget(Control *control);

/* A hash of this program's file: programs of one run have the same, unless launch->any_build. */
uint64_t control_build(void);

int control_rank(const Control *control);
int control_ranks(const Control *control);
const char *control_host(const Control *control, int rank); /* its name; "" if unknown */

/* Before the fork; collective. Every rank receives the bytes of rank 0: owned by the caller, followed by a zero byte. On
 * rank 0 *bytes is its own memory and is not replaced. */
NODISCARD Status control_broadcast(Control *control, char **bytes, size_t *count);
/* Before the fork; collective. Every rank receives what each gives: all[ranks][bytes]. `what` is for messages: "has not
 * sent WHAT". */
NODISCARD Status control_gather(Control *control, const void *mine, size_t bytes, const char *what, void *all);
/* Returns when all ranks have called it. ERR_COMM after the timeout, or the failure of another rank. */
NODISCARD Status control_barrier(Control *control, const char *what);

/* ---- while towers run */

/* Start heartbeats, and judge silence. */
void control_watch(Control *control);
/* Receive what has come and send what is due; never waits. alive_ns: when a tower of this program last showed a sign of
 * life, by clock_ns(). Call several times a second. */
void control_turn(Control *control, int64_t alive_ns);
/* When a tower of the other programs last did, by clock_ns() of this host, as far as known; 0: unknown. It was estimated
 * when the heartbeat came, so it moves by the delays of the network even if no tower shows any life. */
int64_t control_others_alive(Control *control);
/* Ask all programs to save and stop. */
void control_stop(Control *control, int signal_number);
int control_stop_asked(Control *control); /* the signal that any rank received, or 0 */
/* Report the failure of this program to all others. Only the first failure counts. */
void control_fail(Control *control, const ControlEnd *end);
/* The first failure that this program knows of, if there is one; after control_end that of the result. */
bool control_failed(Control *control, ControlEnd *failure);
/* Whether rank 0 has left without a result, so that it cannot report anything. */
bool control_orphaned(Control *control);
/* ---- files (host_files.h) */

/* On rank 0: called for each CONTROL_FILE and CONTROL_PIECE of another rank, by any thread that calls the channel, one at
 * a time and without the channel's lock, so that heartbeats go on while it writes. False: rank 0 does not want the file
 * of this head. NULL ends it. Not before the last barrier or gathering, which hold no lock. */
typedef bool ControlTake(void *context, int rank, ControlKind kind, const void *content, size_t bytes);
void control_take(Control *control, ControlTake *take, void *context);
/* To rank 0, from another rank. Waits until the message can be queued: ERR_COMM if rank 0 is gone, or takes nothing: for
 * some seconds if it is silent, too, for minutes if it is alive. */
NODISCARD Status control_send(Control *control, ControlKind kind, const void *content, size_t bytes);
/* Whether rank 0 has answered that it does not want this file. */
bool control_unwanted(Control *control, const ControlFile *file);

/* ---- the end */

/* Give the result of this program, wait for the others', and receive the one that all exit with. Ranks that are dead or
 * silent are not waited for long. Other threads may call control_stop, control_turn and control_leave meanwhile. */
void control_end(Control *control, const ControlEnd *mine, ControlEnd *result);
/* control_end waits no longer, and chooses from what is known. */
void control_leave(Control *control);

#endif
