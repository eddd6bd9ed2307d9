/* The last progress of a process; see progress.h. */
#include "kernels/progress.h"
#include "kernels/clock.h"

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
    if (!shown) return;
    size_t count = strnlen(what, sizeof shown->what - 1);
    memcpy(shown->what, what, count);
    shown->what[count] = 0;
    atomic_store_explicit(&shown->at_ns, clock_ns(), memory_order_relaxed);
}
