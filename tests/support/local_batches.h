/* Local batches for jobs that tests make and pass on; a job only borrows the list. */
#pragma once

#include "towers/data/loading/local_batch.h"

/* The list stays for the next 60,000 numbers that are kept. */
static inline int32_t *batches_room(int towers)
{
    enum { ROOM = 1 << 16 };
    static int32_t kept[ROOM];
    static int used;
    if (used + towers > ROOM) used = 0;
    used += towers;
    return kept + used - towers;
}

static inline LocalBatches batches_of(int towers, const int32_t *batch)
{
    int32_t *kept = batches_room(towers);
    memcpy(kept, batch, (size_t)towers * sizeof *kept);
    return (LocalBatches){towers, kept};
}

static inline LocalBatches batches_equal(int towers, int32_t batch)
{
    int32_t *kept = batches_room(towers);
    for (int t = 0; t < towers; t++) kept[t] = batch;
    return (LocalBatches){towers, kept};
}
