/* CommThread: a thread of a communicator that runs its collectives, one after another in the order in which they were
 * given, so that sums proceed while the process computes. It sleeps while there is nothing to do. All processes give
 * the same collectives in the same order, so that one queue is enough for sums, broadcasts, gathers and barriers.
 * Internal to nccl_sync. */
#pragma once

#include "nccl_sync/comm.h"

typedef struct CommThread CommThread;
typedef Status (*CommWork)(Comm *comm, void *of);

/* `comm` is borrowed and must outlive it. ERR_DEVICE if no thread can be started, ERR_MEMORY. */
NODISCARD Status comm_thread_start(Comm *comm, CommThread **made);
/* Queues `work`, which must not use what the process changes meanwhile; `of` is borrowed until *number has been waited
 * for. After a failure no other work is done, and all calls return the error of the first that failed. */
NODISCARD Status comm_thread_give(CommThread *thread, CommWork work, void *of, int64_t *number);
/* Waits until the work of this number, and all before it, has ended. */
NODISCARD Status comm_thread_wait(CommThread *thread, int64_t number);
/* Both. */
NODISCARD Status comm_thread_run(CommThread *thread, CommWork work, void *of);
/* comm_thread_run after a failure too; the error of that failure remains. */
void comm_thread_run_anyway(CommThread *thread, CommWork work);
/* Whether the process waits for work to end; otherwise it computes, and polls should leave the processor to it. */
bool comm_thread_is_awaited(const CommThread *thread);
/* Ends the thread, after all work that was given. NULL is fine. */
void comm_thread_end(CommThread *thread);
