/* Progress: the sign of life of long work. Whoever works for seconds between two activities of a step (preparing kernels,
 * drawing weights, writing a checkpoint) calls progress_made after each piece; whoever watches the process reads the
 * slot. A process has one slot, in memory that it shares with its watcher. Costs one clock reading and a short copy. */
#ifndef TOWERS_KERNELS_PROGRESS_H
#define TOWERS_KERNELS_PROGRESS_H

#include <stdatomic.h>
#include <stdint.h>

typedef struct ProgressSlot {
    _Atomic int64_t at_ns; /* CLOCK_MONOTONIC of the last sign; 0: none yet */
    char what[48];         /* what was being done then; may be half written when read, always terminated */
} ProgressSlot;

/* Where this process's signs go from now on; NULL: nowhere, as at the start. The slot must outlive the calls. */
void progress_to(ProgressSlot *slot);
/* `what`: an op, a file, a parameter; copied. Call from the process's main thread. */
void progress_made(const char *what);

#endif
