/* Progress: shows the supervisor that a process which takes long is still working. Code that works for seconds between
 * two activities of a step (preparing kernels, drawing weights, writing a checkpoint) calls progress_made after each
 * piece, and the supervisor reads the slot. A process has one slot, in memory shared with the supervisor. A call costs
 * one clock reading and a short copy. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

typedef struct ProgressSlot {
    _Atomic int64_t at_ns; /* CLOCK_MONOTONIC of the last call; 0: none yet */
    char what[48];         /* the piece of work; may be half written when read, but is always terminated */
} ProgressSlot;

/* Sets the slot of this process; NULL (the initial state): none. The slot must outlive the calls of progress_made. */
void progress_to(ProgressSlot *slot);
/* Sets a slot for the calling thread alone, in place of the process's: of work that nobody waits for, which must not
 * pass for a sign of life. NULL: the process's again. */
void progress_of_thread(ProgressSlot *slot);
/* `what`: an op, a file, a parameter; copied. Call from the process's main thread, from one for which it waits, or
 * from one with a slot of its own. */
void progress_made(const char *what);
