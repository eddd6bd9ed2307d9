/* The last progress of a process; see progress.h. */
#include "kernels/progress.h"
#include "kernels/clock.h"

#include <stddef.h>
#include <string.h>

static ProgressSlot *shown;
static _Thread_local ProgressSlot *own;

void progress_to(ProgressSlot *slot)
{
    shown = slot;
}

void progress_of_thread(ProgressSlot *slot)
{
    own = slot;
}

void progress_made(const char *what)
{
    ProgressSlot *to = own ? own : shown;
    if (!to) return;
    size_t count = strnlen(what, sizeof to->what - 1);
    memcpy(to->what, what, count);
    to->what[count] = 0;
    atomic_store_explicit(&to->at_ns, clock_ns(), memory_order_relaxed);
}
