/* Progress: shows the supervisor that a process which takes long is still working. Code that works for seconds between
 * two activities of a step (preparing kernels, drawing weights, writing a checkpoint) calls progress_made after each
 * piece, and the supervisor reads the slot. A process has one slot, in memory shared with the supervisor. A call costs
 * one clock reading and a short copy.
 *
 * A process that waits for storage shows no progress, and yet it is alive: a file server may be away for any time. The calls
 * that storage may delay stand in STORAGE, so that whoever waits for the process knows it. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

typedef struct ProgressSlot {
    _Atomic int64_t at_ns;      /* CLOCK_MONOTONIC of the last call; 0: none yet */
    _Atomic int storage;        /* calls in progress that wait for storage */
    _Atomic int64_t storage_ns; /* when the first of these began */
    _Atomic int64_t longest_ns; /* of the waits for storage that ended since progress_waited was called */
    char what[48];              /* the piece of work; may be half written when read, but is always terminated */
} ProgressSlot;

/* Sets the slot of this process; NULL (the initial state): none. The slot must outlive the calls of progress_made. */
void progress_to(ProgressSlot *slot);
/* Sets a slot for the calling thread alone, in place of the process's: of work that nobody waits for, which must not
 * pass for a sign of life. NULL: the process's again. */
void progress_of_thread(ProgressSlot *slot);
/* `what`: an op, a file, a parameter; copied. Call from the process's main thread, from one for which it waits, or
 * from one with a slot of its own. */
void progress_made(const char *what);

/* STORAGE(call) is the int64_t result of a call that storage may delay for any time, made by a thread as that of progress_made.
 * errno stays as it is. What is more than a call stands between the two functions; they nest. */
#define STORAGE(call) (progress_storage_begin(), progress_storage_end(call))
void progress_storage_begin(void);
int64_t progress_storage_end(int64_t result);
/* Since when the process of the slot has waited for storage; 0: it does not. */
int64_t progress_storage(const ProgressSlot *slot);
/* The last sign of life: now, while it waits for storage. */
int64_t progress_life(const ProgressSlot *slot);
/* The longest wait for storage of this process that has ended since the last call. */
int64_t progress_waited(void);
