/* The last progress of a process; see progress.h. */
#include "kernels/base/progress.h"
#include "kernels/base/clock.h"
#include "kernels/base/timeouts.h"

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

static ProgressSlot *slot_here(void)
{
    return own ? own : shown;
}

void progress_made(const char *what)
{
    ProgressSlot *to = slot_here();
    if (!to) return;
    size_t count = strnlen(what, sizeof to->what - 1);
    memcpy(to->what, what, count);
    to->what[count] = 0;
    atomic_store_explicit(&to->at_ns, clock_ns(), memory_order_relaxed);
}

/* ---- storage */

void progress_storage_begin(void)
{
    ProgressSlot *to = slot_here();
    if (!to) return;
    if (atomic_load(&to->storage) == 0) atomic_store(&to->storage_ns, clock_ns());
    atomic_fetch_add(&to->storage, 1);
}

/* A long wait was a sign of life until now. */
static void wait_ended(ProgressSlot *to, int64_t waited_ns)
{
    if (waited_ns > STORAGE_LIFE_MS * 1000000ll) progress_made("a wait for storage");
    if (waited_ns > atomic_load(&to->longest_ns)) atomic_store(&to->longest_ns, waited_ns);
}

int64_t progress_storage_end(int64_t result)
{
    ProgressSlot *to = slot_here();
    if (!to) return result;
    if (atomic_load(&to->storage) == 1) wait_ended(to, clock_ns() - atomic_load(&to->storage_ns));
    atomic_fetch_sub(&to->storage, 1);
    return result;
}

int64_t progress_storage(const ProgressSlot *slot)
{
    int64_t since = atomic_load(&slot->storage_ns);
    return atomic_load(&slot->storage) > 0 ? since : 0;
}

int64_t progress_life(const ProgressSlot *slot)
{
    return progress_storage(slot) ? clock_ns() : atomic_load(&slot->at_ns);
}

int64_t progress_waited(void)
{
    ProgressSlot *to = slot_here();
    return to ? atomic_exchange(&to->longest_ns, 0) : 0;
}
