/* Runs a function for every item of a range, by several threads that take the items in order. */
#pragma once

#include "kernels/base/status.h"

typedef struct Parallel {
    int64_t count;
    int threads; /* 0: as many as there are cores, up to 16 */
    Status (*work)(void *context, int thread, int64_t item);
    void *context;
    void (*progress)(void *context, int64_t done, int64_t all); /* called in the calling thread; may be NULL */
    void *progress_context;
} Parallel;

enum { PARALLEL_USUAL = 16 };

/* After an error no further items are taken; the result is the error of the lowest item that failed, which does not
 * depend on the number of threads. ERR_DEVICE if no thread can be started. */
NODISCARD Status parallel_run(const Parallel *parallel);
