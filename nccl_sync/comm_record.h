/* The flight recorder of collectives: in which one each process of a node waits, or which was the last to end. It lies in the
 * memory that the processes share (comm_shared.h), so that their supervisor can show it when one hangs. */
#pragma once

#include <stdatomic.h>

#include "nccl_sync/comm.h"

typedef struct CommRecord {
    _Atomic int64_t number;              /* from 1; the same on all ranks */
    _Atomic int64_t first, bytes, at_ns; /* at_ns: when it began, or ended */
    _Atomic(const char *) what;          /* static: "an all-reduce" */
    _Atomic bool waits;
} CommRecord;

/* Record the collectives of a communicator, as comm_join does. */
void comm_record_in(Comm *comm, CommShared *shared);
void comm_record_begin(Comm *comm, const char *what, size_t first, size_t bytes);
NODISCARD Status comm_record_end(Comm *comm, Status st); /* passes `st` on */
/* "rank 0 waits in collective 12, a barrier, for 8.0 s; rank 1 ended collective 11, an all-reduce of 4000 bytes from element
 * 0, 8.1 s ago". first_rank: of the node's first process. Returns whether a process has waited for more than waited_ms. */
bool comm_record_text(const CommShared *shared, int first_rank, int64_t waited_ms, char *text, size_t bytes);
