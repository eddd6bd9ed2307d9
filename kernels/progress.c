/* The sign of life of long work; see progress.h. */
#include "kernels/progress.h"

#include <stddef.h>
#include <string.h>
#include <time.h>

static ProgressSlot *shown;

void progress_to(ProgressSlot *slot)
{
    shown = slot;
}

void progress_made(const char *what)
{
    struct timespec now;
    if (!shown) return;
    size_t count = strnlen(what, sizeof shown->what - 1);
    memcpy(shown->what, what, count);
    shown->what[count] = 0;
    clock_gettime(CLOCK_MONOTONIC, &now);
    atomic_store_explicit(&shown->at_ns, (int64_t)now.tv_sec * 1000000000 + now.tv_nsec, memory_order_relaxed);
}
